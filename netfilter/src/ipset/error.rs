//! ipset's private errnos, from 4096 on, with their meaning.
//!
//! The numbers from 4352 on have a different meaning in each group of types.

use super::model::{Key, SetType};
use super::raw::*;
use weir_netlink::{Error, ErrorKind};

/// A group of types with the same errnos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// `hash:*`
    Hash,
    /// `bitmap:*`
    Bitmap,
    /// `list:set`
    List,
    /// Commands that concern no type.
    Any,
}

impl Class {
    /// The group of a type.
    #[must_use]
    pub fn of(kind: &SetType) -> Self {
        match kind {
            SetType::ListSet => Self::List,
            SetType::BitmapPort => Self::Bitmap,
            SetType::Other(name) if name.starts_with("bitmap:") => Self::Bitmap,
            _ => Self::Hash,
        }
    }

    /// The group of the type with such entries.
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
    IPSET_ERR_PRIVATE => "an error of ipset without a number of its own",
    IPSET_ERR_PROTOCOL => "the kernel does not take such a request: an entry of another family or form than the set's, or an attribute missing; look at the set's type and family",
    IPSET_ERR_FIND_TYPE => "the kernel has no set type of that name, family and revision: load its module or use another type",
    IPSET_ERR_MAX_SETS => "no further set can be made: destroy unused sets",
    IPSET_ERR_BUSY => "the set is in use by a rule or by a list: remove that first",
    IPSET_ERR_EXIST_SETNAME2 => "a set of the new name is there already: destroy it or take another name",
    IPSET_ERR_TYPE_MISMATCH => "the sets are of different types or families: only alike sets can be swapped",
    IPSET_ERR_EXIST => "the entry is in the set already, or not in it when it is deleted: let it count as success",
    IPSET_ERR_INVALID_CIDR => "the prefix length is not possible here: 1 to 32 for IPv4, 1 to 128 for IPv6",
    IPSET_ERR_INVALID_NETMASK => "the netmask is not possible: 1 to 32 for IPv4, 1 to 128 for IPv6",
    IPSET_ERR_INVALID_FAMILY => "the type does not know this family: use inet or inet6",
    IPSET_ERR_TIMEOUT => "the set was created without timeouts: create it with `timeout`",
    IPSET_ERR_REFERENCED => "the set is in use and has a name that may not change: remove the rules and lists that name it",
    IPSET_ERR_IPADDR_IPV4 => "an IPv4 address is expected: the set's family is inet",
    IPSET_ERR_IPADDR_IPV6 => "an IPv6 address is expected: the set's family is inet6",
    IPSET_ERR_COUNTER => "the set was created without counters: create it with `counters`",
    IPSET_ERR_COMMENT => "the set was created without comments: create it with `comment`",
    IPSET_ERR_INVALID_MARKMASK => "the markmask is not possible: it may not be 0",
    IPSET_ERR_SKBINFO => "the set was created without skbinfo: create it with `skbinfo`",
};

const HASH: Table = table! {
    IPSET_ERR_HASH_FULL => "the set is full: create it with a larger `maxelem`",
    IPSET_ERR_HASH_ELEM => "an entry of only zeros cannot be stored: leave it out",
    IPSET_ERR_INVALID_PROTO => "the protocol is not possible: 1 to 255",
    IPSET_ERR_MISSING_PROTO => "the protocol is missing: write it before the port, as tcp:80",
    IPSET_ERR_HASH_RANGE_UNSUPPORTED => "ranges are not possible in IPv6: write networks or single addresses",
    IPSET_ERR_HASH_RANGE => "the range is too large or not possible: split it",
};

const BITMAP: Table = table! {
    IPSET_ERR_BITMAP_RANGE => "the entry is outside of the set's range: create the set with a larger `range`",
    IPSET_ERR_BITMAP_RANGE_SIZE => "the range is larger than the type can be: at most 65536 entries",
};

const LIST: Table = table! {
    IPSET_ERR_NAME => "there is no set of that name: create it first",
    IPSET_ERR_LOOP => "a list cannot be a member of a list: name its members instead",
    IPSET_ERR_BEFORE => "the member that it goes before or after is not given",
    IPSET_ERR_NAMEREF => "there is no set of the name that it goes before or after: create it first",
    IPSET_ERR_LIST_FULL => "the list is full: create it with a larger `size`",
    IPSET_ERR_REF_EXIST => "the set that it goes before or after is not a member: add it first",
};

/// C name and meaning of an errno.
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
        libc::ENOENT => Some(("ENOENT", "there is no such set: create it, or check the name")),
        libc::EEXIST => Some((
            "EEXIST",
            "a set of that name is there already, or has other options than these: destroy it or take another name",
        )),
        libc::EBUSY => Some(("EBUSY", "the set is in use: remove the rules and lists that name it")),
        n if n > IPSET_ERR_PRIVATE => {
            Some(("unknown", "an error of ipset that is not known here: look it up in ip_set.h"))
        }
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
        // nfnetlink has no such subsystem.
        None if matches!(errno, libc::EINVAL | libc::EOPNOTSUPP) && class == Class::Any => {
            Error::unsupported(
                error.operation,
                error.object,
                "this kernel has no ipset (CONFIG_IP_SET, module ip_set), or not this command",
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

/// `IPSET_ERR_BUSY`: a rule or a list refers to the set.
#[must_use]
pub fn is_busy(error: &Error) -> bool {
    error.errno() == Some(IPSET_ERR_BUSY)
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

/// Numbers with a meaning, for the test of completeness.
#[must_use]
pub fn constants() -> Vec<&'static str> {
    [COMMON, HASH, BITMAP, LIST]
        .concat()
        .iter()
        .map(|(_, name, _)| *name)
        .collect()
}
