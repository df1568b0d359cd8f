//! Checks whether this program wrote the rules in owned tables and chains.
//!
//! A rule of nf_tables does not identify its writer, and any program can use a table's name. This module checks
//! whether `compile` produces the content for some intent: the same chains with the same hooks, in each chain
//! only rules of the forms that it writes there, and every rule that it writes for all intents. The forms are
//! compiled, not listed: from intents that use every option, each twice with different values. Where the two differ,
//! the form matches any value; everything else is literal.

use crate::SidecarConfig;
use std::sync::LazyLock;
use weir_cni::compile::{Compiled, Engine, Rules, compile, compile_chosen};
use weir_cni::config::{Intent, NameFiles};
use weir_cni::redirection::{SIDECAR, TABLES};
use weir_netfilter::nft::{self, Operand, Source, Statement};
use weir_netfilter::xtables::{self, Match, Not, Target};

static NFT: LazyLock<Forms<nft::Chain, nft::Rule>> = LazyLock::new(|| Forms::of(Engine::Nft));
static LEGACY: LazyLock<Forms<xtables::ChainKind, xtables::Rule>> =
    LazyLock::new(|| Forms::of(Engine::Xtables));

/// True if this program wrote all owned tables of the ruleset.
pub(crate) fn wrote_tables(found: &nft::Ruleset) -> bool {
    let is_ours =
        |t: &nft::Table| t.family == nft::TableFamily::Inet && TABLES.contains(&t.name.as_str());
    let mut ours = found.clone();
    ours.tables.retain(is_ours);
    // Sets, flags and comments of tables are never written.
    let is_plain = |table: &nft::Table| {
        let plain = nft::Table::new(table.family, &table.name);
        let chains = table.chains.clone();
        *table == nft::Table { chains, ..plain }
    };
    ours.tables.iter().all(is_plain) && NFT.make(&Rules::Nft(ours))
}

/// True if this program wrote all chains with the owned prefix. Rules of built-in chains carry a tag and are not
/// checked.
pub(crate) fn wrote_chains(found: &xtables::Ruleset) -> bool {
    LEGACY.make(&Rules::Xtables(found.clone()))
}

/// The names of a table and a chain; of a legacy table with its family.
type Place = (String, String);

/// The chains of one engine, each without its rules, and their rules.
trait Form: PartialEq + Clone + Sized {
    type Chain: PartialEq;
    fn chains(rules: &Rules) -> Vec<(Place, Self::Chain, Vec<Self>)>;
    /// True if the rule is one of the two, or differs from them only where they differ from each other.
    fn is_of(&self, pair: &[Self; 2]) -> bool;
}

struct Forms<C, R> {
    chains: Vec<(Place, C)>,
    known: Vec<(Place, [R; 2])>,
    /// The rules that every intent has.
    always: Vec<(Place, [R; 2])>,
}

impl<R: Form> Forms<R::Chain, R> {
    fn of(engine: Engine) -> Self {
        let rules = |config: &SidecarConfig, compile: Compile| {
            let intent = config.intent(&NameFiles::default()).ok()?;
            Some(R::chains(&compile(&intent, engine).rules))
        };
        let (mut chains, mut known) = (Vec::new(), Vec::new());
        let mut always: Option<Vec<(Place, [R; 2])>> = None;
        let examples = examples();
        let compiled = COMPILE.into_iter().flat_map(|compile| {
            let of = move |[one, other]: &[SidecarConfig; 2]| {
                (rules(one, compile), rules(other, compile))
            };
            examples.iter().map(of)
        });
        for pair in compiled {
            let (Some(one), Some(other)) = pair else {
                continue;
            };
            let mut pairs = Vec::new();
            for ((place, chain, one), (_, _, other)) in one.into_iter().zip(other) {
                let rules = one.into_iter().zip(other);
                pairs.extend(rules.map(|(a, b)| (place.clone(), [a, b])));
                chains.push((place, chain));
            }
            match &mut always {
                Some(always) => always.retain(|form| pairs.contains(form)),
                None => always = Some(pairs.clone()),
            }
            pairs.retain(|form| !known.contains(form));
            known.append(&mut pairs);
        }
        let always = always.unwrap_or_default();
        Self {
            chains,
            known,
            always,
        }
    }

