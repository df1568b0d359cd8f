//! `typeof ip saddr . tcp dport`: nft's userdata about the selector that a set was declared with.
//!
//! ```text
//! 0 kind of expression (u32)
//! 1 its own:      payload  0 header, 1 field; unnamed bits: 2 base, 3 offset, 4 length
//!                 exthdr   0 header, 1 field, 2 enum nft_exthdr_op
//!                 meta, rt, socket  0 key         ct    0 key, 1 direction
//!                 fib      0 result, 1 flags      xfrm  0 key, 1 number, 2 direction
//!                 numgen   0 type, 1 modulus, 2 offset
//!                 hash     0 type, 1 offset, 2 modulus, 3 seed
//!                 concatenation  N [0 kind, 1 its own]
//! ```
//! The selector also determines lengths and byte orders that the type leaves open: `ct zone` has two bytes in host
//! order, `ip length` two in network order, and both have the type `integer`.

use super::concat::Field;
use super::name_of_base;
use crate::nft::expr::{expr, noted_exthdr};
use crate::nft::headers::named_field;
use crate::nft::listing::loaded;
use crate::nft::model::{DataType, Set, SetData};
use crate::nft::raw::{NFT_EXTHDR_OP_IPV6, NFT_HASH_SYM, NFT_OSF_MAXGENRELEN, NFT_REG_1};
use crate::nft::userdata::{HOST_ENDIAN, find, number};

// `enum expr_types` of nft's include/expression.h
const PAYLOAD: u32 = 7;
const EXTHDR: u32 = 8;
const META: u32 = 9;
const SOCKET: u32 = 10;
/// It has no attributes, so that `nft` lists `osf name` also for `osf version`.
const OSF: u32 = 11;
const CT: u32 = 12;
const CONCAT: u32 = 13;
const NUMGEN: u32 = 23;
const HASH: u32 = 24;
const RT: u32 = 25;
const FIB: u32 = 26;
const XFRM: u32 = 27;
/// `NFTNL_UDATA_SET_KEY_CT_DIR` of a key without a direction.
const NO_DIRECTION: u32 = u32::MAX;
/// `NFT_REG32_SIZE`: maximum number of fields of a concatenation.
const FIELDS: u8 = 16;

/// `typeof KEY : VALUE`, without the value if it is no selector; `None` if `nft` lists `type`: the set was declared with it, for
/// which nft 1.1 notes a concatenation of constants, or the selectors do not have the length of the key, because nft notes
/// only four fields.
pub(super) fn declaration(s: &Set) -> Option<(String, Option<String>)> {
    let noted = s.type_of.as_deref()?;
    let text = |of: &Option<Vec<u8>>, len| {
        let (text, fields) = selector(of.as_deref()?)?;
        fills(&fields, len).then_some(text)
    };
    let key = text(&noted.key, s.key_len)?;
    match s.data {
        SetData::Value(_, len) => {
            let len = if s.value_ranges { len / 2 } else { len };
            Some((key, Some(text(&noted.data, len)?)))
        }
        _ => Some((key, None)),
    }
}

/// How the keys of a set are displayed; `None` if the lengths of the fields are unknown.
pub(crate) fn key(s: &Set) -> Option<Vec<Field>> {
    let noted = s.type_of.as_deref();
    let of = noted.and_then(|t| t.key.as_deref());
    let order = noted.and_then(|t| t.key_order);
    let fields = fields(of, order, s.key_type, s.key_len)?;
    // Interval sets keep keys in network order, whatever the order of the type.
    let ordered = fields.into_iter().map(|f| Field {
        host_order: f.host_order && !s.interval,
        ..f
    });
    Some(ordered.collect())
}

/// The same for the values of a map.
pub(crate) fn data(s: &Set) -> Option<Vec<Field>> {
    let SetData::Value(t, len) = s.data else {
        return None;
    };
    let noted = s.type_of.as_deref();
    let of = noted.and_then(|t| t.data.as_deref());
    let len = if s.value_ranges { len / 2 } else { len };
    // 0 does not determine the order of a single value.
    let order = noted.and_then(|t| t.data_order).filter(|n| *n != 0);
    fields(of, order, t, len)
}

