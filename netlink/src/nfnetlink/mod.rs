//! nfnetlink: the netlink family of netfilter, spoken synchronously.
//!
//! [`Socket`] sends one request or one [`Batch`] and reads every answer before it returns. A
//! batch goes out as one datagram: the kernel commits it inside `sendmsg(2)`, all or nothing.
//!
//! Why not neli's router on top of its socket: it drops the extended acknowledgement, sends one message a
//! call and passes interrupted dumps on unseen. Its `NlSocket` is used as it is.
//!
//! The transport is a trait, so that tests can answer what no kernel can be made to answer.

mod batch;
mod message;
mod reply;
mod socket;

pub use batch::{Batch, Failure};
pub use message::{
    NFNETLINK_V0, NFNL_BATCH_GENID, NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END,
    NFNL_SUBSYS_NFTABLES, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR,
    NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, message_type,
};
pub use reply::{CONSTANTS as REPLY_CONSTANTS, Reply};
pub use socket::{Kernel, Socket, Transport};

#[cfg(test)]
mod tests;
