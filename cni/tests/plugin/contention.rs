//! Rounds of apply and clean under contention: another writer changes the owned tables of nf_tables.
//!
//! After each round the namespace is in the state that the returned value reports: complete, unchanged, or empty.
//! Rules that mark packets never exist without their routing, and no foreign rule is lost. `WEIR_ROUNDS` is the number
//! of rounds (default 200; `ci/faults --all` runs 10,000). A run prints its seed; `WEIR_SEED` repeats it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use weir_cni::compile::{Compiled, Engine, Rules, compile};
use weir_cni::config::NameFiles;
use weir_cni::redirection::{Sandbox, TABLES, Visit};
use weir_netfilter::nft::{
    self, L4Proto, NftOp, Ruleset, TableFamily, TableId, Transaction, Verdict,
};
use weir_netlink::route::{Address, Routing};
use weir_netlink::{InForce, Netns};
use weir_rules::SidecarConfig;
use weir_testing::Ends;

/// The comment of the other writer's rules in owned tables.
const MARK: &str = "of another writer";
const FOREIGN: &str = "foreign";

/// Repeatable choices: xorshift64.
struct Choices(u64);

impl Choices {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn desired(mode: &str, ipv6: bool) -> Compiled {
    let config = json!({
        "proxy_uid": "1337", "proxy_gid": "1337", "inbound_ports_include": "*",
        "outbound_ip_ranges_include": "*", "enable_ipv6": ipv6, "inbound_interception_mode": mode,
    });
    let config: SidecarConfig = serde_json::from_value(config).unwrap();
    compile(&config.intent(&NameFiles::default()).unwrap(), Engine::Nft)
}

fn owned() -> Vec<TableId> {
    let id = |name: &&str| (TableFamily::Inet, (*name).to_owned());
    TABLES.iter().map(id).collect()
}

/// The state of the namespace.
#[derive(Debug, PartialEq)]
struct State {
    /// The owned tables, without the other writer's rules.
    rules: String,
    routing: RoutingState,
}

#[derive(Debug, PartialEq)]
struct RoutingState {
    /// `::6` on `lo`, added by us.
    six: bool,
    /// Policy rules by mark, and the routes that they lead to.
    marked: String,
}

impl RoutingState {
    /// Whether this state contains everything that the other one requires.
    fn has(&self, other: &Self) -> bool {
        (self.six || !other.six) && self.marked == other.marked
    }
}

fn text(mut ruleset: Ruleset) -> String {
    ruleset.tables.sort_by(|a, b| a.name.cmp(&b.name));
    for table in &mut ruleset.tables {
        table.chains.sort_by(|a, b| a.name.cmp(&b.name));
    }
    for chain in ruleset.tables.iter_mut().flat_map(|t| &mut t.chains) {
        chain.rules.retain(|r| r.comment.as_deref() != Some(MARK));
        for rule in &mut chain.rules {
            *rule = rule.without_counters();
        }
    }
    ruleset.to_string()
}

fn state(netns: &Netns) -> State {
    let read = || {
        let snapshot = nft::NftEngine::open()?.read_tables(&owned())?;
        let routing = Routing::open()?;
        let lo = routing.addresses()?;
        // Since 5.18 an address has the protocol of its writer. Before, weir leaves an unneeded address, which may be another program's.
        let is_six = |a: &&Address| a.net.to_string() == "::6/128" && a.protocol.is_some();
        let six = lo.iter().any(|a| is_six(&a));
        let rules = routing.rules()?;
        let marked = rules.iter().filter(|r| r.fwmark.is_some());
        let marked: Vec<String> = marked
            .map(|r| format!("{} {:?}", r.family, r.fwmark))
            .collect();
        let routes = routing.routes(133)?;
        let routes: Vec<String> = routes.iter().map(ToString::to_string).collect();
        Ok::<_, weir_netlink::Error>(State {
            rules: text(snapshot.ruleset),
            routing: RoutingState {
                six,
                marked: format!("{marked:?} {routes:?}"),
            },
        })
    };
    netns.run(read).unwrap().unwrap()
}

/// The other writer: it adds rules to owned tables, deletes rules from them, and has a table of its own.
struct Writer<'a> {
    netns: &'a Netns,
    /// Locked while it writes, and while the test reads.
    gate: &'a Mutex<u64>,
    stop: &'a AtomicBool,
    /// True if it deletes owned rules, too.
    destroys: &'a AtomicBool,
}

