//! `weir demo`: creates a pod, redirects it, sends traffic, and removes everything.

use super::flow::{Outcome, Protocol};
use super::redirection::{Redirection, step, text};
use super::trace::{Counters, Held};
use super::{Flow, Lab, Owner, Place, Played, Table, Tone, interrupt, scratch};
use serde_json::{Value, json};
use std::io::{ErrorKind, IsTerminal};
use std::time::Instant;
use weir_cni::redirection::Sandbox;
use weir_netlink::Netns;
use weir_netlink::route::Routing;
use weir_rules::show;

/// The result of a flow, and the rule that decided.
struct Watched {
    played: Played,
    rule: Option<String>,
}

/// Runs the demonstration for a pod with a sidecar, or for one in ambient mode. Returns the output, and whether every flow was
/// as expected and nothing is left behind.
///
/// # Errors
/// A description of what could not be created, and the remedy.
pub fn run(ambient: bool, as_json: bool, keep_going: bool) -> Result<(String, bool), String> {
    let start = Instant::now();
    interrupt::watch()?;
    scratch::remove_left();
    let host = Host::look();
    step("make a client, a pod and a server, each in a network namespace of its own");
    let lab = Lab::create().map_err(|e| {
        if e.is_permission() {
            format!("the demonstration needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN): {e}")
        } else {
            e.to_string()
        }
    })?;
    may_send_as_everybody(&lab)?;
    let redirection = match ambient {
        true => Redirection::ambient(&lab)?,
        false => Redirection::sidecar(&lab)?,
    };
    let pod = lab.netns(Place::Pod);
    redirection.add(pod)?;
    let held = Held::read(pod).map_err(text)?;
    step(&format!("the kernel holds {held}; send traffic"));
    let watched = watch(&lab, &redirection, keep_going)?;
    let left = take_away(redirection, lab, &host)?;
    let good = left.is_empty() && watched.iter().all(|w| w.played.is_good());
    let seconds = start.elapsed().as_secs_f32();
    let printed = if as_json {
        format!("{:#}\n", to_json(&watched, &left, good))
    } else {
        to_text(&watched, &left, seconds)
    };
    Ok((printed, good))
}

/// Checks early that sockets can be opened as these users: `unshare --map-root-user` grants all capabilities, but
/// its user namespace maps only ID 0.
fn may_send_as_everybody(lab: &Lab) -> Result<(), String> {
    for owner in [Owner::PROXY, Owner::APPLICATION] {
        match owner.run(lab.netns(Place::Pod), || ()) {
            Ok(()) => {}
            Err(e) if e.is_permission() => {
                return Err(format!(
                    "the demonstration opens sockets as users 1337 (the proxy) and 1000 (the \
                     application), and this process may not take on {owner}; run it as root, or \
                     in a user namespace that maps these users and groups (see \
                     /proc/self/uid_map and gid_map) with CAP_SETUID and CAP_SETGID"
                ));
            }
            Err(e) => return Err(e.to_string()),
        }
    }
    Ok(())
}

fn watch(lab: &Lab, redirection: &Redirection, keep_going: bool) -> Result<Vec<Watched>, String> {
    let stage = redirection.stage(lab)?;
    let pod = lab.netns(Place::Pod);
    let mut watched = Vec::new();
    for scene in lab
        .families()
        .iter()
        .flat_map(|f| redirection.scenes(lab, *f))
    {
        interrupt::check()?;
        let before = Counters::read(pod).map_err(text)?;
        let outcome = stage.send(&scene.flow).map_err(text)?;
        let rule = Counters::read(pod).map_err(text)?.decided_since(&before);
        let played = Played { scene, outcome };
        let stop = !played.is_good() && !keep_going;
        watched.push(Watched { played, rule });
        if stop {
            break;
        }
    }
    Ok(watched)
}

/// Removes everything; returns descriptions of what is left behind.
fn take_away(redirection: Redirection, lab: Lab, host: &Host) -> Result<Vec<String>, String> {
    let pod = lab.netns(Place::Pod).try_clone().map_err(text)?;
    let sandbox = Sandbox::of(pod).map_err(text)?;
    let dir = redirection.remove(&sandbox)?;
    let mut left = Vec::new();
    left.extend(Held::read(sandbox.netns()).map_err(text)?.names());
    drop((sandbox, lab));
    let found = dir.map(|dir| (std::fs::symlink_metadata(&dir), dir));
    match found {
        Some((Ok(_), dir)) => left.push(format!("the directory {}", dir.display())),
        Some((Err(e), dir)) if e.kind() != ErrorKind::NotFound => {
            left.push(format!("perhaps the directory {}: {e}", dir.display()));
        }
        _ => {}
    }
    left.extend(host.compare(&Host::look()));
    Ok(left)
}

