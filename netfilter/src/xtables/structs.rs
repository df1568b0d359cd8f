//! The structures that the kernel copies as memory: the table, its entries, the headers of matches and targets, and the
//! requests around them, as the headers declare them for 64-bit machines. Those of the extensions are in
//! [`super::ext::structs`].
//!
//! The crate zerocopy reads and writes them; it checks the length, and that no byte is without a value. Fields have their C
//! names, and a test compares the offset of each with the system's headers. Compared with code that reads and writes every
//! field at its offset, reading an entry with one match takes as long (7 ns), writing a match takes two thirds of the time,
//! and the code is a third as long.

use super::XtFamily;
use super::raw::{NF_INET_NUMHOOKS, XT_EXTENSION_MAXNAMELEN, XT_TABLE_MAXNAMELEN};
use std::net::IpAddr;
use weir_netlink::attr::{bytes_of, text_of};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares structures by their C names; further C names are those of structures with the same layout. A field whose name
/// begins with `_` is padding of the C compiler. A C path is given if it differs from the field's name.
macro_rules! structs {
    ($($(#[$m:meta])* $name:ident = $c:literal $(, $same:literal)* {
        $($field:ident: $ty:ty $(= $path:literal)?),* $(,)?
    })*) => {
        $(
            $(#[$m])*
            #[derive(Clone, Copy, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name {
                $(pub(crate) $field: $ty,)*
            }
        )*

        /// Sizes and offsets as C expressions, for the comparison with the system's headers.
        pub(in crate::xtables) fn layouts() -> Vec<(String, usize)> {
            let mut all = Vec::new();
            $(
                for c in [$c $(, $same)*] {
                    all.push((format!("sizeof({c})"), size_of::<$name>()));
                }
                for (field, at) in [$((
                    $crate::xtables::structs::path(stringify!($field), &[$($path)?]),
                    std::mem::offset_of!($name, $field),
                )),*] {
                    if !field.starts_with('_') {
                        all.push((format!("offsetof({}, {field})", $c), at));
                    }
                }
            )*
            all
        }
    };
}
pub(super) use structs;

pub(super) const fn path(name: &'static str, path: &[&'static str]) -> &'static str {
    match path {
        [path, ..] => path,
        [] => name,
    }
}

structs! {
    GetInfo = "struct ipt_getinfo", "struct ip6t_getinfo" {
        name: [u8; XT_TABLE_MAXNAMELEN], valid_hooks: u32, hook_entry: [u32; NF_INET_NUMHOOKS],
        underflow: [u32; NF_INET_NUMHOOKS], num_entries: u32, size: u32,
    }
    /// `struct ipt_get_entries` and `struct ip6t_get_entries`; the entries follow.
    GetEntries = "struct ipt_get_entries" { name: [u8; XT_TABLE_MAXNAMELEN], size: u32, _gap: [u8; 4] }
    /// `struct ipt_replace` and `struct ip6t_replace`; the entries follow.
    Replace = "struct ipt_replace" {
        name: [u8; XT_TABLE_MAXNAMELEN], valid_hooks: u32, num_entries: u32, size: u32,
        hook_entry: [u32; NF_INET_NUMHOOKS], underflow: [u32; NF_INET_NUMHOOKS], num_counters: u32,
        counters: u64,
    }
    /// `struct xt_counters`
    XtCounters = "struct xt_counters" { pcnt: u64, bcnt: u64 }
    /// `struct xt_counters_info`; the counters follow.
    XtCountersInfo = "struct xt_counters_info" {
        name: [u8; XT_TABLE_MAXNAMELEN], num_counters: u32, _gap: [u8; 4],
    }
    IptIp = "struct ipt_ip" {
        src: [u8; 4], dst: [u8; 4], smsk: [u8; 4], dmsk: [u8; 4], iniface: [u8; 16], outiface: [u8; 16],
        iniface_mask: [u8; 16], outiface_mask: [u8; 16], proto: u16, flags: u8, invflags: u8,
    }
    IptEntry = "struct ipt_entry" {
        ip: IptIp, nfcache: u32, target_offset: u16, next_offset: u16, comefrom: u32, counters: XtCounters,
    }
    Ip6tIp6 = "struct ip6t_ip6" {
        src: InetAddr, dst: InetAddr, smsk: InetAddr, dmsk: InetAddr, iniface: [u8; 16], outiface: [u8; 16],
        iniface_mask: [u8; 16], outiface_mask: [u8; 16], proto: u16, tos: u8, flags: u8, invflags: u8,
        _gap: [u8; 3],
    }
    Ip6tEntry = "struct ip6t_entry" {
        ipv6: Ip6tIp6, nfcache: u32, target_offset: u16, next_offset: u16, comefrom: u32, _gap: [u8; 4],
        counters: XtCounters,
    }
    /// The head of a match or a target.
    Head = "struct xt_entry_match", "struct xt_entry_target" {
        size: u16 = "u.user.match_size", name: [u8; XT_EXTENSION_MAXNAMELEN] = "u.user.name",
        revision: u8 = "u.user.revision",
    }
    XtGetRevision = "struct xt_get_revision" { name: [u8; XT_EXTENSION_MAXNAMELEN], revision: u8 }
    /// The version of the kernel's ipset.
    IpSetReqVersion = "struct ip_set_req_version" { op: u32, version: u32 }
    /// The index or the name of a set: the request contains one of them, and the answer the other in the same field.
    IpSetReqGetSet = "struct ip_set_req_get_set" { op: u32, version: u32, set: [u8; 32] }
    /// The same, with the family of the set in the answer.
    IpSetReqGetSetFamily = "struct ip_set_req_get_set_family" {
        op: u32, version: u32, family: u32, set: [u8; 32],
    }
}

