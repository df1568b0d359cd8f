//! Packet counters on the node: a table of the test with one rule per kind of packet.

use crate::scene::{OUTSIDE, POD, Scene};
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Hook, L4Proto, NftEngine, Rule, RuleBuilder, Ruleset, Statement,
    Table, TableFamily,
};
use weir_netlink::{Netns, Result};

const TABLE: &str = "test-meter";
/// After everything else.
const LAST: i32 = 300;

/// Packets of TCP that were counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Into the carrier for connections to pods.
    pub(crate) inbound: u64,
    /// Into the carrier for connections of pods.
    pub(crate) outbound: u64,
    /// From the pod's own device to the outside: not captured.
    pub(crate) uncaptured: u64,
}

impl Count {
    pub(crate) fn since(self, before: Self) -> [u64; 2] {
        [
            self.inbound - before.inbound,
            self.outbound - before.outbound,
        ]
    }
}

/// Adds a table of the test to the node.
pub(crate) fn add(scene: &Scene, table: Table) -> Result<()> {
    add_in(&scene.node, table)
}

pub(crate) fn add_in(netns: &Netns, table: Table) -> Result<()> {
    let id = vec![(table.family, table.name.clone())];
    let rules = Ruleset {
        tables: vec![table],
    };
    let add = || NftEngine::open()?.apply(&rules, &id).map(drop);
    netns.run(add).unwrap()
}

/// Deletes a table of the node.
pub(crate) fn remove(scene: &Scene, family: TableFamily, name: &str) {
    let id = vec![(family, name.to_owned())];
    let remove = || NftEngine::open().unwrap().apply(&Ruleset::default(), &id);
    drop(scene.node.run(remove).unwrap().unwrap());
}

/// Whether this kernel counts: the meter is made of nf_tables.
pub(crate) fn start(scene: &Scene) -> bool {
    let look = || NftEngine::open().and_then(|mut engine| engine.tables());
    if scene.node.run(look).unwrap().is_err() {
        println!("skipped: this kernel has no nf_tables, which count packets");
        return false;
    }
    let counted = |rule: RuleBuilder| rule.l4proto(L4Proto::Tcp).counter().build();
    let to = |link: &str| Rule::builder().oifname(CmpOp::Eq, link);
    let past = to(&format!("v{OUTSIDE}")).iifname(CmpOp::Eq, &format!("v{POD}"));
    let chain = |name, hook, rules| Chain {
        rules,
        ..Chain::base(name, ChainType::Filter, hook, LAST)
    };
    add(
        scene,
        Table {
            chains: vec![
                chain(
                    "postrouting",
                    Hook::Postrouting,
                    vec![counted(to("istioin")), counted(to("istioout"))],
                ),
                chain("forward", Hook::Forward, vec![counted(past)]),
            ],
            ..Table::new(TableFamily::Inet, TABLE)
        },
    )
    .unwrap();
    true
}

pub(crate) fn read(scene: &Scene) -> Count {
    let id = [(TableFamily::Inet, TABLE.to_owned())];
    let read = || NftEngine::open().unwrap().read_tables(&id).unwrap().ruleset;
    let rules = scene.node.run(read).unwrap();
    let packets = |chain: &str, number: usize| {
        let chain = rules.tables[0].chain(chain).unwrap();
        let counter = chain.rules[number].statements.iter();
        let counts = counter.map(|s| match s {
            Statement::Counter(c) => c.packets,
            _ => 0,
        });
        counts.sum::<u64>()
    };
    Count {
        inbound: packets("postrouting", 0),
        outbound: packets("postrouting", 1),
        uncaptured: packets("forward", 0),
    }
}
