//! The kinds of objects, and their text.

use crate::node::Carrier;
use ipnet::IpNet;
use std::net::IpAddr;
use weir_netlink::route::{PolicyRule, Route, RouteType};

/// One end of a carrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub carrier: Carrier,
    /// Network identifier of a tunnel.
    pub vni: u32,
    /// The other end of a tunnel.
    pub remote: Option<IpAddr>,
    /// The name of a pair's other end, if the pair is created from this end.
    pub peer: Option<String>,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
}

/// A route, with its link by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSpec {
    /// The route without its link.
    pub route: Route,
    /// The link's name.
    pub device: Option<String>,
}

/// A file below `/proc/sys/net` and its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sysctl {
    /// `ipv4/conf/all/rp_filter`
    pub key: String,
    /// `0`
    pub value: &'static str,
}

/// The desired objects of one namespace, without netfilter rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Carriers.
    pub links: Vec<LinkSpec>,
    /// Routes of the three tables.
    pub routes: Vec<RouteSpec>,
    /// Policy rules.
    pub rules: Vec<PolicyRule>,
    /// Sysctls.
    pub sysctls: Vec<Sysctl>,
}

impl std::fmt::Display for LinkSpec {
    /// Writes the arguments of `ip link add`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} type ", self.name)?;
        let remote = |f: &mut std::fmt::Formatter<'_>| match self.remote {
            Some(remote) => write!(f, " remote {remote}"),
            None => Ok(()),
        };
        match self.carrier {
            Carrier::Geneve(port) => {
                write!(f, "geneve id {}", self.vni)?;
                remote(f)?;
                write!(f, " dstport {port}")
            }
            Carrier::Vxlan(port) => {
                write!(f, "vxlan id {}", self.vni)?;
                remote(f)?;
                write!(f, " dstport {port} nolearning")
            }
            Carrier::Veth => match &self.peer {
                Some(peer) => write!(f, "veth peer name {peer}"),
                None => f.write_str("veth"),
            },
        }
    }
}

impl std::fmt::Display for RouteSpec {
    /// Writes a form close to `ip route show`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let r = &self.route;
        if r.kind != RouteType::Unicast {
            write!(f, "{} ", r.kind)?;
        }
        write!(f, "{}", r.dst)?;
        r.gateway.iter().try_for_each(|g| write!(f, " via {g}"))?;
        self.device.iter().try_for_each(|d| write!(f, " dev {d}"))?;
        write!(f, " table {}", r.table)?;
        r.prefsrc.iter().try_for_each(|a| write!(f, " src {a}"))?;
        r.priority
            .iter()
            .try_for_each(|m| write!(f, " metric {m}"))?;
        f.write_str(if r.onlink { " onlink" } else { "" })
    }
}