    fn make(&self, found: &Rules) -> bool {
        let found = R::chains(found);
        let is_there = |(at, form): &(Place, [R; 2])| {
            let mut chains = found.iter().filter(|(place, ..)| place == at);
            chains.any(|(_, _, rules)| rules.iter().any(|rule| rule.is_of(form)))
        };
        let is_known = |(at, chain, rules): &(Place, R::Chain, Vec<R>)| {
            let here = |rule: &R| {
                let mut forms = self.known.iter().filter(|(place, _)| place == at);
                forms.any(|(_, form)| rule.is_of(form))
            };
            self.chains.iter().any(|(p, c)| (p, c) == (at, chain)) && rules.iter().all(here)
        };
        !self.always.is_empty() && found.iter().all(is_known) && self.always.iter().all(is_there)
    }
}

impl Form for nft::Rule {
    type Chain = nft::Chain;

    fn chains(rules: &Rules) -> Vec<(Place, nft::Chain, Vec<Self>)> {
        let Rules::Nft(ruleset) = rules else {
            return Vec::new();
        };
        let chains = |table: &nft::Table| {
            let name = table.name.clone();
            let split = move |mut chain: nft::Chain| {
                let rules = std::mem::take(&mut chain.rules);
                ((name.clone(), chain.name.clone()), chain, rules)
            };
            table.chains.clone().into_iter().map(split)
        };
        ruleset.tables.iter().flat_map(chains).collect()
    }

    fn is_of(&self, [one, other]: &[Self; 2]) -> bool {
        let pairs = one.statements.iter().zip(&other.statements);
        let is_of = |(found, (one, other)): (&Statement, (&Statement, &Statement))| match one {
            Statement::Counter(_) => matches!(found, Statement::Counter(_)),
            _ if one == other => found == one,
            _ => erased(found) == erased(one),
        };
        (&self.comment, &self.sets) == (&one.comment, &one.sets)
            && self.statements.len() == one.statements.len()
            && self.statements.iter().zip(pairs).all(is_of)
    }
}

/// Returns the statement with every value replaced by the same one. An anonymous set is replaced by its size.
fn erased(statement: &Statement) -> Statement {
    let value = nft::Data::be32(0);
    let mut statement = statement.clone();
    match &mut statement {
        Statement::Match(m) => match &mut m.operand {
            Operand::AnyBit(_) | Operand::Named { .. } => {}
            Operand::Anonymous(elements) => {
                // No rule has a range that starts at an empty value.
                let count = u32::try_from(elements.len()).unwrap_or(u32::MAX);
                m.operand = Operand::Range(nft::Data::default(), nft::Data::be32(count));
            }
            _ => m.operand = Operand::Value(value),
        },
        Statement::MetaSet(_, Source::Value(v)) | Statement::CtSet(_, _, Source::Value(v)) => {
            *v = value;
        }
        Statement::Redirect(redirect) => redirect.ports = redirect.ports.take().map(|_| 0..=0),
        Statement::Tproxy(tproxy) => tproxy.port = tproxy.port.map(|_| 0),
        _ => {}
    }
    statement
}

impl Form for xtables::Rule {
    type Chain = xtables::ChainKind;

    fn chains(rules: &Rules) -> Vec<(Place, xtables::ChainKind, Vec<Self>)> {
        let Rules::Xtables(ruleset) = rules else {
            return Vec::new();
        };
        let chains = |table: &xtables::Table| {
            let name = format!("{} {}", table.family, table.name);
            let names: Vec<&str> = table.chains.iter().map(|c| c.name.as_str()).collect();
            let owned = SIDECAR.chains();
            let is_owned = |name: &str| owned.owns(&table.name, name, names.iter().copied());
            let chains = table.chains.iter().filter(|c| is_owned(&c.name));
            let chains: Vec<xtables::Chain> = chains.cloned().collect();
            let chains = chains.into_iter();
            chains.map(move |chain| ((name.clone(), chain.name), chain.kind, chain.rules))
        };
        ruleset.tables.iter().flat_map(chains).collect()
    }

