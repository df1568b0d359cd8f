//! Tests of rules that no tool writes.

use super::*;
use crate::nft::expr::{Cmp, DataAttrs, ExprAttrs, ExprElem, Hash, Meta, expr};
use crate::nft::wire::{ElemAttrs, SetAttrs, attrs};
use weir_netlink::attr::{AttrSet as _, Writer};

fn equals(byte: u8) -> Expr {
    Expr::Cmp(Cmp {
        sreg: Some(raw::NFT_REG_1),
        op: Some(raw::NFT_CMP_EQ),
        data: Some(DataAttrs::of(&[byte])),
        ..Cmp::default()
    })
}

/// The text of a store that changes two bytes of a transport header.
fn store(protocol: u8, offset: u32, mask: [u8; 2], xor: [u8; 2]) -> String {
    let base = raw::NFT_PAYLOAD_TRANSPORT_HEADER;
    let (len, register) = (2_u32, raw::NFT_REG_1);
    let exprs = [
        expr!(Meta {
            key: raw::NFT_META_L4PROTO,
            dreg: register
        }),
        equals(protocol),
        expr!(Payload {
            base,
            offset,
            len,
            dreg: register
        }),
        expr!(Bitwise {
            sreg: register,
            dreg: register,
            len,
            mask: DataAttrs::of(&mask),
            xor: DataAttrs::of(&xor)
        }),
        expr!(Payload {
            base,
            offset,
            len,
            sreg: register
        }),
    ];
    text(&exprs, &[], TableFamily::Inet)
}

/// To change one byte, nft loads, changes and stores two, and lists the statement as half of a port.
#[test]
fn a_store_of_one_byte() {
    let set = store(raw::IPPROTO_ICMP, 0, [0, 0xff], [0, 0]);
    assert_eq!(set, "meta l4proto icmp icmp type set echo-reply");
    let (kept, syn) = ([0xff, 0xfd], [0, 2]);
    let flags = store(raw::IPPROTO_TCP, 12, kept, syn);
    assert_eq!(flags, "tcp flags set tcp flags | syn");
    // Bits of two fields.
    let both = store(raw::IPPROTO_TCP, 12, [0xef, 0xfd], [0x10, 2]);
    assert_eq!(both, "meta l4proto tcp @th,96,16 set @th,96,16 | 0x1002");
}

/// The register of an earlier load does not have its old meaning after an expression that may have written it.
#[test]
fn an_unknown_expression_may_write_registers() {
    let inner = Expr::Opaque(ExprAttrs {
        name: Some("inner".to_owned()),
        ..ExprAttrs::default()
    });
    let load = expr!(Meta {
        key: raw::NFT_META_L4PROTO,
        dreg: raw::NFT_REG_1
    });
    let exprs = [load, equals(17), inner, equals(6)];
    let bytes = hex(&equals(6).data());
    assert_eq!(
        text(&exprs, &[], TableFamily::Inet),
        format!("meta l4proto udp opaque(inner 0x) opaque(cmp {bytes})")
    );
}

/// A byte that is not UTF-8 remains in the name.
#[test]
fn names_of_any_bytes() {
    let load = expr!(Meta {
        key: raw::NFT_META_IIFNAME,
        dreg: raw::NFT_REG_1
    });
    for (bytes, listed) in [
        (&b"a\xff"[..], "iifname \"a\u{f7ff}*\""),
        (
            b"a\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            "iifname \"a\u{f7ff}\"",
        ),
    ] {
        let compare = expr!(Cmp {
            sreg: raw::NFT_REG_1,
            op: raw::NFT_CMP_EQ,
            data: DataAttrs::of(bytes)
        });
        let exprs = [load.clone(), compare];
        assert_eq!(text(&exprs, &[], TableFamily::Inet), listed);
    }
}

/// A byte of an extension header without a name, compared without a mask.
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
    let listed = |kind: u8, offset: u32| {
        let exprs = [exthdr(kind, offset), equals(6)];
        text(&exprs, &[], TableFamily::Ip6)
    };
    assert_eq!(listed(0, 0), "hbh nexthdr tcp");
    let bytes = hex(&exthdr(0, 5).data());
    assert_eq!(listed(0, 5), format!("opaque(exthdr {bytes}) 6"));
    // The first byte of an address.
    assert_eq!(listed(43, 8), "srh sid[1] 600::/8");
}

/// Each of 16 registers in turn is a hash of all registers: without a bound, more than 2^16 terms.
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

/// One load from a map of the rule, and 125 expressions that store it: without a bound, the elements are listed 125 times.
#[test]
fn the_elements_of_a_map_are_listed_once() {
    let listed = |elements: u32, stores: usize| {
        let register = raw::NFT_REG_1;
        let element = |n: u32| {
            attrs!(ElemAttrs {
                key: DataAttrs::of(&n.to_ne_bytes()),
                data: DataAttrs::of(&n.to_ne_bytes())
            })
        };
        let map = AnonymousSet {
            attrs: attrs!(SetAttrs {
                name: "__map%d".to_owned(),
                flags: raw::NFT_SET_ANONYMOUS | raw::NFT_SET_CONSTANT | raw::NFT_SET_MAP,
                key_type: DataType::MARK.0,
                key_len: 4_u32,
                data_type: DataType::MARK.0,
                data_len: 4_u32
            }),
            elements: (0..elements).map(element).collect(),
        };
        let key = raw::NFT_META_MARK;
        let load = expr!(Meta {
            key,
            dreg: register
        });
        let (set, set_id) = ("__map%d".to_owned(), 0_u32);
        let find = expr!(Lookup {
            sreg: register,
            dreg: register,
            set,
            set_id
        });
        let store = expr!(Meta {
            key,
            sreg: register
        });
        let mut exprs = vec![load, find];
        exprs.resize(exprs.len() + stores, store);
        text(&exprs, &[map], TableFamily::Inet)
    };
    let once = listed(1_000, 1);
    let often = listed(1_000, 125);
    assert!(often.starts_with(&once), "{often:.200}");
    assert_eq!(often.matches(" opaque(meta ").count(), 124);
    assert!(often.len() < 2 * once.len(), "{} bytes", often.len());
    // A few elements are listed each time, as nft does.
    let one = listed(3, 1);
    assert_eq!(listed(3, 2), format!("{one} {one}"));
}

/// The kernel accepts no dynset within a dynset, but a forged message may contain hundreds. A thread has 2 MiB by default.
#[test]
fn the_depth_of_statements_is_bounded() {
    let meta = expr!(Meta {
        key: raw::NFT_META_MARK,
        dreg: raw::NFT_REG_1
    });
    let dynset = |inner: Option<Expr>| {
        let mut w = Writer::new();
        for e in inner.map(|e| [meta.clone(), e]).into_iter().flatten() {
            w.attr(1, true, |w| ExprElem(e).encode(w));
        }
        expr!(Dynset {
            set: "s".to_owned(),
            op: raw::NFT_DYNSET_OP_ADD,
            sreg_key: raw::NFT_REG_1,
            expressions: w.finish().expect("at most 64 KiB")
        })
    };
    let forged = (0..700).fold(dynset(None), |inner, _| dynset(Some(inner)));
    let list = move || text(&[meta, forged], &[], TableFamily::Inet);
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(list);
    let listed = thread.expect("a thread").join().expect("listed");
    assert!(listed.contains("opaque(dynset"), "{listed:.200}");
}
