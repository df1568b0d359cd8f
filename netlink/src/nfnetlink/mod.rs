//! nfnetlink: the netlink family of netfilter, spoken synchronously.
//!
//! [`Socket`] sends one request, several [`Requests`] or one [`Batch`], and reads every answer before it returns. A
//! batch goes out as one datagram: the kernel commits it inside `sendmsg(2)`, all or nothing.
//!
//! Why not neli's router on top of its socket: it drops the extended acknowledgement, sends one message a
//! call and passes interrupted dumps on unseen. Its `NlSocket` is used as it is.
//!
//! Every exchange has a deadline ([`Patience`]). An answer that was lost, or that cannot be read, is an error of its
//! exchange and says what is known of the change ([`InForce`](crate::InForce)).

mod batch;
mod message;
mod reply;
mod requests;
mod socket;

pub use batch::{Batch, Failure};
pub use message::{
    NFNETLINK_V0, NFNL_BATCH_GENID, NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, NFNL_SUBSYS_IPSET,
    NFNL_SUBSYS_NFTABLES, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR,
    NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, message_type,
};
pub(crate) use message::{NLMSG_HDRLEN, split};
pub use reply::Reply;
pub use requests::{Refusal, Requests};
pub(crate) use socket::Deadline;
pub use socket::Socket;

pub use crate::transport::{Kernel, Patience, Transport};

use crate::attr::{NFTA_LIST_ELEM, NLA_F_NESTED, NLA_F_NET_BYTEORDER, NLA_HDRLEN, NLA_TYPE_MASK};

/// C expressions and the values that this crate takes them for: message numbers, flags and attributes,
/// sizes of headers and offsets in them. A test compares each with the system's headers.
#[must_use]
pub fn constants() -> Vec<(&'static str, i64)> {
    let acks = reply::CONSTANTS
        .iter()
        .map(|(name, n)| (*name, i64::from(*n)));
    let layout = [
        ("sizeof(struct nlmsghdr)", message::NLMSG_HDRLEN),
        ("offsetof(struct nlmsghdr, nlmsg_len)", message::NLMSG_LEN),
        ("offsetof(struct nlmsghdr, nlmsg_type)", message::NLMSG_TYPE),
        (
            "offsetof(struct nlmsghdr, nlmsg_flags)",
            message::NLMSG_FLAGS,
        ),
        ("offsetof(struct nlmsghdr, nlmsg_seq)", message::NLMSG_SEQ),
        ("sizeof(struct nfgenmsg)", message::NFGENMSG_LEN),
        ("offsetof(struct nlmsgerr, msg)", reply::NLMSGERR_MSG),
        ("sizeof(struct nlattr)", NLA_HDRLEN),
        ("NLA_ALIGNTO", NLA_HDRLEN),
        ("NLMSG_ALIGNTO", message::NLMSG_ALIGNTO),
    ];
    let layout = layout
        .into_iter()
        .map(|(name, n)| (name, i64::try_from(n).unwrap_or(-1)));
    let attributes = [
        ("NLA_F_NESTED", NLA_F_NESTED),
        ("NLA_F_NET_BYTEORDER", NLA_F_NET_BYTEORDER),
        ("(unsigned short) NLA_TYPE_MASK", NLA_TYPE_MASK),
        ("NFTA_LIST_ELEM", NFTA_LIST_ELEM),
    ];
    let attributes = attributes.into_iter().map(|(name, n)| (name, i64::from(n)));
    message::CONSTANTS
        .iter()
        .copied()
        .chain(acks)
        .chain(layout)
        .chain(attributes)
        .collect()
}

#[cfg(test)]
mod tests;