    fn is_of(&self, [one, other]: &[Self; 2]) -> bool {
        let matches = one.matches.iter().zip(&other.matches);
        let is_match = |(found, (one, other)): (&Match, (&Match, &Match))| match one == other {
            true => found == one,
            false => erased_match(found) == erased_match(one),
        };
        let target = match one.target == other.target {
            true => self.target == one.target,
            false => {
                self.target.as_ref().map(erased_target) == one.target.as_ref().map(erased_target)
            }
        };
        target
            && same(&self.source, &one.source, &other.source)
            && same(&self.destination, &one.destination, &other.destination)
            && same(&self.in_interface, &one.in_interface, &other.in_interface)
            && same(
                &self.out_interface,
                &one.out_interface,
                &other.out_interface,
            )
            && (&self.protocol, self.fragment, &self.header)
                == (&one.protocol, one.fragment, &one.header)
            && self.matches.len() == one.matches.len()
            && self.matches.iter().zip(matches).all(is_match)
    }
}

/// True if an option is that of the first rule, or the two rules differ and it has the same inversion.
fn same<V: PartialEq>(
    found: &Option<(Not, V)>,
    one: &Option<(Not, V)>,
    other: &Option<(Not, V)>,
) -> bool {
    let not = |option: &Option<(Not, V)>| option.as_ref().map(|(not, _)| *not);
    found == one || (one != other && not(found) == not(one))
}

/// Returns the target with every value replaced by the same one.
fn erased_target(target: &Target) -> Target {
    let (mark, mask) = (0, 0);
    match target.clone() {
        Target::Redirect(nat) => Target::Redirect(xtables::Nat {
            ports: nat.ports.map(|_| 0..=0),
            ..nat
        }),
        Target::Mark(_) => Target::Mark(xtables::Xmark { value: mark, mask }),
        Target::Tproxy(xtables::Tproxy { on_ip, .. }) => Target::Tproxy(xtables::Tproxy {
            on_port: 0,
            on_ip,
            mark,
            mask,
        }),
        other => other,
    }
}

/// Returns the match with every value replaced by the same one.
fn erased_match(found: &Match) -> Match {
    let port = |option: &mut Option<(Not, xtables::PortRange)>| {
        *option = option.take().map(|(not, _)| (not, 0.into()));
    };
    let mut found = found.clone();
    match &mut found {
        Match::Tcp(tcp) => [&mut tcp.sport, &mut tcp.dport].into_iter().for_each(port),
        Match::Udp(udp) => [&mut udp.sport, &mut udp.dport].into_iter().for_each(port),
        Match::Multiport(ports) => ports.ports.clear(),
        Match::Owner(owner) => {
            for ids in [&mut owner.uid, &mut owner.gid].into_iter().flatten() {
                ids.1 = 0..=0;
            }
        }
        Match::Mark(mark) | Match::Connmark(mark) => mark.value = 0,
        _ => {}
    }
    found
}

type Compile = fn(&Intent, Engine) -> Compiled;

/// The compilers for an engine that was configured, and for one that was chosen.
const COMPILE: [Compile; 2] = [compile, compile_chosen];

