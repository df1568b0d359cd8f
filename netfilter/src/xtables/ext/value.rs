//! The notations of option values.

use super::begins;
use super::blob::Blob;
use super::field::Quote;
use crate::address::Address;
use crate::text;
use crate::xtables::XtFamily;
use crate::xtables::structs::InetAddr;
use crate::xtables::text::{Complaint, Opt};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_netlink::attr::bytes_of;

/// A value with a notation of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code {
    pub(crate) words: usize,
    pub(crate) quote: Quote,
    /// Returns the arguments for the value at this offset; `None` if the option is not printed.
    pub(crate) show: fn(&Blob, usize, XtFamily) -> Option<Vec<String>>,
    pub(crate) read: fn(&Opt, &mut Blob, usize, XtFamily) -> Result<(), Complaint>,
}

impl Code {
    /// One word, never quoted. `show` and `read` do nothing.
    pub(crate) const WORD: Self = Self {
        words: 1,
        quote: Quote::Never,
        show: |_, _, _| None,
        read: |_, _, _, _| Ok(()),
    };
}

/// The arguments of an option and their storage. Numbers are in host order, except in [`Value::BigHex`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// No argument.
    Nothing,
    /// A decimal number of this many bytes.
    Number(usize),
    /// A hexadecimal number of this many bytes, printed with at least this many digits.
    Hex(usize, usize),
    /// The same in network order.
    BigHex(usize, usize),
    /// `FIRST:LAST`, two numbers of this many bytes; printed as one number if they are equal.
    Range(usize),
    /// `VALUE/MASK` of four bytes each. A mask of all bits is omitted, and the value 0 then has this name; no other names are known.
    Masked(&'static str),
    /// NUL-terminated text in a field of this length.
    Text(usize, Quote),
    /// Names of a number of this many bytes. The first name of a number is printed; the others are only parsed.
    Choice(usize, &'static [(&'static str, u64)]),
    /// Names of the bits of a number of this many bytes, separated by commas.
    Names(usize, &'static [(&'static str, u64)]),
    /// `union nf_inet_addr`
    Address,
    /// A mask in a `union nf_inet_addr`, written as a prefix length.
    PrefixMask,
    /// `ADDRESS/LENGTH`: an address of 16 bytes, and the length in one byte at this offset of the structure.
    NetLength(usize),
    /// `ADDRESS/LENGTH`: an address of 16 bytes, and a mask of 16 bytes at this offset of the structure.
    NetMask(usize),
    /// A MAC address: six bytes.
    Mac,
    Code(&'static Code),
}

/// The bytes of `union nf_inet_addr`.
pub(crate) fn union_of(address: IpAddr) -> [u8; 16] {
    InetAddr::from(address).bytes()
}

pub(crate) fn address_at(b: &Blob, at: usize, family: XtFamily) -> IpAddr {
    match family {
        XtFamily::Ip => {
            let bytes: [u8; 4] = b.bytes(at, 4).try_into().unwrap_or_default();
            Ipv4Addr::from(bytes).into()
        }
        XtFamily::Ip6 => {
            let bytes: [u8; 16] = b.bytes(at, 16).try_into().unwrap_or_default();
            Ipv6Addr::from(bytes).into()
        }
    }
}

/// The mask of the first `length` bits of an address; a larger length is reduced to that of the address.
pub(crate) fn mask_of(length: u8, family: XtFamily) -> IpAddr {
    let any = InetAddr::ANY.ip(family);
    IpNet::new(any, length.min(max_length(family))).map_or(any, |net| net.netmask())
}

pub(crate) fn length_of(mask: IpAddr) -> u32 {
    match mask {
        IpAddr::V4(a) => a.to_bits().leading_ones(),
        IpAddr::V6(a) => a.to_bits().leading_ones(),
    }
}

pub(crate) fn max_length(family: XtFamily) -> u8 {
    match family {
        XtFamily::Ip => 32,
        XtFamily::Ip6 => 128,
    }
}

