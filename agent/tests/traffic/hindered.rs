//! Foreign rules beside ours: those that keep packets from the redirection are named, and no others.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;
use weir_cni::compile::Engine;
use weir_cni::config::{Intent, NameFiles, SidecarConfig};
use weir_cni::redirection::{Change, Desired as _, Sandbox};
use weir_demo::{Lab, Mode, Outcome, Place, Receiver, Stage};
use weir_netlink::Netns;
use weir_netlink::route::AddressFamily;

use crate::lab_or_skip;
use crate::support::{config, lab, tcp};

/// Another writer's rules: those that come before the redirection is made, and those that come after it.
struct Foreign {
    what: &'static str,
    tool: &'static str,
    first: &'static [&'static str],
    rules: &'static [&'static str],
}

const fn nft(what: &'static str, rules: &'static [&'static str]) -> Foreign {
    Foreign {
        what,
        tool: "nft",
        rules,
        first: &[],
    }
}

const fn tables(what: &'static str, tool: &'static str, rules: &'static [&'static str]) -> Foreign {
    Foreign {
        what,
        tool,
        rules,
        first: &[],
    }
}

/// Each is loaded with what its tool reads: a script of `nft`, or a rule for each call.
const FOREIGN: &[Foreign] = &[
    nft(
        "notrack before conntrack",
        &["table inet t { chain c { type filter hook output priority -310; notrack; }; }"],
    ),
    nft(
        "notrack behind conntrack",
        &["table inet t { chain c { type filter hook output priority -190; notrack; }; }"],
    ),
    nft(
        "notrack of another protocol",
        &[
            "table ip t { chain c { type filter hook output priority -310; meta l4proto udp notrack; }; }",
        ],
    ),
    nft(
        "notrack in a chain that is jumped to",
        &["table ip t { chain d { tcp dport 80 notrack; }; \
           chain c { type filter hook output priority -310; jump d; }; }"],
    ),
    nft(
        "notrack in a chain that nothing leads to",
        &["table ip t { chain d { notrack; }; \
           chain c { type filter hook output priority -310; counter; }; }"],
    ),
    nft(
        "notrack in a table that is dormant",
        &[
            "table ip t { flags dormant; chain c { type filter hook output priority -310; notrack; }; }",
        ],
    ),
    nft(
        "redirection before ours",
        &[
            "table inet t { chain c { type nat hook output priority -150; tcp dport 80 redirect to :9999; }; }",
        ],
    ),
    nft(
        "redirection behind ours",
        &[
            "table inet t { chain c { type nat hook output priority -50; tcp dport 80 redirect to :9999; }; }",
        ],
    ),
    nft(
        "redirection with our priority, registered later",
        &[
            "table ip t { chain c { type nat hook output priority -100; tcp dport 80 redirect to :9999; }; }",
        ],
    ),
    Foreign {
        first: &[
            "table ip t { chain c { type nat hook output priority -100; tcp dport 80 redirect to :9999; }; }",
        ],
        ..nft("redirection with our priority, registered before", &[])
    },
    Foreign {
        first: &["table inet t { chain d { counter; }; }"],
        ..nft(
            "redirection with our priority, registered later in an older table",
            &[
                "table inet t { chain c { type nat hook output priority -100; tcp dport 80 redirect to :9999; }; }",
            ],
        )
    },
    nft(
        "redirection behind a verdict map of the rule",
        &[
            "table inet t { chain d { tcp dport 80 redirect to :9999; }; \
           chain c { type nat hook output priority -110; tcp dport vmap { 80 : jump d }; }; }",
        ],
    ),
    nft(
        "redirection behind a verdict map with a name",
        &[
            "table inet t { map m { type inet_service : verdict; }; chain d { tcp dport 80 redirect to :9999; }; \
           chain c { type nat hook output priority -110; tcp dport vmap @m; }; }; \
           add element inet t m { 80 : goto d };",
        ],
    ),
    nft(
        "verdict maps that lead past a redirection",
        &[
            "table inet t { map m { type inet_service : verdict; }; chain d { tcp dport 80 redirect to :9999; }; \
           chain e { counter; }; chain c { type nat hook output priority -110; \
           tcp dport vmap { 80 : jump e }; tcp dport vmap @m; }; }; add element inet t m { 80 : goto e };",
        ],
    ),
    nft(
        "translation to what is looked up",
        &[
            "table ip t { chain c { type nat hook output priority -150; \
           dnat to tcp dport map { 80 : 10.96.0.10 }; }; }",
        ],
    ),
    nft(
        "what accepts, counts and marks before ours",
        &[
            "table inet t { chain c { type nat hook output priority -150; tcp dport 80 accept; }; \
             chain d { type filter hook output priority -310; meta mark set 7 counter accept; }; \
             chain e { type filter hook prerouting priority -310; ct state invalid drop; }; }",
        ],
    ),
    tables(
        "notrack in legacy tables",
        "iptables-legacy",
        &["-t raw -A OUTPUT -j CT --notrack"],
    ),
    tables(
        "notrack in a legacy chain",
        "iptables-legacy",
        &[
            "-t raw -N MINE",
            "-t raw -A MINE -p tcp -j CT --notrack",
            "-t raw -A OUTPUT -j MINE",
        ],
    ),
    nft(
        "a zone",
        &["table inet t { chain c { type filter hook output priority -310; ct zone set 7; }; }"],
    ),
    tables(
        "a zone in legacy tables",
        "iptables-legacy",
        &["-t raw -A OUTPUT -j CT --zone 7"],
    ),
    tables(
        "a zone and notrack of UDP in legacy tables",
        "iptables-legacy",
        &[
            "-t raw -A OUTPUT -p udp -j CT --notrack",
            "-t raw -A OUTPUT -p udp -j CT --zone 7",
        ],
    ),
    tables(
        "redirection in legacy tables",
        "iptables-legacy",
        &["-t nat -I OUTPUT -p tcp -j REDIRECT --to-ports 9999"],
    ),
    tables(
        "notrack by iptables-nft",
        "iptables-nft",
        &["-t raw -A OUTPUT -p tcp -j CT --notrack"],
    ),
    tables(
        "redirection by iptables-nft",
        "iptables-nft",
        &["-t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 9999"],
    ),
    Foreign {
        first: &["-t nat -A POSTROUTING -p tcp --dport 9 -j RETURN"],
        ..tables(
            "redirection by iptables-nft in an older table",
            "iptables-nft",
            &["-t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 9999"],
        )
    },
    tables(
        "a legacy chain that counts and returns",
        "iptables-legacy",
        &[
            "-t nat -N MINE",
            "-t nat -A MINE -p tcp -j RETURN",
            "-t nat -I OUTPUT -j MINE",
            "-t mangle -I OUTPUT -p tcp -j MARK --set-mark 7",
            "-I OUTPUT -p tcp -j ACCEPT",
        ],
    ),
];