/// Pairs of configurations that differ only in values.
fn examples() -> Vec<[SidecarConfig; 2]> {
    let of_group = |n| SidecarConfig {
        proxy_uid: String::new(),
        ..full(n)
    };
    let mut all = vec![[minimal(0), minimal(1)], [of_group(0), of_group(1)]];
    for choice in 0..144 {
        let pick = |of: usize, among: usize| (choice / of) % among;
        let full = |n: usize| {
            let mut c = full(n);
            if pick(1, 2) == 0 {
                c.inbound_interception_mode = "TPROXY".into();
            }
            if pick(2, 2) == 0 {
                c.inbound_ports_include = format!("{},{}-{}", 70 + n, 80 + n, 90 + n);
            }
            match pick(4, 3) {
                0 => {}
                1 => (c.redirect_dns, c.capture_all_dns) = (true, true),
                _ => c.redirect_dns = true,
            }
            match pick(12, 3) {
                0 => c.owner_groups_exclude = format!("{}", 40 + n),
                1 => c.owner_groups_include = format!("{}", 40 + n),
                _ => c.owner_groups_include = format!("{},{}", 40 + n, 60 + n),
            }
            if pick(36, 2) == 0 {
                c.outbound_ip_ranges_include = format!("10.{n}.0.0/16,fd0{n}::/16");
            }
            c.enable_ipv6 = pick(72, 2) == 0;
            c
        };
        all.push([full(0), full(1)]);
    }
    all
}

/// A configuration with little more than the rules that every intent has: one captured network, within loopback.
fn minimal(n: usize) -> SidecarConfig {
    SidecarConfig {
        proxy_port: format!("1{n}001"),
        inbound_capture_port: format!("1{n}006"),
        inbound_tunnel_port: format!("1{n}008"),
        host_ipv4_loopback_cidr: format!("127.0.0.{}/32", n + 1),
        outbound_ip_ranges_include: format!("127.{n}.0.0/16"),
        ..SidecarConfig::default()
    }
}

