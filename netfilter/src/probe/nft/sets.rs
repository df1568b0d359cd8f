//! Sets for trials.

use crate::nft::expr::{DataAttrs, Expr, expr};
use crate::nft::wire::{ElemAttrs, SetAttrs, SetDescAttrs};
use crate::nft::{Verdict, linearize, raw};
use weir_netlink::attr::Writer;

/// The name of the set in its table.
pub(super) const NAME: &str = "weir";

/// A trial of a set: the set, its elements, and a rule that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetTrial {
    /// `type mark; elements = { 1 }`
    Plain,
    /// `type ipv4_addr; flags interval; elements = { 10.0.0.0/8 }`
    Interval,
    /// `type ipv4_addr; timeout 60s`
    Timeout,
    /// `type ipv4_addr . mark`
    Concatenation,
    /// `type ipv4_addr . mark; flags interval`
    IntervalConcatenation,
    /// `type mark : verdict`
    VerdictMap,
    /// `type mark : mark`
    ValueMap,
    /// A rule with a lookup in a set.
    Lookup,
    /// A rule that adds to a set.
    Dynset,
}

/// Key type numbers of nft; the kernel does not interpret them.
const IPV4_ADDR: u32 = 7;
const MARK: u32 = 19;

impl SetTrial {
    pub(super) fn set(self) -> SetAttrs {
        let base = SetAttrs {
            name: Some(NAME.to_owned()),
            flags: Some(0),
            key_type: Some(MARK),
            key_len: Some(4),
            id: Some(1),
            ..SetAttrs::default()
        };
        let ipv4 = |flags| SetAttrs {
            key_type: Some(IPV4_ADDR),
            flags: Some(flags),
            ..base.clone()
        };
        match self {
            Self::Plain | Self::Lookup => base,
            Self::Interval => ipv4(raw::NFT_SET_INTERVAL),
            Self::Timeout => SetAttrs {
                timeout: Some(60_000),
                ..ipv4(raw::NFT_SET_TIMEOUT)
            },
            // Without intervals a concatenation is only a longer key; `NFT_SET_CONCAT` is for sets with intervals.
            Self::Concatenation => SetAttrs {
                key_len: Some(8),
                ..ipv4(0)
            },
            Self::IntervalConcatenation => SetAttrs {
                key_len: Some(8),
                desc: Some(SetDescAttrs {
                    concat: Some(fields()),
                    ..SetDescAttrs::default()
                }),
                ..ipv4(raw::NFT_SET_CONCAT | raw::NFT_SET_INTERVAL)
            },
            Self::VerdictMap => SetAttrs {
                data_type: Some(raw::NFT_DATA_VERDICT),
                data_len: Some(0),
                flags: Some(raw::NFT_SET_MAP),
                ..base
            },
            Self::ValueMap => SetAttrs {
                data_type: Some(MARK),
                data_len: Some(4),
                flags: Some(raw::NFT_SET_MAP),
                ..base
            },
            Self::Dynset => SetAttrs {
                flags: Some(raw::NFT_SET_EVAL | raw::NFT_SET_TIMEOUT),
                desc: Some(SetDescAttrs {
                    size: Some(16),
                    ..SetDescAttrs::default()
                }),
                ..base
            },
        }
    }

    pub(super) fn elements(self) -> Vec<ElemAttrs> {
        let key = |bytes: &[u8]| ElemAttrs {
            key: Some(DataAttrs::of(bytes)),
            ..ElemAttrs::default()
        };
        let end = Some(raw::NFT_SET_ELEM_INTERVAL_END);
        match self {
            Self::Plain | Self::Lookup => vec![key(&[1, 0, 0, 0])],
            Self::Interval => {
                vec![
                    key(&[10, 0, 0, 0]),
                    ElemAttrs {
                        flags: end,
                        ..key(&[11, 0, 0, 0])
                    },
                ]
            }
            Self::Timeout => vec![ElemAttrs {
                timeout: Some(30_000),
                ..key(&[10, 0, 0, 1])
            }],
            Self::Concatenation => vec![key(&[10, 0, 0, 1, 1, 0, 0, 0])],
            Self::IntervalConcatenation => vec![ElemAttrs {
                key_end: Some(DataAttrs::of(&[10, 0, 0, 9, 1, 0, 0, 0])),
                ..key(&[10, 0, 0, 1, 1, 0, 0, 0])
            }],
            Self::VerdictMap => vec![ElemAttrs {
                data: Some(linearize::verdict_data(&Verdict::Accept)),
                ..key(&[1, 0, 0, 0])
            }],
            Self::ValueMap => {
                vec![ElemAttrs {
                    data: Some(DataAttrs::of(&[2, 0, 0, 0])),
                    ..key(&[1, 0, 0, 0])
                }]
            }
            Self::Dynset => Vec::new(),
        }
    }

    pub(super) fn rule(self) -> Option<Vec<Expr>> {
        let load = expr!(Meta {
            key: raw::NFT_META_MARK,
            dreg: raw::NFT_REG_1,
        });
        let set = NAME.to_owned();
        match self {
            Self::Lookup => {
                let e = expr!(Lookup {
                    sreg: raw::NFT_REG_1,
                    set,
                    set_id: 1,
                });
                Some(vec![load, e])
            }
            // `add @weir { meta mark }`
            Self::Dynset => {
                let e = expr!(Dynset {
                    set,
                    set_id: 1,
                    op: raw::NFT_DYNSET_OP_ADD,
                    sreg_key: raw::NFT_REG_1,
                });
                Some(vec![load, e])
            }
            _ => None,
        }
    }
}

/// `NFTA_LIST_ELEM > NFTA_SET_FIELD_LEN`, twice four bytes.
fn fields() -> Vec<u8> {
    let mut w = Writer::new();
    for _ in 0..2 {
        w.attr(1, true, |w| {
            w.attr(1, false, |w| w.put(&4u32.to_be_bytes()))
        });
    }
    w.finish().unwrap_or_default()
}