/// State of the caller's network namespace that must not change; or why it cannot be read.
#[derive(Debug)]
pub(super) struct Host {
    links: Result<Vec<String>, String>,
    ruleset: Result<String, String>,
}

impl Host {
    pub(super) fn look() -> Self {
        let links = Routing::open().and_then(|r| r.links()).map_err(text);
        let ruleset = match Netns::current().and_then(|n| show::nft(&n)) {
            // Counters of the host's rules keep counting.
            Ok(mut r) => {
                let chains = r.tables.iter_mut().flat_map(|t| &mut t.chains);
                for rule in chains.flat_map(|c| &mut c.rules) {
                    *rule = rule.without_counters();
                }
                Ok(r.to_string())
            }
            // The kernel has no nf_tables, or does not let this process change them either.
            Err(e) if e.is_unsupported() || e.is_permission() => Ok(String::new()),
            Err(e) => Err(text(e)),
        };
        Self {
            links: links.map(|l| l.into_iter().map(|link| link.name).collect()),
            ruleset,
        }
    }

    pub(super) fn compare(&self, after: &Self) -> Vec<String> {
        let of = |what: &str, is_same: Result<bool, &String>| match is_same {
            Ok(true) => None,
            Ok(false) => Some(format!("{what} of the host changed")),
            Err(e) => Some(format!(
                "perhaps {what} of the host, which cannot be read: {e}"
            )),
        };
        let links = both(&self.links, &after.links);
        let ruleset = both(&self.ruleset, &after.ruleset);
        let left = [
            of("network interfaces", links),
            of("nf_tables rules", ruleset),
        ];
        left.into_iter().flatten().collect()
    }
}

/// Whether two states are the same, or why that is unknown.
fn both<'a, T: PartialEq>(
    before: &'a Result<T, String>,
    after: &'a Result<T, String>,
) -> Result<bool, &'a String> {
    Ok(before.as_ref()? == after.as_ref()?)
}

fn to_text(watched: &[Watched], left: &[String], seconds: f32) -> String {
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let heading = [
        "flow",
        "as",
        "sent to",
        "arrived at",
        "original destination",
        "",
        "decided by",
    ];
    let mut table = Table::new(&heading, colours);
    for w in watched {
        let flow = &w.played.scene.flow;
        let good = w.played.is_good();
        let (arrived, original) = arrival(&w.played);
        let rule = w
            .rule
            .clone()
            .unwrap_or_else(|| "no rule matched".to_owned());
        let fate = match w.played.outcome.by() {
            _ if !good => format!("EXPECTED {}", w.played.scene.expect),
            Some(by) if by.is_proxy() => "captured".to_owned(),
            _ => "bypassed".to_owned(),
        };
        let cells = vec![
            flow.name.clone(),
            sender(flow),
            format!("{} {}", flow.protocol, flow.to),
            arrived,
            original,
            fate,
            rule,
        ];
        table.row(cells, if good { Tone::Good } else { Tone::Bad });
    }
    let good = watched.iter().filter(|w| w.played.is_good()).count();
    let rest = if left.is_empty() {
        "nothing is left behind: the pod's rules and namespace are gone, the host is as it was"
            .to_owned()
    } else {
        format!("LEFT BEHIND: {}", left.join(", "))
    };
    format!(
        "\n{table}\n{good} of {} flows went where they should, in {seconds:.1} s\n{rest}\n",
        watched.len()
    )
}

/// Describes the sender: user and group, and the mark if set.
fn sender(flow: &Flow) -> String {
    match flow.mark {
        Some(mark) => format!("{} mark {mark:#x}", flow.owner),
        None => flow.owner.to_string(),
    }
}

fn arrival(played: &Played) -> (String, String) {
    match (&played.outcome, played.scene.flow.protocol) {
        (Outcome::Lost(reason), _) => (format!("lost: {reason}"), String::new()),
        (Outcome::Received { by, .. }, Protocol::Udp) => (by.to_string(), "-".to_owned()),
        (Outcome::Received { by, original, .. }, Protocol::Tcp) => {
            (by.to_string(), original.to_string())
        }
    }
}

fn to_json(watched: &[Watched], left: &[String], good: bool) -> Value {
    let flows: Vec<Value> = watched
        .iter()
        .map(|w| {
            let flow = &w.played.scene.flow;
            let (arrived, original) = arrival(&w.played);
            json!({
                "flow": flow.name,
                "protocol": flow.protocol.to_string(),
                "owner": flow.owner.to_string(),
                "mark": flow.mark,
                "sentTo": flow.to.to_string(),
                "arrivedAt": arrived,
                "originalDestination": original,
                "captured": w.played.outcome.by().is_some_and(super::Receiver::is_proxy),
                "decidedBy": w.rule,
                "expected": w.played.scene.expect.to_string(),
                "asExpected": w.played.is_good(),
            })
        })
        .collect();
    json!({ "ok": good, "flows": flows, "leftBehind": left })
}
