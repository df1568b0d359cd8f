//! Constants of `NETLINK_ROUTE`.

use crate::message::constants;

// linux/rtnetlink.h, linux/if_addr.h, linux/neighbour.h, linux/pkt_sched.h
constants! {
    // NEW: the object is new or has changed; as a request: add or change it. DEL: it was deleted; as a request: delete
    // it. GET: list or find it.
    pub(super) RTM_NEWLINK: u16 = 16,
    pub(super) RTM_DELLINK: u16 = 17,
    pub(super) RTM_GETLINK: u16 = 18,
    pub(super) RTM_NEWADDR: u16 = 20,
    pub(super) RTM_DELADDR: u16 = 21,
    pub(super) RTM_GETADDR: u16 = 22,
    pub(super) RTM_NEWROUTE: u16 = 24,
    pub(super) RTM_DELROUTE: u16 = 25,
    pub(super) RTM_GETROUTE: u16 = 26,
    pub(super) RTM_NEWNEIGH: u16 = 28,
    pub(super) RTM_DELNEIGH: u16 = 29,
    pub(super) RTM_GETNEIGH: u16 = 30,
    pub(super) RTM_NEWRULE: u16 = 32,
    pub(super) RTM_DELRULE: u16 = 33,
    pub(super) RTM_GETRULE: u16 = 34,
    pub(super) RTM_NEWQDISC: u16 = 36,
    pub(super) RTM_DELQDISC: u16 = 37,
    pub(super) RTM_GETQDISC: u16 = 38,
    pub(super) RTM_NEWTFILTER: u16 = 44,
    pub(super) RTM_DELTFILTER: u16 = 45,
    pub(super) RTM_GETTFILTER: u16 = 46,
    pub(super) RTM_NEWNSID: u16 = 88,
    pub(super) RTM_DELNSID: u16 = 89,
    pub(super) RTM_GETNSID: u16 = 90,
    /// Notifications of links.
    pub RTNLGRP_LINK: u32 = 1,
    /// Notifications of neighbours.
    pub RTNLGRP_NEIGH: u32 = 3,
    /// Notifications of qdiscs, classes and filters.
    pub RTNLGRP_TC: u32 = 4,
    /// Notifications of IPv4 addresses.
    pub RTNLGRP_IPV4_IFADDR: u32 = 5,
    /// Notifications of IPv4 routes.
    pub RTNLGRP_IPV4_ROUTE: u32 = 7,
    /// Notifications of IPv4 policy rules.
    pub RTNLGRP_IPV4_RULE: u32 = 8,
    /// Notifications of IPv6 addresses.
    pub RTNLGRP_IPV6_IFADDR: u32 = 9,
    /// Notifications of IPv6 routes.
    pub RTNLGRP_IPV6_ROUTE: u32 = 11,
    /// Notifications of IPv6 policy rules.
    pub RTNLGRP_IPV6_RULE: u32 = 19,
    /// Notifications of network namespace ids.
    pub RTNLGRP_NSID: u32 = 28,
    /// "default": the table that is looked up last, empty at boot. `rtm_table` is 0 for tables above 255.
    pub RT_TABLE_DEFAULT: u32 = 253,
    /// "main": the table of routes that were added without a table.
    pub RT_TABLE_MAIN: u32 = 254,
    /// "local": the routes to the addresses of the machine, which the kernel maintains.
    pub RT_TABLE_LOCAL: u32 = 255,
    pub(super) RTM_F_CLONED: u32 = 0x200,
    pub(super) RTM_F_OFFLOAD: u32 = 0x4000,
    pub(super) RTM_F_TRAP: u32 = 0x8000,
    pub(super) RTM_F_OFFLOAD_FAILED: u32 = 0x2000_0000,
    pub(super) RTNH_F_DEAD: u32 = 1,
    pub(super) RTNH_F_ONLINK: u32 = 4,
    pub(super) RTNH_F_OFFLOAD: u32 = 8,
    pub(super) RTNH_F_LINKDOWN: u32 = 16,
    pub(super) RTNH_F_TRAP: u32 = 64,
    pub(super) ICMPV6_ROUTER_PREF_MEDIUM: u8 = 0,
    /// The rule applies to packets that its selectors do not match.
    pub(super) FIB_RULE_INVERT: u32 = 2,
    /// No rule has the priority that the `goto` names.
    pub(super) FIB_RULE_UNRESOLVED: u32 = 4,
    /// No link has the name in `FRA_IIFNAME`.
    pub(super) FIB_RULE_IIF_DETACHED: u32 = 8,
    /// No link has the name in `FRA_OIFNAME`.
    pub(super) FIB_RULE_OIF_DETACHED: u32 = 16,
    /// Skip duplicate address detection.
    pub(super) IFA_F_NODAD: u8 = 2,
    pub(super) IFA_F_TENTATIVE: u32 = 0x40,
    pub(super) IFF_UP: u32 = 1,
    /// A permanent neighbour entry.
    pub NUD_PERMANENT: u16 = 0x80,
}

