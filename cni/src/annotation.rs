//! The annotations that configure a pod's redirection, and the values they accept.
//!
//! Lists of ports and interfaces may have blanks around an element; lists of networks may not.

use crate::config::{
    Inbound, InboundMode, InputError, InterfaceName, OutboundRanges, PortRange, Ranges, TproxyMark,
    text,
};
use std::collections::{BTreeMap, HashSet};

/// Opts a pod out; also a label, which takes precedence.
pub const INJECT: &str = "sidecar.istio.io/inject";
/// Marks an injected pod; only its presence counts.
pub const STATUS: &str = "sidecar.istio.io/status";
/// `REDIRECT` or `TPROXY`.
pub const INTERCEPTION_MODE: &str = "sidecar.istio.io/interceptionMode";
/// Networks whose outbound traffic is captured.
pub const INCLUDE_OUTBOUND_IP_RANGES: &str = "traffic.sidecar.istio.io/includeOutboundIPRanges";
/// Networks whose outbound traffic is not captured.
pub const EXCLUDE_OUTBOUND_IP_RANGES: &str = "traffic.sidecar.istio.io/excludeOutboundIPRanges";
/// Ports whose inbound traffic is captured.
pub const INCLUDE_INBOUND_PORTS: &str = "traffic.sidecar.istio.io/includeInboundPorts";
/// Ports whose inbound traffic is not captured.
pub const EXCLUDE_INBOUND_PORTS: &str = "traffic.sidecar.istio.io/excludeInboundPorts";
/// Ports whose outbound traffic is captured for every address.
pub const INCLUDE_OUTBOUND_PORTS: &str = "traffic.sidecar.istio.io/includeOutboundPorts";
/// Ports whose outbound traffic is not captured for any address.
pub const EXCLUDE_OUTBOUND_PORTS: &str = "traffic.sidecar.istio.io/excludeOutboundPorts";
/// Interfaces that connect virtual machines.
pub const REROUTE_VIRTUAL_INTERFACES: &str = "istio.io/reroute-virtual-interfaces";
/// The older name of [`REROUTE_VIRTUAL_INTERFACES`]; read only if that is absent.
pub const KUBEVIRT_INTERFACES: &str = "traffic.sidecar.istio.io/kubevirtInterfaces";
/// Interfaces whose traffic is not captured.
pub const EXCLUDE_INTERFACES: &str = "traffic.sidecar.istio.io/excludeInterfaces";

/// Port of the agent's health check; by default not captured in either direction.
const STATUS_PORT: &str = "15020";
/// Ports of the proxy's own listeners, never captured inbound.
const PROXY_PORTS: [&str; 3] = [STATUS_PORT, "15021", "15090"];

/// The values of a pod's annotations, with defaults for absent ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectAnnotations {
    /// How inbound traffic reaches the proxy.
    pub mode: InboundMode,
    /// Networks whose outbound traffic is captured.
    pub outbound_include: OutboundRanges,
    /// Networks whose outbound traffic is not captured.
    pub outbound_exclude: Ranges,
    /// Ports whose inbound traffic is captured.
    pub inbound: Inbound,
    /// Ports whose inbound traffic is not captured, including those of the proxy's own listeners.
    pub inbound_ports_exclude: Vec<PortRange>,
    /// Ports whose outbound traffic is captured for every address.
    pub outbound_ports_include: Vec<PortRange>,
    /// Ports whose outbound traffic is not captured for any address.
    pub outbound_ports_exclude: Vec<PortRange>,
    /// Interfaces that connect virtual machines.
    pub virtual_interfaces: Vec<InterfaceName>,
    /// Interfaces whose traffic is not captured.
    pub exclude_interfaces: Vec<InterfaceName>,
    /// Warnings: values that were given and have no effect.
    pub warnings: Vec<String>,
}

impl RedirectAnnotations {
    /// Parses all annotations to typed values.
    ///
    /// # Errors
    /// The error names the annotation, the invalid element, the reason and the accepted values.
    pub fn read(annotations: &BTreeMap<String, String>) -> Result<Self, InputError> {
        let get = |key: &'static str, default: &'static str| {
            (key, annotations.get(key).map_or(default, String::as_str))
        };
        // A key that is present overrides its older name, even if its value is empty.
        let virtual_key = if annotations.contains_key(REROUTE_VIRTUAL_INTERFACES) {
            REROUTE_VIRTUAL_INTERFACES
        } else {
            KUBEVIRT_INTERFACES
        };
        let mut warnings = Vec::new();
        let inbound = inbound(get(INCLUDE_INBOUND_PORTS, "*"))?;
        let exclude = get(EXCLUDE_INBOUND_PORTS, STATUS_PORT);
        let inbound_ports_exclude = inbound_exclude(exclude, &inbound, &mut warnings)?;
        Ok(Self {
            mode: mode(get(INTERCEPTION_MODE, "REDIRECT"), &inbound)?,
            outbound_include: match get(INCLUDE_OUTBOUND_IP_RANGES, "*") {
                (_, "*") => OutboundRanges::All,
                list => OutboundRanges::Ranges(networks(list)?),
            },
            outbound_exclude: networks(get(EXCLUDE_OUTBOUND_IP_RANGES, ""))?,
            inbound,
            inbound_ports_exclude,
            outbound_ports_include: ports(get(INCLUDE_OUTBOUND_PORTS, ""))?,
            outbound_ports_exclude: ports(get(EXCLUDE_OUTBOUND_PORTS, STATUS_PORT))?,
            virtual_interfaces: interfaces(get(virtual_key, ""))?,
            exclude_interfaces: interfaces(get(EXCLUDE_INTERFACES, ""))?,
            warnings,
        })
    }
}

