//! Packet counters on the node: a table of the test with one rule for each kind of packet.

use crate::scene::{OUTSIDE, POD, Scene};
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Hook, L4Proto, NftEngine, Rule, RuleBuilder, Ruleset, Statement,
    Table, TableFamily,
};
use weir_netlink::{Netns, Result};

const TABLE: &str = "test-meter";
/// After all other chains.
const LAST: i32 = 300;

/// The TCP packets that were counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Packets into the carrier for connections to pods.
    pub(crate) inbound: u64,
    /// Packets into the carrier for connections of pods.
    pub(crate) outbound: u64,
    /// Packets from the pod's own device to the outside, which are not captured.
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

/// Starts the meter, which consists of nf_tables rules. Returns false if this kernel lacks them.
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
            Statement::Counter(c) => c.packets.unwrap_or(0),
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
