//! Rules of other writers, such as Calico, Cilium and kube-proxy, which use bits of the mark.

use crate::scene::{PROXY, Scene, tool};
use crate::{lacking, meter, state};
use weir_cni::compile::Engine;
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, CtKey, Data, DataType, Element, Extra, Hook, Match, MetaKey, Operand,
    Rule, Selector, Set, SetData, SocketKey, Source, Statement, Table, TableFamily, Verdict,
};
use weir_netfilter::xtables::{Script, XtEngine, XtFamily};
use weir_node_ambient::{Config, apply, compare, remove};

/// The configuration's bits are 0xb70 ([`weir_node_ambient::Marks`]). Each rule has the bits that it shares with them.
const LEGACY: [(&str, u32); 32] = [
    // Calico
    ("-j MARK --set-xmark 0x10000/0x10000", 0),
    ("-m mark --mark 0x40000/0x40000 -j ACCEPT", 0),
    ("-j MARK --set-xmark 0x0/0xf0000", 0),
    // Calico with marks of its configuration (`iptablesMarkMask`).
    ("-j MARK --set-xmark 0x100/0x100", 0x100),
    ("-m mark --mark 0x800/0xf00 -j ACCEPT", 0xb00),
    ("-j MARK --set-xmark 0x0/0xff00", 0xb00),
    // Cilium
    ("-m mark ! --mark 0xe00/0xf00 -j ACCEPT", 0xb00),
    ("-m mark --mark 0xd00/0xf00 -j ACCEPT", 0xb00),
    ("-j MARK --set-xmark 0xc00/0xf00", 0xb00),
    (
        "-p tcp -j TPROXY --on-port 4000 --on-ip 0.0.0.0 --tproxy-mark 0x200/0xffffffff",
        0xb70,
    ),
    // kube-proxy
    ("-j MARK --set-xmark 0x4000/0x4000", 0),
    ("-j MARK --set-xmark 0x8000/0x0", 0),
    ("-m mark ! --mark 0x4000/0x4000 -j RETURN", 0),
    // kube-proxy, with `iptables-masquerade-bit` 5
    ("-m mark --mark 0x20/0x20 -j RETURN", 0x20),
    ("-j MARK --set-xmark 0x20/0x0", 0x20),
    // All bits beside and between those of the configuration.
    ("-j MARK --set-xmark 0x0/0xfffff48f", 0),
    ("-m mark --mark 0x0/0xfffff48f -j ACCEPT", 0),
    ("-m mark --mark 0x1 -j ACCEPT", 0xb70),
    // Connection marks, of which weir uses the bits 0xa30. The first is of the VPC CNI plugin of AWS.
    ("-j CONNMARK --set-xmark 0x80/0x80", 0),
    ("-j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80", 0),
    ("-m connmark --mark 0x80/0x80 -j ACCEPT", 0),
    ("-j CONNMARK --set-xmark 0x10/0x10", 0x10),
    ("-j CONNMARK --set-xmark 0x0/0xff00", 0xa00),
    ("-m connmark ! --mark 0x0/0x220 -j ACCEPT", 0x220),
    ("-m connmark --mark 0x1 -j ACCEPT", 0xa30),
    // Weir uses these two bits only in packet marks.
    ("-j CONNMARK --set-xmark 0x140/0x140", 0),
    ("-m connmark --mark 0x0/0x140 -j ACCEPT", 0),
    (
        "-j CONNMARK --save-mark --nfmask 0xf0000 --ctmask 0xf0000",
        0,
    ),
    (
        "-j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff",
        0xa30,
    ),
    (
        "-j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff",
        0xb70,
    ),
    // Socket marks
    ("-p tcp -m socket --transparent -j ACCEPT", 0),
    ("-p tcp -m socket --restore-skmark -j ACCEPT", 0xb70),
];

/// A verdict map with marks as keys.
const MAP: &str = "by-mark";

fn compared(value: u32, mask: Option<u32>, op: CmpOp) -> Vec<Statement> {
    vec![Statement::Match(Match {
        selector: Selector::Meta(MetaKey::Mark),
        mask: mask.map(Data::ne32),
        op,
        operand: Operand::Value(Data::ne32(value)),
    })]
}

fn changed(kept: u32, turned: u32) -> Vec<Statement> {
    vec![Statement::MetaSet(
        MetaKey::Mark,
        Source::Bitwise {
            selector: Selector::Meta(MetaKey::Mark),
            mask: Data::ne32(kept),
            xor: Data::ne32(turned),
        },
    )]
}

