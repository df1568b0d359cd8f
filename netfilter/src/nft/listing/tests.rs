//! What no rule of a tool is.

use super::*;
use crate::nft::expr::{Cmp, DataAttrs, Hash, Meta, expr};

/// A byte of an extension header that has no name, compared without a mask.
#[test]
fn no_load_is_hidden() {
    let exthdr = |kind: u8, offset: u32| {
        expr!(Exthdr {
            dreg: raw::NFT_REG_1,
            kind: kind,
            offset: offset,
            len: 1
        })
    };
    let six = Expr::Cmp(Cmp {
        sreg: Some(raw::NFT_REG_1),
        op: Some(raw::NFT_CMP_EQ),
        data: Some(DataAttrs::of(&[6])),
        ..Cmp::default()
    });
    let listed = |kind: u8, offset: u32| {
        let exprs = [exthdr(kind, offset), six.clone()];
        text(&exprs, &[], TableFamily::Ip6)
    };
    assert_eq!(listed(0, 0), "hbh nexthdr tcp");
    let bytes = hex(&exthdr(0, 5).data());
    assert_eq!(listed(0, 5), format!("opaque(exthdr {bytes}) 6"));
}

/// Each of 16 registers in turn is a hash of all registers: 2^16 terms and more if nothing bounded them.
#[test]
fn terms_of_terms_are_bounded() {
    let registers = || raw::NFT_REG32_00..raw::NFT_REG32_00 + 16;
    let load = |dreg| {
        let (key, dreg) = (Some(raw::NFT_META_MARK), Some(dreg));
        let meta = Meta {
            key,
            dreg,
            ..Meta::default()
        };
        Expr::Meta(meta)
    };
    let hash = |dreg| {
        Expr::Hash(Hash {
            sreg: Some(raw::NFT_REG_1),
            dreg: Some(dreg),
            len: Some(LONGEST),
            modulus: Some(2),
            ..Hash::default()
        })
    };
    let mut exprs: Vec<Expr> = registers().map(load).collect();
    exprs.extend(registers().map(hash));
    exprs.push(Expr::Meta(Meta {
        key: Some(raw::NFT_META_MARK),
        sreg: Some(raw::NFT_REG_1),
        ..Meta::default()
    }));
    let text = text(&exprs, &[], TableFamily::Inet);
    assert!(text.contains("opaque(hash"), "{} bytes", text.len());
    assert!(text.len() < 20_000, "{} bytes", text.len());
}