/// Parses a number that fits into this many bytes.
pub(crate) fn number_of(o: &Opt, text: &str, width: usize) -> Result<u64, Complaint> {
    let fits =
        |n: &u64| width >= 8 || n.checked_shr(8 * u32::try_from(width).unwrap_or(8)) == Some(0);
    let why = "is no number, or too large; give a smaller one";
    let value = o.number_in(text, why)?;
    Some(value).filter(fits).ok_or_else(|| o.wrong(why))
}

impl Value {
    pub(super) const fn words(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Code(code) => code.words,
            _ => 1,
        }
    }

    pub(super) const fn quote(&self) -> Quote {
        match self {
            Self::Text(_, quote) => *quote,
            Self::Code(code) => code.quote,
            _ => Quote::Never,
        }
    }

    /// The number of bytes that the value uses from its offset on.
    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Nothing | Self::Code(_) => 0,
            Self::Number(n) | Self::Hex(n, _) | Self::BigHex(n, _) | Self::Text(n, _) => *n,
            Self::Names(n, _) | Self::Choice(n, _) => *n,
            Self::Range(n) => 2 * *n,
            Self::Masked(_) => 8,
            Self::Address | Self::PrefixMask | Self::NetLength(_) | Self::NetMask(_) => 16,
            Self::Mac => 6,
        }
    }

    pub(super) fn show(&self, b: &Blob, at: usize, family: XtFamily) -> Option<Vec<String>> {
        let hex = |value: u64, digits: usize| format!("0x{value:0digits$x}");
        Some(vec![match self {
            Self::Nothing => return Some(Vec::new()),
            Self::Code(code) => return (code.show)(b, at, family),
            Self::Number(width) => b.uint(at, *width).to_string(),
            Self::Hex(width, digits) => hex(b.uint(at, *width), *digits),
            Self::BigHex(width, digits) => hex(b.big(at, *width), *digits),
            Self::Range(width) => match (b.uint(at, *width), b.uint(at + width, *width)) {
                (first, last) if first == last => first.to_string(),
                (first, last) => format!("{first}:{last}"),
            },
            Self::Masked(zero) if b.bytes(at, 8) == [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff] => {
                (*zero).to_owned()
            }
            Self::Masked(_) => match (b.uint(at, 4), b.uint(at + 4, 4)) {
                (value, 0xffff_ffff) => hex(value, 0),
                (value, mask) => format!("{}/{}", hex(value, 0), hex(mask, 0)),
            },
            Self::Text(len, _) => b.text(at, *len)?,
            Self::Choice(width, names) => {
                let value = b.uint(at, *width);
                names.iter().find(|(_, n)| *n == value)?.0.to_owned()
            }
            Self::Names(width, names) => {
                let value = b.uint(at, *width);
                // Only the first of several names for the same bits is printed.
                let is_first = |at: usize, bits: u64| {
                    names.iter().position(|(_, other)| *other == bits) == Some(at)
                };
                let set = names.iter().enumerate();
                let set =
                    set.filter(|(at, (_, bits))| value & bits == *bits && is_first(*at, *bits));
                let set = set.map(|(_, name)| name);
                set.map(|(name, _)| *name).collect::<Vec<_>>().join(",")
            }
            Self::Address => Address(address_at(b, at, family)).to_string(),
            Self::PrefixMask => length_of(address_at(b, at, family)).to_string(),
            Self::NetLength(to) => {
                let address = Address(address_at(b, at, family));
                format!("{address}/{}", b.uint(*to, 1))
            }
            Self::NetMask(to) => {
                let length = length_of(address_at(b, *to, family));
                format!("{}/{length}", Address(address_at(b, at, family)))
            }
            Self::Mac => {
                let bytes: Vec<String> =
                    b.bytes(at, 6).iter().map(|n| format!("{n:02x}")).collect();
                bytes.join(":")
            }
        }])
    }

    pub(super) fn read(
        &self,
        o: &Opt,
        b: &mut Blob,
        at: usize,
        family: XtFamily,
    ) -> Result<(), Complaint> {
        let word = o.word(0);
        match self {
            Self::Nothing => {}
            Self::Code(code) => (code.read)(o, b, at, family)?,
            Self::Number(width) | Self::Hex(width, _) => {
                b.put(at, *width, number_of(o, word, *width)?)
            }
            Self::BigHex(width, _) => b.put_big(at, *width, number_of(o, word, *width)?),
            Self::Range(width) => {
                let (first, last) = ends_of(o, word, *width)?;
                b.put(at, *width, first);
                b.put(at + width, *width, last);
            }
            Self::Masked(zero) => {
                let (value, mask) = match word == *zero {
                    true => (0, u32::MAX),
                    false => o.masked(0)?,
                };
                b.put(at, 4, value.into());
                b.put(at + 4, 4, mask.into());
            }
            Self::Text(len, _) => {
                let bytes = bytes_of(word);
                if bytes.len() >= *len || bytes.contains(&0) {
                    return Err(o.wrong(&format!("is longer than {} bytes; shorten it", len - 1)));
                }
                // The bytes after the text remain, as in iptables.
                b.set(at, &bytes);
                b.set(at + bytes.len(), &[0]);
            }
            Self::Choice(width, names) => b.put(at, *width, named(o, word, names)?),
            Self::Names(width, names) => {
                let add = |all: u64, word: &str| Ok(all | named(o, word, names)?);
                let bits = word.split(',').try_fold(0, add)?;
                b.put(at, *width, bits);
            }
            Self::Address => b.set(at, &union_of(o.address(0, family)?)),
            Self::PrefixMask => {
                let length = number_of(o, word, 1)?;
                let length = u8::try_from(length).unwrap_or(u8::MAX);
                if length > max_length(family) {
                    return Err(o.wrong("is longer than an address; give fewer bits"));
                }
                b.set(at, &union_of(mask_of(length, family)));
            }
            Self::NetLength(to) => {
                let net = o.network(0, family)?;
                b.set(at, &union_of(net.addr()));
                b.put(*to, 1, net.prefix_len().into());
            }
            Self::NetMask(to) => {
                let net = o.network(0, family)?;
                b.set(at, &union_of(net.addr()));
                b.set(*to, &union_of(net.netmask()));
            }
            Self::Mac => {
                let bytes = text::mac(word).ok_or_else(|| {
                    o.wrong("is no MAC address; give six bytes as aa:bb:cc:dd:ee:ff")
                })?;
                b.set(at, &bytes);
            }
        }
        Ok(())
    }
}

