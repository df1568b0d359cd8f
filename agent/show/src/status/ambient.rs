//! Ambient mode: recorded state, plain values, and a section of the page.

use super::facts::{Condition, Time};
use super::text::Html;
use serde::Serialize;
use std::sync::Arc;
use weir_cni::log::count;
use weir_core::journal::ambient::{Event, Member, Proxy, State};
use weir_core::journal::cut;
use weir_zds::Peer;

/// The recorded state.
#[derive(Debug, Clone)]
pub(super) struct Ambient {
    socket: Condition,
    host: Condition,
    connections: usize,
    peers: Arc<[Peer]>,
    /// `None` until every pod was examined once.
    members: Option<Arc<Vec<Member>>>,
}

impl Default for Ambient {
    fn default() -> Self {
        Self {
            socket: Condition::new("begins", None),
            host: Condition::new("begins", None),
            connections: 0,
            peers: Arc::default(),
            members: None,
        }
    }
}

impl Ambient {
    /// Records an event of ambient mode.
    pub(super) fn record(&mut self, event: &Event) {
        match event {
            Event::Members { members } => self.members = Some(Arc::clone(members)),
            Event::Proxy(Proxy::Connections(count)) => self.connections = *count,
            Event::Proxy(Proxy::Peers(peers)) => self.peers = Arc::clone(peers),
            Event::Proxy(Proxy::Socket { failure }) => {
                self.socket = condition("bound", failure.as_deref());
            }
            Event::Host { failure, .. } => self.host = condition("in-force", failure.as_deref()),
            _ => {}
        }
    }

    /// Returns the readiness conditions, each with the reason if it is not met.
    pub(super) fn missing(&self) -> [(&'static str, Option<String>); 3] {
        let why = |of: &Condition, what: &str| {
            (of.state == "failed").then(|| {
                let reason = of.reason.as_deref().unwrap_or_default();
                format!("{what}: {reason}")
            })
        };
        let begins = self.members.is_none();
        [
            (
                "ztunnel's socket bound",
                why(&self.socket, "ztunnel cannot connect to this agent"),
            ),
            (
                "host rules in force",
                why(&self.host, "probes do not reach pods of ambient mode"),
            ),
            (
                "ambient pods known",
                begins.then(|| "not every pod of this node was examined yet".to_owned()),
            ),
        ]
    }
}

fn condition(good: &'static str, failure: Option<&str>) -> Condition {
    match failure {
        None => Condition::new(good, None),
        Some(_) => Condition::new("failed", failure),
    }
}

/// The object `ambient` of `/status.json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AmbientFacts {
    /// State of the ZDS socket: `begins`, `bound` or `failed`.
    ztunnel_socket: Condition,
    ztunnel_connections: usize,
    /// The connections, oldest first, at the last look at the pods.
    ztunnels: Vec<PeerFacts>,
    /// State of the host's rules for probes: `begins`, `in-force` or `failed`.
    host: Condition,
    /// Pods that are enrolled, should be, or are leaving, ordered by namespace and name; `null` until all were examined
    /// once.
    pods: Option<Vec<MemberFacts>>,
}

/// A connection of ztunnel.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PeerFacts {
    connection: u64,
    /// `null` if the process is not in the agent's PID namespace.
    pid: Option<i32>,
    /// Version of the protocol; `null` before the hello message.
    version: Option<i32>,
    /// `hello`: not received yet; `snapshot`: the snapshot is being sent; `ready`: the snapshot is complete.
    state: &'static str,
    since: Time,
    acked: u64,
    pending: usize,
}

