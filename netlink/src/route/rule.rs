//! Policy rules that choose a table by the mark of a packet: `ip rule`.

use std::fmt;

use rtnetlink::packet_route::route::RouteProtocol;
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Family, RTPROT_WEIR, Routing};
use crate::Result;

/// A policy rule as far as marks and tables go. Other selectors of a rule
/// (`from`, `iif`) are told only by [`PolicyRule::only_mark`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    /// IPv4 and IPv6 have rules of their own.
    pub family: Family,
    /// `FRA_FWMARK`: the mark, compared under the mask.
    pub fwmark: Option<u32>,
    /// `FRA_FWMASK`: the kernel takes all bits where a mark comes without it.
    pub fwmask: Option<u32>,
    /// `FRA_TABLE`: where to look.
    pub table: u32,
    /// `FRA_PRIORITY`: lower is asked first. Without one the kernel takes the
    /// number below the lowest in use, except that of the rule for "local".
    pub priority: Option<u32>,
    /// `FRA_PROTOCOL`: who made it (Linux 4.17).
    pub protocol: RouteProtocol,
    /// The rule selects by nothing but the mark, and looks a table up.
    pub only_mark: bool,
}

impl PolicyRule {
    /// `fwmark MARK lookup TABLE`, all bits of the mark, owned by weir.
    #[must_use]
    pub fn mark(family: Family, fwmark: u32, table: u32) -> Self {
        Self {
            family,
            fwmark: Some(fwmark),
            fwmask: Some(u32::MAX),
            table,
            priority: None,
            protocol: RouteProtocol::Other(RTPROT_WEIR),
            only_mark: true,
        }
    }

    /// Both send the same packets to the same table, whoever made them and
    /// whatever their priority.
    #[must_use]
    pub fn same_effect(&self, other: &Self) -> bool {
        let key = |r: &Self| (r.family, r.fwmark, r.fwmask, r.table, r.only_mark);
        key(self) == key(other)
    }
}

impl fmt::Display for PolicyRule {
    /// Close to `ip rule show`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.family)?;
        if let Some(mark) = self.fwmark {
            write!(f, " fwmark {mark:#x}")?;
        }
        if let Some(mask) = self.fwmask.filter(|mask| *mask != u32::MAX) {
            write!(f, "/{mask:#x}")?;
        }
        write!(f, " lookup {}", self.table)?;
        match self.priority {
            Some(priority) => write!(f, " priority {priority}"),
            None => Ok(()),
        }
    }
}

impl Routing {
    /// `ip rule show` and `ip -6 rule show`: IPv4 first, each by priority.
    ///
    /// # Errors
    ///
    /// [`crate::ErrorKind::Exhausted`] when rules kept changing; `EOPNOTSUPP`
    /// without `CONFIG_IP_MULTIPLE_TABLES`.
    pub fn rules(&self) -> Result<Vec<PolicyRule>> {
        let mut rules = self.dump_rules(AddressFamily::Unspec, "the policy rules")?;
        // A family that is not built in, or switched off at boot, has none.
        rules.sort_by_key(|rule| rule.family == Family::V6);
        Ok(rules)
    }

    /// `ip rule add`, unless there is one of the same effect: the kernel would
    /// take any number of equal ones. Whether the rule was added.
    ///
    /// # Errors
    ///
    /// As [`Routing::rules`]; `EPERM`.
    pub fn add_rule(&self, rule: &PolicyRule) -> Result<bool> {
        if self
            .rules_of(rule.family)?
            .iter()
            .any(|there| there.same_effect(rule))
        {
            return Ok(false);
        }
        let request = RouteNetlinkMessage::NewRule(build(rule));
        self.ensure(request, "add", &format!("policy rule {rule}"))
    }

    /// `ip rule delete`: the first one with this mark, mask, table and protocol,
    /// and with this priority if it is given. False when there is none.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn del_rule(&self, rule: &PolicyRule) -> Result<bool> {
        let request = RouteNetlinkMessage::DelRule(build(rule));
        self.remove(request, "delete", &format!("policy rule {rule}"))
    }

    fn rules_of(&self, family: Family) -> Result<Vec<PolicyRule>> {
        let object = format!("the {family} policy rules");
        match self.dump_rules(address_family(family), &object) {
            // IPv6 is not built in, or switched off at boot: it has no rules.
            Err(e) if family == Family::V6 && e.errno() == Some(libc::EAFNOSUPPORT) => {
                Ok(Vec::new())
            }
            found => found,
        }
    }

    /// Of one family, or of all: `fib_nl_dumprule()` takes `AF_UNSPEC` (net/core/fib_rules.c, since 2.6.22).
    fn dump_rules(&self, family: AddressFamily, object: &str) -> Result<Vec<PolicyRule>> {
        let mut message = RuleMessage::default();
        message.header.family = family;
        let found = self.dump(&RouteNetlinkMessage::GetRule(message), object)?;
        Ok(found.into_iter().filter_map(read).collect())
    }
}

fn address_family(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

/// For addition and deletion: with a protocol, no rule of another writer goes in the place of ours
/// (`rule_find()`, net/core/fib_rules.c).
fn build(rule: &PolicyRule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = address_family(rule.family);
    message.header.action = RuleAction::ToTable;
    let attributes = &mut message.attributes;
    match u8::try_from(rule.table) {
        Ok(small) => message.header.table = small,
        Err(_) => attributes.push(RuleAttribute::Table(rule.table)),
    }
    attributes.extend(rule.fwmark.map(RuleAttribute::FwMark));
    attributes.extend(rule.fwmask.map(RuleAttribute::FwMask));
    attributes.extend(rule.priority.map(RuleAttribute::Priority));
    attributes.push(RuleAttribute::Protocol(rule.protocol));
    message
}

/// `None`: it is no rule of IPv4 or IPv6; multicast routing has some of its own.
fn read(message: RouteNetlinkMessage) -> Option<PolicyRule> {
    let RouteNetlinkMessage::NewRule(message) = message else {
        return None;
    };
    let header = &message.header;
    let family = match header.family {
        AddressFamily::Inet => Family::V4,
        AddressFamily::Inet6 => Family::V6,
        _ => return None,
    };
    let mut rule = PolicyRule {
        family,
        fwmark: None,
        fwmask: None,
        table: u32::from(header.table),
        priority: None,
        protocol: RouteProtocol::Unspec,
        only_mark: header.action == RuleAction::ToTable
            && header.flags.is_empty()
            && (header.dst_len, header.src_len, header.tos) == (0, 0, 0),
    };
    for attribute in message.attributes {
        match attribute {
            RuleAttribute::FwMark(mark) => rule.fwmark = Some(mark),
            RuleAttribute::FwMask(mask) => rule.fwmask = Some(mask),
            RuleAttribute::Table(table) => rule.table = table,
            RuleAttribute::Priority(priority) => rule.priority = Some(priority),
            RuleAttribute::Protocol(protocol) => rule.protocol = protocol,
            // The kernel sends u32::MAX, "no limit", with every rule.
            RuleAttribute::SuppressPrefixLen(u32::MAX)
            | RuleAttribute::SuppressIfGroup(u32::MAX) => {}
            _ => rule.only_mark = false,
        }
    }
    Some(rule)
}
