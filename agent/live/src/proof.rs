//! The result: one check per connection, and the conclusion from all of them.

use serde_json::{Value, json};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use weir_netfilter::conntrack::Transport;
use weir_netlink::NetnsId;
use weir_netlink::route::AddressFamily;

/// Whether a connection was redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// It landed where it was expected.
    Yes,
    /// It could not be determined.
    Unknown,
    /// It did not.
    No,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Yes => "yes",
            Self::Unknown => "unknown",
            Self::No => "no",
        })
    }
}

/// The kind of traffic that a connection represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the pod to another host.
    Outbound,
    /// A query from the pod to a name server.
    Dns,
    /// From another host to the pod.
    Inbound,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Outbound => "outbound",
            Self::Dns => "dns",
            Self::Inbound => "inbound",
        })
    }
}

/// Where a connection landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landed {
    /// At this address; without redirection it is the requested one.
    At(SocketAddr),
    /// At a listener that accepts connections to any address (`IP_TRANSPARENT`).
    Transparent,
}

impl fmt::Display for Landed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Transparent => f.write_str("a transparent listener"),
        }
    }
}

/// One connection: the expected and the observed result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The address family.
    pub family: AddressFamily,
    /// The kind of traffic that it represents.
    pub direction: Direction,
    /// TCP or UDP.
    pub transport: Transport,
    /// Source address and port of the sender's socket. `None` if the connection could not be opened.
    pub from: Option<SocketAddr>,
    /// The requested address.
    pub to: Option<SocketAddr>,
    /// The port where it should land.
    pub expected: u16,
    /// Where it landed, if known.
    pub landed: Option<Landed>,
    /// Whether it landed there.
    pub answer: Answer,
    /// The reason for the answer.
    pub reason: String,
}

impl Check {
    /// Judges a connection whose destination NAT changed to `at`; `local` has the addresses of the pod. Another host's socket with
    /// the port of the proxy is not the proxy.
    pub(crate) fn redirected(self, at: SocketAddr, local: &[IpAddr], is_refused: bool) -> Self {
        let is_here = at.ip().is_loopback() || local.contains(&at.ip());
        let (answer, reason) = match (is_here, at.port() == self.expected) {
            (false, _) => (Answer::No, "redirected to an address outside of the pod"),
            (true, false) => (Answer::No, "redirected to another port"),
            (true, true) if is_refused => (
                Answer::Yes,
                "redirected; nothing listens there: the proxy is not ready",
            ),
            (true, true) => (Answer::Yes, "redirected"),
        };
        let landed = Some(Landed::At(at));
        Self { landed, ..self }.answered(answer, reason)
    }

    pub(crate) fn begin(
        family: AddressFamily,
        direction: Direction,
        transport: Transport,
        to: Option<SocketAddr>,
        expected: u16,
    ) -> Self {
        Self {
            family,
            direction,
            transport,
            from: None,
            to,
            expected,
            landed: None,
            answer: Answer::Unknown,
            reason: String::new(),
        }
    }

    pub(crate) fn answered(self, answer: Answer, reason: impl Into<String>) -> Self {
        Self {
            answer,
            reason: reason.into(),
            ..self
        }
    }

    fn json(&self) -> Value {
        let text = |address: Option<SocketAddr>| address.map(|a| a.to_string());
        json!({
            "family": self.family.to_string(),
            "direction": self.direction.to_string(),
            "protocol": self.transport.to_string(),
            "from": text(self.from),
            "to": text(self.to),
            "expectedPort": self.expected,
            "landed": self.landed.map(|l| l.to_string()),
            "answer": self.answer.to_string(),
            "reason": self.reason,
        })
    }
}

impl fmt::Display for Check {
    /// One line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (answer, family, direction) = (self.answer, self.family, self.direction);
        write!(f, "{answer:<7}  {family} {direction} {}", self.transport)?;
        if let Some(to) = self.to {
            write!(f, " to {to}")?;
        }
        if let Some(landed) = self.landed {
            write!(f, ": landed at {landed}")?;
        }
        write!(
            f,
            ", expected at port {}: {}",
            self.expected,
            self.reason.replace('\n', " ")
        )
    }
}

/// All connections of one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The network namespace of the pod.
    pub netns: NetnsId,
    /// One check per connection, ordered by family. Empty if the namespace has no address.
    pub checks: Vec<Check>,
    /// Why no connection was tried.
    pub failure: Option<String>,
}

