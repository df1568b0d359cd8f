//! The memory that a reading takes: a process with CAP_NET_ADMIN in the namespace of a pod can write rules of any size there.
// matrix: host: measures the memory of a process, which depends on no kernel

use crate::common::{apply, owned_of, too_large};
use crate::limits::peak;
use weir_netfilter::nft::expr::{Expr, Rt};
use weir_netfilter::nft::{
    Chain, CmpOp, Data, DataType, Element, Match, NftEngine, NftOp, Operand, PayloadBase, Rule,
    Ruleset, Selector, Set, Statement, Table, TableFamily, Transaction, raw,
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

/// The answers for so many, with such names, take less than the 8 MiB that are read besides the desired content; their values
/// take more, and so do the answers for chains and sets together, which belong to other tables than the first one that is read.
const CHAINS: usize = 70_000;
/// The kernel searches the list of sets for each new name.
const SETS: usize = 15_000;

fn long_name(n: usize) -> String {
    format!("n{n:0>60}")
}

fn of_chains() -> Table {
    let mut table = Table::new(TableFamily::Ip, "chains");
    let chains = (0..CHAINS).map(|n| Chain::regular(&long_name(n)));
    table.chains.extend(chains);
    table
}

fn of_sets() -> Table {
    let mut table = Table::new(TableFamily::Ip, "sets");
    let sets = (0..SETS).map(|n| Set::new(&long_name(n), DataType::IPV4_ADDR, 4));
    table.sets.extend(sets);
    table
}

/// The test starts itself again, because the peak belongs to a process.
#[test]
fn rules_take_bounded_memory() {
    const CHILD: &str = "WEIR_TEST_MEMORY_OF_RULES";
    if std::env::var_os(CHILD).is_some() {
        return read();
    }
    let ns = namespace_or_skip!();
    let of_rules = [
        ("few", vec![of_addresses(FEW)]),
        ("many", vec![of_addresses(MANY)]),
        ("long", vec![of_loads(); LONG]),
    ];
    let of_rules = of_rules.map(|(name, rules)| with(name, rules).tables);
    let written = of_rules.into_iter().flatten();
    for mut table in written.chain([of_chains(), of_sets()]) {
        let id = (table.family, table.name.clone());
        let chains = std::mem::take(&mut table.chains);
        let sets = std::mem::take(&mut table.sets);
        let mut ops = vec![NftOp::AddTable(table)];
        ops.extend(sets.into_iter().map(|s| NftOp::AddSet(id.clone(), s)));
        for mut chain in chains {
            let rules = std::mem::take(&mut chain.rules);
            ops.push(NftOp::AddChain(id.clone(), chain));
            let add = |r| NftOp::AddRule(id.clone(), "c".into(), r, None);
            ops.extend(rules.into_iter().map(add));
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
    for name in ["many", "long", "chains", "sets"] {
        let desired = with(name, Vec::new());
        let owned = owned_of(&desired);
        measured(name, 48, "far more than is desired", &|engine| {
            let ops = engine.drift(&desired, &owned).unwrap().ops;
            ops.first().map(ToString::to_string).unwrap_or_default()
        });
        if ["chains", "sets"].contains(&name) {
            continue;
        }
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
