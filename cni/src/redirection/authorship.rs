//! Checks whether this program wrote the rules in owned tables and chains.
//!
//! A rule of nf_tables does not identify its writer, and any program can use a table's name. What can be checked is
//! whether the content is what `compile` writes for some intent: the same chains with the same hooks, in each chain
//! only rules of the forms that it writes there, and every rule that it writes for all intents. The forms are
//! compiled, not listed: intents that use every option, each twice with different values. Where the two differ, the
//! form matches any value of that kind; everything else is literal. Unrecognized rules, such as 65 groups in one
//! set, count as another writer's.

use super::TABLES;
use super::engines::PREFIX;
use crate::compile::{Engine, compile};
use crate::config::{Intent, NameFiles, SidecarConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use weir_netfilter::{nft, xtables};

static NFT: LazyLock<Forms> = LazyLock::new(|| Forms::of(Engine::Nft));
static LEGACY: LazyLock<Forms> = LazyLock::new(|| Forms::of(Engine::Xtables));

/// True if this program wrote all owned tables of the ruleset.
pub(super) fn wrote_tables(found: &nft::Ruleset) -> bool {
    let mut ours = found.clone();
    ours.tables
        .retain(|t| t.family == nft::TableFamily::Inet && TABLES.contains(&t.name.as_str()));
    NFT.make(&ours.to_string())
}

/// True if this program wrote all chains with the owned prefix. Rules of built-in chains carry a tag and are not
/// checked.
pub(super) fn wrote_chains(found: &xtables::Ruleset) -> bool {
    LEGACY.make(&found.to_string())
}

/// Table and chain of a line, as given by the lines before it.
type Place = (String, String);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Token {
    Literal(String),
    Value(Kind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Numbers, addresses and their ranges.
    Number,
    /// A name, in quotes or not.
    Name,
}

struct Forms {
    known: BTreeMap<Place, BTreeSet<Vec<Token>>>,
    /// The rules that every intent has.
    always: BTreeSet<(Place, Vec<Token>)>,
}

impl Forms {
    fn of(engine: Engine) -> Self {
        let text = |config: &SidecarConfig| {
            let intent = Intent::parse(config, &NameFiles::default()).ok()?;
            Some(compile(&intent, engine).rules.to_string())
        };
        let mut known = BTreeMap::<Place, BTreeSet<Vec<Token>>>::new();
        let mut always = None::<BTreeSet<(Place, Vec<Token>)>>;
        for [one, other] in examples() {
            let (Some(one), Some(other)) = (text(&one), text(&other)) else {
                continue;
            };
            let pairs = lines(&one).into_iter().zip(lines(&other));
            let forms: BTreeSet<_> = pairs.map(|((at, a), (_, b))| (at, form(&a, &b))).collect();
            for (at, form) in &forms {
                known.entry(at.clone()).or_default().insert(form.clone());
            }
            always = Some(match always {
                Some(before) => before.intersection(&forms).cloned().collect(),
                None => forms,
            });
        }
        Self {
            known,
            always: always.unwrap_or_default(),
        }
    }

    fn make(&self, text: &str) -> bool {
        let found = lines(text);
        let is_known = |(at, line): &(Place, Vec<String>)| {
            let forms = self.known.get(at);
            forms.is_some_and(|forms| forms.iter().any(|form| is_of(line, form)))
        };
        let is_there = |(at, form): &(Place, Vec<Token>)| {
            found.iter().any(|(a, line)| a == at && is_of(line, form))
        };
        !self.always.is_empty() && found.iter().all(is_known) && self.always.iter().all(is_there)
    }
}

/// Pairs of configurations that differ in values only.
fn examples() -> Vec<[SidecarConfig; 2]> {
    let mut all = vec![[minimal(0), minimal(1)]];
    for choice in 0..72 {
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
            c
        };
        all.push([full(0), full(1)]);
    }
    all
}

/// Little more than the rules that every intent has: one captured network, which is all of loopback.
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

fn form(one: &[String], other: &[String]) -> Vec<Token> {
    let token = |(one, other): (&String, &String)| match one == other {
        true => Token::Literal(one.clone()),
        false => Token::Value(kind(one)),
    };
    one.iter().zip(other).map(token).collect()
}

fn kind(token: &str) -> Kind {
    let number = |c: char| c.is_ascii_hexdigit() || matches!(c, 'x' | '.' | ':' | '/' | '-' | ',');
    match token.chars().all(number) {
        true => Kind::Number,
        false => Kind::Name,
    }
}

fn is_of(line: &[String], form: &[Token]) -> bool {
    let fits = |(found, token): (&String, &Token)| match token {
        Token::Literal(text) => found == text,
        Token::Value(of) => kind(found) == *of,
    };
    line.len() == form.len() && line.iter().zip(form).all(fits)
}

/// The lines of a listing by `nft` or `iptables-save`, split into words and without counter values. Of legacy tables
/// only the lines about chains with the owned prefix.
fn lines(text: &str) -> Vec<(Place, Vec<String>)> {
    let (mut place, mut found) = (Place::default(), Vec::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with('#') {
            place = (line.to_owned(), String::new());
        } else if line.starts_with('*') {
            place.1 = line.to_owned();
        } else if let Some(rest) = line.strip_prefix("-A ").or(line.strip_prefix(':')) {
            if rest.starts_with(PREFIX) {
                found.push((place.clone(), words(line)));
            }
        } else if !matches!(line, "" | "}" | "COMMIT") {
            if line.starts_with("table ") {
                place = (line.to_owned(), String::new());
            } else if line.starts_with("chain ") {
                place.1 = line.to_owned();
            }
            found.push((place.clone(), words(line)));
        }
    }
    found
}

fn words(line: &str) -> Vec<String> {
    let (mut words, mut is_count) = (Vec::new(), false);
    for word in line.split_whitespace() {
        if !is_count && !word.starts_with('[') {
            words.push(word.to_owned());
        }
        is_count = matches!(word, "packets" | "bytes");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_understood_and_differs_in_values_only() {
        for [one, other] in examples() {
            for engine in [Engine::Nft, Engine::Xtables] {
                let [one, other] = [&one, &other].map(|config| {
                    let intent = Intent::parse(config, &NameFiles::default()).unwrap();
                    compile(&intent, engine).rules.to_string()
                });
                let (one, other) = (lines(&one), lines(&other));
                assert_eq!(one.len(), other.len());
                for ((at, one), (there, other)) in one.iter().zip(&other) {
                    assert_eq!((at, one.len()), (there, other.len()), "{one:?} {other:?}");
                }
            }
        }
    }

    fn compiled(engine: Engine, change: impl FnOnce(&mut SidecarConfig)) -> String {
        let mut config = SidecarConfig {
            proxy_uid: "1337".into(),
            inbound_ports_include: "*".into(),
            outbound_ip_ranges_include: "*".into(),
            ..SidecarConfig::default()
        };
        change(&mut config);
        let intent = Intent::parse(&config, &NameFiles::default()).unwrap();
        compile(&intent, engine).rules.to_string()
    }

    fn tproxy(config: &mut SidecarConfig) {
        config.inbound_interception_mode = "TPROXY".into();
        config.proxy_uid = "1000-1337".into();
        config.inbound_ports_exclude = "22,15090".into();
        config.outbound_ip_ranges_include = "10.0.0.0/8".into();
        config.dns_servers_v4 = vec!["10.96.0.10".into(), "10.96.0.11".into()];
        config.redirect_dns = true;
    }

    #[test]
    fn what_was_compiled_is_recognized_and_nothing_else() {
        for change in [tproxy as fn(&mut SidecarConfig), |_| {}] {
            let text = compiled(Engine::Nft, change);
            assert!(NFT.make(&text), "{text}");
            let with = |chain: &str, rule: &str| {
                let head = format!("chain {chain} {{\n");
                let changed = text.replacen(&head, &format!("{head}{rule}\n"), 1);
                assert_ne!(changed, text);
                changed
            };
            let accept = "tcp dport 7777 counter packets 0 bytes 0 accept";
            let comment = "counter packets 5 bytes 6 return comment \"x\"";
            for foreign in [
                String::new(),
                with("istio-output", accept),
                with("istio-inbound", comment),
                with("istio-output", "tcp dport 80 redirect to :8080"),
                text.replace("priority -100", "priority -99"),
                text.replace("istio-in-redirect", "istio-other"),
                text.replace("counter packets 0 bytes 0 jump istio-output\n", "\n"),
                format!("{text}table inet istio-proxy-mangle {{\n}}\n").replace(
                    "istio-proxy-nat {",
                    "istio-proxy-nat {\nset s {\ntype inet_service\n}\n",
                ),
            ] {
                assert!(!NFT.make(&foreign), "{foreign}");
            }
            let text = compiled(Engine::Xtables, change);
            assert!(LEGACY.make(&text), "{text}");
            for foreign in [
                "-A ISTIO_OUTPUT -p tcp -m tcp --dport 7777 -j ACCEPT",
                "-A ISTIO_REDIRECT -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 9999",
                ":ISTIO_MINE - [0:0]",
            ] {
                let changed = text.replace("-A OUTPUT", &format!("{foreign}\n-A OUTPUT"));
                assert!(!LEGACY.make(&changed), "{changed}");
            }
        }
    }
}