impl Proof {
    /// Returns a proof without connections, with the answer unknown, for this reason.
    #[must_use]
    pub fn failed(netns: NetnsId, why: impl fmt::Display) -> Self {
        Self {
            netns,
            checks: Vec::new(),
            failure: Some(why.to_string()),
        }
    }

    /// Returns no if any connection was not redirected, otherwise unknown if any is unknown or none was opened.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let worst = self.checks.iter().map(|check| check.answer).max();
        worst.unwrap_or(Answer::Unknown)
    }

    /// Returns the first check with the value of [`Proof::answer`], unless that is yes.
    #[must_use]
    pub fn first_problem(&self) -> Option<&Check> {
        let answer = self.answer();
        let is_it = |check: &&Check| check.answer == answer && answer != Answer::Yes;
        self.checks.iter().find(is_it)
    }

    /// Returns the reason for the answer, unless that is yes.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let first = self.first_problem().map(Check::to_string);
        let none = || "no connection could be made".to_owned();
        let is_good = self.answer() == Answer::Yes;
        (!is_good).then(|| first.or_else(|| self.failure.clone()).unwrap_or_else(none))
    }

    /// Returns the proof as one JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        let checks: Vec<Value> = self.checks.iter().map(Check::json).collect();
        json!({
            "netns": self.netns.to_string(),
            "redirected": self.answer().to_string(),
            "connections": checks,
        })
    }
}

impl fmt::Display for Proof {
    /// One line for each connection, then one with the answer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            writeln!(f, "{check}")?;
        }
        let netns = self.netns;
        if let Some(why) = &self.failure {
            return writeln!(f, "unknown: {netns}, no connection was tried: {why}");
        }
        match (self.answer(), self.checks.is_empty()) {
            (_, true) => writeln!(
                f,
                "unknown: {netns} has no address but loopback and link-local ones, so nothing could be sent"
            ),
            (Answer::Yes, _) => {
                writeln!(
                    f,
                    "redirected: {netns}, every connection landed as expected"
                )
            }
            (Answer::No, _) => writeln!(
                f,
                "not redirected: {netns}, at least one connection did not land as expected"
            ),
            (Answer::Unknown, _) => writeln!(
                f,
                "unknown: {netns}, where at least one connection landed is not known"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(answers: &[Answer]) -> Proof {
        let check = |answer: &Answer| {
            let (family, transport) = (AddressFamily::V4, Transport::Tcp);
            Check::begin(family, Direction::Outbound, transport, None, 15001).answered(*answer, "")
        };
        Proof {
            netns: NetnsId { dev: 4, ino: 5 },
            checks: answers.iter().map(check).collect(),
            failure: None,
        }
    }

    #[test]
    fn the_worst_answer_counts_and_no_connection_proves_nothing() {
        use Answer::{No, Unknown, Yes};
        for (answers, all) in [
            (&[][..], Unknown),
            (&[Yes, Yes], Yes),
            (&[Yes, Unknown], Unknown),
            (&[Unknown, No, Yes], No),
        ] {
            assert_eq!(proof(answers).answer(), all, "{answers:?}");
        }
        assert!(proof(&[]).to_string().starts_with("unknown"));
        let failed = Proof::failed(NetnsId { dev: 4, ino: 5 }, "no thread");
        assert_eq!(
            (failed.answer(), failed.reason().as_deref()),
            (Unknown, Some("no thread"))
        );
        assert!(failed.to_string().contains("no thread"), "{failed}");
        assert_eq!(proof(&[Yes]).reason(), None);
    }

    /// NAT to the proxy's port of another host takes the traffic out of the pod.
    #[test]
    fn the_port_of_the_proxy_counts_in_the_pod_alone() {
        let local: [IpAddr; 2] = [[10, 0, 0, 2].into(), [127, 0, 0, 1].into()];
        let check = || {
            let (family, transport) = (AddressFamily::V4, Transport::Tcp);
            Check::begin(family, Direction::Outbound, transport, None, 15001)
        };
        for (at, is_refused, answer) in [
            ("127.0.0.1:15001", false, Answer::Yes),
            ("127.0.0.6:15001", true, Answer::Yes),
            ("10.0.0.2:15001", false, Answer::Yes),
            ("10.0.0.2:15006", false, Answer::No),
            ("10.0.0.3:15001", false, Answer::No),
            ("10.0.0.3:15001", true, Answer::No),
        ] {
            let at: SocketAddr = at.parse().unwrap();
            let check = check().redirected(at, &local, is_refused);
            assert_eq!(check.answer, answer, "{check}");
            assert_eq!(check.landed, Some(Landed::At(at)));
        }
    }
}
