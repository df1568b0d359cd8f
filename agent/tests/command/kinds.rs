//! Several redirections of different kinds in one namespace: each is in sync, and none changes objects of another one or of another
//! program.
// matrix: newest

use crate::support::{Run, TempFile, config, inside, path, settle, weir};
use serde_json::json;
use weir_netlink::Netns;

/// A kind of redirection with its engine, as arguments of the commands.
pub(crate) struct Kind {
    name: &'static str,
    engine: &'static str,
    file: TempFile,
}

impl Kind {
    pub(crate) fn run(&self, verb: &str, pod: &Netns) -> Run {
        let place = path(pod);
        let at = match self.name {
            "node-ambient" => "--host-netns",
            _ => "--netns",
        };
        let mut args = vec![verb, self.name, at, &place];
        match (verb, self.name) {
            ("clean", "sidecar") => _ = args.remove(1),
            ("clean", _) => {}
            _ => args.extend(["--config", self.file.path(), "--engine", self.engine]),
        }
        if (self.name, verb) == ("node-ambient", "apply") {
            // Both redirections match bits of the marks that the other one sets, with different meanings.
            args.push("--force");
        }
        weir(&args)
    }

    pub(crate) fn done(&self, verb: &str, pod: &Netns) {
        let run = self.run(verb, pod);
        // The rules are complete, but the other redirection takes some packets first, so `verify` reports a conflict.
        let is_told = run.stdout.starts_with("conflict: ")
            || run
                .stdout
                .contains("so that connections of pods bypass the proxy");
        let is_bypassed = verb == "verify" && is_told;
        assert_eq!(
            run.code,
            i32::from(is_bypassed),
            "{verb} {}: {run:?}",
            self.what()
        );
    }

    fn what(&self) -> String {
        format!("{} by {}", self.name, self.engine)
    }
}

pub(crate) fn sidecar(engine: &'static str, v6: bool) -> Kind {
    Kind {
        name: "sidecar",
        engine,
        // These settings also add rules to built-in chains.
        file: config(&json!({
            "inbound_interception_mode": "TPROXY",
            "drop_invalid": true,
            "exclude_interfaces": "eth7",
            "redirect_dns": true,
            "capture_all_dns": true,
            "enable_ipv6": v6,
        })),
    }
}

/// The routes go into this table instead of the table of the mode.
pub(crate) fn sidecar_by_table(table: &str) -> Kind {
    Kind {
        name: "sidecar",
        engine: "nft",
        file: config(&json!({
            "inbound_interception_mode": "TPROXY",
            "inbound_tproxy_route_table": table,
        })),
    }
}

pub(crate) fn in_pod(engine: &'static str, v6: bool) -> Kind {
    let request = json!({ "config": { "enable_ipv6": v6, "redirect_dns": true } });
    Kind {
        name: "ambient",
        engine,
        file: TempFile::new(&request.to_string()),
    }
}

/// Ambient mode of a node without a proxy, with marks and tables that nothing else there uses.
fn at_node(engine: &'static str) -> Kind {
    let request = json!({
        "marks": {
            "outbound": 0x10000,
            "skip": 0x20000,
            "conn_skip": 0x60000,
            "proxy": 0xa0000,
            "proxy_return": 0x10_0000,
            "second": 0x20_0000,
        },
        "routing": {
            "inbound_table": 200,
            "outbound_table": 201,
            "proxy_table": 202,
            "second_table": 203,
        },
    });
    Kind {
        name: "node-ambient",
        engine,
        file: TempFile::new(&request.to_string()),
    }
}

pub(crate) fn ip(pod: &Netns, args: &str) -> String {
    inside(pod, "ip", &args.split_whitespace().collect::<Vec<_>>())
}

/// Another program's routes in the table of ambient mode. They do not match packets of ambient mode.
fn foreign_routes(pod: &Netns) {
    ip(
        pod,
        "route add local 198.51.100.7 dev lo table 100 proto 42",
    );
    ip(
        pod,
        "-6 route add local 2001:db8::7 dev lo table 100 proto 42",
    );
    ip(pod, "route add local 198.51.100.8 dev lo table 100");
}