fn full(n: usize) -> SidecarConfig {
    SidecarConfig {
        proxy_uid: format!("{}", 1400 + n),
        proxy_gid: format!("{}", 1500 + n),
        inbound_tproxy_mark: format!("{}", 1600 + n),
        inbound_ports_include: "*".into(),
        inbound_ports_exclude: format!("{}", 20 + n),
        outbound_ports_include: format!("{}", 30 + n),
        outbound_ports_exclude: format!("{}", 50 + n),
        outbound_ip_ranges_include: "*".into(),
        outbound_ip_ranges_exclude: format!("192.168.{n}.0/24,fe8{n}::/16"),
        reroute_virtual_interfaces: format!("virt{n}"),
        exclude_interfaces: format!("excluded{n}"),
        drop_invalid: true,
        enable_ipv6: true,
        dns_servers_v4: vec![format!("1.1.1.{n}")],
        dns_servers_v6: vec![format!("2001:db8::{n}:1")],
        ..minimal(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nft::{CmpOp, L4Proto, Rule, Verdict};

    #[test]
    fn every_example_is_understood_and_differs_in_values_only() {
        fn check<R: Form + std::fmt::Debug>(engine: Engine) {
            for pair in examples() {
                for compile in COMPILE {
                    let [one, other] = pair.clone().map(|config| {
                        let intent = config.intent(&NameFiles::default()).unwrap();
                        R::chains(&compile(&intent, engine).rules)
                    });
                    assert_eq!(one.len(), other.len());
                    for ((at, chain, one), (there, same, other)) in one.into_iter().zip(other) {
                        assert_eq!((&at, one.len()), (&there, other.len()));
                        assert!(chain == same, "{at:?}");
                        for (one, other) in one.into_iter().zip(other) {
                            let pair = [one, other];
                            assert!(pair.iter().all(|rule| rule.is_of(&pair)), "{pair:?}");
                        }
                    }
                }
            }
        }
        check::<nft::Rule>(Engine::Nft);
        check::<xtables::Rule>(Engine::Xtables);
    }

    fn intent(change: impl FnOnce(&mut SidecarConfig)) -> Intent {
        let mut config = SidecarConfig {
            proxy_uid: "1337".into(),
            inbound_ports_include: "*".into(),
            outbound_ip_ranges_include: "*".into(),
            ..SidecarConfig::default()
        };
        change(&mut config);
        config.intent(&NameFiles::default()).unwrap()
    }

    fn tproxy(config: &mut SidecarConfig) {
        config.inbound_interception_mode = "TPROXY".into();
        config.proxy_uid = "1000-1337".into();
        config.inbound_ports_exclude = "22,15090".into();
        config.outbound_ip_ranges_include = "10.0.0.0/8".into();
        config.dns_servers_v4 = vec!["10.96.0.10".into(), "10.96.0.11".into()];
        config.redirect_dns = true;
    }

    type Change = fn(&mut SidecarConfig);

    #[test]
    fn what_was_compiled_is_recognized_and_nothing_else() {
        let both =
            [tproxy as Change, |_| {}].map(|change| COMPILE.map(|compile| (change, compile)));
        for (change, compile) in both.into_iter().flatten() {
            let intent = intent(change);
            let Rules::Nft(ours) = compile(&intent, Engine::Nft).rules else {
                unreachable!()
            };
            assert!(wrote_tables(&ours), "{ours}");
            let changed = |change: &dyn Fn(&mut nft::Ruleset)| {
                let mut changed = ours.clone();
                change(&mut changed);
                assert_ne!(changed, ours);
                changed
            };
            let with = |name: &str, rule: &Rule| {
                changed(&|found| {
                    let mut chains = found.tables.iter_mut().flat_map(|t| &mut t.chains);
                    let chain = chains.find(|c| c.name == name).unwrap();
                    chain.rules.insert(0, rule.clone());
                })
            };
            let to = |port| Rule::builder().dport(L4Proto::Tcp, CmpOp::Eq, port..=port);
            let comment = Rule {
                comment: Some("x".into()),
                ..Rule::builder().counter().verdict(Verdict::Return)
            };
            let each = |found: &mut nft::Ruleset, change: &dyn Fn(&mut nft::Chain)| {
                let chains = found.tables.iter_mut().flat_map(|t| &mut t.chains);
                chains.for_each(change);
            };
            for foreign in [
                nft::Ruleset::default(),
                with("istio-output", &to(7777).counter().verdict(Verdict::Accept)),
                with("istio-inbound", &comment),
                with("istio-output", &to(80).redirect(8080).build()),
                changed(&|found| {
                    each(found, &|chain| {
                        if let Some(base) = &mut chain.base {
                            base.priority += 1;
                        }
                    });
                }),
                changed(&|found| {
                    each(found, &|chain| {
                        if chain.name == "istio-in-redirect" {
                            chain.name = "istio-other".into();
                        }
                    });
                }),
                changed(&|found| {
                    each(found, &|chain| {
                        if chain.name == "output" {
                            chain.rules.clear();
                        }
                    });
                }),
                changed(&|found| found.tables[0].comment = Some("x".into())),
                changed(&|found| found.tables[0].flags = 1),
            ] {
                assert!(!wrote_tables(&foreign), "{foreign}");
            }
            let Rules::Xtables(ours) = compile(&intent, Engine::Xtables).rules else {
                unreachable!()
            };
            assert!(wrote_chains(&ours), "{ours}");
            let to = |port: u16| xtables::Rule::builder().tcp_dport(port.into());
            for (name, rule) in [
                ("ISTIO_OUTPUT", to(7777).target(Target::Accept)),
                (
                    "ISTIO_REDIRECT",
                    to(80).target(Target::Redirect(xtables::Nat::to_ports(9999..=9999))),
                ),
                ("ISTIO_MINE", to(80).target(Target::Return)),
            ] {
                let mut changed = ours.clone();
                let nat = changed.tables.iter_mut().find(|t| t.name == "nat").unwrap();
                match nat.chains.iter_mut().find(|c| c.name == name) {
                    Some(chain) => chain.rules.push(rule),
                    None => nat.chains.push(xtables::Chain::user(name)),
                }
                assert!(!wrote_chains(&changed), "{changed}");
            }
        }
    }
}