/// A key and its value.
type Annotation<'a> = (&'static str, &'a str);

fn bad(key: &str, value: &str, reason: &str, accepted: &str) -> InputError {
    InputError::value(format!("annotation {key}"), value, reason, accepted)
}

fn mode((key, value): Annotation<'_>, inbound: &Inbound) -> Result<InboundMode, InputError> {
    match value {
        "REDIRECT" => Ok(InboundMode::Redirect),
        "TPROXY" => Ok(InboundMode::Tproxy(TproxyMark::usual(inbound))),
        _ => Err(bad(
            key,
            value,
            "is no interception mode",
            "REDIRECT or TPROXY",
        )),
    }
}

/// Parses included inbound ports. Empty text captures none; blanks alone are an empty list.
fn inbound(annotation: Annotation<'_>) -> Result<Inbound, InputError> {
    Ok(match annotation.1 {
        "" => Inbound::Off,
        "*" => Inbound::All,
        _ => Inbound::Ports(ports(annotation)?),
    })
}

/// Parses excluded inbound ports, and adds those of the proxy's own listeners. Keeps the first of elements with equal
/// text.
///
/// Refuses `*` if all ports are captured, because no rule can express it. With a list of included ports the excluded
/// ones have no effect, so `*` is accepted.
fn inbound_exclude(
    annotation: Annotation<'_>,
    inbound: &Inbound,
    warnings: &mut Vec<String>,
) -> Result<Vec<PortRange>, InputError> {
    let given = match annotation {
        (key, "*") if *inbound != Inbound::All => {
            warnings.push(format!(
                "annotation {key}: \"*\" has no effect: of inbound traffic only included ports are captured"
            ));
            Vec::new()
        }
        annotation => numbers(annotation)?,
    };
    let own = PROXY_PORTS.map(|text| text::decimal(text).map(|port| (text, port)));
    let mut seen = HashSet::new();
    let all = given.into_iter().chain(own.into_iter().flatten());
    let first = all.filter(|(text, _)| seen.insert(*text));
    Ok(first.map(|(_, port)| PortRange(port..=port)).collect())
}

const PORTS: &str = "ports 0-65535 with commas between them";

fn ports(annotation: Annotation<'_>) -> Result<Vec<PortRange>, InputError> {
    let numbers = numbers(annotation)?.into_iter();
    Ok(numbers.map(|(_, port)| PortRange(port..=port)).collect())
}

/// Parses a list of ports; returns each element as text and as a number.
fn numbers<'a>((key, value): Annotation<'a>) -> Result<Vec<(&'a str, u16)>, InputError> {
    let list = value.trim();
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let number = |written: &'a str| {
        let element = written.trim();
        let reason = match text::decimal(element) {
            Some(port) => return Ok((written, port)),
            None if element.is_empty() => "has an empty element",
            None if element == "*" => "stands for all ports, which this list cannot express",
            None => "is not a port",
        };
        let part = if element.is_empty() { value } else { element };
        Err(bad(key, part, reason, PORTS))
    };
    list.split(',').map(number).collect()
}

fn networks((key, value): Annotation<'_>) -> Result<Ranges, InputError> {
    let elements = value.split(',').filter(|_| !value.is_empty());
    let accepted = "networks ADDRESS/LENGTH with commas and no blanks between them";
    Ranges::parse(elements).map_err(|(element, reason)| bad(key, element, reason, accepted))
}

fn interfaces((key, value): Annotation<'_>) -> Result<Vec<InterfaceName>, InputError> {
    if value.is_empty() {
        return Ok(Vec::new());
    }
    let name = |element: &str| {
        if !is_interface(element) {
            let accepted = "interface names of 1 to 15 characters, first a letter, then letters, \
                            digits, _ . or -";
            return Err(bad(key, element, "is not an interface name", accepted));
        }
        InterfaceName::parse(key, element)
    };
    value.split(',').map(str::trim).map(name).collect()
}

fn is_interface(name: &str) -> bool {
    let rest = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    name.len() <= 15
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
        && name.bytes().all(rest)
}

#[cfg(test)]
mod tests;
