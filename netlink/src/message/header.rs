//! The family header: the struct between `struct nlmsghdr` and the attributes.

use super::number::NLMSG_ALIGNTO;
use crate::attr::{Be16, Ne16, Ne32, U8, Writer};

/// A netlink protocol, whose families share one socket.
pub trait Protocol {
    /// The last argument of `socket(AF_NETLINK, SOCK_RAW, ...)`.
    const NUMBER: i32;
    /// Name for errors.
    const NAME: &'static str;
}

/// `NETLINK_NETFILTER`
#[doc(alias = "NETLINK_NETFILTER")]
#[derive(Clone, Copy, Debug)]
pub enum Netfilter {}
/// `NETLINK_ROUTE`
#[doc(alias = "NETLINK_ROUTE")]
#[derive(Clone, Copy, Debug)]
pub enum Rtnetlink {}

impl Protocol for Netfilter {
    const NUMBER: i32 = libc::NETLINK_NETFILTER;
    const NAME: &'static str = "an nfnetlink socket";
}

impl Protocol for Rtnetlink {
    const NUMBER: i32 = libc::NETLINK_ROUTE;
    const NAME: &'static str = "a routing socket";
}

/// The header of a family.
pub trait FamilyHeader: Sized {
    /// The protocol whose sockets carry it.
    type Protocol: Protocol;
    /// `sizeof` of the struct in bytes. The attributes begin at the next multiple of four.
    const SIZE: usize;
    /// Offset of the attributes from the start of the struct in bytes.
    const ATTRS: usize = Self::SIZE.next_multiple_of(NLMSG_ALIGNTO);

    /// Appends the struct; bytes that no field covers are zero.
    fn write(&self, w: &mut Writer);
    /// Reads the struct from the start of the bytes; `None` if they are too short.
    fn read(bytes: &[u8]) -> Option<Self>;

    /// The struct and the attributes after it.
    fn split(payload: &[u8]) -> Option<(Self, &[u8])> {
        let header = Self::read(payload)?;
        Some((header, payload.get(Self::ATTRS..).unwrap_or_default()))
    }
}

