//! The flows of the demonstration, and their expected receivers.

use std::net::{IpAddr, SocketAddr};

use weir_live::Owner;
use weir_netlink::Result;
use weir_netlink::route::AddressFamily;

use super::flow::{Flow, Outcome, Protocol, Receiver};
use super::lab::{Lab, Place};
use super::stage::Stage;
use super::table::{Table, Tone};

/// The inbound port that the demonstration excludes from redirection.
pub const EXCLUDED_INBOUND_PORT: u16 = 9090;

/// A flow, and its expected receiver once the rules are in force.
#[derive(Debug, Clone)]
pub struct Scene {
    /// The flow to send.
    pub flow: Flow,
    /// The expected receiver.
    pub expect: Receiver,
}

/// A scene and its result.
#[derive(Debug, Clone)]
pub struct Played {
    /// The scene.
    pub scene: Scene,
    /// The result.
    pub outcome: Outcome,
}

impl Played {
    /// Whether the expected receiver got the flow, knows the original destination, and could answer.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let Outcome::Received {
            by,
            original,
            answered,
            ..
        } = &self.outcome
        else {
            return false;
        };
        // The original destination of a rewritten datagram is unknown.
        let knows = self.scene.flow.protocol == Protocol::Udp || *original == self.scene.flow.to;
        *by == self.scene.expect && knows && *answered
    }
}

/// Returns the flows of a family, for rules that capture everything except
/// [`EXCLUDED_INBOUND_PORT`] and [`excluded_cidr`], including all DNS queries.
#[must_use]
pub fn scenes(lab: &Lab, family: AddressFamily) -> Vec<Scene> {
    let at = SocketAddr::new;
    let pod = lab.address(Place::Pod, family);
    let service = lab.service(family);
    let tcp = |name: &str, from, to| Flow::new(name, Protocol::Tcp, from, to);
    let dns = |name: &str, protocol| Flow::new(name, protocol, Place::Pod, at(service, 53));
    let scene = |flow, expect| Scene { flow, expect };
    vec![
        scene(
            tcp("client to pod", Place::Client, at(pod, 8080)),
            Receiver::ProxyInbound,
        ),
        scene(
            tcp(
                "client to excluded port",
                Place::Client,
                at(pod, EXCLUDED_INBOUND_PORT),
            ),
            Receiver::Application,
        ),
        scene(
            tcp("pod to service", Place::Pod, at(service, 80)),
            Receiver::ProxyOutbound,
        ),
        scene(
            tcp("proxy to service", Place::Pod, at(service, 80)).of(Owner::PROXY),
            Receiver::Server,
        ),
        scene(
            tcp(
                "pod to excluded CIDR",
                Place::Pod,
                at(lab.outside(family), 443),
            ),
            Receiver::Server,
        ),
        scene(dns("name query", Protocol::Udp), Receiver::ProxyDns),
        scene(dns("name query", Protocol::Tcp), Receiver::ProxyDns),
        scene(
            dns("proxy's name query", Protocol::Udp).of(Owner::PROXY),
            Receiver::Server,
        ),
    ]
}

/// The destinations that the demonstration excludes from redirection: the address
/// [`Lab::outside`].
#[must_use]
pub fn excluded_cidr(lab: &Lab, family: AddressFamily) -> String {
    match lab.outside(family) {
        IpAddr::V4(ip) => format!("{ip}/32"),
        IpAddr::V6(ip) => format!("{ip}/128"),
    }
}

/// Sends the flows of scenes one after the other.
///
/// # Errors
///
/// As [`Stage::send`].
pub fn play(stage: &Stage<'_>, scenes: Vec<Scene>) -> Result<Vec<Played>> {
    scenes
        .into_iter()
        .map(|scene| {
            Ok(Played {
                outcome: stage.send(&scene.flow)?,
                scene,
            })
        })
        .collect()
}

/// Formats the results as a table.
#[must_use]
pub fn table(played: &[Played], colours: bool) -> Table {
    let heading = [
        "flow",
        "protocol",
        "sent to",
        "as",
        "received by",
        "asked for",
        "verdict",
    ];
    let mut table = Table::new(&heading, colours);
    for one in played {
        let flow = &one.scene.flow;
        let (tone, verdict) = if one.is_good() {
            (Tone::Good, "as expected".to_owned())
        } else {
            (Tone::Bad, format!("expected {}", one.scene.expect))
        };
        let (by, original) = match &one.outcome {
            Outcome::Received {
                by,
                answered: true,
                original,
                ..
            } => (by.to_string(), original.to_string()),
            Outcome::Received { by, original, .. } => {
                (format!("{by}, answer lost"), original.to_string())
            }
            Outcome::Lost(reason) => (format!("lost: {reason}"), String::new()),
        };
        let original = match flow.protocol {
            Protocol::Tcp => original,
            Protocol::Udp => String::new(),
        };
        let cells = vec![
            flow.name.clone(),
            flow.protocol.to_string(),
            flow.to.to_string(),
            flow.owner.to_string(),
            by,
            original,
            verdict,
        ];
        table.row(cells, tone);
    }
    table
}
