//! What a process with CAP_NET_ADMIN in the namespace of a pod can do to the owned tables, and the cost of the engine's reaction.

use crate::common::read;
use crate::faults::scene::{held, new, old, owned, prepared, redirect, rules, table};
use crate::{common, fits_or_skip};
use std::time::Duration;
use weir_netfilter::nft::wire::{ChainAttrs, RuleAttrs, SetAttrs, TableAttrs};
use weir_netfilter::nft::{
    BaseChain, Chain, ChainType, CmpOp, DataType, Hook, NftEngine, NftOp, Policy, Rule, Ruleset,
    Set, Table, TableFamily, raw,
};
use weir_netlink::Netns;
use weir_netlink::message::{NLM_F_APPEND, NLM_F_CREATE};
use weir_netlink::nfnetlink::{Batch, NFNL_SUBSYS_NFTABLES, Socket};
use weir_netlink::route::{Link, LinkKind, Routing};
use weir_testing::namespace_or_skip;

/// The owned table with many foreign rules.
fn crowded(rules: u16) -> Ruleset {
    let mut all = old();
    let chain = &mut all.tables[0].chains[0];
    let plain = |n| {
        Rule::builder()
            .oifname(CmpOp::Eq, &format!("x{n}"))
            .counter()
            .build()
    };
    chain.rules.extend((0..rules).map(plain));
    all
}

#[test]
fn rules_without_number_go_with_their_table() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    let crowded = crowded(5_000);
    fits_or_skip!(&ns, &crowded);
    common::apply(&ns, &crowded).unwrap();
    let applied = ns.run(|| NftEngine::open().unwrap().apply(&new(), &owned()).unwrap());
    let ops = applied.unwrap().ops;
    assert!(
        matches!(ops.first(), Some(NftOp::ReplaceTable(..))),
        "{:?}",
        ops.first()
    );
    assert!(ops.len() < 20, "{}", ops.len());
    assert_eq!(held(&ns), rules(&new()));
    // A few rules are deleted one by one, so that the others keep their counters.
    let few = common::apply(&ns, &old()).unwrap().ops;
    assert!(
        !few.iter().any(|op| matches!(op, NftOp::ReplaceTable(..))),
        "{few:?}"
    );
}

#[test]
fn a_table_that_is_too_large_is_named_and_not_read() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    let crowded = crowded(2_000);
    fits_or_skip!(&ns, &crowded);
    common::apply(&ns, &crowded).unwrap();
    ns.run(|| {
        let mut engine = NftEngine::open().unwrap().read_limit(200_000);
        let error = engine.read_tables(&owned()).unwrap_err().to_string();
        for word in ["200000 bytes", "inet weir", "delete"] {
            assert!(error.contains(word), "{error}");
        }
        // The same engine still reads what is small enough.
        assert!(!engine.tables().unwrap().is_empty());
        // The desired table is small: the engine replaces the large one without reading it.
        let drift = engine.drift(&old(), &owned()).unwrap().ops;
        let first = drift.first().unwrap().to_string();
        assert!(first.contains("far more than is desired"), "{first}");
        assert_eq!(engine.apply(&old(), &owned()).unwrap().ops, drift);
        assert_eq!(engine.drift(&old(), &owned()).unwrap().ops, []);
        // The engine does not repeat the write of a table that it cannot read back.
        let error = NftEngine::open().unwrap().read_limit(60_000);
        let error = error
            .contention(Duration::from_secs(1))
            .apply(&crowded, &owned());
        assert!(error.unwrap_err().to_string().contains("60000 bytes"));
    })
    .unwrap();
}

/// A table that is to be removed need not be read.
#[test]
fn a_table_of_any_size_is_removed() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    let crowded = crowded(2_000);
    fits_or_skip!(&ns, &crowded);
    common::apply(&ns, &crowded).unwrap();
    let ops = ns.run(|| {
        let mut engine = NftEngine::open().unwrap().read_limit(20_000);
        let removed = engine.apply(&Ruleset::default(), &owned()).unwrap();
        assert!(!engine.tables().unwrap().contains(&owned()[0]));
        removed.ops
    });
    assert!(matches!(ops.unwrap()[..], [NftOp::DeleteTable(_)]));
}

