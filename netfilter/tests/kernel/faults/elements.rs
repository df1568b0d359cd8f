//! A change of one element of a set: every call fails in every way, and another writer commits first.

use crate::common::{load, read};
use crate::faults::ERRNOS;
use crate::faults::transport::{Fault, Plan, faulty};
use std::rc::Rc;
use weir_netfilter::nft::{
    Data, DataType, Element, ElementChanges, NftEngine, Ruleset, Set, Table, TableFamily, TableId,
};
use weir_netlink::Netns;
use weir_testing::namespace_or_skip;

fn table() -> TableId {
    (TableFamily::Inet, "weir".to_owned())
}

/// A set with these numbers.
fn set(numbers: &[u32]) -> Set {
    Set {
        elements: numbers.iter().map(|n| element(*n)).collect(),
        ..Set::new("s", DataType::IPV4_ADDR, 4)
    }
}

fn element(n: u32) -> Element {
    Element::value(Data::be32(n))
}

fn whole(numbers: &[u32]) -> Ruleset {
    let table = Table::new(TableFamily::Inet, "weir");
    Ruleset {
        tables: vec![Table {
            sets: vec![set(numbers)],
            ..table
        }],
    }
}

const OLD: [u32; 3] = [1, 2, 3];
const NEW: [u32; 3] = [1, 3, 4];

fn changes() -> ElementChanges {
    ElementChanges {
        delete: vec![element(2)],
        add: vec![element(4)],
    }
}

fn held(ns: &Netns) -> Vec<Element> {
    read(ns).ruleset.tables[0].sets[0].elements.clone()
}

/// Applies the old set, then changes it with this fault. Returns whether the change was reported, and the number of calls.
fn outcome(ns: &Netns, fault: Option<(usize, Fault)>) -> (bool, usize) {
    let text = format!("{fault:?}");
    let go = || {
        let plan = Rc::new(Plan::new(fault));
        let mut quiet = NftEngine::open().unwrap();
        let before = quiet.apply(&whole(&OLD), &[table()]).unwrap().generation;
        let mut engine = faulty(&plan);
        let done = engine.change_elements(&table(), &set(&[]), &changes(), before);
        let (now, calls) = (held(ns), plan.calls.get());
        let is_new = now == set(&NEW).elements;
        assert!(is_new || now == set(&OLD).elements, "{text}: half of it");
        if let Ok(Some(after)) = done {
            assert!(is_new, "{text}: not what was said");
            assert_eq!(quiet.generation().unwrap(), after, "{text}");
        }
        // The same engine, whatever answers were left unread.
        engine.apply(&whole(&NEW), &[table()]).unwrap();
        assert_eq!(held(ns), set(&NEW).elements, "{text}");
        (matches!(done, Ok(Some(_))), calls)
    };
    ns.run(go).unwrap()
}

#[test]
fn a_changed_element_is_there_or_it_is_not_said() {
    let ns = namespace_or_skip!();
    let (is_said, calls) = outcome(&ns, None);
    assert!(is_said && calls > 6, "{calls} calls");
    let instead = ERRNOS.iter().map(|n| Fault::Instead(*n));
    let after = [libc::ENOBUFS, libc::ENOMEM].map(Fault::After);
    let mut failed = 0;
    for fault in instead.chain(after) {
        for at in 0..calls {
            failed += usize::from(!outcome(&ns, Some((at, fault))).0);
        }
    }
    assert!(failed > calls, "only {failed} failed");
}

/// If another writer commits before the change, nothing is written.
#[test]
fn another_writer_is_noticed() {
    let ns = namespace_or_skip!();
    let write = |text: &str| load(&ns, text);
    ns.run(|| {
        let mut engine = NftEngine::open().unwrap();
        let before = engine.apply(&whole(&OLD), &[table()]).unwrap().generation;
        write("add table inet other");
        let mut change =
            |generation| engine.change_elements(&table(), &set(&[]), &changes(), generation);
        assert_eq!(change(before).unwrap(), None);
        assert_eq!(held(&ns), set(&OLD).elements);
        let now = before.wrapping_add(1);
        assert_eq!(change(now).unwrap(), Some(now.wrapping_add(1)));
        assert_eq!(held(&ns), set(&NEW).elements);
        // The element does not exist: the kernel refuses the complete batch.
        let refused = change(now.wrapping_add(1)).unwrap_err();
        assert!(refused.is_not_found(), "{refused}");
        let ranges = Set {
            interval: true,
            ..set(&[])
        };
        let refused = engine.change_elements(&table(), &ranges, &changes(), now);
        assert!(refused.unwrap_err().to_string().contains("intervals"));
    })
    .unwrap();
}