impl Foreign {
    /// Loads it; the reason where there is no such tool, or the kernel does not take it.
    fn load(&self, netns: &Netns, rules: &[&str]) -> Result<(), String> {
        for rule in rules {
            let load = || -> std::io::Result<std::process::Output> {
                let mut command = Command::new(self.tool);
                match self.tool {
                    "nft" => command.args(["-f", "-"]),
                    _ => command.args(rule.split_whitespace()),
                };
                let piped = command.stdin(Stdio::piped()).stderr(Stdio::piped());
                let mut child = piped.spawn()?;
                if let Some(mut stdin) = child.stdin.take() {
                    // What a tool that does not read it closes.
                    let _ = stdin.write_all(rule.as_bytes());
                }
                child.wait_with_output()
            };
            let done = netns.run(load).expect("entered");
            let done = done.map_err(|e| format!("{}: {e}", self.tool))?;
            if !done.status.success() {
                return Err(String::from_utf8_lossy(&done.stderr).into_owned());
            }
        }
        Ok(())
    }
}

/// What `verify` names, and who gets a connection of the application.
fn hindered(lab: &Lab, engine: Engine, foreign: &Foreign) -> Option<(Vec<String>, Outcome)> {
    let pod = lab.netns(Place::Pod);
    let given = config(Mode::Redirect, json!({}));
    let given: SidecarConfig = serde_json::from_value(given).expect("a configuration");
    let intent = Intent::parse(&given, &NameFiles::default()).expect("an intent");
    let compiled = intent.compile_for(None, engine);
    let sandbox = Sandbox::of(pod.try_clone().expect("a descriptor")).expect("a pod");
    let load = |rules| {
        let loaded = foreign.load(pod, rules);
        loaded.inspect_err(|e| println!("skipped: {}: {e}", foreign.what))
    };
    load(foreign.first).ok()?;
    sandbox.apply(&compiled).expect("applied");
    let before = sandbox.verify(&compiled).expect("compared");
    assert!(foreign.rules.is_empty() || before.is_empty(), "{before:?}");
    load(foreign.rules).ok()?;
    let stage = Stage::open(lab, Mode::Redirect).expect("everybody in place");
    let to = (lab.service(AddressFamily::V4), 80).into();
    let outcome = stage.send(&tcp("out", Place::Pod, to)).expect("sent");
    let found = sandbox.verify(&compiled).expect("compared");
    let object = |change: &Change| match change {
        Change::Hindrance(line) => line.clone(),
        other => panic!("{}: {other}", foreign.what),
    };
    Some((found.iter().map(object).collect(), outcome))
}

/// What is wrong about it; also printed.
fn mistaken(engine: Engine, foreign: &Foreign) -> Option<String> {
    let lab = lab()?;
    let to = (lab.service(AddressFamily::V4), 80).into();
    let (named, outcome) = hindered(&lab, engine, foreign)?;
    let is_captured =
        outcome.by() == Some(Receiver::ProxyOutbound) && outcome.original() == Some(to);
    let text = format!("{engine}: {}: {outcome}; {named:?}", foreign.what);
    println!("{text}");
    let is_mistaken = match foreign.rules {
        // When its chain was registered the kernel does not say.
        [] => named.is_empty(),
        _ => named.is_empty() != is_captured,
    };
    is_mistaken.then_some(text)
}

/// Side by side: an answer that is lost is waited for.
fn all(engine: Engine) {
    drop(lab_or_skip!());
    let mistaken: Vec<String> = std::thread::scope(|scope| {
        let parts = FOREIGN.chunks(4);
        let running: Vec<_> = parts
            .map(|part| {
                let each = part.iter().filter_map(move |one| mistaken(engine, one));
                scope.spawn(move || each.collect::<Vec<_>>())
            })
            .collect();
        let joined = running.into_iter().map(|one| one.join().expect("said"));
        joined.flatten().collect()
    });
    assert!(mistaken.is_empty(), "{mistaken:#?}");
}

#[test]
fn what_takes_packets_from_nf_tables_is_named_and_nothing_else() {
    all(Engine::Nft);
}

#[test]
fn what_takes_packets_from_legacy_tables_is_named_and_nothing_else() {
    all(Engine::Xtables);
}
