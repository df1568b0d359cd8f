//! ztunnel's ports and marks, which are the same in every pod and at every node.

/// Port for outbound traffic.
pub const OUTBOUND: u16 = 15001;
/// Port for inbound plain text.
pub const INBOUND: u16 = 15006;
/// Port for inbound HBONE, which is not redirected in a pod.
pub const HBONE: u16 = 15008;
/// Port for DNS.
pub const DNS: u16 = 15053;
/// Mark of ztunnel's packets (`SO_MARK`).
pub const MARK: u32 = 0x539;
/// Mark of connections from ztunnel to the application, and of replies to them.
pub const REPLY_MARK: u32 = 0x111;
/// Mask under which both marks are compared.
pub const MASK: u32 = 0xfff;
