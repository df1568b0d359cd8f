//! Additions of another writer: to the userdata of sets and elements, to sets of rules, and to an owned table.

use crate::common::{self, load};
use crate::faults::scene::{old, owned, prepared};
use std::time::Duration;
use weir_netfilter::nft::expr::{DataAttrs, Expr, ExprElem, Lookup, Meta};
use weir_netfilter::nft::wire::{ElemAttrs, ElemListAttrs, RuleAttrs, SetAttrs};
use weir_netfilter::nft::{
    Chain, CmpOp, Data, DataType, Element, Match, MetaKey, NftEngine, Operand, Rule, Ruleset,
    Selector, Set, SetData, Statement, TableFamily, Transaction, raw,
};
use weir_netlink::Netns;
use weir_netlink::message::{NLM_F_APPEND, NLM_F_CREATE};
use weir_netlink::nfnetlink::{Batch, NFNL_SUBSYS_NFTABLES, Socket, message_type};
use weir_testing::namespace_or_skip;

/// `NFPROTO_INET`
const INET: u8 = 1;
/// A userdata entry of a type that no program writes.
const NOTE: [u8; 3] = [99, 1, 7];

/// Commits one batch of another writer.
fn meddle(ns: &Netns, push: impl FnOnce(&mut Batch) + Send) {
    ns.run(|| {
        let mut batch = Batch::new(NFNL_SUBSYS_NFTABLES, None);
        push(&mut batch);
        Socket::open().unwrap().commit(batch).unwrap().unwrap();
    })
    .unwrap();
}

fn drift(ns: &Netns, desired: &Ruleset) -> Transaction {
    ns.run(|| NftEngine::open().unwrap().drift(desired, &owned()).unwrap())
        .unwrap()
}

/// Checks that drift is detected, and that an apply ends it.
fn is_seen_and_healed(ns: &Netns, desired: &Ruleset, what: &str) {
    assert!(!drift(ns, desired).ops.is_empty(), "{what} is ignored");
    common::apply(ns, desired).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(drift(ns, desired).ops, [], "{what} stays");
}

fn with_set(set: Set) -> Ruleset {
    let mut all = old();
    all.tables[0].sets.push(set);
    all
}

fn entry(kind: u8, number: u32) -> Vec<u8> {
    [&[kind, 4][..], &number.to_ne_bytes()].concat()
}

/// `NFTNL_UDATA_SET_KEYBYTEORDER`, `NFTNL_UDATA_SET_DATABYTEORDER`, `NFTNL_UDATA_SET_DATA_INTERVAL`
const ENTRIES: [u8; 3] = [0, 1, 6];

/// `map m { type ipv4_addr : inet_service; }` with this userdata.
fn map_with(ns: &Netns, userdata: Option<Vec<u8>>) {
    meddle(ns, |b| {
        let attrs = SetAttrs {
            table: Some("weir".into()),
            name: Some("m".into()),
            flags: Some(raw::NFT_SET_MAP),
            key_type: Some(7),
            key_len: Some(4),
            data_type: Some(13),
            data_len: Some(2),
            id: Some(1),
            userdata,
            ..SetAttrs::default()
        };
        b.push(raw::NFT_MSG_NEWSET, NLM_F_CREATE, INET, &attrs);
    });
}

#[test]
fn the_userdata_of_a_set_is_compared_byte_for_byte() {
    let _probe = namespace_or_skip!();
    let mut map = Set::new("m", DataType::IPV4_ADDR, 4);
    map.data = SetData::Value(DataType::INET_SERVICE, 2);
    let desired = with_set(map);
    let [key, data, interval] = ENTRIES;
    let usual = [entry(key, 2), entry(data, 2), entry(interval, 0)];
    for (what, userdata) in [
        ("no userdata", None),
        ("no byte order", Some(entry(data, 2))),
        (
            "another byte order",
            Some([entry(key, 1), entry(data, 2), entry(interval, 0)].concat()),
        ),
        (
            "an interval of values",
            Some([entry(key, 2), entry(data, 2), entry(interval, 1)].concat()),
        ),
        (
            "one entry more",
            Some([&usual.concat()[..], &NOTE].concat()),
        ),
        (
            "an entry twice",
            Some([&usual.concat()[..], &entry(key, 2)].concat()),
        ),
        ("half an entry", Some([&usual.concat()[..], &[7]].concat())),
    ] {
        let ns = prepared();
        map_with(&ns, userdata);
        is_seen_and_healed(&ns, &desired, what);
    }
    // The order of the entries has no meaning.
    let ns = prepared();
    let [key, data, interval] = usual;
    map_with(&ns, Some([interval, data, key].concat()));
    assert_eq!(drift(&ns, &desired).ops, []);
}

fn add_element(ns: &Netns, element: ElemAttrs) {
    meddle(ns, |b| {
        let attrs = ElemListAttrs {
            table: Some("weir".into()),
            set: Some("s".into()),
            elements: Some(vec![element]),
            ..ElemListAttrs::default()
        };
        b.push(raw::NFT_MSG_NEWSETELEM, NLM_F_CREATE, INET, &attrs);
    });
}

