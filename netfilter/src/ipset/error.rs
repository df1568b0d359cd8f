//! The private errnos of ipset, from 4096 on (`IPSET_ERR_PRIVATE`), and their meanings.
//!
//! The meaning of numbers from 4352 on (`IPSET_ERR_TYPE_SPECIFIC`) depends on the group of types.

use super::model::{Key, Method, SetType};
use super::raw::*;
use weir_netlink::{Error, ErrorKind};

/// A group of types whose errnos have the same meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// `hash:*`
    Hash,
    /// `bitmap:*`
    Bitmap,
    /// `list:set`
    List,
    /// A command that does not depend on a type.
    Any,
}

impl Class {
    /// The group of a type.
    #[must_use]
    pub fn of(kind: &SetType) -> Self {
        match kind.method() {
            Some(Method::List) => Self::List,
            Some(Method::Bitmap) => Self::Bitmap,
            Some(Method::Hash) | None => Self::Hash,
        }
    }

    /// The group of the types whose entries have such a key; for an address, which both hashes and bitmaps have, that of hashes.
    #[must_use]
    pub fn of_key(key: &Key) -> Self {
        match key {
            Key::Port(_) => Self::Bitmap,
            Key::Set(_) => Self::List,
            Key::Opaque(_) => Self::Any,
            _ => Self::Hash,
        }
    }
}

macro_rules! table {
    ($($name:ident => $text:literal,)*) => {
        &[$(($name, stringify!($name), $text)),*]
    };
}

type Table = &'static [(i32, &'static str, &'static str)];

const COMMON: Table = table! {
    IPSET_ERR_PRIVATE => "an unspecified error of ipset",
    IPSET_ERR_PROTOCOL => "the kernel does not accept this request: the entry has another family or form than the set, or an attribute is missing; check the set's type and family",
    IPSET_ERR_FIND_TYPE => "the kernel has no set type of that name, family and revision: load its module or use another type",
    IPSET_ERR_MAX_SETS => "no further set can be created: destroy unused sets",
    IPSET_ERR_BUSY => "the set is in use by a rule or by a list: remove that first",
    IPSET_ERR_EXIST_SETNAME2 => "a set with the new name exists: destroy it or use another name",
    IPSET_ERR_TYPE_MISMATCH => "the sets have different types or families: only sets of the same type and family can be swapped",
    IPSET_ERR_EXIST => "the entry to add exists, or the entry to delete does not: accept that with `-exist`",
    IPSET_ERR_INVALID_CIDR => "the prefix length is invalid: 1 to 32 for IPv4, 1 to 128 for IPv6",
    IPSET_ERR_INVALID_NETMASK => "the netmask is invalid: 1 to 32 for IPv4, 1 to 128 for IPv6",
    IPSET_ERR_INVALID_FAMILY => "the type does not support this family: use inet or inet6",
    IPSET_ERR_TIMEOUT => "the set was created without timeouts: create it with `timeout`",
    IPSET_ERR_REFERENCED => "the set is in use and cannot be renamed: remove the rules and lists that refer to it",
    IPSET_ERR_IPADDR_IPV4 => "an IPv4 address is expected: the set's family is inet",
    IPSET_ERR_IPADDR_IPV6 => "an IPv6 address is expected: the set's family is inet6",
    IPSET_ERR_COUNTER => "the set was created without counters: create it with `counters`",
    IPSET_ERR_COMMENT => "the set was created without comments: create it with `comment`",
    IPSET_ERR_INVALID_MARKMASK => "the markmask is invalid: it must not be 0",
    IPSET_ERR_SKBINFO => "the set was created without skbinfo: create it with `skbinfo`",
};

