//! Symbolic names of numbers.

/// The symbolic name of a number, in the order in which `nft` looks it up.
pub(crate) fn name(table: &[(u64, &'static str)], n: u64) -> Option<&'static str> {
    table
        .iter()
        .find(|(value, _)| *value == n)
        .map(|(_, name)| *name)
}

/// The names of the bits that are set, separated by commas, after a text; empty if none is set.
pub(crate) fn listed(before: &str, names: &[(u32, &'static str)], n: u32) -> String {
    match of_bits(names, n).join(",") {
        names if names.is_empty() => names,
        names => format!("{before}{names}"),
    }
}

/// The names of the bits that are set.
pub(crate) fn of_bits(names: &[(u32, &'static str)], n: u32) -> Vec<&'static str> {
    let set = names.iter().filter(|(bit, _)| n & bit != 0);
    set.map(|(_, name)| *name).collect()
}

/// The bits that are set, each by its name or in hexadecimal.
pub(super) fn bits(table: &[(u64, &'static str)], n: u64) -> String {
    let set = (0..u64::BITS).map(|i| n & (1 << i)).filter(|bit| *bit != 0);
    let text = |bit| name(table, bit).map_or_else(|| format!("0x{bit:x}"), str::to_owned);
    let texts: Vec<String> = set.map(text).collect();
    match texts.is_empty() {
        true => "0x0".to_owned(),
        false => texts.join(" | "),
    }
}

/// `enum ip_conntrack_info` as bits, linux/netfilter/nf_conntrack_common.h
#[rustfmt::skip]
pub(crate) const CT_STATE: &[(u64, &str)] = &[
    (1, "invalid"), (2, "established"), (4, "related"), (8, "new"), (64, "untracked"),
];

/// `enum ip_conntrack_status`
#[rustfmt::skip]
pub(crate) const CT_STATUS: &[(u64, &str)] = &[
    (1, "expected"), (2, "seen-reply"), (4, "assured"), (8, "confirmed"), (16, "snat"), (32, "dnat"),
    (512, "dying"),
];

#[rustfmt::skip]
pub(crate) const TCP_FLAGS: &[(u64, &str)] = &[
    (1, "fin"), (2, "syn"), (4, "rst"), (8, "psh"), (16, "ack"), (32, "urg"), (64, "ecn"), (128, "cwr"),
];

/// `RTN_*`, linux/rtnetlink.h
#[rustfmt::skip]
pub(crate) const FIB_TYPES: &[(u64, &str)] = &[
    (0, "unspec"), (1, "unicast"), (2, "local"), (3, "broadcast"), (4, "anycast"), (5, "multicast"),
    (6, "blackhole"), (7, "unreachable"), (8, "prohibit"),
];

/// `ETH_P_*`, linux/if_ether.h
#[rustfmt::skip]
pub(crate) const ETHER_TYPES: &[(u64, &str)] = &[
    (0x0800, "ip"), (0x0806, "arp"), (0x86dd, "ip6"), (0x8100, "8021q"), (0x88a8, "8021ad"),
];

/// `ARPHRD_*`, linux/if_arp.h
#[rustfmt::skip]
pub(crate) const ARPHRD: &[(u64, &str)] = &[
    (1, "ether"), (512, "ppp"), (768, "ipip"), (769, "ipip6"), (772, "loopback"), (776, "sit"), (778, "ipgre"),
];

/// `PACKET_*`, linux/if_packet.h
#[rustfmt::skip]
pub(crate) const PKT_TYPES: &[(u64, &str)] = &[
    (0, "host"), (1, "broadcast"), (2, "multicast"), (3, "other"),
];

#[rustfmt::skip]
pub(crate) const ICMP_TYPES: &[(u64, &str)] = &[
    (0, "echo-reply"), (3, "destination-unreachable"), (4, "source-quench"), (5, "redirect"),
    (8, "echo-request"), (9, "router-advertisement"), (10, "router-solicitation"), (11, "time-exceeded"),
    (12, "parameter-problem"), (13, "timestamp-request"), (14, "timestamp-reply"), (15, "info-request"),
    (16, "info-reply"), (17, "address-mask-request"), (18, "address-mask-reply"),
];

#[rustfmt::skip]
pub(crate) const ICMPV6_TYPES: &[(u64, &str)] = &[
    (1, "destination-unreachable"), (2, "packet-too-big"), (3, "time-exceeded"), (4, "parameter-problem"),
    (128, "echo-request"), (129, "echo-reply"), (130, "mld-listener-query"), (131, "mld-listener-report"),
    (132, "mld-listener-done"), (133, "nd-router-solicit"), (134, "nd-router-advert"),
    (135, "nd-neighbor-solicit"), (136, "nd-neighbor-advert"), (137, "nd-redirect"),
    (138, "router-renumbering"), (141, "ind-neighbor-solicit"), (142, "ind-neighbor-advert"),
    (143, "mld2-listener-report"),
];

/// `ICMP_*_UNREACH`, linux/icmp.h
#[rustfmt::skip]
pub(crate) const ICMP_CODES: &[(u64, &str)] = &[
    (0, "net-unreachable"), (1, "host-unreachable"), (2, "prot-unreachable"), (3, "port-unreachable"),
    (9, "net-prohibited"), (10, "host-prohibited"), (13, "admin-prohibited"), (4, "frag-needed"),
];

/// `ICMPV6_*`, linux/icmpv6.h
#[rustfmt::skip]
pub(crate) const ICMPV6_CODES: &[(u64, &str)] = &[
    (0, "no-route"), (1, "admin-prohibited"), (3, "addr-unreachable"), (4, "port-unreachable"),
    (5, "policy-fail"), (6, "reject-route"),
];

/// `enum nft_reject_inet_code`
#[rustfmt::skip]
pub(crate) const ICMPX_CODES: &[(u64, &str)] = &[
    (0, "no-route"), (1, "port-unreachable"), (2, "host-unreachable"), (3, "admin-prohibited"),
];

/// `enum nft_log_level`
#[rustfmt::skip]
pub(crate) const LOG_LEVELS: &[(u64, &str)] = &[
    (0, "emerg"), (1, "alert"), (2, "crit"), (3, "err"), (4, "warn"), (5, "notice"), (6, "info"), (7, "debug"),
    (8, "audit"),
];

/// `ARPOP_*`, linux/if_arp.h; `nak` is that of RFC 2390
#[rustfmt::skip]
pub(crate) const ARP_OPS: &[(u64, &str)] = &[
    (1, "request"), (2, "reply"), (3, "rrequest"), (4, "rreply"), (8, "inrequest"), (9, "inreply"), (10, "nak"),
];

/// `enum dccp_pkt_type`, linux/dccp.h
#[rustfmt::skip]
pub(crate) const DCCP_TYPES: &[(u64, &str)] = &[
    (0, "request"), (1, "response"), (2, "data"), (3, "ack"), (4, "dataack"), (5, "closereq"), (6, "close"),
    (7, "reset"), (8, "sync"), (9, "syncack"),
];

/// Differentiated services, RFC 2474 and others
#[rustfmt::skip]
pub(crate) const DSCP: &[(u64, &str)] = &[
    (0x0, "cs0"), (0x8, "cs1"), (0x10, "cs2"), (0x18, "cs3"), (0x20, "cs4"), (0x28, "cs5"), (0x30, "cs6"),
    (0x38, "cs7"), (0x0, "df"), (0x0, "be"), (0x1, "lephb"), (0xa, "af11"), (0xc, "af12"), (0xe, "af13"),
    (0x12, "af21"), (0x14, "af22"), (0x16, "af23"), (0x1a, "af31"), (0x1c, "af32"), (0x1e, "af33"),
    (0x22, "af41"), (0x24, "af42"), (0x26, "af43"), (0x2c, "va"), (0x2e, "ef"),
];

/// Explicit congestion notification, RFC 3168
pub(crate) const ECN: &[(u64, &str)] = &[(0, "not-ect"), (1, "ect1"), (2, "ect0"), (3, "ce")];

/// `enum ip_conntrack_events` as bits
#[rustfmt::skip]
pub(crate) const CT_EVENTS: &[(u64, &str)] = &[
    (0x1, "new"), (0x2, "related"), (0x4, "destroy"), (0x8, "reply"), (0x10, "assured"), (0x20, "protoinfo"),
    (0x40, "helper"), (0x80, "mark"), (0x100, "seqadj"), (0x200, "secmark"), (0x400, "label"),
];

/// `IGMP_*`, linux/igmp.h
#[rustfmt::skip]
pub(crate) const IGMP_TYPES: &[(u64, &str)] = &[
    (0x11, "membership-query"), (0x12, "membership-report-v1"), (0x16, "membership-report-v2"),
    (0x22, "membership-report-v3"), (0x17, "leave-group"),
];

/// Mobility header messages, RFC 6275
#[rustfmt::skip]
pub(crate) const MH_TYPES: &[(u64, &str)] = &[
    (0, "binding-refresh-request"), (1, "home-test-init"), (2, "careof-test-init"), (3, "home-test"),
    (4, "careof-test"), (5, "binding-update"), (6, "binding-acknowledgement"), (7, "binding-error"),
    (8, "fast-binding-update"), (9, "fast-binding-acknowledgement"), (10, "fast-binding-advertisement"),
    (11, "experimental-mobility-header"), (12, "home-agent-switch-message"),
];

/// Days of the week, as the kernel numbers them
#[rustfmt::skip]
pub(crate) const DAYS: &[(u64, &str)] = &[
    (0, "\"Sunday\""), (1, "\"Monday\""), (2, "\"Tuesday\""), (3, "\"Wednesday\""), (4, "\"Thursday\""),
    (5, "\"Friday\""), (6, "\"Saturday\""),
];