/// `AF_INET`
pub(super) const AF_INET: u8 = 2;
/// `AF_INET6`
pub(super) const AF_INET6: u8 = 10;

/// Declares an open enum of the kernel: variant, C name, number, and iproute2's name.
macro_rules! open_enum {
    ($($(#[$m:meta])* pub enum $name:ident: $ty:ty {
        $($(#[$vm:meta])* $variant:ident = $c:literal $n:literal $word:literal,)*
    })*) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$vm])* #[doc = concat!("`", $c, "`")] #[doc(alias = $c)] $variant,)*
            /// A number without a variant.
            Other($ty),
        }

        impl $name {
            /// C names and values, for the comparison with the system's headers.
            pub(super) const CONSTANTS: &[(&str, i64)] = &[$(($c, $n)),*];
        }

        impl From<$ty> for $name {
            fn from(n: $ty) -> Self {
                match n {
                    $($n => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }

        impl From<$name> for $ty {
            fn from(value: $name) -> Self {
                match value {
                    $($name::$variant => $n,)*
                    $name::Other(n) => n,
                }
            }
        }

        impl std::fmt::Display for $name {
            /// As iproute2 prints it; the number if iproute2 has no name.
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($word),)*
                    Self::Other(n) => write!(f, "{n}"),
                }
            }
        }
    )*};
}

open_enum! {
    /// The creator of a route, a policy rule or an address (`rtm_protocol`, `FRA_PROTOCOL`, `IFA_PROTO`). The kernel gives
    /// no meaning to numbers above `RTPROT_STATIC`.
    #[doc(alias = "rtm_protocol")]
    pub enum RouteProtocol: u8 {
        /// Not stated:
        Unspec = "RTPROT_UNSPEC" 0 "unspec",
        Redirect = "RTPROT_REDIRECT" 1 "redirect",
        Kernel = "RTPROT_KERNEL" 2 "kernel",
        Boot = "RTPROT_BOOT" 3 "boot",
        Static = "RTPROT_STATIC" 4 "static",
        Ra = "RTPROT_RA" 9 "ra",
        Dhcp = "RTPROT_DHCP" 16 "dhcp",
    }
    /// The distance of a destination (`rtm_scope`, `ifa_scope`).
    #[doc(alias = "rtm_scope")]
    pub enum RouteScope: u8 {
        Universe = "RT_SCOPE_UNIVERSE" 0 "global",
        Site = "RT_SCOPE_SITE" 200 "site",
        Link = "RT_SCOPE_LINK" 253 "link",
        Host = "RT_SCOPE_HOST" 254 "host",
        Nowhere = "RT_SCOPE_NOWHERE" 255 "nowhere",
    }
    /// The action for a packet (`rtm_type`).
    #[doc(alias = "rtm_type")]
    pub enum RouteType: u8 {
        Unspec = "RTN_UNSPEC" 0 "none",
        Unicast = "RTN_UNICAST" 1 "unicast",
        Local = "RTN_LOCAL" 2 "local",
        Broadcast = "RTN_BROADCAST" 3 "broadcast",
        Anycast = "RTN_ANYCAST" 4 "anycast",
        Multicast = "RTN_MULTICAST" 5 "multicast",
        BlackHole = "RTN_BLACKHOLE" 6 "blackhole",
        Unreachable = "RTN_UNREACHABLE" 7 "unreachable",
        Prohibit = "RTN_PROHIBIT" 8 "prohibit",
        Throw = "RTN_THROW" 9 "throw",
        Nat = "RTN_NAT" 10 "nat",
        ExternalResolver = "RTN_XRESOLVE" 11 "xresolve",
    }
    /// The action for the packets that a policy rule selects (`struct fib_rule_hdr`, `action`).
    #[doc(alias = "FR_ACT_TO_TBL")]
    pub enum RuleAction: u8 {
        /// Looks up a table; if it has no route, the next rule follows:
        Lookup = "FR_ACT_TO_TBL" 1 "lookup",
        /// Continues with the rule of another priority:
        Goto = "FR_ACT_GOTO" 2 "goto",
        Nop = "FR_ACT_NOP" 3 "nop",
        BlackHole = "FR_ACT_BLACKHOLE" 6 "blackhole",
        Unreachable = "FR_ACT_UNREACHABLE" 7 "unreachable",
        Prohibit = "FR_ACT_PROHIBIT" 8 "prohibit",
    }
}