fn fields(noted: Option<&[u8]>, order: Option<u32>, t: DataType, len: u32) -> Option<Vec<Field>> {
    let of_selector = noted.and_then(selector).map(|(_, fields)| fields);
    if let Some(fields) = of_selector.filter(|fields| fills(fields, len)) {
        return Some(fields);
    }
    let mut fields = Field::of(t, len)?;
    if let ([one], Some(order)) = (fields.as_mut_slice(), order) {
        one.host_order = order == HOST_ENDIAN;
    }
    Some(fields)
}

/// Whether a value of this many bytes consists of these fields.
fn fills(fields: &[Field], len: u32) -> bool {
    let padded = |f: &Field| f.len.next_multiple_of(4);
    let total = match fields {
        [one] => one.len,
        many => many.iter().map(padded).sum(),
    };
    usize::try_from(len) == Ok(total)
}

/// A field of this many bits in network order.
fn field(data_type: DataType, bits: u32) -> Option<Field> {
    Some(Field {
        data_type,
        len: usize::try_from(bits.div_ceil(8)).ok()?,
        host_order: false,
        right: 0,
        is_unnamed: false,
    })
}

/// A selector: its text, and how its values are displayed.
fn selector(noted: &[u8]) -> Option<(String, Vec<Field>)> {
    let own = find(noted, 1)?;
    let of = |n| number(Some(own), n);
    let bytes = |bits: u32| bits.is_multiple_of(8).then_some(bits / 8);
    let dreg = NFT_REG_1;
    let expr = match number(Some(noted), 0)? {
        PAYLOAD if of(0)? != 0 => {
            let named = named_field(of(0)?, of(1)?)?;
            let field = field(named.data_type, named.len)?;
            return Some((format!("{} {}", named.header, named.name), vec![field]));
        }
        EXTHDR => {
            let op = of(2).unwrap_or(NFT_EXTHDR_OP_IPV6);
            let (text, data_type, len) = noted_exthdr(op, of(0)?, of(1)?)?;
            return Some((text, vec![field(data_type, len)?]));
        }
        OSF => {
            let field = Field {
                host_order: true,
                ..field(DataType::STRING, NFT_OSF_MAXGENRELEN * 8)?
            };
            return Some(("osf name".to_owned(), vec![field]));
        }
        PAYLOAD if bytes(of(3)?).and(bytes(of(4)?)).is_none() => {
            let base = name_of_base(of(2)?.checked_sub(1)?.into());
            let text = format!("@{base},{},{}", of(3)?, of(4)?);
            let field = Field {
                is_unnamed: true,
                ..field(DataType::INTEGER, of(4)?)?
            };
            return Some((text, vec![field]));
        }
        PAYLOAD => expr!(Payload {
            // `enum proto_bases` counts from 1, `enum nft_payload_bases` from 0.
            base: of(2)?.checked_sub(1)?,
            offset: bytes(of(3)?)?,
            len: bytes(of(4)?)?,
            dreg
        }),
        META => expr!(Meta { key: of(0), dreg }),
        SOCKET => expr!(Socket { key: of(0), dreg }),
        RT => expr!(Rt { key: of(0), dreg }),
        CT => expr!(Ct {
            key: of(0),
            direction: match of(1)? {
                NO_DIRECTION => None,
                n => Some(u8::try_from(n).ok()?),
            },
            dreg
        }),
        FIB => expr!(Fib {
            result: of(0),
            flags: of(1),
            dreg
        }),
        NUMGEN => expr!(Numgen {
            kind: of(0),
            modulus: of(1),
            offset: of(2),
            dreg
        }),
        // For `jhash` nft does not store the key.
        HASH if of(0)? == NFT_HASH_SYM => {
            expr!(Hash {
                kind: NFT_HASH_SYM,
                modulus: of(2),
                offset: of(1),
                dreg
            })
        }
        XFRM => expr!(Xfrm {
            key: of(0),
            spnum: of(1),
            dir: u8::try_from(of(2)?).ok()?,
            dreg
        }),
        CONCAT => {
            let each: Option<Vec<_>> = (0..FIELDS)
                .map_while(|n| find(own, n))
                .map(selector)
                .collect();
            let (texts, fields): (Vec<String>, Vec<Vec<Field>>) = each?.into_iter().unzip();
            return Some((texts.join(" . "), fields.concat())).filter(|(text, _)| !text.is_empty());
        }
        _ => return None,
    };
    loaded(&expr)
}
