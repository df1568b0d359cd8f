//! The annotations that steer a pod's redirection, and what may stand in them.
//!
//! Values are taken as they are written. The rules for blanks differ by kind: ports and interfaces may
//! have them around an element, networks may not.

use crate::config::{InputError, text};
use std::collections::{BTreeMap, HashSet};

/// Opts a pod out; also a label, which wins.
pub const INJECT: &str = "sidecar.istio.io/inject";
/// Marks a pod that was injected; only its presence counts.
pub const STATUS: &str = "sidecar.istio.io/status";
/// `REDIRECT` or `TPROXY`.
pub const INTERCEPTION_MODE: &str = "sidecar.istio.io/interceptionMode";
/// Networks whose outbound traffic is captured.
pub const INCLUDE_OUTBOUND_IP_RANGES: &str = "traffic.sidecar.istio.io/includeOutboundIPRanges";
/// Networks whose outbound traffic is left.
pub const EXCLUDE_OUTBOUND_IP_RANGES: &str = "traffic.sidecar.istio.io/excludeOutboundIPRanges";
/// Ports whose inbound traffic is captured.
pub const INCLUDE_INBOUND_PORTS: &str = "traffic.sidecar.istio.io/includeInboundPorts";
/// Ports whose inbound traffic is left.
pub const EXCLUDE_INBOUND_PORTS: &str = "traffic.sidecar.istio.io/excludeInboundPorts";
/// Ports whose outbound traffic is captured whatever the address.
pub const INCLUDE_OUTBOUND_PORTS: &str = "traffic.sidecar.istio.io/includeOutboundPorts";
/// Ports whose outbound traffic is left whatever the address.
pub const EXCLUDE_OUTBOUND_PORTS: &str = "traffic.sidecar.istio.io/excludeOutboundPorts";
/// Interfaces of virtual machines.
pub const REROUTE_VIRTUAL_INTERFACES: &str = "istio.io/reroute-virtual-interfaces";
/// The older name of [`REROUTE_VIRTUAL_INTERFACES`]; read only when that one is absent.
pub const KUBEVIRT_INTERFACES: &str = "traffic.sidecar.istio.io/kubevirtInterfaces";
/// Interfaces that are left alone.
pub const EXCLUDE_INTERFACES: &str = "traffic.sidecar.istio.io/excludeInterfaces";

/// The port that the agent's health check answers on; left in both directions unless told otherwise.
const STATUS_PORT: &str = "15020";
/// Ports of the proxy's own listeners, always left inbound.
const PROXY_PORTS: &str = "15020,15021,15090";

/// What the annotations of a pod say, checked, with defaults for those that are absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectAnnotations {
    /// `REDIRECT` or `TPROXY`
    pub interception_mode: String,
    /// `*`, networks, or empty
    pub include_outbound_ip_ranges: String,
    /// networks, or empty
    pub exclude_outbound_ip_ranges: String,
    /// `*`, ports, or empty
    pub include_inbound_ports: String,
    /// ports, those of the proxy's own listeners among them
    pub exclude_inbound_ports: String,
    /// ports, or empty
    pub include_outbound_ports: String,
    /// ports, or empty
    pub exclude_outbound_ports: String,
    /// interfaces, or empty
    pub reroute_virtual_interfaces: String,
    /// interfaces, or empty
    pub exclude_interfaces: String,
}

