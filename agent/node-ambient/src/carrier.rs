//! The carrier of first packets: the kinds of links that this kernel supports, and the choice among them.

use crate::config::{CarrierChoice, Config};
use crate::node::Carrier;
use crate::objects::{CARRIERS, SECOND_CARRIERS, SECOND_VNIS, VNIS};
use std::net::{IpAddr, Ipv4Addr};
use weir_netlink::route::{Geneve, Link, LinkKind, Routing, Vxlan};
use weir_netlink::{Error, Netns, Result};

/// `GENEVE_UDP_PORT` of the kernel's `include/net/geneve.h`.
const FIRST_PORT: u16 = 6081;
/// `EOPNOTSUPP` and `EAFNOSUPPORT`: the kernel does not support links of this kind.
const ABSENT: [i32; 2] = [95, 97];

impl CarrierChoice {
    /// Order of preference of `auto`: the first kind that the kernel supports.
    pub const ORDER: [Self; 3] = [Self::Geneve, Self::Vxlan, Self::Veth];

    fn of(carrier: Carrier) -> Self {
        match carrier {
            Carrier::Geneve(_) => Self::Geneve,
            Carrier::Vxlan(_) => Self::Vxlan,
            Carrier::Veth => Self::Veth,
        }
    }

    /// Returns the name of the kind for messages, in the plural.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Auto => "links of any kind",
            Self::Geneve => "GENEVE tunnels",
            Self::Vxlan => "VXLAN tunnels",
            Self::Veth => "veth pairs",
        }
    }

    /// Tries whether the kernel supports links of this kind: adds and deletes one in the network namespace of `routing`,
    /// which must be a throwaway one.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn try_in(self, routing: &Routing) -> Result<()> {
        const NAME: &str = "weir-trial";
        // TEST-NET-1: no host has this address.
        let remote = Some(Ipv4Addr::new(192, 0, 2, 1).into());
        let kind = match self {
            Self::Geneve => LinkKind::Geneve(Geneve {
                id: Some(1),
                remote,
                ..Geneve::default()
            }),
            Self::Vxlan => LinkKind::Vxlan(Vxlan {
                id: Some(1),
                remote,
                ..Vxlan::default()
            }),
            Self::Veth | Self::Auto => LinkKind::plain("veth"),
        };
        routing.add_link(&Link::new(NAME, kind), None)?;
        let index = routing.link(NAME)?.index;
        routing.delete_link(index).map(drop)
    }

    /// Tries the kind in a new network namespace, so that nothing changes in the current one.
    fn is_made(self) -> Result<bool> {
        match self.try_in(&Routing::open_in(&Netns::create()?)?) {
            Ok(()) => Ok(true),
            Err(e) if e.is_unsupported() || e.errno().is_some_and(|e| ABSENT.contains(&e)) => {
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }
}

/// Chooses the kind of links. Existing links keep their kind, which the kernel evidently supports.
fn choose(
    asked: CarrierChoice,
    there: Option<CarrierChoice>,
    is_made: impl Fn(CarrierChoice) -> Result<bool>,
) -> Result<CarrierChoice> {
    let tried = match (asked, there) {
        (CarrierChoice::Auto, Some(there)) => return Ok(there),
        (CarrierChoice::Auto, None) => &CarrierChoice::ORDER[..],
        (asked, Some(there)) if asked == there => return Ok(asked),
        (asked, _) => &[asked],
    };
    for kind in tried {
        if is_made(*kind)? {
            return Ok(*kind);
        }
    }
    let names: Vec<&str> = tried.iter().map(|kind| kind.words()).collect();
    let remedy = match asked {
        CarrierChoice::Auto => {
            "it needs CONFIG_GENEVE, CONFIG_VXLAN or CONFIG_VETH; capture by eBPF or inside the pods"
        }
        _ => "give another kind of tunnel, or auto, which takes the first that works",
    };
    let reason = format!("this kernel does not make {}; {remedy}", names.join(", "));
    Err(Error::unsupported("add", "the link to the proxy", reason))
}

/// Returns the carrier of a node with these links. An existing tunnel keeps its kind and port, unless the configuration says
/// otherwise.
pub(crate) fn carrier(config: &Config, links: &[Link], remote: Option<IpAddr>) -> Result<Carrier> {
    let there = links.iter().find(|l| is_ours(l));
    let there = there.and_then(|l| l.kind.as_ref());
    let there = match there {
        Some(LinkKind::Geneve(g)) => g.port.map(Carrier::Geneve),
        Some(LinkKind::Vxlan(v)) => v.port.map(Carrier::Vxlan),
        Some(LinkKind::Veth(_)) => Some(Carrier::Veth),
        _ => None,
    };
    let kind = there.map(CarrierChoice::of);
    let chosen = choose(config.carrier, kind, CarrierChoice::is_made)?;
    let kept = match there {
        Some(Carrier::Geneve(port) | Carrier::Vxlan(port)) if kind == Some(chosen) => Some(port),
        _ => None,
    };
    let port = || {
        let known = config.tunnel_port.or(kept);
        known.map_or_else(|| free_port(links, chosen, remote), Ok)
    };
    Ok(match chosen {
        CarrierChoice::Geneve => Carrier::Geneve(port()?),
        CarrierChoice::Vxlan => Carrier::Vxlan(port()?),
        CarrierChoice::Veth | CarrierChoice::Auto => Carrier::Veth,
    })
}

fn is_ours(link: &Link) -> bool {
    let mut names = CARRIERS.iter().chain(&SECOND_CARRIERS);
    names.any(|name| link.name == *name)
}

/// Returns the first port from 6081 that new tunnels of this kind can have beside these links.
///
/// Different kinds do not share a socket: the second one could not be set up (`EADDRINUSE`). GENEVE links share theirs, except with one
/// with `IFLA_GENEVE_COLLECT_METADATA`, and with one to the same peer with one of our network identifiers (`geneve_configure()`). VXLAN
/// links share theirs only if their flags are the same, and not with the same identifier (`vxlan_vni_in_use()`): none is shared here.
fn free_port(links: &[Link], kind: CarrierChoice, remote: Option<IpAddr>) -> Result<u16> {
    let vnis = [VNIS, SECOND_VNIS].concat();
    let taken = |port: u16| {
        links.iter().any(|l| match &l.kind {
            Some(LinkKind::Geneve(g)) if kind == CarrierChoice::Geneve => {
                let external = g.collect_metadata.is_some();
                let same = remote.is_some()
                    && g.remote.or(g.remote6) == remote
                    && g.id.is_some_and(|id| vnis.contains(&id));
                g.port == Some(port) && (external || same)
            }
            Some(LinkKind::Geneve(g)) => g.port == Some(port),
            Some(LinkKind::Vxlan(v)) => v.port == Some(port),
            _ => false,
        })
    };
    (FIRST_PORT..=u16::MAX)
        .find(|port| !taken(*port))
        .ok_or_else(|| {
            let reason = "every port from 6081 is taken by GENEVE or VXLAN links; give tunnel_port";
            Error::refused("choose", "a UDP port for tunnels", reason)
        })
}

#[cfg(test)]
mod tests {
    use super::CarrierChoice::{Auto, Geneve, Veth, Vxlan};
    use super::*;

    /// On a kernel that makes these, and with links of this kind there.
    fn chosen(
        asked: CarrierChoice,
        there: Option<CarrierChoice>,
        made: &[CarrierChoice],
    ) -> std::result::Result<CarrierChoice, String> {
        choose(asked, there, |kind| Ok(made.contains(&kind))).map_err(|e| e.to_string())
    }

    #[test]
    fn auto_takes_the_first_that_the_kernel_makes() {
        let of = |made: &[_]| chosen(Auto, None, made);
        assert_eq!(of(&[Veth, Vxlan, Geneve]), Ok(Geneve));
        assert_eq!(of(&[Veth, Vxlan]), Ok(Vxlan));
        assert_eq!(of(&[Veth]), Ok(Veth));
        let error = of(&[]).unwrap_err();
        for part in ["GENEVE", "VXLAN", "veth", "CONFIG_GENEVE", "eBPF"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn links_that_are_there_stay_of_their_kind() {
        for there in CarrierChoice::ORDER {
            let untried = |_| -> Result<bool> { panic!("nothing is to be tried") };
            assert_eq!(choose(Auto, Some(there), untried).unwrap(), there);
            assert_eq!(choose(there, Some(there), untried).unwrap(), there);
        }
        assert_eq!(chosen(Veth, Some(Geneve), &[Veth, Geneve]), Ok(Veth));
    }

    #[test]
    fn what_is_asked_for_and_not_made_is_refused_by_name() {
        let error = chosen(Geneve, None, &[Vxlan, Veth]).unwrap_err();
        assert!(
            error.contains("GENEVE") && error.contains("auto") && !error.contains("VXLAN"),
            "{error}"
        );
        assert!(chosen(Geneve, Some(Vxlan), &[Vxlan, Veth]).is_err());
        assert_eq!(chosen(Vxlan, None, &[Vxlan, Veth]), Ok(Vxlan));
    }

    #[test]
    fn a_port_is_free_if_tunnels_of_the_kind_can_have_it() {
        use weir_netlink::route;
        let peer = IpAddr::from([10, 0, 0, 2]);
        let geneve = |id| route::Geneve {
            id: Some(id),
            remote: Some(peer),
            port: Some(FIRST_PORT),
            ..route::Geneve::default()
        };
        let external = route::Geneve {
            collect_metadata: Some(Vec::new()),
            ..geneve(0)
        };
        let vxlan = route::Vxlan {
            id: Some(7),
            port: Some(FIRST_PORT),
            ..route::Vxlan::default()
        };
        for (kind, there, is_free) in [
            (Geneve, LinkKind::Geneve(geneve(7)), true),
            (Geneve, LinkKind::Geneve(geneve(VNIS[1])), false),
            (Geneve, LinkKind::Geneve(geneve(SECOND_VNIS[0])), false),
            (Geneve, LinkKind::Geneve(external), false),
            (Geneve, LinkKind::Vxlan(vxlan.clone()), false),
            (Vxlan, LinkKind::Geneve(geneve(7)), false),
            (Vxlan, LinkKind::Vxlan(vxlan), false),
        ] {
            let links = [Link::new("other", there)];
            let port = free_port(&links, kind, Some(peer)).unwrap();
            let expected = FIRST_PORT + u16::from(!is_free);
            assert_eq!(port, expected, "{kind:?} {links:?}");
        }
    }

    #[test]
    fn what_could_not_be_tried_is_an_error_and_no_absence() {
        let denied = |_| Err(Error::refused("create", "a namespace", "no rights"));
        assert!(choose(Auto, None, denied).is_err());
    }
}