const HASH: Table = table! {
    IPSET_ERR_HASH_FULL => "the set is full: create it with a larger `maxelem`",
    IPSET_ERR_HASH_ELEM => "an entry of only zeros cannot be stored: leave it out",
    IPSET_ERR_INVALID_PROTO => "the protocol is invalid: 1 to 255",
    IPSET_ERR_MISSING_PROTO => "the protocol is missing: write it before the port, as tcp:80",
    IPSET_ERR_HASH_RANGE_UNSUPPORTED => "IPv6 ranges are not supported: write networks or single addresses",
    IPSET_ERR_HASH_RANGE => "the range is too large or invalid: split it",
};

const BITMAP: Table = table! {
    IPSET_ERR_BITMAP_RANGE => "the entry is outside of the set's range: create the set with a larger `range`",
    IPSET_ERR_BITMAP_RANGE_SIZE => "the range is larger than the type can be: at most 65536 entries",
};

const LIST: Table = table! {
    IPSET_ERR_NAME => "there is no set of that name: create it first",
    IPSET_ERR_LOOP => "a list cannot be a member of a list: name its members instead",
    IPSET_ERR_BEFORE => "the member to insert before or after is missing",
    IPSET_ERR_NAMEREF => "the set to insert before or after does not exist: create it first",
    IPSET_ERR_LIST_FULL => "the list is full: create it with a larger `size`",
    IPSET_ERR_REF_EXIST => "the set to insert before or after is not a member: add it first",
};

/// The C name of an errno, and its meaning with the remedy; `None` for an errno that is not specific to ipset.
#[must_use]
pub fn words(errno: i32, class: Class) -> Option<(&'static str, &'static str)> {
    let own = match class {
        Class::Hash => HASH,
        Class::Bitmap => BITMAP,
        Class::List => LIST,
        Class::Any => &[],
    };
    let found = COMMON.iter().chain(own).find(|(n, _, _)| *n == errno);
    let found = found.map(|(_, name, text)| (*name, *text));
    found.or(match errno {
        libc::ENOENT => Some((
            "ENOENT",
            "there is no such set: create it, or check the name",
        )),
        libc::EEXIST => Some((
            "EEXIST",
            "a set of that name exists, or has other options: destroy it or use another name",
        )),
        libc::EBUSY => Some((
            "EBUSY",
            "the set is in use: remove the rules and lists that refer to it",
        )),
        n if n > IPSET_ERR_PRIVATE => Some((
            "unknown",
            "an unknown errno of ipset: look it up in ip_set.h",
        )),
        _ => None,
    })
}

/// Adds ipset's meaning of the errno to an error.
pub(super) fn explain(error: Error, class: Class) -> Error {
    let ErrorKind::Kernel { errno, .. } = error.kind else {
        return error;
    };
    match words(errno, class) {
        Some((name, text)) => Error {
            kind: ErrorKind::Translated {
                errno,
                name,
                reason: text.to_owned(),
            },
            ..error
        },
        // nfnetlink returns these errnos if the subsystem or the command is not registered.
        None if matches!(errno, libc::EINVAL | libc::EOPNOTSUPP) && class == Class::Any => {
            Error::unsupported(
                error.operation,
                error.object,
                "this kernel has no ipset (CONFIG_IP_SET, module ip_set), or lacks this command",
            )
        }
        None => error,
    }
}

/// `IPSET_ERR_EXIST`: the entry to add exists, or the entry to delete does not.
#[must_use]
pub fn is_exist(error: &Error) -> bool {
    error.errno() == Some(IPSET_ERR_EXIST)
}

/// `IPSET_ERR_HASH_FULL` or `IPSET_ERR_LIST_FULL`: the set is full.
#[must_use]
pub fn is_full(error: &Error) -> bool {
    matches!(
        &error.kind,
        ErrorKind::Translated {
            name: "IPSET_ERR_HASH_FULL" | "IPSET_ERR_LIST_FULL",
            ..
        }
    )
}

/// C names of all errnos with a meaning, for a test of completeness.
#[must_use]
pub fn constants() -> Vec<&'static str> {
    [COMMON, HASH, BITMAP, LIST]
        .concat()
        .iter()
        .map(|(_, name, _)| *name)
        .collect()
}