/// The structure at the start of the bytes; `None` if they are too short.
pub(super) fn read<T: FromBytes>(bytes: &[u8]) -> Option<T> {
    Some(T::read_from_prefix(bytes).ok()?.0)
}

/// The structure at this offset; `None` if the bytes are too short.
pub(super) fn read_at<T: FromBytes>(bytes: &[u8], at: usize) -> Option<T> {
    read(bytes.get(at..)?)
}

/// A structure whose fields are 0.
pub(super) fn zeroed<T: FromBytes>() -> T {
    T::new_zeroed()
}

/// Rounds up to the alignment of every entry, match and target (`XT_ALIGN`).
pub(super) const fn aligned(len: usize) -> usize {
    len.div_ceil(8) * 8
}

/// The structure, padded to 8 bytes.
pub(super) fn written<T: IntoBytes + Immutable>(value: &T) -> Vec<u8> {
    let bytes = value.as_bytes();
    let mut wire = Vec::with_capacity(aligned(bytes.len()));
    wire.extend_from_slice(bytes);
    wire.resize(aligned(bytes.len()), 0);
    wire
}

/// Text in a field; `None` if it does not fit with its NUL.
pub(super) fn name_field<const N: usize>(text: &str) -> Option<[u8; N]> {
    let bytes = bytes_of(text);
    let mut field = [0; N];
    if text.contains('\0') || bytes.len() >= N {
        return None;
    }
    field.get_mut(..bytes.len())?.copy_from_slice(&bytes);
    Some(field)
}

/// The bytes before the NUL of a field.
pub(super) fn before_nul(field: &[u8]) -> Option<&[u8]> {
    field.get(..field.iter().position(|b| *b == 0)?)
}

/// NUL-terminated text in a field, in any encoding.
pub(super) fn name_of(field: &[u8]) -> Option<String> {
    before_nul(field).map(text_of)
}

/// `union nf_inet_addr`: 16 bytes in either family, of which IPv4 uses the first four.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InetAddr([u8; 16]);

impl InetAddr {
    /// `::`, and `0.0.0.0`
    pub(super) const ANY: Self = Self([0; 16]);
    /// All bits, as iptables fills the mask of a host.
    pub(super) const ALL: Self = Self([0xff; 16]);

    pub(super) fn bytes(self) -> [u8; 16] {
        self.0
    }

    pub(super) fn v4(self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.0;
        [a, b, c, d]
    }

    pub(super) fn ip(self, family: XtFamily) -> IpAddr {
        match family {
            XtFamily::Ip => self.v4().into(),
            XtFamily::Ip6 => self.0.into(),
        }
    }
}

impl From<IpAddr> for InetAddr {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => {
                let [a, b, c, d] = v4.octets();
                Self([a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            }
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }
}