/// The complete state, without packet counters and without empty legacy tables, which the kernel never removes.
pub(crate) fn state(pod: &Netns) -> String {
    settle(pod);
    let mut text = inside(pod, "nft", &["-a", "list", "ruleset"]);
    for program in ["iptables-legacy-save", "ip6tables-legacy-save"] {
        let saved = inside(pod, program, &[]);
        let tables = saved
            .split("# Generated")
            .filter_map(|t| t.split_once('\n'));
        let is_used = |table: &&str| table.contains("\n-A ") || table.contains(" - [");
        text.extend(tables.map(|(_, table)| table).filter(is_used));
    }
    for args in [
        "rule",
        "-6 rule",
        "route show table all",
        "-6 route show table all",
        "addr",
    ] {
        text += &ip(pod, args);
    }
    let lines = text
        .lines()
        .filter(|l| !l.contains("COMMIT") && !l.starts_with('#'));
    let words = lines.map(|line| {
        let mut words: Vec<&str> = line.split(' ').collect();
        for n in 1..words.len() {
            if matches!(words[n - 1], "packets" | "bytes") {
                words[n] = "0";
            }
        }
        words.retain(|word| !word.starts_with('['));
        words.join(" ")
    });
    words.collect::<Vec<_>>().join("\n")
}

/// Installs `first`, then `second` beside it, and removes `second` again.
fn beside(pod: &Netns, first: &Kind, second: &Kind) {
    let what = format!("{} beside {}", second.what(), first.what());
    foreign_routes(pod);
    let nothing = state(pod);
    second.done("clean", pod);
    assert_eq!(state(pod), nothing, "{what}");

    first.done("apply", pod);
    let alone = state(pod);
    assert_ne!(alone, nothing, "{what}");
    // There is nothing to remove yet.
    second.done("clean", pod);
    assert_eq!(state(pod), alone, "{what}: cleaned first");

    let applied = second.run("apply", pod);
    let both_in_nat = [first, second].iter().all(|kind| kind.engine == "xtables");
    if both_in_nat
        && ![first, second]
            .iter()
            .any(|kind| kind.name == "node-ambient")
    {
        assert_eq!(applied.code, 1, "{what}: {applied:?}");
        for words in ["ISTIO_OUTPUT", "another owner", "nf_tables"] {
            assert!(applied.stderr.contains(words), "{what}: {applied:?}");
        }
        assert_eq!(state(pod), alone, "{what}: refused");
    } else {
        assert_eq!(applied.code, 0, "{what}: {applied:?}");
        let both = state(pod);
        for kind in [first, second] {
            kind.done("verify", pod);
            kind.done("apply", pod);
            assert_eq!(state(pod), both, "{what}: {} again", kind.what());
        }
    }
    second.done("clean", pod);
    assert_eq!(state(pod), alone, "{what}: cleaned");
    first.done("verify", pod);
    first.done("clean", pod);
    assert_eq!(state(pod), nothing, "{what}: all cleaned");
}

/// Every pair of kinds, in both orders, with each engine.
fn every_pair(v6: bool, first_engine: &'static str) {
    let kinds = |engine| [sidecar(engine, v6), in_pod(engine, v6), at_node(engine)];
    for first in kinds(first_engine) {
        for second in ["nft", "xtables"].into_iter().flat_map(kinds) {
            if first.name != second.name {
                let pod = legacy_pod_or_skip!();
                beside(&pod, &first, &second);
            }
        }
    }
}

#[test]
fn beside_one_in_nf_tables() {
    every_pair(true, "nft");
}

#[test]
fn beside_one_in_legacy_tables() {
    every_pair(true, "xtables");
}

#[test]
fn beside_one_in_nf_tables_without_ipv6() {
    every_pair(false, "nft");
}

#[test]
fn beside_one_in_legacy_tables_without_ipv6() {
    every_pair(false, "xtables");
}