#[test]
fn a_table_that_is_replaced_says_why() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    common::apply(&ns, &old()).unwrap();
    let why = |change: &dyn Fn(&mut Table)| {
        let mut other = old();
        other.tables.iter_mut().for_each(change);
        common::apply(&ns, &other).unwrap();
        let drift = ns.run(|| NftEngine::open().unwrap().drift(&old(), &owned()).unwrap());
        drift.unwrap().ops.first().unwrap().to_string()
    };
    let dormant = why(&|t| t.flags = raw::NFT_TABLE_F_DORMANT);
    assert!(
        dormant.contains("# its flags are dormant, not none"),
        "{dormant}"
    );
    let comment = why(&|t| t.comment = Some("x".into()));
    assert!(comment.contains("# its comment is \"x\""), "{comment}");
    let earlier = why(&|t| {
        let bases = t.chains.iter_mut().filter_map(|c| c.base.as_mut());
        bases.for_each(|b| b.priority -= 7);
    });
    assert!(earlier.contains("chain out is"), "{earlier}");
    assert!(earlier.contains(", not \"type"), "{earlier}");
}

/// Commits one change of another writer to the owned table.
fn changed(ns: &Netns, push: impl FnOnce(&mut Batch) + Send) {
    ns.run(|| {
        let mut batch = Batch::new(NFNL_SUBSYS_NFTABLES, None);
        push(&mut batch);
        Socket::open().unwrap().commit(batch).unwrap().unwrap();
    })
    .unwrap();
}

/// A userdata entry that is no comment.
const NOTE: [u8; 3] = [9, 1, 7];

#[test]
fn what_stands_around_a_rule_is_not_ignored() {
    let _probe = namespace_or_skip!();
    type Meddle = fn(&mut Batch);
    let meddling: [(&str, Meddle); 3] = [
        ("a rule's userdata", |b| {
            let attrs = RuleAttrs {
                table: Some("weir".into()),
                chain: Some("noted".into()),
                userdata: Some(NOTE.to_vec()),
                ..RuleAttrs::default()
            };
            b.push(raw::NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, 1, &attrs);
        }),
        ("a chain's userdata", |b| {
            let attrs = ChainAttrs {
                table: Some("weir".into()),
                name: Some("plain".into()),
                userdata: Some(NOTE.to_vec()),
                ..ChainAttrs::default()
            };
            b.push(raw::NFT_MSG_NEWCHAIN, NLM_F_CREATE, 1, &attrs);
        }),
        ("a set's policy", |b| {
            let attrs = SetAttrs {
                table: Some("weir".into()),
                name: Some("s".into()),
                flags: Some(0),
                key_type: Some(7),
                key_len: Some(4),
                policy: Some(1),
                id: Some(1),
                ..SetAttrs::default()
            };
            b.push(raw::NFT_MSG_NEWSET, NLM_F_CREATE, 1, &attrs);
        }),
    ];
    let mut desired = old();
    desired.tables[0].chains.push(Chain::regular("noted"));
    desired.tables[0].chains[1].rules.push(Rule::default());
    desired.tables[0].chains.push(Chain::regular("plain"));
    let set = Set::new("s", DataType::IPV4_ADDR, 4);
    desired.tables[0].sets.push(set);
    for (at, (what, meddle)) in meddling.into_iter().enumerate() {
        let ns = prepared();
        // The desired ruleset without the object that the other writer creates.
        let mut without = desired.clone();
        match at {
            0 => without.tables[0].chains[1].rules.clear(),
            1 => drop(without.tables[0].chains.pop()),
            _ => without.tables[0].sets.clear(),
        }
        common::apply(&ns, &without).unwrap();
        changed(&ns, meddle);
        let drift = || {
            ns.run(|| {
                NftEngine::open()
                    .unwrap()
                    .drift(&desired, &owned())
                    .unwrap()
                    .ops
            })
            .unwrap()
        };
        assert!(!drift().is_empty(), "{what} is ignored");
        common::apply(&ns, &desired).unwrap();
        assert!(drift().is_empty(), "{what} stays");
    }
    // The userdata of the table itself, which the kernel stores since 5.10.
    let ns = Netns::create().unwrap();
    changed(&ns, |b| {
        let attrs = TableAttrs {
            name: Some("weir".into()),
            flags: Some(0),
            userdata: Some(NOTE.to_vec()),
            ..TableAttrs::default()
        };
        b.push(raw::NFT_MSG_NEWTABLE, 0, 1, &attrs);
    });
    let empty = Ruleset {
        tables: vec![Table::new(TableFamily::Inet, "weir")],
    };
    let ops = ns
        .run(|| {
            NftEngine::open()
                .unwrap()
                .drift(&empty, &owned())
                .unwrap()
                .ops
        })
        .unwrap();
    assert_eq!(ops.len(), 2, "{ops:?}");
}