/// Parses `N`, `N:M`, `N:` or `:M`; the first number must not exceed the last.
pub(crate) fn range_of(o: &Opt, word: &str, width: usize) -> Result<(u64, u64), Complaint> {
    let (first, last) = ends_of(o, word, width)?;
    if first > last {
        return Err(o.wrong("ends before it begins; swap the two numbers"));
    }
    Ok((first, last))
}

/// The same without that condition: iptables accepts most ranges that end before they begin, and they match nothing.
fn ends_of(o: &Opt, word: &str, width: usize) -> Result<(u64, u64), Complaint> {
    let number = |text: &str| match o.name().ends_with("port") {
        true => o.port(text).map(u64::from),
        false => number_of(o, text, width),
    };
    let all = u64::MAX >> (64 - 8 * u32::try_from(width).unwrap_or(8).min(8));
    Ok(match word.split_once(':') {
        None => (number(word)?, number(word)?),
        Some((first, last)) => (
            if first.is_empty() { 0 } else { number(first)? },
            if last.is_empty() { all } else { number(last)? },
        ),
    })
}

/// The options that accept the beginning of a name.
const BEGUN: &[&str] = &["--reject-with", "--src-type", "--dst-type"];

/// Looks up the number of a name; the error lists the names.
pub(crate) fn named(o: &Opt, word: &str, names: &[(&str, u64)]) -> Result<u64, Complaint> {
    let found = names
        .iter()
        .find(|(name, _)| match BEGUN.contains(&o.name()) {
            true => begins(name, word),
            false => name.eq_ignore_ascii_case(word),
        });
    found.map(|(_, n)| *n).ok_or_else(|| {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        o.wrong(&format!("has an unknown name; give {}", known.join(", ")))
    })
}
