//! The memory that a reading takes: a process with CAP_NET_ADMIN in the namespace of a pod can write rules of any size there.
// matrix: host: measures the memory of a process, which depends on no kernel

use crate::common::{apply, owned_of, too_large};
use crate::limits::peak;
use weir_netfilter::nft::expr::{Expr, Rt};
use weir_netfilter::nft::{
    Chain, CmpOp, Data, Element, Match, NftEngine, NftOp, Operand, PayloadBase, Rule, Ruleset,
    Selector, Statement, Table, TableFamily, Transaction, raw,
};
use weir_testing::namespace_or_skip;

/// A table with one chain of these rules.
fn with(name: &str, rules: Vec<Rule>) -> Ruleset {
    let mut table = Table::new(TableFamily::Ip, name);
    table.chains.push(Chain {
        rules,
        ..Chain::regular("c")
    });
    Ruleset {
        tables: vec![table],
    }
}

fn of(statement: Statement) -> Rule {
    Rule {
        statements: vec![statement],
        ..Rule::default()
    }
}

/// `ip saddr { ADDRESS, ... }` with this many addresses.
fn of_addresses(count: u32) -> Rule {
    let elements = (0..count).map(|n| Element::value(Data::be32(2 * n)));
    let selector = Selector::Payload {
        base: PayloadBase::Network,
        offset: 12,
        len: 4,
    };
    of(Statement::Match(Match {
        selector,
        mask: None,
        op: CmpOp::Eq,
        operand: Operand::Anonymous(elements.collect()),
    }))
}

/// As many expressions as a rule may have, and no statement for them.
fn of_loads() -> Rule {
    let load = Expr::Rt(Rt {
        key: Some(raw::NFT_RT_NEXTHOP4),
        dreg: Some(raw::NFT_REG_1),
        ..Rt::default()
    });
    of(Statement::Opaque(vec![load; Rule::MAX_EXPRESSIONS]))
}

/// So many that their attributes exceed 64 MiB.
const MANY: u32 = 170_000;
const FEW: u32 = 5_000;
/// Rules that take more than 128 MiB.
const LONG: usize = 3_000;

/// The test starts itself again, because the peak belongs to a process.
#[test]
fn rules_take_bounded_memory() {
    const CHILD: &str = "WEIR_TEST_MEMORY_OF_RULES";
    if std::env::var_os(CHILD).is_some() {
        return read();
    }
    let ns = namespace_or_skip!();
    for (name, rules) in [
        ("few", vec![of_addresses(FEW)]),
        ("many", vec![of_addresses(MANY)]),
        ("long", vec![of_loads(); LONG]),
    ] {
        let mut ops = Vec::new();
        for mut table in with(name, rules).tables {
            let id = (table.family, table.name.clone());
            let chains = std::mem::take(&mut table.chains);
            ops.push(NftOp::AddTable(table));
            for mut chain in chains {
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
    let name = "memory::rules_take_bounded_memory";
    let program = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(program);
    child.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
    let out = ns.run(move || child.output().unwrap()).unwrap();
    let ran = String::from_utf8_lossy(&out.stdout).contains("1 passed");
    let said = String::from_utf8_lossy(&out.stderr);
    eprintln!("{said}");
    assert!(out.status.success() && ran, "{said}");
}

/// Reads the tables in the namespace of this process.
fn read() {
    let mut engine = NftEngine::open().unwrap();
    let few = with("few", Vec::new());
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

    let mut measured = |what, most: usize, words: &str, read: &dyn Fn(&mut NftEngine) -> String| {
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let start = peak();
        let said = read(&mut engine);
        let more = peak().saturating_sub(start) >> 20;
        eprintln!("{what}: {more} MiB, {said:.200}");
        assert!(more < most, "{what}: {more} MiB");
        assert!(said.contains(words), "{what}: {said:.200}");
    };
    for name in ["many", "long"] {
        let desired = with(name, Vec::new());
        let owned = owned_of(&desired);
        measured(name, 48, "far more than is desired", &|engine| {
            let ops = engine.drift(&desired, &owned).unwrap().ops;
            ops.first().map(ToString::to_string).unwrap_or_default()
        });
        let words = format!("reached in table ip {name}");
        measured(name, 128, &words, &|engine| {
            let error = engine.read_tables(&owned).err();
            error.map(|e| e.to_string()).unwrap_or_default()
        });
    }
}

/// The desired elements count as well.
#[test]
fn a_rule_of_many_elements_is_in_sync() {
    let ns = namespace_or_skip!();
    let desired = with("many", vec![of_addresses(30_000)]);
    crate::fits_or_skip!(&ns, &desired);
    apply(&ns, &desired).unwrap();
    assert_eq!(apply(&ns, &desired).unwrap().ops, []);
}
