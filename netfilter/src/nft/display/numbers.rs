//! Symbolic names of numbers.

/// The symbolic name of a number, in the order in which `nft` looks it up.
pub(super) fn name(table: &[(u64, &'static str)], n: u64) -> Option<&'static str> {
    table
        .iter()
        .find(|(value, _)| *value == n)
        .map(|(_, name)| *name)
}

/// Names of the set bits, joined by commas; unnamed bits follow in hexadecimal.
pub(super) fn bits(table: &[(u64, &'static str)], n: u64) -> String {
    let mut left = n;
    let mut names = Vec::new();
    for (bit, name) in table {
        if n & bit != 0 {
            names.push((*name).to_owned());
            left &= !bit;
        }
    }
    if left != 0 || names.is_empty() {
        names.push(format!("0x{left:x}"));
    }
    names.join(",")
}

/// `/etc/protocols`, which `nft` reads; the protocols that are commonly filtered.
pub(super) const PROTOCOLS: &[(u64, &str)] = &[
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
    (33, "dccp"),
    (41, "ipv6"),
    (43, "ipv6-route"),
    (44, "ipv6-frag"),
    (46, "rsvp"),
    (47, "gre"),
    (50, "esp"),
    (51, "ah"),
    (58, "ipv6-icmp"),
    (59, "ipv6-nonxt"),
    (60, "ipv6-opts"),
    (89, "ospf"),
    (94, "ipip"),
    (103, "pim"),
    (108, "ipcomp"),
    (112, "vrrp"),
    (115, "l2tp"),
    (132, "sctp"),
    (135, "mobility-header"),
    (136, "udplite"),
];

/// `enum ip_conntrack_info` as bits, linux/netfilter/nf_conntrack_common.h
pub(super) const CT_STATE: &[(u64, &str)] = &[
    (1, "invalid"),
    (2, "established"),
    (4, "related"),
    (8, "new"),
    (64, "untracked"),
];

/// `enum ip_conntrack_status`
pub(super) const CT_STATUS: &[(u64, &str)] = &[
    (1, "expected"),
    (2, "seen-reply"),
    (4, "assured"),
    (8, "confirmed"),
    (16, "snat"),
    (32, "dnat"),
    (512, "dying"),
];

pub(super) const TCP_FLAGS: &[(u64, &str)] = &[
    (1, "fin"),
    (2, "syn"),
    (4, "rst"),
    (8, "psh"),
    (16, "ack"),
    (32, "urg"),
    (64, "ecn"),
    (128, "cwr"),
];

/// `RTN_*`, linux/rtnetlink.h
pub(super) const FIB_TYPES: &[(u64, &str)] = &[
    (0, "unspec"),
    (1, "unicast"),
    (2, "local"),
    (3, "broadcast"),
    (4, "anycast"),
    (5, "multicast"),
    (6, "blackhole"),
    (7, "unreachable"),
    (8, "prohibit"),
];

/// `ETH_P_*`, linux/if_ether.h
pub(super) const ETHER_TYPES: &[(u64, &str)] = &[
    (0x0800, "ip"),
    (0x0806, "arp"),
    (0x86dd, "ip6"),
    (0x8100, "8021q"),
    (0x88a8, "8021ad"),
];

/// `ARPHRD_*`, linux/if_arp.h
pub(super) const ARPHRD: &[(u64, &str)] = &[
    (1, "ether"),
    (512, "ppp"),
    (768, "ipip"),
    (769, "ipip6"),
    (772, "loopback"),
    (776, "sit"),
    (778, "ipgre"),
];

/// `PACKET_*`, linux/if_packet.h
pub(super) const PKT_TYPES: &[(u64, &str)] = &[
    (0, "host"),
    (1, "broadcast"),
    (2, "multicast"),
    (3, "other"),
];

pub(super) const ICMP_TYPES: &[(u64, &str)] = &[
    (0, "echo-reply"),
    (3, "destination-unreachable"),
    (4, "source-quench"),
    (5, "redirect"),
    (8, "echo-request"),
    (9, "router-advertisement"),
    (10, "router-solicitation"),
    (11, "time-exceeded"),
    (12, "parameter-problem"),
    (13, "timestamp-request"),
    (14, "timestamp-reply"),
    (15, "info-request"),
    (16, "info-reply"),
    (17, "address-mask-request"),
    (18, "address-mask-reply"),
];

pub(super) const ICMPV6_TYPES: &[(u64, &str)] = &[
    (1, "destination-unreachable"),
    (2, "packet-too-big"),
    (3, "time-exceeded"),
    (4, "parameter-problem"),
    (128, "echo-request"),
    (129, "echo-reply"),
    (130, "mld-listener-query"),
    (131, "mld-listener-report"),
    (132, "mld-listener-done"),
    (133, "nd-router-solicit"),
    (134, "nd-router-advert"),
    (135, "nd-neighbor-solicit"),
    (136, "nd-neighbor-advert"),
    (137, "nd-redirect"),
    (138, "router-renumbering"),
    (141, "ind-neighbor-solicit"),
    (142, "ind-neighbor-advert"),
    (143, "mld2-listener-report"),
];

/// `ICMP_*_UNREACH`, linux/icmp.h
pub(super) const ICMP_CODES: &[(u64, &str)] = &[
    (0, "net-unreachable"),
    (1, "host-unreachable"),
    (2, "prot-unreachable"),
    (3, "port-unreachable"),
    (9, "net-prohibited"),
    (10, "host-prohibited"),
    (13, "admin-prohibited"),
];

/// `ICMPV6_*`, linux/icmpv6.h
pub(super) const ICMPV6_CODES: &[(u64, &str)] = &[
    (0, "no-route"),
    (1, "admin-prohibited"),
    (3, "addr-unreachable"),
    (4, "port-unreachable"),
    (5, "policy-fail"),
    (6, "reject-route"),
];

/// `enum nft_reject_inet_code`
pub(super) const ICMPX_CODES: &[(u64, &str)] = &[
    (0, "no-route"),
    (1, "port-unreachable"),
    (2, "host-unreachable"),
    (3, "admin-prohibited"),
];

/// `enum nft_log_level`
pub(super) const LOG_LEVELS: &[(u64, &str)] = &[
    (0, "emerg"),
    (1, "alert"),
    (2, "crit"),
    (3, "err"),
    (4, "warn"),
    (5, "notice"),
    (6, "info"),
    (7, "debug"),
    (8, "audit"),
];