fn on_devices(devices: &[&str]) -> Ruleset {
    let mut table = Table::new(TableFamily::Netdev, "weir");
    let mut chain = Chain::regular("in");
    chain.base = Some(BaseChain {
        chain_type: ChainType::Filter,
        // NF_NETDEV_INGRESS
        hook: Hook::from(0),
        priority: 0,
        policy: Policy::Accept,
        devices: devices.iter().map(|d| (*d).to_owned()).collect(),
    });
    table.chains.push(chain);
    Ruleset {
        tables: vec![table],
    }
}

#[test]
fn a_chain_is_on_all_its_devices() {
    let ns = namespace_or_skip!();
    let made = ns.run(|| {
        let routing = Routing::open()?;
        let dummy = |name| Link::new(name, LinkKind::plain("dummy"));
        routing.add_link(&dummy("one"), None)?;
        routing.add_link(&dummy("two"), None)
    });
    if let Err(e) = made.unwrap() {
        assert_eq!(e.errno(), Some(libc::EOPNOTSUPP), "{e}");
        eprintln!("skipped: this kernel has no dummy links: {e}");
        return;
    }
    for devices in [&["one"][..], &["one", "two"], &["two"]] {
        common::apply(&ns, &on_devices(devices)).unwrap();
        let table = read(&ns).ruleset;
        let table = table.table(TableFamily::Netdev, "weir").unwrap();
        assert_eq!(table.chains[0].base.as_ref().unwrap().devices, devices);
    }
}

#[test]
fn nothing_is_cut_to_fit() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    let long = "x".repeat(255);
    let comment = Rule {
        comment: Some(long.clone()),
        ..redirect(1, 1)
    };
    let name = |name: &str| Rule::builder().oifname(CmpOp::Eq, name).counter().build();
    let mut chain = old();
    chain.tables[0].chains.push(Chain::regular("a\0b"));
    let mut set = old();
    let mut timed = Set::new("s", DataType::IPV4_ADDR, 4);
    timed.timeouts = true;
    timed.gc_interval = Some(Duration::from_secs(1 << 32));
    set.tables[0].sets.push(timed);
    for (desired, words) in [
        (table(&[comment]), "253 bytes"),
        (table(&[name("sixteen-letters-")]), "1 to 15"),
        (table(&[name("sixteen-letters-*")]), "1 to 15"),
        (chain, "255 bytes"),
        (set, "milliseconds"),
    ] {
        let error = common::apply(&ns, &desired).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(held(&ns), rules(&old()), "{words}");
    }
}

/// Only the process that owns a table can change it, until its socket is closed.
#[test]
fn a_table_of_another_process_is_not_a_lack_of_rights() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    let mut theirs = old();
    theirs.tables[0].flags = raw::NFT_TABLE_F_OWNER;
    let made = ns.run(|| {
        let mut owner = NftEngine::open().unwrap();
        let made = owner.apply(&theirs, &owned());
        (owner, made)
    });
    let (owner, made) = made.unwrap();
    if let Err(e) = made {
        return weir_testing::lacks::skip("table flag owner", "5.12", e);
    }
    for desired in [old(), Ruleset::default()] {
        let apply = || NftEngine::open().unwrap().apply(&desired, &owned());
        let error = ns.run(apply).unwrap().unwrap_err().to_string();
        assert!(error.contains("NFT_TABLE_F_OWNER"), "{error}");
        assert!(!error.contains("run as root"), "{error}");
        let is_replaced = error.contains("# its flags are owner, not none");
        assert_eq!(is_replaced, !desired.tables.is_empty(), "{error}");
    }
    drop(owner);
    common::apply(&ns, &old()).unwrap();
}
