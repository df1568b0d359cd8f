//! The flows that are shown, and what is expected of each.

use std::net::{IpAddr, SocketAddr};

use weir_netlink::Result;
use weir_netlink::route::AddressFamily;

use super::flow::{Flow, Outcome, Protocol, Receiver};
use super::lab::{Lab, Place};
use super::owner::Owner;
use super::stage::Stage;
use super::table::{Table, Tone};

/// The inbound port that the demonstration keeps away from the proxy.
pub const EXCLUDED_INBOUND_PORT: u16 = 9090;

/// A flow, and who is to get it once the rules are in place.
#[derive(Debug, Clone)]
pub struct Scene {
    /// What is sent.
    pub flow: Flow,
    /// Who must get it.
    pub expect: Receiver,
}

/// A scene as it went.
#[derive(Debug, Clone)]
pub struct Played {
    /// What was to happen.
    pub scene: Scene,
    /// What happened.
    pub outcome: Outcome,
}

impl Played {
    /// The right one got it, knows where it was meant to go, and could answer.
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
        // A rewritten datagram keeps no trace of where it was sent.
        let knows = self.scene.flow.protocol == Protocol::Udp || *original == self.scene.flow.to;
        *by == self.scene.expect && knows && *answered
    }
}

/// The flows of a family, for rules that capture everything except
/// [`EXCLUDED_INBOUND_PORT`] and [`excluded_cidr`], with all name queries.
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

/// The destinations that the demonstration keeps away from the proxy: where
/// [`Lab::outside`] is.
#[must_use]
pub fn excluded_cidr(lab: &Lab, family: AddressFamily) -> String {
    match lab.outside(family) {
        IpAddr::V4(ip) => format!("{ip}/32"),
        IpAddr::V6(ip) => format!("{ip}/128"),
    }
}

/// Plays scenes one after the other.
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

/// The table that people see.
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
