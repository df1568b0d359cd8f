//! Selectors by name.

use crate::nft::context::Context;
use crate::nft::model::{CtDirection, CtKey, FibResult, MetaKey, PayloadBase, Selector, SocketKey};
use crate::nft::raw;
use std::borrow::Cow;

/// A selector, given what is known about the packet.
pub(super) fn selector(s: &Selector, context: Context) -> Cow<'static, str> {
    let text = match s {
        Selector::Meta(key) => return meta(*key),
        Selector::Payload { base, offset, len } => match context.field(s) {
            Some(f) => format!("{} {}", f.header, f.name),
            None => {
                // The kernel counts in bytes, nft in bits: the number may exceed 32 bits.
                let [offset, len] = [*offset, *len].map(|bytes| u64::from(bytes) * 8);
                format!("@{},{offset},{len}", base_name(*base))
            }
        },
        Selector::Ct(key, direction) => ct(*key, *direction),
        Selector::Socket(key, level) => match (key, level) {
            (SocketKey::Transparent, _) => "socket transparent".to_owned(),
            (SocketKey::Mark, _) => "socket mark".to_owned(),
            (SocketKey::Wildcard, _) => "socket wildcard".to_owned(),
            (SocketKey::Cgroupv2, level) => {
                format!("socket cgroupv2 level {}", level.unwrap_or(0))
            }
            (SocketKey::Other(n), _) => format!("socket {n}"),
        },
        Selector::Fib { flags, result } => fib(*flags, *result),
    };
    Cow::Owned(text)
}

fn base_name(base: PayloadBase) -> &'static str {
    match base {
        PayloadBase::LinkLayer => "ll",
        PayloadBase::Network => "nh",
        PayloadBase::Transport => "th",
        PayloadBase::Inner => "ih",
        PayloadBase::Other(_) => "unknown",
    }
}

/// `meta KEY`, or the key alone where `nft` omits `meta`.
pub(super) fn meta(key: MetaKey) -> Cow<'static, str> {
    Cow::Borrowed(match key {
        MetaKey::Iif => "iif",
        MetaKey::Oif => "oif",
        MetaKey::Iifname => "iifname",
        MetaKey::Oifname => "oifname",
        MetaKey::Iifgroup => "iifgroup",
        MetaKey::Oifgroup => "oifgroup",
        MetaKey::Length => "meta length",
        MetaKey::Protocol => "meta protocol",
        MetaKey::Priority => "meta priority",
        MetaKey::Mark => "meta mark",
        MetaKey::Iiftype => "meta iiftype",
        MetaKey::Oiftype => "meta oiftype",
        MetaKey::Skuid => "meta skuid",
        MetaKey::Skgid => "meta skgid",
        MetaKey::Nftrace => "meta nftrace",
        MetaKey::Rtclassid => "meta rtclassid",
        MetaKey::Nfproto => "meta nfproto",
        MetaKey::L4proto => "meta l4proto",
        MetaKey::Ibrname => "meta ibrname",
        MetaKey::Obrname => "meta obrname",
        MetaKey::Pkttype => "meta pkttype",
        MetaKey::Cpu => "meta cpu",
        MetaKey::Cgroup => "meta cgroup",
        MetaKey::Random => "meta random",
        MetaKey::Other(n) => return Cow::Owned(format!("meta {n}")),
    })
}

/// `ct [original|reply] KEY`
pub(super) fn ct(key: CtKey, direction: Option<CtDirection>) -> String {
    let name = match key {
        CtKey::State => "state",
        CtKey::Direction => "direction",
        CtKey::Status => "status",
        CtKey::Mark => "mark",
        CtKey::Expiration => "expiration",
        CtKey::L3protocol => "l3proto",
        CtKey::Src => "saddr",
        CtKey::Dst => "daddr",
        CtKey::Protocol => "protocol",
        CtKey::ProtoSrc => "proto-src",
        CtKey::ProtoDst => "proto-dst",
        CtKey::Packets => "packets",
        CtKey::Bytes => "bytes",
        CtKey::Zone => "zone",
        CtKey::SrcIp => "ip saddr",
        CtKey::DstIp => "ip daddr",
        CtKey::SrcIp6 => "ip6 saddr",
        CtKey::DstIp6 => "ip6 daddr",
        CtKey::Other(n) => return format!("ct {n}"),
    };
    match direction {
        None => format!("ct {name}"),
        Some(CtDirection::Original) => format!("ct original {name}"),
        Some(CtDirection::Reply) => format!("ct reply {name}"),
    }
}

fn fib(flags: u32, result: FibResult) -> String {
    let names: Vec<&str> = [
        (raw::NFTA_FIB_F_SADDR, "saddr"),
        (raw::NFTA_FIB_F_DADDR, "daddr"),
        (raw::NFTA_FIB_F_MARK, "mark"),
        (raw::NFTA_FIB_F_IIF, "iif"),
        (raw::NFTA_FIB_F_OIF, "oif"),
    ]
    .into_iter()
    .filter_map(|(bit, name)| (flags & bit != 0).then_some(name))
    .collect();
    let result = match result {
        FibResult::Oif => "oif".to_owned(),
        FibResult::Oifname => "oifname".to_owned(),
        FibResult::Type => "type".to_owned(),
        FibResult::Other(n) => n.to_string(),
    };
    format!("fib {} {result}", names.join(" . "))
}
