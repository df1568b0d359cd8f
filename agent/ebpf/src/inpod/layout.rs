//! Values that the programs share with each other and with the kernel: marks, maps, counters, offsets on the stack.

use crate::asm::MapRef;
use weir_ambient::ztunnel;

// struct __sk_buff (linux/bpf.h)
pub(crate) const SKB_LEN: i16 = 0;
pub(crate) const SKB_MARK: i16 = 8;
pub(crate) const SKB_PROTOCOL: i16 = 16;
pub(crate) const SKB_VLAN_PRESENT: i16 = 20;
pub(crate) const SKB_VLAN_TCI: i16 = 24;
pub(crate) const SKB_IFINDEX: i16 = 40;
pub(crate) const SKB_SK: i16 = 168;
/// `struct bpf_sock`
pub(crate) const SOCK_SRC_IP4: i16 = 24;
pub(crate) const SOCK_SRC_IP6: i16 = 28;
pub(crate) const SOCK_SRC_PORT: i16 = 44;
pub(crate) const SOCK_DST_PORT: i16 = 48;
pub(crate) const SOCK_DST_IP4: i16 = 52;
pub(crate) const SOCK_DST_IP6: i16 = 56;
pub(crate) const SOCK_STATE: i16 = 72;
pub(crate) const BPF_TCP_TIME_WAIT: i32 = 6;
pub(crate) const BPF_TCP_LISTEN: i32 = 10;
/// The header that `bpf_skb_load_bytes_relative` counts from: that of the link.
pub(crate) const BPF_HDR_START_MAC: i32 = 0;
/// The IP header, independent of the kind of the link.
pub(crate) const BPF_HDR_START_NET: i32 = 1;
pub(crate) const BPF_F_INGRESS: i32 = 1;
pub(crate) const BPF_F_PSEUDO_HDR: i32 = 0x10;
pub(crate) const BPF_F_MARK_MANGLED_0: i32 = 0x20;
pub(crate) const BPF_SK_STORAGE_GET_F_CREATE: i32 = 1;

/// `TC_ACT_UNSPEC`, and `TCX_NEXT`: the next program of the hook, or the next filter of clsact, decides.
pub(crate) const NEXT: i32 = -1;
/// `TC_ACT_SHOT`, and `TCX_DROP`
pub(crate) const DROP: i32 = 2;

pub(crate) const IPPROTO_ICMP: i32 = 1;
pub(crate) const IPPROTO_ICMPV6: i32 = 58;
pub(crate) const IPPROTO_TCP: i32 = 6;
pub(crate) const IPPROTO_UDP: i32 = 17;

/// Every lower bit of a mark that ambient mode compares.
pub(crate) const MASK: i32 = ztunnel::MASK.cast_signed();
/// The mark of ztunnel's packets.
pub(crate) const ZTUNNEL: i32 = ztunnel::MARK.cast_signed();
/// The packet is for a socket of this namespace, although its destination is another host: the policy rule of ambient
/// mode compares these bits under [`MASK`], and its route leads to `lo`.
pub(crate) const LOCAL: i32 = ztunnel::REPLY_MARK.cast_signed();
/// Like [`LOCAL`], and packets without a connection go to ztunnel's outbound listener.
pub(crate) const OUTBOUND: i32 = 0x1000 | LOCAL;
/// Like [`LOCAL`], and the packet is a DNS query.
pub(crate) const QUERY: i32 = 0x2000 | LOCAL;

/// `lo` has this index in every network namespace (`LOOPBACK_IFINDEX`).
pub(crate) const LO: i32 = 1;
/// The length of the header of a frame on `lo`.
pub(crate) const ETHERNET: i16 = 14;

/// Sockets whose connections were captured.
pub(crate) const SOCKETS: MapRef = MapRef(0);
/// [`COUNTERS`], 64 bits each.
pub(crate) const COUNTS: MapRef = MapRef(1);
/// The node's network namespace: [`NODE_NONE`], or its id in this namespace plus one.
pub(crate) const NODE: MapRef = MapRef(2);
/// The servers that DNS queries were sent to, by sender. Only with DNS capture.
pub(crate) const QUERIES: MapRef = MapRef(3);

/// A value of [`NODE`]: no namespace. The kernel initializes the map with it.
pub(crate) const NODE_NONE: i32 = 0;

