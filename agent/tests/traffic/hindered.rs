//! Foreign rules beside weir's: `verify` names those that keep packets from the redirection, and no others.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use weir_ambient::{Config, PodOverrides, Redirect};
use weir_cni::compile::{Compiled, Engine};
use weir_cni::config::NameFiles;
use weir_cni::redirection::{Change, Desired as _, Sandbox};
use weir_demo::{Flow, Lab, Mode, Outcome, Owner, Place, Protocol, Receiver, Stage, ZTUNNEL_MARK};
use weir_netlink::Netns;
use weir_netlink::route::AddressFamily;
use weir_rules::SidecarConfig;

use crate::lab_or_skip;
use crate::support::{config, lab, tcp};

mod foreign;

use foreign::{FOREIGN, Foreign, Of, QUERIES, SOCKETS};

impl Of {
    fn config(self) -> Value {
        match self {
            Self::Application | Self::Proxy | Self::Diverted => json!({}),
            Self::Ipv4 => json!({ "enable_ipv6": false }),
            Self::Client => json!({ "drop_invalid": true }),
            Self::Query => json!({ "redirect_dns": true, "capture_all_dns": true }),
        }
    }

    fn mode(self) -> Mode {
        match self {
            Self::Diverted => Mode::Tproxy,
            _ => Mode::Redirect,
        }
    }

    /// The flow and its expected receiver.
    fn flow(self, lab: &Lab, kind: Kind) -> (Flow, Receiver) {
        let family = AddressFamily::V4;
        let service = |port| (lab.service(family), port).into();
        let pod = (lab.address(Place::Pod, family), 8080).into();
        let out = tcp("out", Place::Pod, service(80));
        match self {
            Self::Application | Self::Ipv4 => (out, Receiver::ProxyOutbound),
            Self::Client | Self::Diverted => {
                (tcp("in", Place::Client, pod), Receiver::ProxyInbound)
            }
            Self::Query => (
                Flow::new("query", Protocol::Udp, Place::Pod, service(53)),
                Receiver::ProxyDns,
            ),
            Self::Proxy => match kind {
                Kind::Sidecar => (out.of(Owner::PROXY), Receiver::Server),
                Kind::Ambient => (out.mark(ZTUNNEL_MARK), Receiver::Server),
            },
        }
    }
}

/// The redirection of the pod's traffic.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Sidecar,
    Ambient,
}

impl Kind {
    fn compiled(self, of: Of, engine: Engine) -> Compiled {
        match self {
            Self::Ambient => {
                let config = Config {
                    redirect_dns: matches!(of, Of::Query),
                    enable_ipv6: !matches!(of, Of::Ipv4),
                    ..Config::default()
                };
                let redirect = Redirect::new(config, &PodOverrides::default());
                redirect.expect("a redirection").compile_for(None, engine)
            }
            Self::Sidecar => {
                let given = config(of.mode(), of.config());
                let given: SidecarConfig = serde_json::from_value(given).expect("a configuration");
                let intent = given.intent(&NameFiles::default()).expect("an intent");
                intent.compile_for(None, engine)
            }
        }
    }

    fn stage(self, of: Of, lab: &Lab) -> Stage<'_> {
        let stage = match self {
            Self::Sidecar => Stage::open(lab, of.mode()),
            Self::Ambient => Stage::ambient(lab),
        };
        stage.expect("everybody in place")
    }
}

impl Foreign {
    /// Loads the rules. Returns the reason if the tool is missing or the kernel refuses them.
    fn load(&self, netns: &Netns, rules: &[&str]) -> Result<(), String> {
        for rule in rules {
            let load = || -> std::io::Result<std::process::Output> {
                let mut command = Command::new(self.tool);
                match self.tool {
                    "nft" => command.args(["-f", "-"]),
                    "iptables-legacy-restore" => command.arg("--noflush"),
                    _ => command.args(rule.split_whitespace()),
                };
                let piped = command.stdin(Stdio::piped()).stderr(Stdio::piped());
                let mut child = piped.spawn()?;
                if let Some(mut stdin) = child.stdin.take() {
                    // A tool that does not read its input closes the pipe.
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

/// The warnings of `verify`, and the receiver of the connection; `None` if it was reset.
fn hindered(
    lab: &Lab,
    (kind, engine): (Kind, Engine),
    foreign: &Foreign,
    flow: &Flow,
) -> Option<(Vec<String>, Option<Outcome>)> {
    let pod = lab.netns(Place::Pod);
    let compiled = kind.compiled(foreign.of, engine);
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
    let outcome = kind.stage(foreign.of, lab).send(flow);
    let outcome = outcome.inspect_err(|e| println!("{}: {e}", foreign.what));
    let found = sandbox.verify(&compiled).expect("compared");
    let object = |change: &Change| match change {
        Change::Hindrance(line) => line.clone(),
        other => panic!("{}: {other}", foreign.what),
    };
    Some((found.iter().map(object).collect(), outcome.ok()))
}

/// The mistake of `verify`, which is also printed.
fn mistaken((kind, engine): (Kind, Engine), foreign: &Foreign) -> Option<String> {
    let lab = lab()?;
    let (flow, receiver) = foreign.of.flow(&lab, kind);
    let (named, outcome) = hindered(&lab, (kind, engine), foreign, &flow)?;
    let is_captured = outcome.as_ref().is_some_and(|outcome| {
        let is_answered = matches!(outcome, Outcome::Received { answered: true, .. });
        // The proxy does not look up the original destination of datagrams.
        let is_known = flow.protocol == Protocol::Udp || outcome.original() == Some(flow.to);
        outcome.by() == Some(receiver) && is_answered && is_known
    });
    let outcome = outcome.map_or_else(|| "reset".to_owned(), |outcome| outcome.to_string());
    let text = format!(
        "{kind:?} by {engine}: {}: {outcome}; {named:?}",
        foreign.what
    );
    println!("{text}");
    let is_mistaken = match foreign.rules {
        // The kernel does not report when a chain was registered, so `verify` must name rules that were added before.
        [] => named.is_empty(),
        _ => named.is_empty() != is_captured,
    };
    is_mistaken.then_some(text)
}

/// Runs the cases in parallel, because each lost answer takes a timeout.
fn all(by: (Kind, Engine), foreign: &'static [Foreign]) {
    drop(lab_or_skip!());
    let mistaken: Vec<String> = std::thread::scope(|scope| {
        let parts = foreign.chunks(4);
        let running: Vec<_> = parts
            .map(|part| {
                let each = part.iter().filter_map(move |one| mistaken(by, one));
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
    all((Kind::Sidecar, Engine::Nft), FOREIGN);
    all((Kind::Sidecar, Engine::Nft), QUERIES);
}

#[test]
fn what_takes_packets_from_legacy_tables_is_named_and_nothing_else() {
    all((Kind::Sidecar, Engine::Xtables), FOREIGN);
    all((Kind::Sidecar, Engine::Xtables), QUERIES);
}

#[test]
fn what_takes_packets_from_ambient_mode_is_named_and_nothing_else() {
    for engine in [Engine::Nft, Engine::Xtables] {
        all((Kind::Ambient, engine), FOREIGN);
        all((Kind::Ambient, engine), SOCKETS);
    }
}
