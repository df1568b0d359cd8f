//! Values for tests, from comma-separated texts.

use super::{
    IdRange, Inbound, InboundMode, InterfaceName, OutboundRanges, OwnerGroups, PortRange, Ranges,
    TproxyMark, text,
};

pub(crate) fn ids(list: &str) -> Vec<IdRange> {
    super::ids("ids", list, "/nonexistent".as_ref()).unwrap()
}

/// Only these groups.
pub(crate) fn groups(list: &str) -> OwnerGroups {
    OwnerGroups::Only(ids(list))
}

pub(crate) fn ports(list: &str) -> Vec<PortRange> {
    let port = |text: &str| text::decimal::<u16>(text).unwrap();
    let range = |element: &str| {
        let (first, last) = element.split_once('-').unwrap_or((element, element));
        PortRange(port(first)..=port(last))
    };
    text::elements(list).map(range).collect()
}

/// `*` for all ports.
pub(crate) fn inbound(list: &str) -> Inbound {
    match list {
        "*" => Inbound::All,
        _ => Inbound::Ports(ports(list)),
    }
}

pub(crate) fn networks(list: &str) -> Ranges {
    Ranges::parse(text::elements(list)).unwrap()
}

/// `*` for all networks.
pub(crate) fn destinations(list: &str) -> OutboundRanges {
    match list {
        "*" => OutboundRanges::All,
        _ => OutboundRanges::Ranges(networks(list)),
    }
}

pub(crate) fn interfaces(list: &str) -> Vec<InterfaceName> {
    let name = |element| InterfaceName::parse("interfaces", element).unwrap();
    text::elements(list).map(name).collect()
}

/// Transparent proxying of captured inbound traffic, with upstream's mark and table.
pub(crate) fn tproxy() -> InboundMode {
    InboundMode::Tproxy(TproxyMark::usual(&Inbound::All))
}