fn read(selector: Selector, mask: Option<u32>) -> Vec<Statement> {
    vec![Statement::Match(Match {
        selector,
        mask: mask.map(Data::ne32),
        op: CmpOp::Eq,
        operand: Operand::Value(Data::ne32(0)),
    })]
}

fn connection(source: Source) -> Vec<Statement> {
    vec![Statement::CtSet(CtKey::Mark, None, source)]
}

/// Like [`LEGACY`], for nf_tables.
fn nft() -> Vec<(Vec<Statement>, u32)> {
    let of_packet = || Selector::Meta(MetaKey::Mark);
    let of_ct = || Selector::Ct(CtKey::Mark, None);
    let of_socket = || Selector::Socket(SocketKey::Mark, None);
    let bitwise = |selector, mask, xor| Source::Bitwise {
        selector,
        mask: Data::ne32(mask),
        xor: Data::ne32(xor),
    };
    let of_connection = Source::Selector(of_ct());
    let set = |source| vec![Statement::MetaSet(MetaKey::Mark, source)];
    vec![
        (compared(0x10000, Some(0x10000), CmpOp::Eq), 0),
        (compared(0x4000, Some(0x4000), CmpOp::Neq), 0),
        (changed(!0x10000, 0x10000), 0),
        (changed(!0xf0000, 0), 0),
        (changed(u32::MAX, 0x4000), 0),
        (changed(!0xffff_f48f, 0xffff_f48f), 0),
        (compared(0x200, Some(0xf00), CmpOp::Eq), 0xb00),
        (compared(0xa00, Some(0xe00), CmpOp::Neq), 0xa00),
        (compared(0, Some(0x40), CmpOp::Eq), 0x40),
        (compared(0x1, None, CmpOp::Eq), 0xb70),
        (changed(!0xf00, 0xc00), 0xb00),
        (changed(u32::MAX, 0x20), 0x20),
        (set(Source::Value(Data::ne32(0x1))), 0xb70),
        (set(of_connection), 0xb70),
        (read(of_ct(), Some(0x140)), 0),
        (read(of_ct(), Some(0x210)), 0x210),
        (read(of_ct(), None), 0xa30),
        (read(of_socket(), Some(0x80)), 0),
        (read(of_socket(), Some(0x140)), 0x140),
        (read(of_socket(), None), 0xb70),
        (connection(bitwise(of_ct(), !0x80, 0x80)), 0),
        (connection(bitwise(of_ct(), !0x30, 0x10)), 0x30),
        (connection(bitwise(of_packet(), 0x1, 0)), 0xa30),
        (connection(Source::Selector(of_packet())), 0xa30),
        (connection(Source::Value(Data::ne32(1))), 0xa30),
        (vec![Statement::Vmap(of_packet(), MAP.to_owned())], 0xb70),
        (vec![Statement::Vmap(of_ct(), MAP.to_owned())], 0xa30),
    ]
}

