//! The memory that a reading takes: a process with CAP_NET_ADMIN in the namespace of a pod can write rules of any size there.
// matrix: host: measures the memory of a process, which depends on no kernel

use crate::common::{apply, owned_of, too_large};
use crate::limits::peak;
use weir_netfilter::nft::{
    Chain, CmpOp, Data, Element, Match, NftEngine, NftOp, Operand, PayloadBase, Rule, Ruleset,
    Selector, Statement, Table, TableFamily, Transaction,
};
use weir_testing::namespace_or_skip;

/// `ip saddr { ADDRESS, ... }` with this many addresses, in a table of its own; no rule without addresses.
fn with(name: &str, addresses: u32) -> Ruleset {
    let elements = (0..addresses).map(|n| Element::value(Data::be32(2 * n)));
    let selector = Selector::Payload {
        base: PayloadBase::Network,
        offset: 12,
        len: 4,
    };
    let rule = Rule {
        statements: vec![Statement::Match(Match {
            selector,
            mask: None,
            op: CmpOp::Eq,
            operand: Operand::Anonymous(elements.collect()),
        })],
        ..Rule::default()
    };
    let mut table = Table::new(TableFamily::Ip, name);
    table.chains.push(Chain {
        rules: (addresses > 0).then_some(rule).into_iter().collect(),
        ..Chain::regular("c")
    });
    Ruleset {
        tables: vec![table],
    }
}

/// So many that their attributes exceed 64 MiB.
const MANY: u32 = 170_000;
const FEW: u32 = 5_000;

/// The test starts itself again, because the peak belongs to a process.
#[test]
fn elements_of_a_rule_take_bounded_memory() {
    const CHILD: &str = "WEIR_TEST_ELEMENTS_OF_A_RULE";
    if std::env::var_os(CHILD).is_some() {
        return read();
    }
    let ns = namespace_or_skip!();
    for (name, addresses) in [("few", FEW), ("many", MANY)] {
        let mut ops = Vec::new();
        for table in with(name, addresses).tables {
            let id = (table.family, table.name.clone());
            ops.push(NftOp::AddTable(table.clone()));
            for mut chain in table.chains {
                let rules = std::mem::take(&mut chain.rules);
                ops.push(NftOp::AddChain(id.clone(), chain));
                let add = |r| NftOp::AddRule(id.clone(), "c".into(), r, None);
                ops.extend(rules.into_iter().map(add));
            }
        }
        let mut engine = ns.run(|| NftEngine::open().unwrap()).unwrap();
        let batch = Transaction::guarded(engine.generation().unwrap(), ops);
        if let Some(reason) = too_large(batch.to_bytes().unwrap().len()) {
            eprintln!("skipped: {reason}");
            return;
        }
        engine.commit(&batch).unwrap();
    }
    let name = "memory::elements_of_a_rule_take_bounded_memory";
    let program = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(program);
    child.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
    let out = ns.run(move || child.output().unwrap()).unwrap();
    let ran = String::from_utf8_lossy(&out.stdout).contains("1 passed");
    let said = String::from_utf8_lossy(&out.stderr);
    eprintln!("{said}");
    assert!(out.status.success() && ran, "{said}");
}

/// Reads both tables in the namespace of this process.
fn read() {
    let mut engine = NftEngine::open().unwrap();
    let (few, many) = (with("few", 0), with("many", 0));
    let found = engine.read_for(&few, &owned_of(&few)).unwrap().ruleset;
    let rule = &found.tables[0].chains[0].rules[0];
    let Some(Statement::Match(Match {
        operand: Operand::Anonymous(elements),
        ..
    })) = rule.statements.first()
    else {
        panic!("other statements");
    };
    assert_eq!(elements.len(), FEW as usize);

    let mut measured = |what, most: usize, words, read: &dyn Fn(&mut NftEngine) -> String| {
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let start = peak();
        let said = read(&mut engine);
        let more = peak().saturating_sub(start) >> 20;
        eprintln!("{what}: {more} MiB, {said:.200}");
        assert!(more < most, "{what}: {more} MiB");
        assert!(said.contains(words), "{what}: {said:.200}");
    };
    let owned = owned_of(&many);
    measured("owned", 48, "far more than is desired", &|engine| {
        let ops = engine.drift(&many, &owned).unwrap().ops;
        ops.first().map(ToString::to_string).unwrap_or_default()
    });
    measured("foreign", 128, "reached in table ip many", &|engine| {
        let error = engine.read_tables(&owned).err();
        error.map(|e| e.to_string()).unwrap_or_default()
    });
}

/// The desired elements count as well.
#[test]
fn a_rule_of_many_elements_is_in_sync() {
    let ns = namespace_or_skip!();
    let desired = with("many", 30_000);
    crate::fits_or_skip!(&ns, &desired);
    apply(&ns, &desired).unwrap();
    assert_eq!(apply(&ns, &desired).unwrap().ops, []);
}
