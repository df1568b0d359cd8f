//! Rules for nf_tables with the meaning of those for legacy tables.

use super::*;
use weir_netfilter::nft::TableFamily::Inet;

/// The rules of a chain as `nft` lists them; for an engine that was configured (`named`), or was chosen.
fn listed(intent: &Intent, named: bool, table: &str, chain: &str) -> Vec<String> {
    let compiled = match named {
        true => compile(intent, Engine::Nft),
        false => compile_chosen(intent, Engine::Nft),
    };
    let Rules::Nft(ruleset) = compiled.rules else {
        panic!("asked for nft")
    };
    let text = ruleset.to_string();
    let after = |text: &str, line: &str| {
        let rest = text.split_once(line).map(|(_, rest)| rest.to_owned());
        rest.unwrap_or_default()
    };
    assert!(ruleset.table(Inet, table).is_some(), "{text}");
    let rest = after(&text, &format!("table inet {table} {{\n"));
    let rest = after(&rest, &format!("\tchain {chain} {{\n"));
    let lines = rest.lines().take_while(|line| line.trim() != "}");
    let rules = lines.map(|line| line.trim().replace(" packets 0 bytes 0", ""));
    rules.filter(|line| !line.starts_with("type ")).collect()
}

const NAT: &str = "istio-proxy-nat";
const MANGLE: &str = "istio-proxy-mangle";
const IPV6: &str = "meta nfproto ipv6 counter return";

fn everything(change: impl FnOnce(&mut Intent)) -> Intent {
    intent(|c| {
        c.mode = texts::tproxy();
        c.inbound = texts::inbound("*");
        c.outbound_include = texts::destinations("*");
        c.dns = Dns::All;
        c.drop_invalid = true;
        change(c);
    })
}

#[test]
fn ipv6_that_is_not_programmed_returns_first() {
    let bases = [NAT, MANGLE, "istio-proxy-raw"]
        .map(|table| ["prerouting", "output"].map(|chain| (table, chain)));
    for ipv6 in [false, true] {
        let intent = everything(|c| {
            c.enable_ipv6 = ipv6;
            c.exclude_interfaces = texts::interfaces("net1");
        });
        for (table, chain) in bases.into_iter().flatten() {
            let first = listed(&intent, false, table, chain).into_iter().next();
            assert_eq!(first.as_deref() == Some(IPV6), !ipv6, "{table} {chain}");
            let named = listed(&intent, true, table, chain);
            assert!(!named.iter().any(|rule| rule == IPV6), "{named:?}");
        }
    }
}

#[test]
fn invalid_packets_of_every_protocol_are_dropped() {
    let intent = everything(|c| c.enable_ipv6 = true);
    let of = |named| listed(&intent, named, MANGLE, "prerouting");
    assert_eq!(of(false)[0], "ct state invalid counter jump istio-drop");
    assert!(of(true)[0].starts_with("meta l4proto tcp ct state invalid"));
}

#[test]
fn a_plus_ends_a_prefix_and_an_asterisk_does_not() {
    let intent = everything(|c| {
        c.enable_ipv6 = true;
        c.exclude_interfaces = texts::interfaces("net+,eth*,lan0");
    });
    let of = |named| listed(&intent, named, NAT, "prerouting");
    let rules = |names: [&str; 3]| names.map(|n| format!("iifname \"{n}\" counter return"));
    assert_eq!(of(false), rules(["net*", "eth\\*", "lan0"]));
    assert_eq!(of(true), rules(["net+", "eth*", "lan0"]));
    let all = everything(|c| c.exclude_interfaces = texts::interfaces("+"));
    let rules = listed(&all, false, MANGLE, "output");
    assert_eq!(rules[..2], [IPV6, "counter return"]);
}

/// In legacy tables `! --uid-owner U` holds for a packet without a socket.
#[test]
fn packets_without_a_socket_are_of_another_owner() {
    let intent = everything(|c| {
        (c.dns, c.enable_ipv6) = (Dns::Off, true);
        c.owner_groups = texts::groups("2000,3000-3010");
    });
    let output = listed(&intent, false, NAT, "istio-output");
    assert!(output.iter().all(|rule| !rule.contains("skuid !=")));
    assert!(output.iter().all(|rule| !rule.contains("skgid !=")));
    let over_lo = "oifname \"lo\" counter jump istio-not-proxy";
    assert_eq!(output.iter().filter(|rule| *rule == over_lo).count(), 1);
    assert!(output.contains(&"counter jump istio-other-groups".to_owned()));
    assert_eq!(
        listed(&intent, false, NAT, "istio-not-proxy"),
        ["meta skuid 1337 counter return", "counter accept"]
    );
    assert_eq!(
        listed(&intent, false, NAT, "istio-other-groups"),
        [
            "meta skgid 2000 counter return",
            "meta skgid 3000-3010 counter return",
            "counter accept"
        ]
    );
    // Loopback is captured and no group is included: neither chain exists.
    let intent = intent_of_nothing();
    let Rules::Nft(rules) = compile_chosen(&intent, Engine::Nft).rules else {
        panic!("asked for nft")
    };
    let text = rules.to_string();
    assert!(!text.contains("istio-not-proxy") && !text.contains("istio-other-groups"));
    assert!(listed(&intent, false, NAT, "istio-output").contains(&"counter return".to_owned()));
}

fn intent_of_nothing() -> Intent {
    intent(|c| {
        c.outbound_include = texts::destinations("127.0.0.0/8");
        c.owner_groups = texts::groups("");
    })
}

/// For legacy tables a chosen and a configured engine get the same rules.
#[test]
fn legacy_tables_have_one_meaning() {
    let intent = everything(|_| {});
    let [named, chosen] = [compile, compile_chosen].map(|f| f(&intent, Engine::Xtables));
    assert!(named == chosen);
}