/// Size of a key of [`QUERIES`]: 16 bytes of address, 2 of port, 2 of protocol.
pub(crate) const QUERY_KEY: i16 = 20;
/// Size of a value of [`QUERIES`]: the server's address.
pub(crate) const QUERY_VALUE: i16 = 16;

/// The counters. Connections are counted at their first packet, and again at each retransmission of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Count {
    Outbound,
    Inbound,
    Dns,
    NoOutboundListener,
    NoInboundListener,
    Fragment,
    Malformed,
    OutOfMemory,
    Unassigned,
    /// At the node only, like all that follow.
    NoProxy,
    /// The pod's end has an address that is not captured.
    Unlisted,
}

/// Names of the counters, in the order of `Count`.
pub const COUNTERS: [&str; 9] = [
    "outbound connections captured",
    "inbound connections captured",
    "DNS packets captured",
    "dropped: no listener on port 15001",
    "dropped: no listener on port 15006",
    "dropped: fragments of TCP and of DNS queries",
    "dropped: headers that cannot be read",
    "dropped: no memory or room in a map",
    "dropped: the kernel refused the listener",
];

/// The reasons why the first packet of a connection is not captured: further reason numbers of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Pass {
    /// One end has the address of probes.
    Probe = 16,
    /// No socket of the pod sent it.
    Forwarded,
    /// From the node itself, or to it. In a pod: a socket of the node's namespace opened the connection.
    Node,
    /// A peer or a port is excluded.
    Excluded,
}

/// Bytes of the packet in an event: an IPv6 header and a TCP header.
pub(crate) const EVENT_HEADERS: i16 = 60;
/// Offsets in an event: see [`crate::events::Event`].
pub(crate) const EVENT_NETNS: i16 = 0;
pub(crate) const EVENT_REASON: i16 = 8;
pub(crate) const EVENT_IFINDEX: i16 = 12;
pub(crate) const EVENT_ROLE: i16 = 16;
pub(crate) const EVENT_LENGTH: i16 = 20;
pub(crate) const EVENT_PACKET: i16 = 24;
pub(crate) const EVENT_THERE: i16 = EVENT_PACKET + EVENT_HEADERS;
pub(crate) const EVENT_SIZE: i16 = EVENT_THERE + 4;
/// Offsets in the value of `weir_watch`, which all programs share: the mask of reported numbers, and the number of lost events.
pub(crate) const WATCH_MASK: i16 = 0;
pub(crate) const WATCH_LOST: i16 = 8;
/// Offsets in the value of `weir_pace`, one per namespace: its inode, the current second, and the number of events in it.
pub(crate) const PACE_NETNS: i16 = 0;
pub(crate) const PACE_SECOND: i16 = 8;
pub(crate) const PACE_COUNT: i16 = 16;
/// Maximum number of events per namespace and second (2^30 nanoseconds); a few more if processors count at the same time.
pub(crate) const EVENTS_IN_A_SECOND: i32 = 10;

// Offsets on the stack, relative to R10. The IP header ends where the tuple begins: 40 bytes, 8-byte aligned.
/// `struct bpf_sock_tuple`: 12 bytes for IPv4, 36 for IPv6.
pub(crate) const TUPLE: i16 = -40;
pub(crate) const HEADER: i16 = -80;
/// The first 14 bytes of the TCP header, 4 of the UDP header, 8 of an extension header.
pub(crate) const PORTS: i16 = -96;
/// The key of [`COUNTS`].
pub(crate) const INDEX: i16 = -100;
/// Flags for checksum updates.
pub(crate) const FLAGS: i16 = -104;
/// Zeros, or a number that is stored into the packet.
pub(crate) const SCRATCH: i16 = -120;
/// Key and value of [`QUERIES`].
pub(crate) const KEY: i16 = -144;
pub(crate) const VALUE: i16 = -160;
/// An event: see [`crate::events`].
pub(crate) const EVENT: i16 = VALUE - EVENT_SIZE;
/// Addresses of map values, while an event is built.
pub(crate) const WATCH_AT: i16 = EVENT - 8;
pub(crate) const PACE_AT: i16 = EVENT - 16;
/// Key and value of a map of connections, at the node only.
pub(crate) const OWNER_KEY: i16 = PACE_AT - 40;
pub(crate) const OWNER: i16 = OWNER_KEY - 8;