impl RedirectAnnotations {
    /// Reads and checks all of them.
    ///
    /// A port list that is used and cannot say "all ports" refuses `*` here already, where the annotation can be
    /// named, and not only when no rule can be made of it.
    ///
    /// # Errors
    ///
    /// Names the annotation, the bad element, the reason and what is accepted.
    pub fn read(annotations: &BTreeMap<String, String>) -> Result<Self, InputError> {
        let get = |key: &'static str, default: &'static str| {
            (key, annotations.get(key).map_or(default, String::as_str))
        };
        // A key that is present hides its older name, even when it is empty.
        let virtual_key = if annotations.contains_key(REROUTE_VIRTUAL_INTERFACES) {
            REROUTE_VIRTUAL_INTERFACES
        } else {
            KUBEVIRT_INTERFACES
        };
        let include_inbound_ports = all_or(ports, get(INCLUDE_INBOUND_PORTS, "*"))?;
        // Beside a list of included ports the excluded ones have no effect, and then `*` does no harm.
        let exclude = get(EXCLUDE_INBOUND_PORTS, STATUS_PORT);
        let exclude_inbound_ports = match include_inbound_ports.as_str() {
            "*" => ports(exclude)?,
            _ => all_or(ports, exclude)?,
        };
        Ok(Self {
            interception_mode: mode(get(INTERCEPTION_MODE, "REDIRECT"))?,
            include_outbound_ip_ranges: all_or(networks, get(INCLUDE_OUTBOUND_IP_RANGES, "*"))?,
            exclude_outbound_ip_ranges: networks(get(EXCLUDE_OUTBOUND_IP_RANGES, ""))?,
            include_inbound_ports,
            exclude_inbound_ports: with_proxy_ports(&exclude_inbound_ports),
            include_outbound_ports: ports(get(INCLUDE_OUTBOUND_PORTS, ""))?,
            exclude_outbound_ports: ports(get(EXCLUDE_OUTBOUND_PORTS, STATUS_PORT))?,
            reroute_virtual_interfaces: interfaces(get(virtual_key, ""))?,
            exclude_interfaces: interfaces(get(EXCLUDE_INTERFACES, ""))?,
        })
    }
}

/// A key and its value.
type Annotation<'a> = (&'static str, &'a str);

fn bad(key: &str, value: &str, reason: &str, accepted: &str) -> InputError {
    InputError::value(format!("annotation {key}"), value, reason, accepted)
}

fn mode((key, value): Annotation<'_>) -> Result<String, InputError> {
    match value {
        "REDIRECT" | "TPROXY" => Ok(value.to_owned()),
        _ => Err(bad(
            key,
            value,
            "is no interception mode",
            "REDIRECT or TPROXY",
        )),
    }
}

fn all_or(
    list: fn(Annotation<'_>) -> Result<String, InputError>,
    annotation: Annotation<'_>,
) -> Result<String, InputError> {
    if annotation.1 == "*" {
        Ok("*".to_owned())
    } else {
        list(annotation)
    }
}

const PORTS: &str = "ports 0-65535 with commas between them";

fn ports((key, value): Annotation<'_>) -> Result<String, InputError> {
    if !value.trim().is_empty() {
        for element in value.split(',').map(str::trim) {
            let reason = match text::decimal::<u16>(element) {
                Some(_) => continue,
                None if element.is_empty() => "has an empty element",
                None if element == "*" => "stands for all ports, which this list cannot say",
                None => "is not a port",
            };
            let part = if element.is_empty() { value } else { element };
            return Err(bad(key, part, reason, PORTS));
        }
    }
    Ok(value.to_owned())
}

fn networks((key, value): Annotation<'_>) -> Result<String, InputError> {
    if !value.is_empty() {
        for element in value.split(',') {
            if let Err(reason) = text::cidr(element) {
                let accepted = "networks ADDRESS/LENGTH with commas and no blanks between them";
                return Err(bad(key, element, reason, accepted));
            }
        }
    }
    Ok(value.to_owned())
}

fn interfaces((key, value): Annotation<'_>) -> Result<String, InputError> {
    if !value.is_empty() {
        for element in value.split(',').map(str::trim) {
            if !is_interface(element) {
                let accepted = "interface names of 1 to 15 characters, first a letter, then letters, \
                                digits, _ . or -";
                return Err(bad(key, element, "is not an interface name", accepted));
            }
        }
    }
    Ok(value.to_owned())
}

fn is_interface(name: &str) -> bool {
    let rest = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    name.len() <= 15
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
        && name.bytes().all(rest)
}

/// Adds the ports of the proxy's own listeners. Of equal texts the first one stays.
fn with_proxy_ports(list: &str) -> String {
    let list = list.trim();
    let comma = if list.is_empty() || list.ends_with(',') {
        ""
    } else {
        ","
    };
    let all = format!("{list}{comma}{PROXY_PORTS}");
    let mut seen = HashSet::new();
    let ports: Vec<&str> = all.split(',').filter(|port| seen.insert(*port)).collect();
    ports.join(",")
}

#[cfg(test)]
mod tests;