/// Declares kernel structs by size, and their fields by kind (type and byte order), C name and offset.
macro_rules! structs {
    ($($(#[$m:meta])* pub struct $name:ident: $protocol:ident = $c:literal $size:literal {
        $($(#[$fm:meta])* $field:ident: $kind:ty = $cf:ident $offset:literal,)*
    })*) => {
        $(
            $(#[$m])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $name {
                $($(#[$fm])* #[doc = concat!(" (`", stringify!($cf), "`)")]
                pub $field: <$kind as $crate::attr::AttrKind>::Value,)*
            }

            impl $crate::message::FamilyHeader for $name {
                type Protocol = $protocol;
                const SIZE: usize = $size;
                fn write(&self, w: &mut $crate::attr::Writer) {
                    let start = w.len();
                    $(
                        w.zeros(start + $offset);
                        <$kind as $crate::attr::AttrKind>::encode(&self.$field, w);
                    )*
                    w.zeros(start + $size);
                }
                fn read(bytes: &[u8]) -> Option<Self> {
                    let bytes = bytes.get(..$size)?;
                    Some(Self {
                        $($field: {
                            let size = size_of::<<$kind as $crate::attr::AttrKind>::Value>();
                            let field = bytes.get($offset..$offset + size)?;
                            <$kind as $crate::attr::AttrKind>::decode(field).ok()?
                        },)*
                    })
                }
            }
        )*

        /// Sizes and offsets as C expressions, for the comparison with the system's headers.
        pub(crate) fn layouts() -> Vec<(&'static str, usize)> {
            vec![$(
                (concat!("sizeof(", $c, ")"), $size),
                $((concat!("offsetof(", $c, ", ", stringify!($cf), ")"), $offset),)*
            )*]
        }
    };
}

structs! {
    /// `struct nfgenmsg` (`linux/netfilter/nfnetlink.h`): all messages of netfilter.
    #[doc(alias = "nfgenmsg")]
    pub struct NfGenMsg: Netfilter = "struct nfgenmsg" 4 {
        /// `NFPROTO_*`
        family: U8 = nfgen_family 0,
        /// `NFNETLINK_V0`
        version: U8 = version 1,
        /// nf_tables: the low 16 bits of the generation; begin and end of a batch: the subsystem
        res_id: Be16 = res_id 2,
    }
    /// `struct rtgenmsg` (`linux/rtnetlink.h`): ids of network namespaces.
    #[doc(alias = "rtgenmsg")]
    pub struct RtGenMsg: Rtnetlink = "struct rtgenmsg" 1 {
        /// `AF_UNSPEC`
        family: U8 = rtgen_family 0,
    }
    /// `struct ifinfomsg` (`linux/rtnetlink.h`): links.
    #[doc(alias = "ifinfomsg")]
    pub struct IfInfoMsg: Rtnetlink = "struct ifinfomsg" 16 {
        /// `AF_UNSPEC`
        family: U8 = ifi_family 0,
        /// `ARPHRD_*`
        kind: Ne16 = ifi_type 2,
        /// the link's index in its namespace, from 1
        index: Ne32 = ifi_index 4,
        /// `IFF_*`
        flags: Ne32 = ifi_flags 8,
        /// mask of the flags that a request changes
        change: Ne32 = ifi_change 12,
    }
    /// `struct ifaddrmsg` (`linux/if_addr.h`): addresses.
    #[doc(alias = "ifaddrmsg")]
    pub struct IfAddrMsg: Rtnetlink = "struct ifaddrmsg" 8 {
        /// `AF_INET` or `AF_INET6`
        family: U8 = ifa_family 0,
        /// prefix length in bits
        prefix_len: U8 = ifa_prefixlen 1,
        /// the low eight bits of `IFA_F_*`
        flags: U8 = ifa_flags 2,
        /// `RT_SCOPE_*`
        scope: U8 = ifa_scope 3,
        /// index of the link
        index: Ne32 = ifa_index 4,
    }
    /// `struct rtmsg` (`linux/rtnetlink.h`): routes.
    #[doc(alias = "rtmsg")]
    pub struct RtMsg: Rtnetlink = "struct rtmsg" 12 {
        /// `AF_INET` or `AF_INET6`
        family: U8 = rtm_family 0,
        /// destination prefix length in bits
        dst_len: U8 = rtm_dst_len 1,
        /// source prefix length in bits
        src_len: U8 = rtm_src_len 2,
        /// DSCP
        tos: U8 = rtm_tos 3,
        /// `RT_TABLE_*` below 256
        table: U8 = rtm_table 4,
        /// `RTPROT_*`
        protocol: U8 = rtm_protocol 5,
        /// `RT_SCOPE_*`
        scope: U8 = rtm_scope 6,
        /// `RTN_*`
        kind: U8 = rtm_type 7,
        /// `RTM_F_*` and `RTNH_F_*`
        flags: Ne32 = rtm_flags 8,
    }
    /// `struct fib_rule_hdr` (`linux/fib_rules.h`): policy rules.
    #[doc(alias = "fib_rule_hdr")]
    pub struct FibRuleHdr: Rtnetlink = "struct fib_rule_hdr" 12 {
        /// `AF_INET` or `AF_INET6`
        family: U8 = family 0,
        /// destination prefix length in bits
        dst_len: U8 = dst_len 1,
        /// source prefix length in bits
        src_len: U8 = src_len 2,
        /// DSCP
        tos: U8 = tos 3,
        /// `RT_TABLE_*` below 256
        table: U8 = table 4,
        /// `FR_ACT_*`
        action: U8 = action 7,
        /// `FIB_RULE_*`
        flags: Ne32 = flags 8,
    }
    /// `struct tcmsg` (`linux/rtnetlink.h`): qdiscs, classes, filters.
    #[doc(alias = "tcmsg")]
    pub struct TcMsg: Rtnetlink = "struct tcmsg" 20 {
        /// `AF_UNSPEC`
        family: U8 = tcm_family 0,
        /// index of the link
        index: Ne32 = tcm_ifindex 4,
        /// its handle: major and minor number, 16 bits each
        handle: Ne32 = tcm_handle 8,
        /// handle to which it is attached: `TC_H_ROOT`, `TC_H_INGRESS`, or that of a qdisc or class
        parent: Ne32 = tcm_parent 12,
        /// of a filter: priority in the upper 16 bits, protocol in network order in the lower
        info: Ne32 = tcm_info 16,
    }
    /// `struct ndmsg` (`linux/neighbour.h`): neighbours.
    #[doc(alias = "ndmsg")]
    pub struct NdMsg: Rtnetlink = "struct ndmsg" 12 {
        /// `AF_INET`, `AF_INET6` or `AF_BRIDGE`
        family: U8 = ndm_family 0,
        /// index of the link
        index: Ne32 = ndm_ifindex 4,
        /// `NUD_*`
        state: Ne16 = ndm_state 8,
        /// `NTF_*`
        flags: U8 = ndm_flags 10,
        /// `RTN_*`
        kind: U8 = ndm_type 11,
    }
}
