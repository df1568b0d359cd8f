//! Rejects the packet with an answer (`NFTA_REJECT_*`). Since 3.14, `inet` since 3.18.

use super::prelude::*;
use crate::nft::context::Implied;
use crate::nft::display::numbers;

weir_netlink::attributes! {
    /// `enum nft_reject_attributes`
    pub struct Reject {
        /// `enum nft_reject_types`
        kind: Be32 = NFTA_REJECT_TYPE 1,
        /// ICMP code, or `enum nft_reject_inet_code`
        icmp_code: U8 = NFTA_REJECT_ICMP_CODE 2,
    }
}

impl Reject {
    /// Whether it has no attribute or value that this version does not know.
    pub(crate) fn is_known(&self) -> bool {
        let is_known = match self.kind {
            Some(raw::NFT_REJECT_ICMP_UNREACH | raw::NFT_REJECT_ICMPX_UNREACH) => {
                self.icmp_code.is_some()
            }
            kind => kind == Some(raw::NFT_REJECT_TCP_RST),
        };
        is_known && self.unknown.is_empty()
    }
}

impl Instruction for Reject {
    fn normalize(&mut self) {
        if self.kind == Some(raw::NFT_REJECT_TCP_RST) {
            self.icmp_code = Some(0);
        }
    }

    /// As in nft: if the table fixes the family, a reset implies the protocol; in other tables it and `icmp` imply only the
    /// family. If the family is unknown, a code has no name.
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let fixes_family = matches!(l.family, TableFamily::Ip | TableFamily::Ip6);
        let code = |table, n: u8| {
            numbers::name(table, u64::from(n)).map_or_else(|| n.to_string(), str::to_owned)
        };
        let text = match (self.kind?, self.icmp_code) {
            (raw::NFT_REJECT_TCP_RST, _) => {
                l.imply(if fixes_family {
                    &[Implied::Transport]
                } else {
                    &[Implied::Network]
                });
                "reject with tcp reset".to_owned()
            }
            (raw::NFT_REJECT_ICMPX_UNREACH, Some(n)) if n == raw::NFT_REJECT_ICMPX_PORT_UNREACH => {
                "reject".to_owned()
            }
            (raw::NFT_REJECT_ICMPX_UNREACH, Some(n)) => {
                format!("reject with icmpx {}", code(numbers::ICMPX_CODES, n))
            }
            (raw::NFT_REJECT_ICMP_UNREACH, Some(n)) => {
                if !fixes_family {
                    l.imply(&[Implied::Network]);
                }
                match (l.context.nfproto, n) {
                    (Some(raw::NFPROTO_IPV4), 3) | (Some(raw::NFPROTO_IPV6), 4) if fixes_family => {
                        "reject".to_owned()
                    }
                    (Some(raw::NFPROTO_IPV4), n) => {
                        format!("reject with icmp {}", code(numbers::ICMP_CODES, n))
                    }
                    (Some(raw::NFPROTO_IPV6), n) => {
                        format!("reject with icmpv6 {}", code(numbers::ICMPV6_CODES, n))
                    }
                    _ => "reject".to_owned(),
                }
            }
            _ => return None,
        };
        l.say(text)
    }
}
