//! Names of any bytes, which the kernel accepts: such an object hides nothing, and is deleted like any other.

use std::process::Command;
use weir_netfilter::nft::{
    Chain, ChainType, Hook, NftEngine, NftOp, Ruleset, Table, TableFamily, TableId, Transaction,
};
use weir_netlink::Netns;
use weir_netlink::attr::text_of;

fn pod() -> Option<Netns> {
    weir_testing::namespace()
}

fn commit(ops: Vec<NftOp>) {
    let mut engine = NftEngine::open().unwrap();
    let generation = engine.generation().unwrap();
    let transaction = Transaction::guarded(generation, ops);
    engine.commit(&transaction).unwrap();
}

#[test]
fn a_foreign_table_of_any_name_hides_nothing() {
    let Some(ns) = pod() else { return };
    let name = text_of(b"\xff\xfe");
    ns.run(|| {
        let foreign: TableId = (TableFamily::Inet, name.clone());
        let mut table = Table::new(TableFamily::Inet, &name);
        table.chains.push(Chain::regular(&text_of(b"\xc3(")));
        let chains = table.chains.clone().into_iter();
        let mut ops = vec![NftOp::AddTable(table)];
        ops.extend(chains.map(|c| NftOp::AddChain(foreign.clone(), c)));
        commit(ops);

        let owned = (TableFamily::Inet, "ours".to_owned());
        let mut ours = Table::new(TableFamily::Inet, "ours");
        let base = Chain::base("c", ChainType::Filter, Hook::Output, 0);
        ours.chains.push(base);
        let desired = Ruleset { tables: vec![ours] };
        let mut engine = NftEngine::open().unwrap();
        engine
            .apply(&desired, std::slice::from_ref(&owned))
            .unwrap();
        assert_eq!(engine.tables().unwrap(), [foreign.clone(), owned.clone()]);
        assert_eq!(engine.read().unwrap().ruleset.tables.len(), 2);

        // In an owned table, another writer's chain with such a name is drift and is deleted.
        let theirs = Chain::regular(&text_of(b"\xff"));
        commit(vec![NftOp::AddChain(owned.clone(), theirs)]);
        let gone = engine
            .apply(&desired, std::slice::from_ref(&owned))
            .unwrap()
            .ops;
        assert_eq!(gone, [NftOp::DeleteChain(owned.clone(), text_of(b"\xff"))]);
        assert!(engine.drift(&desired, &[owned]).unwrap().ops.is_empty());
        let none = Ruleset::default();
        engine.apply(&none, &[foreign]).unwrap();
        assert_eq!(engine.tables().unwrap().len(), 1);
    })
    .unwrap();
}

/// Names and comments of sets keep their bytes, in text and as values.
#[test]
fn sets_of_any_name_and_comment_are_kept() {
    use crate::common::ipset::{engine, our_load, sets};
    let (Some(ns), Some(other)) = (pod(), pod()) else {
        return;
    };
    let name: Vec<u8> = [b"s".as_slice(), &[0xe4; 30]].concat();
    let add = b" 10.0.0.1 comment \"\xe4 \xc3\xa4\"\n";
    let lines = [b"create ", &name[..], b" hash:ip comment\nadd ", &name, add];
    our_load(&ns, &text_of(&lines.concat())).unwrap();
    let saved = |ns: &Netns| {
        let mut out = Vec::new();
        engine(ns, |e| e.save(None, &mut out)).unwrap();
        out
    };
    let text = saved(&ns);
    let line = [b"add ", &name[..], add].concat();
    assert!(text.ends_with(&line), "{}", text_of(&text));
    let (found, owned) = (sets(&ns), [text_of(&name)]);
    assert_eq!(found[0].header.name, owned[0]);
    engine(&other, |e| {
        assert!(!e.apply(&found, &owned).unwrap().ops.is_empty());
        assert_eq!(e.apply(&found, &owned).unwrap().ops, vec![]);
    });
    assert!(saved(&other).ends_with(&line));
}

#[test]
fn legacy_chains_of_any_name_hide_nothing() {
    use std::os::unix::ffi::OsStrExt as _;
    use weir_netfilter::xtables;
    let Some(ns) = pod() else { return };
    let made = ns.run(|| {
        let mut tool = Command::new("iptables-legacy");
        tool.args(["-w", "60", "-t", "nat", "-N"]);
        tool.arg(std::ffi::OsStr::from_bytes(b"\xff\xfe"));
        tool.output()
    });
    let made = match made.unwrap() {
        Ok(made) => made,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return eprintln!("skipped: iptables-legacy is not installed");
        }
        Err(e) => panic!("{e}"),
    };
    assert!(made.status.success(), "{made:?}");
    let found = ns.run(|| xtables::XtEngine::open().unwrap().ruleset().unwrap());
    let found = found.unwrap();
    let nat = found.table(xtables::XtFamily::Ip, "nat").unwrap();
    assert!(nat.chain(&text_of(b"\xff\xfe")).is_some());
}

