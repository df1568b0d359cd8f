//! Message headers.

use crate::attr::Writer;

macro_rules! constants {
    ($($(#[$m:meta])* $vis:vis $name:ident: $ty:ty = $value:expr,)*) => {
        $($(#[$m])* $vis const $name: $ty = $value;)*
        /// C names and values, for the comparison with the system's headers.
        pub(super) const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), $name as i64)),*];
    };
}

// linux/netlink.h, linux/netfilter/nfnetlink.h
constants! {
    /// This message asks for something.
    pub NLM_F_REQUEST: u16 = 0x1,
    /// An answer is wanted on success too.
    pub NLM_F_ACK: u16 = 0x4,
    /// The list changed while it was dumped: read it again.
    pub NLM_F_DUMP_INTR: u16 = 0x10,
    /// Everything, not one object.
    pub NLM_F_DUMP: u16 = 0x300,
    /// Replace an existing object.
    pub NLM_F_REPLACE: u16 = 0x100,
    /// Fail when it exists.
    pub NLM_F_EXCL: u16 = 0x200,
    /// Make it when it does not exist.
    pub NLM_F_CREATE: u16 = 0x400,
    /// Add to the end of the list.
    pub NLM_F_APPEND: u16 = 0x800,
    /// The answer repeats only the header of what it answers.
    pub(super) NLM_F_CAPPED: u16 = 0x100,
    /// The answer carries attributes (`NLMSGERR_ATTR_*`).
    pub(super) NLM_F_ACK_TLVS: u16 = 0x200,
    /// An answer: an errno, 0 for success.
    pub(super) NLMSG_ERROR: u16 = 2,
    /// The end of a dump.
    pub(super) NLMSG_DONE: u16 = 3,
    /// The answer lost messages.
    pub(super) NLMSG_OVERRUN: u16 = 4,
    /// The only version of nfnetlink.
    pub NFNETLINK_V0: u8 = 0,
    /// The subsystem of ipset.
    pub NFNL_SUBSYS_IPSET: u16 = 6,
    /// The subsystem of nf_tables.
    pub NFNL_SUBSYS_NFTABLES: u16 = 10,
    /// Opens a batch.
    pub NFNL_MSG_BATCH_BEGIN: u16 = 16,
    /// Closes and commits it.
    pub NFNL_MSG_BATCH_END: u16 = 17,
    /// Attribute of [`NFNL_MSG_BATCH_BEGIN`]: commit only if the ruleset still has this generation. Since 4.12
    pub NFNL_BATCH_GENID: u16 = 1,
}

/// `sizeof(struct nlmsghdr)`
pub(crate) const NLMSG_HDRLEN: usize = 16;
/// `offsetof(struct nlmsghdr, nlmsg_len)`
pub(super) const NLMSG_LEN: usize = 0;
/// `offsetof(struct nlmsghdr, nlmsg_type)`
pub(super) const NLMSG_TYPE: usize = 4;
/// `offsetof(struct nlmsghdr, nlmsg_flags)`
pub(crate) const NLMSG_FLAGS: usize = 6;
/// `offsetof(struct nlmsghdr, nlmsg_seq)`
pub(super) const NLMSG_SEQ: usize = 8;
/// Where the next message begins.
pub(super) const NLMSG_ALIGNTO: usize = 4;
/// `sizeof(struct nfgenmsg)`
pub(crate) const NFGENMSG_LEN: usize = 4;

/// `nlmsg_type` of a subsystem's message: `NFNL_SUBSYS << 8 | NFT_MSG`.
#[must_use]
pub const fn message_type(subsystem: u16, message: u16) -> u16 {
    subsystem << 8 | message
}

/// Appends one message: `struct nlmsghdr` (host order), `struct nfgenmsg` (its `res_id` in network
/// order), attributes.
pub(crate) fn write(
    w: &mut Writer,
    (kind, flags, seq): (u16, u16, u32),
    (family, res_id): (u8, u16),
    body: impl FnOnce(&mut Writer),
) {
    let start = w.len();
    w.put(&0u32.to_ne_bytes());
    w.put(&kind.to_ne_bytes());
    w.put(&(flags | NLM_F_REQUEST).to_ne_bytes());
    w.put(&seq.to_ne_bytes());
    w.put(&0u32.to_ne_bytes());
    w.put(&[family, NFNETLINK_V0]);
    w.put(&res_id.to_be_bytes());
    body(w);
    w.align();
    // A datagram is far below 4 GiB: its size is bounded by the socket's send buffer.
    let length = u32::try_from(w.len() - start).unwrap_or(u32::MAX);
    w.patch(start + NLMSG_LEN, &length.to_ne_bytes());
}

/// A received message: header fields and what follows the header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) seq: u32,
    pub(crate) payload: &'a [u8],
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    b.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

pub(crate) fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    b.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Splits the first message off a datagram; `None` when it is cut off.
pub(crate) fn split(datagram: &[u8]) -> Option<(Received<'_>, &[u8])> {
    let length = usize::try_from(u32_at(datagram, NLMSG_LEN)?).ok()?;
    let received = Received {
        kind: u16_at(datagram, NLMSG_TYPE)?,
        flags: u16_at(datagram, NLMSG_FLAGS)?,
        seq: u32_at(datagram, NLMSG_SEQ)?,
        payload: datagram.get(NLMSG_HDRLEN..length)?,
    };
    let rest = datagram
        .get(length.checked_next_multiple_of(NLMSG_ALIGNTO)?..)
        .unwrap_or_default();
    Some((received, rest))
}
