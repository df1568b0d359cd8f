//! The request for the revisions of a set type.
//!
//! ```text
//! IPSET_CMD_TYPE   PROTOCOL u8, TYPENAME, FAMILY u8  ->  REVISION u8, REVISION_MIN u8
//! ```

use super::raw;
use super::wire::CommandAttrs;
use std::ops::RangeInclusive;
use weir_netlink::nfnetlink::{NFNL_SUBSYS_IPSET, Socket, message_type};
use weir_netlink::{Error, Result, Transport};

/// The revisions of a type that the kernel supports for a family (`NFPROTO_*`). The request makes the kernel load the type's
/// module.
///
/// # Errors
/// The errnos of [`is_lacking`]; `EPERM`; the answer is lost or cannot be decoded.
pub(crate) fn ask_type<T: Transport>(
    socket: &mut Socket<T>,
    protocol: u8,
    (name, family): (&str, u8),
    what: &str,
) -> Result<RangeInclusive<u8>> {
    let question = CommandAttrs {
        protocol: Some(protocol),
        type_name: Some(name.to_owned()),
        family: Some(family),
        ..CommandAttrs::default()
    };
    let kind = message_type(NFNL_SUBSYS_IPSET, raw::IPSET_CMD_TYPE);
    let reply = socket.get(kind, raw::NFPROTO_IPV4, &question, what)?;
    let answer: CommandAttrs = reply
        .decode()
        .map_err(|e| Error::malformed("read", what, e))?;
    let newest = answer
        .revision
        .ok_or_else(|| Error::malformed("read", what, "IPSET_ATTR_REVISION is missing"))?;
    Ok(answer.minimum.unwrap_or(newest)..=newest)
}

/// Whether the kernel lacks the type for this family (`find_set_type_minmax()`, net/netfilter/ipset/ip_set_core.c), or has no
/// ipset (`nfnetlink_rcv_msg()`, net/netfilter/nfnetlink.c).
pub(crate) fn is_lacking(e: &Error) -> bool {
    matches!(
        e.errno(),
        Some(raw::IPSET_ERR_FIND_TYPE | libc::ENOENT | libc::EINVAL)
    )
}