/// Text of any encoding in rules is stored and listed with its bytes.
#[test]
fn legacy_rules_of_any_bytes_are_kept() {
    use std::io::Write as _;
    use std::process::Stdio;
    use weir_netfilter::xtables::{Script, XtEngine, XtFamily};
    use weir_netlink::attr::bytes_of;
    let namespace = crate::xtables::namespace;
    let (Some(theirs), Some(ours), Some(again)) = (namespace(), namespace(), namespace()) else {
        return;
    };
    let run = |ns: &Netns, command: &[&str], input: &[u8]| {
        let mut tool = weir_testing::tool::inside(ns);
        let mut tool = tool
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        tool.stdin.take().unwrap().write_all(input).unwrap();
        let done = tool.wait_with_output().unwrap();
        assert!(done.status.success(), "{command:?}");
        let lines = text_of(&done.stdout);
        let lines = lines.lines().filter(|l| l.starts_with("-A"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let saved = |ns: &Netns| run(ns, &["iptables-legacy-save"], b"");
    let rules = [
        b"-A FORWARD -i caf\xe9 -o \xe9+ -j ACCEPT".as_slice(),
        b"-A FORWARD -i \xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9\xe9",
        b"-A FORWARD -m physdev --physdev-in \xe9+",
        b"-A FORWARD -m string --string \"caf\xe9\" --algo bm",
        b"-A FORWARD -m string --hex-string \"|00|\xe9\" --algo bm",
        b"-A FORWARD -m comment --comment \"caf\xe9 \xc3\xa9\"",
    ];
    let text = [
        b"*filter".as_slice(),
        rules.join(b"\n".as_slice()).as_slice(),
        b"COMMIT\n",
    ]
    .join(b"\n".as_slice());
    let restore = |ns: &Netns, text: &str| {
        let script = Script::parse(XtFamily::Ip, text).unwrap();
        ns.run(|| XtEngine::open().unwrap().restore(&script, false))
            .unwrap()
            .unwrap();
    };
    let listed = |ns: &Netns| {
        ns.run(|| XtEngine::open().unwrap().ruleset().unwrap())
            .unwrap()
    };
    run(&theirs, &["iptables-legacy-restore", "-w", "60"], &text);
    restore(&ours, &text_of(&text));
    assert_eq!(saved(&ours), saved(&theirs));
    let listing = listed(&theirs).to_string();
    assert!(!listing.contains("[header") && bytes_of(&listing).windows(4).any(|w| w == b"caf\xe9"));
    assert_eq!(listed(&ours).to_string(), listing);
    restore(&again, &listing);
    assert_eq!(saved(&again), saved(&theirs));
}

/// A race, or a deleted device, is not reported as a missing feature of the kernel.
#[test]
fn a_chain_without_its_table_is_no_lack_of_the_kernel() {
    let Some(ns) = pod() else { return };
    let error = ns.run(|| {
        let mut engine = NftEngine::open().unwrap();
        let chain = Chain::base("c", ChainType::Nat, Hook::Output, -100);
        let ops = vec![NftOp::AddChain(
            (TableFamily::Inet, "gone".to_owned()),
            chain,
        )];
        let generation = engine.generation().unwrap();
        let transaction = Transaction::guarded(generation, ops);
        engine.commit(&transaction).unwrap_err()
    });
    let error = error.unwrap();
    assert!(error.is_not_found(), "{error}");
}

#[test]
fn a_comparison_with_tables_that_are_not_owned_is_refused() {
    let Some(ns) = pod() else { return };
    let desired = Ruleset {
        tables: vec![Table::new(TableFamily::Inet, "x")],
    };
    let error = ns.run(|| NftEngine::open().unwrap().drift(&desired, &[]).unwrap_err());
    let text = error.unwrap().to_string();
    assert!(text.contains("table inet x"), "{text}");
}

/// A comment in any encoding keeps its bytes when it is written again.
#[test]
fn a_comment_of_any_bytes_is_kept() {
    let Some(ns) = pod() else { return };
    let comment = text_of(b"\xe4 and \xc3\xa4");
    let mut chain = Chain::regular("c");
    chain.comment = Some(comment.clone());
    chain.rules.push(weir_netfilter::nft::Rule {
        comment: Some(comment.clone()),
        ..weir_netfilter::nft::Rule::builder().counter().build()
    });
    let mut table = Table::new(TableFamily::Inet, "t");
    table.chains.push(chain);
    let desired = Ruleset {
        tables: vec![table],
    };
    crate::common::apply(&ns, &desired).unwrap();
    let found = crate::common::read(&ns).ruleset;
    assert_eq!(found.tables[0].chains[0].comment, Some(comment.clone()));
    assert_eq!(found.tables[0].chains[0].rules[0].comment, Some(comment));
    let again = crate::common::apply(&pod().unwrap(), &found).unwrap();
    assert!(!again.ops.is_empty());
    assert_eq!(crate::common::apply(&ns, &found).unwrap().ops, vec![]);
}