fn config(scene: &Scene) -> Config {
    scene.config(&[(PROXY, 1)], r#", "carrier": "vxlan""#)
}

/// Checks the reported mark bits, and that a conflicting change is refused with nothing written.
fn check(scene: &Scene, engine: Engine, shared: u32, what: &str) {
    let config = config(scene);
    let found = match compare(&config, &scene.node, Some(engine)) {
        Err(e) if e.is_unsupported() => {
            println!("skipped: {}: {e}", lacking(engine));
            return;
        }
        found => found.unwrap().collisions,
    };
    let effects: Vec<&str> = found.iter().map(|c| c.effect.as_str()).collect();
    let before = state(scene);
    let done = apply(&config, &scene.node, Some(engine), false);
    if shared == 0 {
        assert_eq!(effects, Vec::<&str>::new(), "{what}");
        match done {
            Err(e) if e.is_unsupported() => println!("skipped: {}: {e}", lacking(engine)),
            done => drop(done.unwrap()),
        }
        drop(remove(&scene.node, Some(&config)).unwrap());
    } else {
        let expected = format!("bits {shared:#x} would have two meanings");
        let [effect] = effects[..] else {
            panic!("{what}: {effects:?}")
        };
        assert!(effect.starts_with(&expected), "{what}: {effect}");
        let error = done.unwrap_err().to_string();
        assert!(error.contains(&expected), "{what}: {error}");
    }
    assert_eq!(state(scene), before, "{what}");
}

#[test]
fn marks_of_legacy_rules_of_others_collide_only_where_bits_overlap() {
    let Some(scene) = Scene::build() else { return };
    for (family, any) in [(XtFamily::Ip, "0.0.0.0"), (XtFamily::Ip6, "::")] {
        for (rule, shared) in LEGACY {
            let rule = rule.replace("0.0.0.0", any);
            let restore = |rules: &str| {
                let text = format!(
                    "*mangle\n:PREROUTING ACCEPT [0:0]\n:cali-PREROUTING - [0:0]\n{rules}COMMIT\n"
                );
                let script = Script::parse(family, &text).unwrap();
                let restore = || XtEngine::open()?.restore(&script, false).map(drop);
                scene.node.run(restore).unwrap()
            };
            match restore(&format!("-A cali-PREROUTING {rule}\n")) {
                Err(e) if e.is_unsupported() => {
                    println!("skipped: {}: {e}", lacking(Engine::Xtables));
                    return;
                }
                restored => restored.unwrap(),
            }
            check(
                &scene,
                Engine::Xtables,
                shared,
                &format!("{family:?} {rule}"),
            );
            restore("").unwrap();
        }
    }
}

#[test]
fn marks_of_nft_rules_of_others_collide_only_where_bits_overlap() {
    let Some(scene) = Scene::build() else { return };
    for family in [TableFamily::Ip, TableFamily::Ip6, TableFamily::Inet] {
        for (statements, shared) in nft() {
            let what = format!("{family:?} {statements:?}");
            let mut rule = Rule::builder();
            for statement in statements {
                rule = rule.push(statement);
            }
            let value = Element::value(Data::ne32(1));
            let map = Set {
                data: SetData::Verdict,
                elements: vec![value.with(Extra {
                    verdict: Some(Verdict::Return),
                    ..Extra::default()
                })],
                ..Set::new(MAP, DataType::MARK, 4)
            };
            let table = Table {
                sets: vec![map],
                chains: vec![Chain {
                    rules: vec![rule.counter().build()],
                    ..Chain::base("cali", ChainType::Filter, Hook::Prerouting, -10)
                }],
                ..Table::new(family, "calico")
            };
            match meter::add(&scene, table) {
                Err(e) if e.is_unsupported() => {
                    println!("skipped: {}: {e}", lacking(Engine::Nft));
                    return;
                }
                added => added.unwrap(),
            }
            check(&scene, Engine::Nft, shared, &what);
            meter::remove(&scene, family, "calico");
        }
    }
}

/// Rules of `iptables-nft`, most of which are xtables matches and targets in rules of nf_tables.
#[test]
fn marks_of_rules_of_iptables_nft_collide_only_where_bits_overlap() {
    let Some(scene) = Scene::build() else { return };
    let iptables = |program: &str, args: &[&str]| {
        let args = [&["-w", "-t", "mangle"], args].concat();
        let run = scene.node.run(|| tool(program, &args)).unwrap()?;
        assert!(run.status.success(), "{args:?}: {run:?}");
        Some(())
    };
    for (program, any) in [("iptables-nft", "0.0.0.0"), ("ip6tables-nft", "::")] {
        for (rule, shared) in LEGACY {
            let rule = rule.replace("0.0.0.0", any);
            let words: Vec<&str> = rule.split(' ').collect();
            let added = iptables(program, &[&["-A", "PREROUTING"], &words[..]].concat());
            if added.is_none() {
                return;
            }
            check(&scene, Engine::Nft, shared, &format!("{program} {rule}"));
            iptables(program, &["-F"]);
        }
    }
}

/// Expressions that the model has no statement for: a verdict map after a mask, and one with a mark and an address as its key.
#[test]
fn marks_in_maps_collide_only_where_bits_overlap() {
    let Some(scene) = Scene::build() else { return };
    for (rule, shared) in [
        ("meta mark & 0x80 vmap { 0x80 : accept }", 0),
        ("meta mark & 0x140 vmap { 0x40 : accept }", 0x140),
        ("ct mark & 0x140 vmap { 0x40 : accept }", 0),
        ("ct mark & 0x10 vmap { 0x10 : accept }", 0x10),
        ("meta mark . meta l4proto vmap { 1 . tcp : accept }", 0xb70),
        ("meta priority set meta mark map { 1 : 1 }", 0xb70),
        ("meta mark set socket mark", 0xb70),
    ] {
        let text = format!(
            "table inet calico {{ chain c {{ type filter hook prerouting priority -10; {rule}; }}; }}"
        );
        let run = scene.node.run(|| tool("nft", &[&text])).unwrap();
        let Some(run) = run else { return };
        assert!(run.status.success(), "{rule}: {run:?}");
        check(&scene, Engine::Nft, shared, rule);
        meter::remove(&scene, TableFamily::Inet, "calico");
    }
}
