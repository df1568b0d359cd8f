//! Parses each string of a configuration.

use crate::SidecarConfig;
use weir_cni::config::{
    Dns, Inbound, InboundMode, InputError, Intent, InterfaceName, NameFiles, OutboundRanges,
    OwnerGroups, PortRange, Ranges, TproxyMark, ids, loopback, text,
};

impl SidecarConfig {
    /// Parses every string of a filled configuration.
    ///
    /// Parses the TPROXY mark and table, and the list of excluded owner groups, only if they are used.
    ///
    /// # Errors
    /// A string is invalid: the error names the field, the element, the reason and the accepted values. The lists
    /// would make more than [`MAX_RULES`](weir_cni::config::MAX_RULES) rules.
    pub fn intent(&self, names: &NameFiles) -> Result<Intent, InputError> {
        let config = self;
        /// A field of the configuration, read with its name.
        macro_rules! read {
            ($parse:expr, $field:ident $(, $more:expr)?) => {
                $parse(stringify!($field), &config.$field $(, $more)?)?
            };
        }
        let mut warnings = Vec::new();
        let inbound = match config.inbound_ports_include.as_str() {
            "" => Inbound::Off,
            "*" => Inbound::All,
            _ => Inbound::Ports(read!(ports, inbound_ports_include)),
        };
        let inbound_ports_exclude = inbound_exclude(config, &inbound, &mut warnings)?;
        let mode = mode(config, inbound != Inbound::Off)?;
        let intent = Intent {
            enable_ipv6: config.enable_ipv6,
            mode,
            proxy_port: read!(listen_port, proxy_port),
            inbound_capture_port: read!(listen_port, inbound_capture_port),
            inbound_tunnel_port: read!(listen_port, inbound_tunnel_port),
            proxy_uids: read!(ids, proxy_uid, &names.passwd),
            proxy_gids: read!(ids, proxy_gid, &names.group),
            inbound,
            inbound_ports_exclude,
            owner_groups: OwnerGroups::parse(
                ("owner_groups_include", &config.owner_groups_include),
                ("owner_groups_exclude", &config.owner_groups_exclude),
                &names.group,
            )?,
            outbound_ports_include: read!(ports, outbound_ports_include),
            outbound_ports_exclude: read!(ports, outbound_ports_exclude),
            outbound_include: match config.outbound_ip_ranges_include.as_str() {
                "*" => OutboundRanges::All,
                _ => OutboundRanges::Ranges(read!(ranges, outbound_ip_ranges_include)),
            },
            outbound_exclude: read!(ranges, outbound_ip_ranges_exclude),
            virtual_interfaces: read!(interfaces, reroute_virtual_interfaces),
            exclude_interfaces: read!(interfaces, exclude_interfaces),
            loopback_v4: read!(loopback, host_ipv4_loopback_cidr),
            dns: dns(config, &mut warnings)?,
            drop_invalid: config.drop_invalid,
            warnings,
        };
        intent.checked()
    }
}

fn mode(config: &SidecarConfig, captures_inbound: bool) -> Result<InboundMode, InputError> {
    if config.inbound_interception_mode != "TPROXY" {
        return Ok(InboundMode::Redirect);
    }
    let mark_text = config.inbound_tproxy_mark.trim();
    let hexadecimal = mark_text.strip_prefix("0x").filter(|_| !captures_inbound);
    let mark = match hexadecimal {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u32::from_str_radix(digits, 16).ok()
        }
        _ => text::decimal(mark_text),
    };
    // Packets have mark 0 by default: all of them would be looked up in the proxy's table.
    let mark = mark.filter(|mark| *mark != 0 || !captures_inbound);
    let mark = mark.ok_or_else(|| {
        let accepted = match captures_inbound {
            true => "a decimal number 1-4294967295",
            false => "a decimal number 0-4294967295",
        };
        let given = &config.inbound_tproxy_mark;
        InputError::value(
            "inbound_tproxy_mark",
            given,
            "is not a decimal mark",
            accepted,
        )
    })?;
    if !captures_inbound {
        return Ok(InboundMode::Tproxy(TproxyMark { mark, table: None }));
    }
    let given = &config.inbound_tproxy_route_table;
    // Table 0 (RT_TABLE_UNSPEC) means "unspecified" to the kernel: it would add the default route to the main table.
    match text::decimal::<u32>(given.trim()).filter(|table| *table != 0) {
        Some(table) => Ok(InboundMode::Tproxy(TproxyMark {
            mark,
            table: Some(table),
        })),
        None => {
            let reason = "is not a decimal routing table";
            let accepted = "a decimal number 1-4294967295";
            Err(InputError::value(
                "inbound_tproxy_route_table",
                given,
                reason,
                accepted,
            ))
        }
    }
}

