//! nfnetlink: the netlink protocol of netfilter, with a synchronous interface.
//!
//! [`Socket`] sends one request, several [`Requests`] or one [`Batch`], and reads every answer before it returns. A
//! batch is sent as one datagram: the kernel commits it inside `sendmsg(2)`, all or nothing.
//!
//! neli's router on top of its socket is not used, because it drops the extended ack, sends one message per call and hides
//! interrupted dumps. Only its `NlSocket` is used.
//!
//! Every exchange has a deadline ([`Patience`](crate::Patience)). An answer that was lost, or that cannot be read, is an error
//! of its exchange, which reports whether the change is in force ([`InForce`](crate::InForce)).

mod batch;
mod number;
mod refusal;
mod requests;
mod socket;

pub use batch::Batch;
pub use number::{
    NFNETLINK_V0, NFNL_BATCH_GENID, NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, NFNL_SUBSYS_IPSET,
    NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, NFNLGRP_NFTRACE, message_type,
};
pub use refusal::Refusal;
pub use requests::Requests;
pub use socket::Reply;

use crate::message::Netfilter;
use crate::transport::NetlinkSocket;

/// A socket of `NETLINK_NETFILTER`.
pub type Socket<T = NetlinkSocket> = crate::socket::Socket<T, Netfilter>;

/// C expressions and their values in this module: message numbers, flags and attributes, sizes of headers and offsets in
/// them. A test compares each with the system's headers.
#[must_use]
pub fn constants() -> Vec<(&'static str, i64)> {
    let common = crate::message::constants().into_iter();
    common.chain(number::CONSTANTS.iter().copied()).collect()
}