#[test]
fn what_an_element_has_besides_its_key_is_compared() {
    let _probe = namespace_or_skip!();
    let address = Data::be32(0x0a00_0001);
    let element = |userdata: &[u8], timeout: Option<u64>| ElemAttrs {
        key: Some(DataAttrs::of(address.as_bytes())),
        userdata: Some(userdata.to_vec()).filter(|u| !u.is_empty()),
        timeout,
        ..ElemAttrs::default()
    };
    let mut set = Set::new("s", DataType::IPV4_ADDR, 4);
    set.timeouts = true;
    set.timeout = Some(Duration::from_secs(3600));
    let empty = with_set(set.clone());
    set.elements = vec![Element::value(address.clone())];
    let plain = with_set(set.clone());
    set.elements[0].extra_mut().comment = Some("a".into());
    let commented = with_set(set);
    const COMMENT: [u8; 4] = [0, 2, b'a', 0];
    let more = [&COMMENT[..], &NOTE].concat();
    for (what, found, desired) in [
        ("an element's note", element(&NOTE, None), &plain),
        ("a note after a comment", element(&more, None), &commented),
        ("an element's comment", element(&COMMENT, None), &plain),
        ("no comment", element(&[], None), &commented),
        ("no zero", element(&COMMENT[..1], None), &plain),
        ("a timeout", element(&[], Some(60_000)), &plain),
    ] {
        let ns = prepared();
        common::apply(&ns, &empty).unwrap();
        add_element(&ns, found);
        is_seen_and_healed(&ns, desired, what);
    }
    let ns = prepared();
    common::apply(&ns, &empty).unwrap();
    add_element(&ns, element(&COMMENT, None));
    assert_eq!(drift(&ns, &commented).ops, []);
}

/// A set with a default timeout, and an element with the same timeout, or with none.
#[test]
fn an_element_says_its_own_timeout() {
    let _probe = namespace_or_skip!();
    let ns = prepared();
    let with = |timeout| {
        let mut set = Set::new("s", DataType::IPV4_ADDR, 4);
        set.timeouts = true;
        set.timeout = Some(Duration::from_secs(3600));
        set.elements = vec![Element::value(Data::be32(1))];
        set.elements[0].extra_mut().timeout = timeout;
        with_set(set)
    };
    let default = with(None);
    common::apply(&ns, &with(Some(Duration::from_secs(3600)))).unwrap();
    assert_eq!(drift(&ns, &default).ops, []);
    // An element of another writer without a timeout: older kernels replace 0 by the default.
    common::apply(
        &ns,
        &with_set(Set {
            elements: Vec::new(),
            ..default.tables[0].sets[0].clone()
        }),
    )
    .unwrap();
    add_element(
        &ns,
        ElemAttrs {
            key: Some(DataAttrs::of(Data::be32(1).as_bytes())),
            timeout: Some(0),
            ..ElemAttrs::default()
        },
    );
    if listed_timeout(&ns).is_none() {
        let why = "the kernel lists no timeout of 0";
        weir_testing::lacks::skip("elements that never time out", "6.12", why);
        return;
    }
    let text = common::read(&ns).ruleset.to_string();
    assert!(text.contains("timeout never"), "{text}");
    is_seen_and_healed(&ns, &default, "a timeout of 0");
    let never = with(Some(Duration::ZERO));
    is_seen_and_healed(&ns, &never, "the default timeout");
}

/// The timeout of the element of the set `s`, as the kernel lists it.
fn listed_timeout(ns: &Netns) -> Option<u64> {
    let kind = message_type(NFNL_SUBSYS_NFTABLES, raw::NFT_MSG_GETSETELEM);
    let ask = ElemListAttrs {
        table: Some("weir".into()),
        set: Some("s".into()),
        ..ElemListAttrs::default()
    };
    let found = ns.run(|| Socket::open().unwrap().dump(kind, INET, &ask, "s").unwrap());
    let list: ElemListAttrs = found.unwrap()[0].decode().unwrap();
    list.elements.unwrap()[0].timeout
}

/// `meta mark { ... }`
fn marks(marks: &[u32]) -> Rule {
    let element = |n: &u32| Element::value(Data::from(&n.to_ne_bytes()[..]));
    let set = Match {
        selector: Selector::Meta(MetaKey::Mark),
        mask: None,
        op: CmpOp::Eq,
        operand: Operand::Anonymous(marks.iter().map(element).collect()),
    };
    Rule {
        statements: vec![Statement::Match(set)],
        ..Rule::default()
    }
}

