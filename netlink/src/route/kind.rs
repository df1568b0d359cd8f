//! Kinds of links, with the attributes of each.

use super::chosen::{Headed, chosen};
use super::link::LinkAttrs;
use super::{InNetns, Link};
use crate::Result;
use crate::attr::{Be16, Be32, Bytes, Ip, Ne16, Ne32, U8};
use crate::message::IfInfoMsg;

crate::attributes! {
    /// `ip link add type veth`: `VETH_INFO_*` (`linux/veth.h`). Only in requests: the kernel does not list these attributes.
    #[doc(alias = "VETH_INFO_PEER")]
    pub struct Veth {
        /// the peer; without it the kernel chooses its name
        peer: Headed<IfInfoMsg, LinkAttrs> = VETH_INFO_PEER 1,
    }
    /// `ip link add type geneve`: `IFLA_GENEVE_*` (`linux/if_link.h`). Since 4.2
    #[doc(alias = "IFLA_GENEVE_ID")]
    pub struct Geneve {
        /// network identifier, 24 bits
        id: Ne32 = IFLA_GENEVE_ID 1,
        /// the remote end, IPv4
        remote: Ip = IFLA_GENEVE_REMOTE 2,
        /// TTL of the outer packet; 0 inherits
        ttl: U8 = IFLA_GENEVE_TTL 3,
        /// TOS of the outer packet
        tos: U8 = IFLA_GENEVE_TOS 4,
        /// UDP port; 6081 by default
        port: Be16 = IFLA_GENEVE_PORT 5,
        /// if present, the tunnel is chosen per packet (`external`)
        collect_metadata: Bytes = IFLA_GENEVE_COLLECT_METADATA 6,
        /// the remote end, IPv6
        remote6: Ip = IFLA_GENEVE_REMOTE6 7,
        /// UDP checksum over IPv4
        udp_csum: U8 = IFLA_GENEVE_UDP_CSUM 8,
        /// send without UDP checksum over IPv6
        udp_zero_csum6_tx: U8 = IFLA_GENEVE_UDP_ZERO_CSUM6_TX 9,
        /// accept packets without UDP checksum over IPv6
        udp_zero_csum6_rx: U8 = IFLA_GENEVE_UDP_ZERO_CSUM6_RX 10,
        /// flow label of IPv6
        label: Be32 = IFLA_GENEVE_LABEL 11,
        /// inherit the TTL of the inner packet
        ttl_inherit: U8 = IFLA_GENEVE_TTL_INHERIT 12,
        /// `GENEVE_DF_*`
        df: U8 = IFLA_GENEVE_DF 13,
    }
    /// `ip link add type vxlan`: `IFLA_VXLAN_*` (`linux/if_link.h`).
    #[doc(alias = "IFLA_VXLAN_ID")]
    pub struct Vxlan {
        /// network identifier, 24 bits
        id: Ne32 = IFLA_VXLAN_ID 1,
        /// the remote end or a multicast group, IPv4
        remote: Ip = IFLA_VXLAN_GROUP 2,
        /// index of the underlying link
        link: Ne32 = IFLA_VXLAN_LINK 3,
        /// the local end, IPv4
        local: Ip = IFLA_VXLAN_LOCAL 4,
        /// TTL of the outer packet; 0 inherits
        ttl: U8 = IFLA_VXLAN_TTL 5,
        /// learn source addresses
        learning: U8 = IFLA_VXLAN_LEARNING 7,
        /// UDP port; 8472 by default, while IANA assigned 4789
        port: Be16 = IFLA_VXLAN_PORT 15,
        /// the remote end or a multicast group, IPv6
        remote6: Ip = IFLA_VXLAN_GROUP6 16,
        /// the local end, IPv6
        local6: Ip = IFLA_VXLAN_LOCAL6 17,
        /// 1: the tunnel is chosen per packet (`external`)
        collect_metadata: U8 = IFLA_VXLAN_COLLECT_METADATA 25,
    }
    /// `ip link add type netkit`: `IFLA_NETKIT_*` (`linux/if_link.h`). Since 6.7
    #[doc(alias = "IFLA_NETKIT_PEER_INFO")]
    pub struct Netkit {
        /// the peer; without it the kernel chooses its name
        peer: Headed<IfInfoMsg, LinkAttrs> = IFLA_NETKIT_PEER_INFO 1,
        /// 1 for the end to which programs are attached; read only
        primary: U8 = IFLA_NETKIT_PRIMARY 2,
        /// `NETKIT_PASS` 0 or `NETKIT_DROP` 2: the verdict while no program is attached
        policy: Ne32 = IFLA_NETKIT_POLICY 3,
        /// the policy of the peer
        peer_policy: Ne32 = IFLA_NETKIT_PEER_POLICY 4,
        /// `NETKIT_L2` 0 or `NETKIT_L3` 1
        mode: Ne32 = IFLA_NETKIT_MODE 5,
    }
    /// `ip link add type bridge`: `IFLA_BR_*` (`linux/if_link.h`); times in hundredths of a second.
    #[doc(alias = "IFLA_BR_FORWARD_DELAY")]
    pub struct Bridge {
        /// how long a port listens, and learns, before it forwards
        forward_delay: Ne32 = IFLA_BR_FORWARD_DELAY 1,
        /// time between hello packets
        hello_time: Ne32 = IFLA_BR_HELLO_TIME 2,
        /// time after which a silent bridge is gone
        max_age: Ne32 = IFLA_BR_MAX_AGE 3,
        /// time after which an address is forgotten; 0 forgets at once
        ageing_time: Ne32 = IFLA_BR_AGEING_TIME 4,
        /// 1: spanning tree by the kernel; read only 2: by a daemon
        stp_state: Ne32 = IFLA_BR_STP_STATE 5,
        /// the lowest becomes the root of the spanning tree
        priority: Ne16 = IFLA_BR_PRIORITY 6,
        /// 1: ports are members of VLANs
        vlan_filtering: U8 = IFLA_BR_VLAN_FILTERING 7,
        /// `ETH_P_8021Q` or `ETH_P_8021AD`
        vlan_protocol: Be16 = IFLA_BR_VLAN_PROTOCOL 8,
        /// link-local groups 01:80:c2:00:00:0X that are forwarded, one bit each
        group_fwd_mask: Ne16 = IFLA_BR_GROUP_FWD_MASK 9,
    }
    /// `ip link add type dummy`: a link that drops what it sends. It has no attributes of its own.
    pub struct Dummy {
    }
}