fn ports(field: &str, list: &str) -> Result<Vec<PortRange>, InputError> {
    text::elements(list)
        .map(|element| port(field, element))
        .collect()
}

const PORTS: &str = "a port 0-65535 or a range of ports LOW:HIGH or LOW-HIGH";

/// Parses a list element that holds ports.
fn port(field: &str, element: &str) -> Result<PortRange, InputError> {
    let error = |reason: &str| Err(InputError::value(field, element, reason, PORTS));
    if element == "*" {
        return error("stands for all ports, which this list cannot express");
    }
    let (first, last) = element
        .split_once(':')
        .or_else(|| element.split_once('-'))
        .map_or((element, element), |(first, last)| {
            (first.trim(), last.trim())
        });
    match (text::decimal(first), text::decimal(last)) {
        (Some(first), Some(last)) if first <= last => Ok(PortRange(first..=last)),
        (Some(_), Some(_)) => error("is a range whose end is below its start"),
        _ => error("is not a port or a range of ports"),
    }
}

/// Parses a field that holds the port of a listener.
fn listen_port(field: &str, value: &str) -> Result<u16, InputError> {
    match text::decimal(value.trim()) {
        Some(port) if port != 0 => Ok(port),
        _ => Err(InputError::value(
            field,
            value,
            "is not a port",
            "a port 1-65535",
        )),
    }
}

/// Parses the excluded ports. They have an effect only if all ports are captured; otherwise `*` is not an error.
fn inbound_exclude(
    config: &SidecarConfig,
    inbound: &Inbound,
    warnings: &mut Vec<String>,
) -> Result<Vec<PortRange>, InputError> {
    let (field, list) = ("inbound_ports_exclude", &config.inbound_ports_exclude);
    if *inbound == Inbound::All {
        return ports(field, list);
    }
    let (all, others): (Vec<&str>, Vec<&str>) = text::elements(list).partition(|e| *e == "*");
    if !all.is_empty() {
        warnings.push(format!(
            "{field}: \"*\" has no effect: of inbound traffic only included ports are captured"
        ));
    }
    let others = others.into_iter();
    others.map(|e| port(field, e)).collect()
}

fn interfaces(field: &str, list: &str) -> Result<Vec<InterfaceName>, InputError> {
    text::elements(list)
        .map(|element| InterfaceName::parse(field, element))
        .collect()
}

fn ranges(field: &str, list: &str) -> Result<Ranges, InputError> {
    Ranges::parse(text::elements(list)).map_err(|(element, reason)| {
        let reason = match element {
            "*" => "stands for all networks, which this list cannot express",
            _ => reason,
        };
        InputError::value(field, element, reason, "networks ADDRESS/LENGTH")
    })
}

fn dns(config: &SidecarConfig, warnings: &mut Vec<String>) -> Result<Dns, InputError> {
    if !config.redirect_dns {
        return Ok(Dns::Off);
    }
    if config.capture_all_dns {
        return Ok(Dns::All);
    }
    let v4: Vec<_> = servers("dns_servers_v4", &config.dns_servers_v4, "an IPv4 address")?;
    let v6: Vec<_> = servers("dns_servers_v6", &config.dns_servers_v6, "an IPv6 address")?;
    if v4.is_empty() && v6.is_empty() {
        warnings.push("redirect_dns: no name server is known, so no DNS is redirected".to_owned());
        return Ok(Dns::Off);
    }
    Ok(Dns::Servers { v4, v6 })
}

fn servers<A: std::str::FromStr>(
    field: &str,
    list: &[String],
    accepted: &str,
) -> Result<Vec<A>, InputError> {
    let parse = |server: &String| {
        let error = || InputError::value(field, server, "is not a server of this list", accepted);
        server.trim().parse().map_err(|_| error())
    };
    list.iter().map(parse).collect()
}

#[cfg(test)]
mod tests;
