//! Names of IP protocols: `/etc/protocols` as Debian has it. The file is not read, so a text is the same on every machine.

/// Number and name.
pub(crate) const PROTOCOLS: &[(u64, &str)] = &[
    (0, "ip"),
    (1, "icmp"),
    (2, "igmp"),
    (3, "ggp"),
    (4, "ipencap"),
    (5, "st"),
    (6, "tcp"),
    (8, "egp"),
    (9, "igp"),
    (12, "pup"),
    (17, "udp"),
    (20, "hmp"),
    (22, "xns-idp"),
    (27, "rdp"),
    (29, "iso-tp4"),
    (33, "dccp"),
    (36, "xtp"),
    (37, "ddp"),
    (38, "idpr-cmtp"),
    (41, "ipv6"),
    (43, "ipv6-route"),
    (44, "ipv6-frag"),
    (45, "idrp"),
    (46, "rsvp"),
    (47, "gre"),
    (50, "esp"),
    (51, "ah"),
    (57, "skip"),
    (58, "ipv6-icmp"),
    (59, "ipv6-nonxt"),
    (60, "ipv6-opts"),
    (73, "rspf"),
    (81, "vmtp"),
    (88, "eigrp"),
    (89, "ospf"),
    (93, "ax.25"),
    (94, "ipip"),
    (97, "etherip"),
    (98, "encap"),
    (103, "pim"),
    (108, "ipcomp"),
    (112, "vrrp"),
    (115, "l2tp"),
    (124, "isis"),
    (132, "sctp"),
    (133, "fc"),
    (135, "mobility-header"),
    (136, "udplite"),
    (137, "mpls-in-ip"),
    (138, "manet"),
    (139, "hip"),
    (140, "shim6"),
    (141, "wesp"),
    (142, "rohc"),
    (143, "ethernet"),
];

/// `getprotobynumber(3)`. 0 has no name: in most places it means every protocol.
pub(crate) fn name(protocol: u8) -> Option<&'static str> {
    let mut known = PROTOCOLS.iter().skip(1);
    known
        .find(|(number, _)| *number == u64::from(protocol))
        .map(|(_, name)| *name)
}

/// `getprotobyname(3)`, with the alias `icmpv6`; or a decimal number. `None` for a number of several digits that begins with
/// 0, which the tools read as octal.
pub(crate) fn number(text: &str) -> Option<u8> {
    if text.eq_ignore_ascii_case("icmpv6") {
        return Some(58);
    }
    let mut known = PROTOCOLS.iter().skip(1);
    let found = known.find(|(_, name)| name.eq_ignore_ascii_case(text));
    match found {
        Some((number, _)) => u8::try_from(*number).ok(),
        None if text.len() > 1 && text.starts_with(['0', '+']) => None,
        None => text.parse().ok(),
    }
}