chosen! {
    /// The kind of a link (`IFLA_INFO_KIND`), with its own attributes (`IFLA_INFO_DATA`).
    pub enum LinkKind by 1 {
        /// A pair of Ethernet links.
        Veth(Veth) = "veth",
        /// A Geneve tunnel over UDP (RFC 8926).
        Geneve(Geneve) = "geneve",
        /// A VXLAN tunnel over UDP (RFC 7348).
        Vxlan(Vxlan) = "vxlan",
        /// A pair of links whose packets eBPF programs handle.
        Netkit(Netkit) = "netkit",
        /// A switch whose ports are links.
        Bridge(Bridge) = "bridge",
        /// A link that drops what it sends.
        Dummy(Dummy) = "dummy",
    }
}

impl LinkKind {
    /// A veth pair: `ip link add ... type veth peer name PEER netns NETNS`. The value holds only the number of a descriptor, as
    /// the message does: keep the descriptor open until the link is added.
    ///
    /// # Errors
    /// The peer's attributes do not fit a message.
    pub fn veth(peer: &Link, netns: Option<InNetns<'_>>) -> Result<Self> {
        Ok(Self::Veth(Veth {
            peer: Some(peer.build("add", netns)?),
            ..Veth::default()
        }))
    }

    /// A netkit pair in layer 3 mode, which has no hardware addresses. Keep a descriptor of `netns` open as for
    /// [`LinkKind::veth`].
    ///
    /// # Errors
    /// The peer's attributes do not fit a message.
    pub fn netkit(peer: &Link, netns: Option<InNetns<'_>>) -> Result<Self> {
        Ok(Self::Netkit(Netkit {
            peer: Some(peer.build("add", netns)?),
            mode: Some(1),
            ..Netkit::default()
        }))
    }
}
