//! Expressions of libnftnl that several of these test programs use.
#![allow(dead_code)]

use nftnl_sys::*;
use weir_netfilter::nft::raw;
use weir_netfilter_oracle::Expr as C;

pub(crate) const REG_1: u32 = raw::NFT_REG_1;

pub(crate) fn meta(key: u32) -> C {
    C::new(c"meta")
        .u32(NFTNL_EXPR_META_KEY, key)
        .u32(NFTNL_EXPR_META_DREG, REG_1)
}

pub(crate) fn set_meta(key: u32) -> C {
    C::new(c"meta")
        .u32(NFTNL_EXPR_META_KEY, key)
        .u32(NFTNL_EXPR_META_SREG, REG_1)
}

pub(crate) fn ct(key: u32) -> C {
    C::new(c"ct")
        .u32(NFTNL_EXPR_CT_KEY, key)
        .u32(NFTNL_EXPR_CT_DREG, REG_1)
}

pub(crate) fn set_ct(key: u32) -> C {
    C::new(c"ct")
        .u32(NFTNL_EXPR_CT_KEY, key)
        .u32(NFTNL_EXPR_CT_SREG, REG_1)
}

pub(crate) fn cmp(op: u32, bytes: &[u8]) -> C {
    C::new(c"cmp")
        .u32(NFTNL_EXPR_CMP_SREG, REG_1)
        .u32(NFTNL_EXPR_CMP_OP, op)
        .bytes(NFTNL_EXPR_CMP_DATA, bytes)
}

pub(crate) fn mask(mask: &[u8]) -> C {
    let length = u32::try_from(mask.len()).unwrap();
    C::new(c"bitwise")
        .u32(NFTNL_EXPR_BITWISE_SREG, REG_1)
        .u32(NFTNL_EXPR_BITWISE_DREG, REG_1)
        .u32(NFTNL_EXPR_BITWISE_LEN, length)
        .bytes(NFTNL_EXPR_BITWISE_MASK, mask)
        .bytes(NFTNL_EXPR_BITWISE_XOR, &vec![0; mask.len()])
}

pub(crate) fn immediate(bytes: &[u8]) -> C {
    C::new(c"immediate")
        .u32(NFTNL_EXPR_IMM_DREG, REG_1)
        .bytes(NFTNL_EXPR_IMM_DATA, bytes)
}

pub(crate) fn verdict(number: i32) -> C {
    C::new(c"immediate")
        .u32(NFTNL_EXPR_IMM_DREG, raw::NFT_REG_VERDICT)
        .u32(NFTNL_EXPR_IMM_VERDICT, number.cast_unsigned())
}

pub(crate) fn payload(base: u32, offset: u32, len: u32) -> C {
    C::new(c"payload")
        .u32(NFTNL_EXPR_PAYLOAD_DREG, REG_1)
        .u32(NFTNL_EXPR_PAYLOAD_BASE, base)
        .u32(NFTNL_EXPR_PAYLOAD_OFFSET, offset)
        .u32(NFTNL_EXPR_PAYLOAD_LEN, len)
}

/// The name of an interface in `IFNAMSIZ` bytes.
pub(crate) fn ifname(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}
