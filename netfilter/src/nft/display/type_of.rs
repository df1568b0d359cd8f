//! `typeof ip saddr . tcp dport`: nft's userdata about the selector that a set was declared with.
//!
//! ```text
//! 0 kind of expression (u32)
//! 1 its own:      payload  0 header, 1 field     meta  0 key     ct  0 key, 1 direction
//!                 concatenation  N [0 kind, 1 its own]
//! ```

use crate::nft::expr::{ct, meta};
use crate::nft::headers::named_field;
use crate::nft::model::{CtDirection, CtKey, MetaKey, Set, SetData};
use crate::nft::raw;
use crate::nft::userdata::{find, number};

// `enum expr_types` of nft's include/expression.h
const PAYLOAD: u32 = 7;
const META: u32 = 9;
const CT: u32 = 12;
const CONCAT: u32 = 13;
/// `NFT_REG32_SIZE`: maximum number of fields of a concatenation.
const FIELDS: u8 = 16;

/// The `typeof` declaration; `None` when there is none, or it has no textual form here.
pub(super) fn declaration(s: &Set) -> Option<String> {
    let noted = s.type_of.as_deref()?;
    let key = expression(noted.key.as_deref()?)?;
    match s.data {
        SetData::None => Some(key),
        SetData::Verdict => Some(format!("{key} : verdict")),
        SetData::Value(..) => {
            let data = expression(noted.data.as_deref()?)?;
            Some(format!("{key} : {data}"))
        }
    }
}

fn expression(noted: &[u8]) -> Option<String> {
    let of = |n| number(Some(noted), n);
    let own = || find(noted, 1);
    match of(0)? {
        PAYLOAD => {
            let field = named_field(number(own(), 0)?, number(own(), 1)?)?;
            Some(format!("{} {}", field.header, field.name))
        }
        META => match MetaKey::from(number(own(), 0)?) {
            MetaKey::Other(_) => None,
            key => Some(meta::text(key.number())),
        },
        CT => {
            let direction = match number(own(), 1)? {
                u32::MAX => None,
                n if n == u32::from(raw::IP_CT_DIR_ORIGINAL) => Some(CtDirection::Original),
                n if n == u32::from(raw::IP_CT_DIR_REPLY) => Some(CtDirection::Reply),
                _ => return None,
            };
            match CtKey::from(number(own(), 0)?) {
                CtKey::Other(_) => None,
                key => Some(ct::text(key.number(), direction, "")),
            }
        }
        CONCAT => {
            let fields = (0..FIELDS).map_while(|n| find(own()?, n));
            let texts: Option<Vec<String>> = fields.map(expression).collect();
            texts.filter(|t| !t.is_empty()).map(|t| t.join(" . "))
        }
        _ => None,
    }
}