/// Appends `meta mark { 1 }` to the owned chain. The set of the rule has this userdata and this element.
fn rule_with(ns: &Netns, userdata: Vec<u8>, element: ElemAttrs) {
    meddle(ns, |b| {
        let table = Some("weir".to_owned());
        let set = SetAttrs {
            table: table.clone(),
            name: Some("__set%d".into()),
            flags: Some(raw::NFT_SET_ANONYMOUS | raw::NFT_SET_CONSTANT),
            key_type: Some(DataType::MARK.0),
            key_len: Some(4),
            id: Some(1),
            userdata: Some(userdata),
            ..SetAttrs::default()
        };
        b.push(raw::NFT_MSG_NEWSET, NLM_F_CREATE, INET, &set);
        let elements = ElemListAttrs {
            table: table.clone(),
            set: Some("__set%d".into()),
            set_id: Some(1),
            elements: Some(vec![element]),
            ..ElemListAttrs::default()
        };
        b.push(raw::NFT_MSG_NEWSETELEM, NLM_F_CREATE, INET, &elements);
        let load = Expr::Meta(Meta {
            dreg: Some(raw::NFT_REG_1),
            key: Some(raw::NFT_META_MARK),
            ..Meta::default()
        });
        let find = Expr::Lookup(Lookup {
            sreg: Some(raw::NFT_REG_1),
            set: Some("__set%d".into()),
            set_id: Some(1),
            ..Lookup::default()
        });
        let rule = RuleAttrs {
            table,
            chain: Some("marked".into()),
            expressions: Some(vec![ExprElem(load), ExprElem(find)]),
            ..RuleAttrs::default()
        };
        b.push(
            raw::NFT_MSG_NEWRULE,
            NLM_F_CREATE | NLM_F_APPEND,
            INET,
            &rule,
        );
    });
}

#[test]
fn the_set_of_a_rule_is_compared_whole() {
    let _probe = namespace_or_skip!();
    let mut empty = old();
    empty.tables[0].chains.push(Chain::regular("marked"));
    let mut desired = empty.clone();
    let rule = marks(&[1]);
    desired.tables[0].chains[1].rules.push(rule);
    // nft records host byte order for `meta mark`.
    let prepared = || {
        let ns = prepared();
        common::apply(&ns, &desired).unwrap();
        let usual = set_userdata(&ns);
        common::apply(&ns, &empty).unwrap();
        (ns, usual)
    };
    let one = |userdata: &[u8]| ElemAttrs {
        key: Some(DataAttrs::of(&1_u32.to_ne_bytes())),
        userdata: Some(userdata.to_vec()).filter(|u| !u.is_empty()),
        ..ElemAttrs::default()
    };
    let (ns, usual) = prepared();
    rule_with(&ns, usual, one(&[]));
    assert_eq!(drift(&ns, &desired).ops, []);
    let (ns, usual) = prepared();
    rule_with(&ns, usual, one(&NOTE));
    is_seen_and_healed(&ns, &desired, "a note at an element of a rule's set");
    let (ns, usual) = prepared();
    rule_with(&ns, [&usual[..], &NOTE].concat(), one(&[]));
    is_seen_and_healed(&ns, &desired, "a note at a rule's set");
}

/// The userdata of the set of the rule in `marked`.
fn set_userdata(ns: &Netns) -> Vec<u8> {
    let kind = message_type(NFNL_SUBSYS_NFTABLES, raw::NFT_MSG_GETSET);
    let found = ns.run(|| {
        let mut socket = Socket::open().unwrap();
        socket
            .dump(kind, INET, &SetAttrs::default(), "sets")
            .unwrap()
    });
    let sets = found.unwrap();
    let sets = sets.iter().map(|r| r.decode::<SetAttrs>().unwrap());
    let marks =
        |a: &SetAttrs| a.table.as_deref() == Some("weir") && a.key_type == Some(DataType::MARK.0);
    sets.filter(marks).find_map(|a| a.userdata).unwrap()
}

#[test]
fn an_object_in_our_table_is_named_and_stays() {
    let _probe = namespace_or_skip!();
    // Whether the kernel's count of objects in a table includes the sets of rules or not, equal counts look the same.
    let mut with_sets = old();
    let rule = marks(&[1, 2]);
    with_sets.tables[0].chains[0].rules.push(rule);
    for desired in [old(), with_sets] {
        let ns = prepared();
        common::apply(&ns, &desired).unwrap();
        assert_eq!(
            drift(&ns, &desired),
            Transaction::guarded(drift(&ns, &desired).generation, Vec::new())
        );
        for count in 1..6 {
            load(&ns, &format!("add counter inet weir c{count}"));
            let found = drift(&ns, &desired);
            assert_eq!(found.ops, []);
            let named: Vec<String> = found.kept.iter().map(ToString::to_string).collect();
            assert_eq!(named.len(), count, "{named:?}");
            assert_eq!(
                named.last().unwrap(),
                &format!("counter inet weir c{count}")
            );
        }
        common::apply(&ns, &desired).unwrap();
        assert_eq!(drift(&ns, &desired).kept.len(), 5);
        // Deleting the table deletes them.
        let none = ns.run(|| {
            let mut engine = NftEngine::open().unwrap();
            engine.apply(&Ruleset::default(), &owned()).unwrap();
            engine.drift(&Ruleset::default(), &[(TableFamily::Inet, "weir".into())])
        });
        assert_eq!(none.unwrap().unwrap().kept, []);
    }
}
