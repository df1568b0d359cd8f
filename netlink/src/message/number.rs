//! Constants of `struct nlmsghdr`.

macro_rules! constants {
    ($($(#[$m:meta])* $vis:vis $name:ident: $ty:ty = $value:expr,)*) => {
        $($(#[$m])* $vis const $name: $ty = $value;)*
        /// C names and values, for the comparison with the system's headers.
        pub(crate) const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), $name as i64)),*];
    };
}
pub(crate) use constants;

// linux/netlink.h
constants! {
    /// The message is a request.
    pub NLM_F_REQUEST: u16 = 0x1,
    /// Acknowledge success too.
    pub NLM_F_ACK: u16 = 0x4,
    /// The list changed during the dump: read it again.
    pub NLM_F_DUMP_INTR: u16 = 0x10,
    /// List all objects, not one.
    pub NLM_F_DUMP: u16 = 0x300,
    /// Replace an existing object.
    pub NLM_F_REPLACE: u16 = 0x100,
    /// Fail if the object exists.
    pub NLM_F_EXCL: u16 = 0x200,
    /// Create the object if it does not exist.
    pub NLM_F_CREATE: u16 = 0x400,
    /// Append to the end of the list.
    pub NLM_F_APPEND: u16 = 0x800,
    /// The answer repeats only the header of the request.
    pub(crate) NLM_F_CAPPED: u16 = 0x100,
    /// The answer carries attributes (`NLMSGERR_ATTR_*`).
    pub(crate) NLM_F_ACK_TLVS: u16 = 0x200,
    /// A message to ignore.
    pub(crate) NLMSG_NOOP: u16 = 1,
    /// An answer: a negative errno, 0 for success.
    pub(crate) NLMSG_ERROR: u16 = 2,
    /// The end of a dump.
    pub(crate) NLMSG_DONE: u16 = 3,
    /// Messages of the answer were lost.
    pub(crate) NLMSG_OVERRUN: u16 = 4,
}

/// `sizeof(struct nlmsghdr)`
pub(crate) const NLMSG_HDRLEN: usize = 16;
/// `offsetof(struct nlmsghdr, nlmsg_len)`
pub(crate) const NLMSG_LEN: usize = 0;
/// `offsetof(struct nlmsghdr, nlmsg_type)`
pub(crate) const NLMSG_TYPE: usize = 4;
/// `offsetof(struct nlmsghdr, nlmsg_flags)`
pub(crate) const NLMSG_FLAGS: usize = 6;
/// `offsetof(struct nlmsghdr, nlmsg_seq)`
pub(crate) const NLMSG_SEQ: usize = 8;
/// Alignment of messages in a datagram.
pub(crate) const NLMSG_ALIGNTO: usize = 4;
