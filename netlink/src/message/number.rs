//! Numbers of `struct nlmsghdr`.

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
    pub(crate) NLM_F_CAPPED: u16 = 0x100,
    /// The answer carries attributes (`NLMSGERR_ATTR_*`).
    pub(crate) NLM_F_ACK_TLVS: u16 = 0x200,
    /// To be passed over.
    pub(crate) NLMSG_NOOP: u16 = 1,
    /// An answer: an errno, 0 for success.
    pub(crate) NLMSG_ERROR: u16 = 2,
    /// The end of a dump.
    pub(crate) NLMSG_DONE: u16 = 3,
    /// The answer lost messages.
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
/// Where the next message begins.
pub(crate) const NLMSG_ALIGNTO: usize = 4;