impl Writer<'_> {
    fn run(&self, mut choices: Choices) {
        let work = || {
            let mut engine = nft::NftEngine::open().unwrap();
            while !self.stop.load(Ordering::Relaxed) {
                {
                    // The test has failed and reports why.
                    let Ok(mut foreign) = self.gate.lock() else {
                        return;
                    };
                    self.step(&mut engine, &mut choices, &mut foreign);
                }
                std::thread::sleep(Duration::from_micros(choices.below(1500)));
            }
        };
        self.netns.run(work).unwrap();
    }

    fn step(&self, engine: &mut nft::NftEngine, choices: &mut Choices, foreign: &mut u64) {
        if choices.below(4) == 0 {
            let next = (*foreign + 1) % 8;
            let id = (TableFamily::Inet, FOREIGN.to_owned());
            if engine.apply(&foreign_table(next), &[id]).is_ok() {
                *foreign = next;
            }
            return;
        }
        let Ok(snapshot) = engine.read_tables(&owned()) else {
            return;
        };
        let mut places = Vec::new();
        for (t, table) in snapshot.ruleset.tables.iter().enumerate() {
            places.extend((0..table.chains.len()).map(|c| (t, c)));
        }
        if places.is_empty() {
            return;
        }
        let (t, c) = places[usize::try_from(choices.below(places.len() as u64)).unwrap()];
        let table = &snapshot.ruleset.tables[t];
        let (id, chain) = ((table.family, table.name.clone()), &table.chains[c]);
        let last = chain.rules.last().zip(snapshot.handles(t, c).last());
        let op = match last {
            Some((rule, handle)) if self.destroys.load(Ordering::Relaxed) => {
                NftOp::DeleteRule(id, chain.name.clone(), rule.clone(), *handle)
            }
            _ => {
                let mut rule = nft::Rule::builder()
                    .l4proto(L4Proto::Tcp)
                    .counter()
                    .verdict(Verdict::Return);
                rule.comment = Some(MARK.to_owned());
                NftOp::AddRule(id, chain.name.clone(), rule, None)
            }
        };
        // Fails when weir was faster: the generation is stale, or the table is deleted.
        let _ = engine.commit(&Transaction::guarded(snapshot.generation, vec![op]));
    }
}

fn foreign_table(rules: u64) -> Ruleset {
    let mut chain = nft::Chain::regular("c");
    for n in 0..rules {
        let mut rule = nft::Rule::builder().counter().verdict(Verdict::Return);
        rule.comment = Some(format!("rule {n}"));
        chain.rules.push(rule);
    }
    let mut table = nft::Table::new(TableFamily::Inet, FOREIGN);
    table.chains.push(chain);
    Ruleset {
        tables: vec![table],
    }
}

fn foreign_rules(netns: &Netns) -> u64 {
    let id = (TableFamily::Inet, FOREIGN.to_owned());
    let read = || nft::NftEngine::open()?.read_tables(&[id]);
    let found = netns.run(read).unwrap().unwrap().ruleset;
    found
        .tables
        .iter()
        .flat_map(|t| &t.chains)
        .map(|c| c.rules.len() as u64)
        .sum()
}

/// Runs one apply or clean and returns its result.
fn act(sandbox: &Sandbox, target: Option<&Compiled>) -> Result<(), (InForce, String)> {
    let done = match target {
        Some(compiled) => sandbox.apply(compiled),
        None => sandbox.clean(None),
    };
    done.map(drop).map_err(|e| (e.in_force, e.to_string()))
}

