//! Classes of packets of the redirection, by the properties that rules can certainly match.

use super::{Ours, TCP, Taking, UDP};
use weir_netfilter::nft::{CmpOp, Data, Hook, Match, MetaKey, Operand, PayloadBase, Selector, raw};
use weir_netfilter::xtables::XtFamily;
use weir_netlink::route::LOOPBACK_IFINDEX;

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;

/// A class of packets. All other properties that a condition may depend on are unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) family: XtFamily,
    pub(super) protocol: u8,
    /// True for packets that were sent in the pod and come in by `lo`.
    pub(super) by_lo: bool,
}

impl Ours {
    /// The classes of packets that reach a hook, in a table that sees these families.
    pub(super) fn classes(&self, hook: Hook, sees: impl Fn(XtFamily) -> bool) -> Vec<Class> {
        let mut classes = Vec::new();
        for family in [XtFamily::Ip, XtFamily::Ip6] {
            let is_seen = sees(family) && (family == XtFamily::Ip || self.has_ipv6);
            for protocol in [TCP, UDP] {
                for by_lo in [false, true] {
                    let comes = !by_lo || hook == Hook::Prerouting;
                    if is_seen && comes && self.takes(protocol) {
                        classes.push(Class {
                            family,
                            protocol,
                            by_lo,
                        });
                    }
                }
            }
        }
        classes
    }
}

impl Class {
    /// True if a rule can have this effect on the packets: those that come by `lo` already have their connection and
    /// translation since they were sent.
    pub(super) fn suffers(self, taking: Taking) -> bool {
        !self.by_lo || taking == Taking::Diverted
    }

    /// The harm that setting a zone does. With a zone of the original direction only, conntrack finds a connection by its
    /// replies, and zone 0 is the default zone. For UDP, which is redirected for DNS, the first does harm, and zone 0 if it is set
    /// before our own zone.
    pub(super) fn zoned(self, is_original: bool, is_0: bool) -> Option<Taking> {
        match (self.protocol == UDP, is_0) {
            (true, true) => Some(Taking::Unzoned),
            (true, false) => Some(Taking::Zoned),
            (false, _) => (!is_original && !is_0).then_some(Taking::Zoned),
        }
    }

    /// Whether the packets came in by an interface (`-i`); `None`: unknown. Outgoing packets have no input interface, which
    /// kernels treat differently.
    pub(super) fn came_by(self, is_lo: bool, not: bool) -> Option<bool> {
        match (is_lo, self.by_lo) {
            (false, false) => None,
            (true, false) if not => None,
            (is_lo, by_lo) => Some((is_lo == by_lo) != not),
        }
    }

    /// The value that a selector reads; `None`: unknown.
    fn value(self, selector: &Selector) -> Option<Data> {
        let (nfproto, ethertype) = match self.family {
            XtFamily::Ip => (raw::NFPROTO_IPV4, ETH_P_IP),
            XtFamily::Ip6 => (raw::NFPROTO_IPV6, ETH_P_IPV6),
        };
        match selector {
            Selector::Meta(MetaKey::L4proto) => Some(Data::u8(self.protocol)),
            // Older iptables-nft reads the protocol from the IPv4 header.
            Selector::Payload {
                base: PayloadBase::Network,
                offset: 9,
                len: 1,
            } if self.family == XtFamily::Ip => Some(Data::u8(self.protocol)),
            Selector::Meta(MetaKey::Nfproto) => Some(Data::u8(nfproto)),
            Selector::Meta(MetaKey::Protocol) => Some(Data::be16(ethertype)),
            _ => None,
        }
    }

    /// True if a lookup in a map finds the element with this key, or may find it.
    pub(super) fn may_find(self, selector: &Selector, key: &[u8]) -> bool {
        self.value(selector)
            .is_none_or(|value| key.starts_with(value.as_bytes()))
    }

    /// Whether the packets meet a condition of nf_tables; `None`: unknown.
    pub(super) fn meets(self, condition: &Match) -> Option<bool> {
        let not = match (condition.op, &condition.mask) {
            (CmpOp::Eq, None) => false,
            (CmpOp::Neq, None) => true,
            _ => return None,
        };
        let (selector, operand) = (&condition.selector, &condition.operand);
        if let (Selector::Meta(MetaKey::Iif | MetaKey::Iifname), Operand::Value(is)) =
            (selector, operand)
        {
            let name = is.as_bytes().split(|byte| *byte == 0).next();
            let is_lo = *is == Data::ne32(LOOPBACK_IFINDEX) || name == Some(b"lo".as_slice());
            return self.came_by(is_lo, not);
        }
        let value = self.value(selector)?;
        let is_met = match operand {
            Operand::Value(is) => *is == value,
            Operand::Range(first, last) => (first..=last).contains(&&value),
            Operand::Anonymous(elements) => {
                let mut keys = elements.iter().map(|element| &element.key);
                keys.any(|key| (key.first()..=key.last()).contains(&&value))
            }
            _ => return None,
        };
        Some(is_met != not)
    }
}

/// The rules of a chain that packets may reach and match: none after a rule that certainly ends the chain.
pub(super) fn until_end<'r, R>(
    rules: impl IntoIterator<Item = &'r R>,
    holds: impl Fn(&R) -> Option<bool>,
    ends: impl Fn(&R) -> bool,
) -> Vec<&'r R> {
    let mut found = Vec::new();
    for rule in rules {
        let holds = holds(rule);
        if holds == Some(false) {
            continue;
        }
        found.push(rule);
        if holds == Some(true) && ends(rule) {
            break;
        }
    }
    found
}