impl PeerFacts {
    fn of(peer: &Peer) -> Self {
        Self {
            connection: peer.id,
            pid: Some(peer.pid).filter(|pid| *pid != 0),
            version: peer.version,
            state: match (peer.ready, peer.version) {
                (true, _) => "ready",
                (false, Some(_)) => "snapshot",
                (false, None) => "hello",
            },
            since: Time(peer.since),
            acked: peer.acked,
            pending: peer.pending,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MemberFacts {
    namespace: String,
    name: String,
    uid: String,
    /// `waiting`, `enrolling`, `pending`, `enrolled`, `conflict`, `failed` or `leaving`.
    state: &'static str,
    since: Time,
    engine: Option<String>,
    verified_at: Option<Time>,
    /// Result of the test connection after the last write of the rules: `yes`, `unknown` or `no`; `null` if there was none.
    proved: Option<String>,
    why: Option<String>,
}

impl AmbientFacts {
    pub(super) fn of(ambient: &Ambient) -> Self {
        let member = |m: &Member| MemberFacts {
            namespace: m.pod.namespace.to_string(),
            name: m.pod.name.to_string(),
            uid: m.pod.uid.to_string(),
            state: m.state.name(),
            since: Time(m.since),
            engine: m.engine.map(|e| e.to_string()),
            verified_at: m.verified_at.map(Time),
            proved: m.proved.map(|answer| answer.to_string()),
            why: m.why.as_deref().map(cut),
        };
        let members = ambient.members.as_ref();
        Self {
            ztunnel_socket: ambient.socket.clone(),
            ztunnel_connections: ambient.connections,
            ztunnels: ambient.peers.iter().map(PeerFacts::of).collect(),
            host: ambient.host.clone(),
            pods: members.map(|members| {
                let mut members: Vec<&Member> = members.iter().collect();
                members.sort_by_key(|m| (&m.pod.namespace, &m.pod.name));
                members.into_iter().map(member).collect()
            }),
        }
    }

    /// Writes the section of the page. Pods with problems come first.
    pub(super) fn section(&self, h: &mut Html) {
        h.raw("<section><h2>Pods of ambient mode</h2>\n<p class=\"lede\">ztunnel: ");
        h.text(&count(self.ztunnel_connections, "connection"));
        h.raw("; its socket is ");
        said(h, &self.ztunnel_socket);
        h.raw("; the host's rules for probes: ");
        said(h, &self.host);
        h.raw("</p>\n");
        self.connections(h);
        let Some(pods) = &self.pods else {
            h.raw("<p class=\"lede\">They have not been examined yet.</p></section>\n");
            return;
        };
        if pods.is_empty() {
            h.raw("<p class=\"lede\">No pod of this node is in ambient mode.</p></section>\n");
            return;
        }
        h.raw("<table class=\"pods\"><thead><tr><th scope=\"col\">Pod</th><th scope=\"col\">State</th>")
            .raw("<th scope=\"col\">Rules in</th></tr></thead><tbody>\n");
        // An enrolled pod with a reason: something about it is unknown.
        let is_good = |p: &MemberFacts| p.state == State::Enrolled.name() && p.why.is_none();
        let (good, bad): (Vec<_>, Vec<_>) = pods.iter().partition(|p| is_good(p));
        for pod in bad.into_iter().chain(good) {
            h.raw("<tr><th scope=\"row\"><span class=\"quiet\">");
            h.text(&pod.namespace).raw("/</span><wbr>").text(&pod.name);
            if let Some(why) = &pod.why {
                h.raw("<small class=\"why\">").text(why).raw("</small>");
            }
            h.raw("</th><td data-label=\"State\"><span class=\"chip ");
            h.raw(match is_good(pod) {
                true => "good\">",
                false => "bad\">",
            });
            h.text(pod.state)
                .raw("</span></td><td data-label=\"Rules in\">");
            h.text(pod.engine.as_deref().unwrap_or("unknown"));
            h.raw("</td></tr>\n");
        }
        h.raw("</tbody></table></section>\n");
    }

    /// Newest first: the newest ready connection gets new pods.
    fn connections(&self, h: &mut Html) {
        if self.ztunnels.is_empty() {
            return;
        }
        h.raw("<table><thead><tr><th scope=\"col\">ztunnel</th><th scope=\"col\">State</th>")
            .raw("<th scope=\"col\">Acknowledged</th><th scope=\"col\">Pending</th></tr></thead><tbody>\n");
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        for peer in self.ztunnels.iter().rev() {
            h.raw("<tr><th scope=\"row\">connection ");
            h.number(peer.connection);
            if let Some(pid) = peer.pid {
                h.raw(" <span class=\"quiet\">process ");
                h.number(u64::try_from(pid).unwrap_or_default());
                h.raw("</span>");
            }
            h.raw("</th><td data-label=\"State\">").text(peer.state);
            h.raw("</td><td data-label=\"Acknowledged\">");
            h.number(peer.acked);
            h.raw("</td><td data-label=\"Pending\">");
            h.number(count(peer.pending));
            h.raw("</td></tr>\n");
        }
        h.raw("</tbody></table>\n");
    }
}

fn said(h: &mut Html, condition: &Condition) {
    h.text(condition.state);
    if let Some(reason) = &condition.reason {
        h.raw(": ").text(reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_is_no_plural() {
        for (connections, words) in [(1, "ztunnel: 1 connection;"), (2, "2 connections;")] {
            let ambient = Ambient {
                connections,
                ..Ambient::default()
            };
            let mut h = Html::default();
            AmbientFacts::of(&ambient).section(&mut h);
            let page = h.finish();
            assert!(page.contains(words), "{page}");
        }
    }
}