#[test]
fn what_is_returned_is_true_whatever_another_writer_does() {
    let netns = weir_testing::namespace_or_skip!();
    let routing = Routing::open_in(&netns).unwrap();
    routing.set_up(routing.link("lo").unwrap().index).unwrap();
    let sandbox = Sandbox::of(netns.try_clone().unwrap()).unwrap();
    let clock = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .subsec_nanos()
    };
    let seed = number("WEIR_SEED").unwrap_or_else(|| u64::from(clock()) | 1);
    // Emulated, 20 take a minute.
    let usual = weir_testing::effort::cases(200).max(15).into();
    let rounds = number("WEIR_ROUNDS").unwrap_or(usual);
    println!("WEIR_SEED={seed} WEIR_ROUNDS={rounds}");
    let mut choices = Choices(seed);

    let targets = [
        desired("TPROXY", true),
        desired("REDIRECT", true),
        desired("TPROXY", false),
    ];
    // The state after each target without contention.
    let complete: Vec<State> = targets
        .iter()
        .map(|t| {
            if let Err(e) = sandbox.apply(t) {
                panic!("{e}");
            }
            state(&netns)
        })
        .collect();
    sandbox.clean(None).unwrap();
    let empty = state(&netns);
    assert!(matches!(targets[0].rules, Rules::Nft(_)));

    let (gate, stop, destroys) = (
        Mutex::new(0),
        AtomicBool::new(false),
        AtomicBool::new(false),
    );
    let mut counts = [0; 4];
    std::thread::scope(|scope| {
        let writer = Writer {
            netns: &netns,
            gate: &gate,
            stop: &stop,
            destroys: &destroys,
        };
        let of_writer = Choices(choices.below(u64::MAX) | 1);
        // Stops the writer also when a round fails.
        let ended = Ends(&stop);
        scope.spawn(move || writer.run(of_writer));
        for round in 0..rounds {
            destroys.store(choices.below(4) == 0, Ordering::Relaxed);
            let is_destroyed = destroys.load(Ordering::Relaxed);
            let before = {
                let _held = gate.lock().unwrap();
                state(&netns)
            };
            let which = usize::try_from(choices.below(4)).unwrap();
            let returned = act(&sandbox, targets.get(which));
            let foreign = gate.lock().unwrap();
            let after = state(&netns);
            assert_eq!(
                foreign_rules(&netns),
                *foreign,
                "round {round}: foreign rules"
            );
            let marks = after.rules.contains("tproxy");
            let told = format!("round {round} of seed {seed}, target {which}: {returned:?}");
            let has_routing = |of: &State| after.routing.marked == of.routing.marked;
            assert!(
                !marks || has_routing(&complete[0]) || has_routing(&complete[2]),
                "rules without their routing: {told}: {after:?}"
            );
            let wanted = complete.get(which).unwrap_or(&empty);
            counts[match &returned {
                Ok(()) => 0,
                Err((InForce::No, _)) => 1,
                Err((InForce::Yes, _)) => 2,
                Err((InForce::Unknown, _)) => 3,
            }] += 1;
            match &returned {
                // Rules that the writer deleted afterwards cannot be distinguished from rules that never existed.
                _ if is_destroyed => {}
                Ok(()) => assert_eq!(&after, wanted, "{told}"),
                Err((InForce::No, _)) => assert_eq!(after, before, "{told}"),
                // Weir gave up before it removed what is no longer needed.
                Err((InForce::Yes, _)) => assert!(
                    after.rules == wanted.rules && after.routing.has(&wanted.routing),
                    "{told}: {after:?}"
                ),
                Err((InForce::Unknown, _)) => {
                    assert!(after == before || &after == wanted, "{told}: {after:?}");
                }
            }
            drop(foreign);
        }
        drop(ended);
    });
    println!("as desired, refused, in force, unknown: {counts:?}");
    assert!(
        counts[0] * 2 > rounds,
        "the writer was too quick for a test: {counts:?}"
    );
    sandbox.clean(None).unwrap();
    assert_eq!(state(&netns), empty);
}

/// Tables of `iptables-nft` belong to other programs: changes in a table without a chain of upstream do not delay weir.
#[test]
fn a_busy_writer_of_a_table_of_iptables_does_not_stop_an_apply_or_a_clean() {
    let netns = weir_testing::namespace_or_skip!();
    let routing = Routing::open_in(&netns).unwrap();
    routing.set_up(routing.link("lo").unwrap().index).unwrap();
    let sandbox = Sandbox::of(netns.try_clone().unwrap()).unwrap();
    let id = (TableFamily::Ip, "nat".to_owned());
    let rules = foreign_table(u64::from(weir_testing::effort::cases(4000)));
    let [table] = rules.tables.try_into().unwrap();
    let table = nft::Table {
        chains: table.chains,
        ..nft::Table::new(id.0, &id.1)
    };
    let large = Ruleset {
        tables: vec![table],
    };
    netns
        .run(|| nft::NftEngine::open()?.apply(&large, std::slice::from_ref(&id)))
        .unwrap()
        .unwrap();
    let stop = AtomicBool::new(false);
    let busy = || {
        let chain = || NftOp::AddChain(id.clone(), nft::Chain::regular("busy"));
        let again = || {
            vec![
                chain(),
                NftOp::DeleteChain(id.clone(), "busy".into()),
                chain(),
            ]
        };
        let mut engine = nft::NftEngine::open().unwrap();
        while !stop.load(Ordering::Relaxed) {
            let change = Transaction::guarded(nft::UNGUARDED, again());
            engine.commit(&change).unwrap();
        }
    };
    let desired = desired("REDIRECT", true);
    std::thread::scope(|scope| {
        let ended = Ends(&stop);
        scope.spawn(|| netns.run(busy).unwrap());
        assert_eq!(act(&sandbox, Some(&desired)), Ok(()));
        let compare = |visit: &Visit<'_>| visit.differences(&desired);
        assert_eq!(sandbox.visit(compare).unwrap().unwrap(), vec![]);
        assert_eq!(act(&sandbox, None), Ok(()));
        drop(ended);
    });
    let routing = state(&netns).routing;
    assert!(
        !routing.six && state(&netns).rules.is_empty(),
        "{routing:?}"
    );
}
