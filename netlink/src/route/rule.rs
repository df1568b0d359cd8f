//! Policy rules, which choose a table by mark, destination and link of a packet: `ip rule`.

use std::fmt;

use ipnet::IpNet;

use super::number::{
    FIB_RULE_IIF_DETACHED, FIB_RULE_INVERT, FIB_RULE_OIF_DETACHED, FIB_RULE_UNRESOLVED,
    RTM_DELRULE, RTM_GETRULE, RTM_NEWRULE,
};
use super::{
    AddressFamily, RT_TABLE_LOCAL, Route, RouteProtocol, RouteType, Routing, RuleAction,
    RuleSelectors,
};
use crate::attr::{Be64, Bytes, DecodeError, Ip, Ne32, Str, U8};
use crate::message::{FibRuleHdr, Message};
use crate::{Error, Result};

crate::attributes! {
    /// `FRA_*` (`linux/fib_rules.h`)
    pub(super) struct RuleAttrs {
        /// the destination; the prefix length is in the header
        dst: Ip = FRA_DST 1,
        /// the source
        src: Ip = FRA_SRC 2,
        /// the link that received the packet
        iif: Str = FRA_IIFNAME 3,
        /// the priority of the rule that is evaluated next
        goto: Ne32 = FRA_GOTO 4,
        /// rules with lower numbers are evaluated first
        priority: Ne32 = FRA_PRIORITY 6,
        /// the mark
        fwmark: Ne32 = FRA_FWMARK 10,
        /// realms of routes, two in one number
        realms: Ne32 = FRA_FLOW 11,
        /// the tunnel's id, in network order
        tunnel: Be64 = FRA_TUN_ID 12,
        /// a route over a link of this group is ignored
        suppress_ifgroup: Ne32 = FRA_SUPPRESS_IFGROUP 13,
        /// routes with a prefix of at most this length are ignored
        suppress_prefixlen: Ne32 = FRA_SUPPRESS_PREFIXLEN 14,
        /// the table to look up
        table: Ne32 = FRA_TABLE 15,
        /// the bits of the mark that are compared
        fwmask: Ne32 = FRA_FWMASK 16,
        /// the outgoing link, for packets of a socket that is bound to it
        oif: Str = FRA_OIFNAME 17,
        /// the table is that of the VRF
        l3mdev: U8 = FRA_L3MDEV 19,
        /// `struct fib_rule_uid_range`
        uids: Bytes = FRA_UID_RANGE 20,
        /// its creator; since 4.17
        protocol: U8 = FRA_PROTOCOL 21,
        /// `IPPROTO_*`
        ip_proto: U8 = FRA_IP_PROTO 22,
        /// `struct fib_rule_port_range` of the source port
        sports: Bytes = FRA_SPORT_RANGE 23,
        /// `struct fib_rule_port_range` of the destination port
        dports: Bytes = FRA_DPORT_RANGE 24,
    }
}

/// A policy rule. Rules that this crate adds and deletes select only by mark, destination and incoming link.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "ip-rule")]
pub struct PolicyRule {
    /// IPv4 and IPv6 have separate rules.
    pub family: AddressFamily,
    /// `FRA_FWMARK`: the mark, compared under the mask.
    pub fwmark: Option<u32>,
    /// `FRA_FWMASK`: without it, the kernel compares all bits of the mark.
    pub fwmask: Option<u32>,
    /// `FRA_TABLE`: the table to look up.
    pub table: u32,
    /// `FRA_PRIORITY`: rules with lower numbers are evaluated first. For `None` the kernel chooses the number below the
    /// lowest one in use, not counting the rule for "local".
    pub priority: Option<u32>,
    /// `FRA_PROTOCOL`: its creator (Linux 4.17). The constructors set [`RouteProtocol::Boot`], as `ip rule add` does.
    pub protocol: RouteProtocol,
    /// The action for the packets; only [`RuleAction::Lookup`] has a table.
    pub action: RuleAction,
    /// `FRA_GOTO`: the priority of the rule with which [`RuleAction::Goto`] continues.
    pub goto: Option<u32>,
    /// `FIB_RULE_INVERT`: the rule applies to packets that its selectors do not match (`not`).
    pub not: bool,
    /// Other selectors, and conditions for routes. Only `to` and `iif` are written; a rule with others is refused.
    pub selectors: RuleSelectors,
}

impl PolicyRule {
    /// `fwmark MARK lookup TABLE`: compares all bits of the mark.
    #[must_use]
    pub fn mark(family: AddressFamily, fwmark: u32, table: u32) -> Self {
        Self {
            family,
            fwmark: Some(fwmark),
            fwmask: Some(u32::MAX),
            table,
            priority: None,
            protocol: RouteProtocol::Boot,
            action: RuleAction::Lookup,
            goto: None,
            not: false,
            selectors: RuleSelectors::default(),
        }
    }

    /// `to DESTINATION lookup TABLE`.
    #[must_use]
    pub fn to(destination: IpNet, table: u32) -> Self {
        let family = AddressFamily::of_address(destination.addr());
        let mut rule = Self::unmarked(family, table);
        rule.selectors.to = Some(destination.trunc());
        rule
    }

    /// `iif LINK lookup TABLE`. The link need not exist.
    #[must_use]
    pub fn iif(family: AddressFamily, link: &str, table: u32) -> Self {
        let mut rule = Self::unmarked(family, table);
        rule.selectors.iif = Some(link.to_owned());
        rule
    }

    fn unmarked(family: AddressFamily, table: u32) -> Self {
        Self {
            fwmark: None,
            fwmask: None,
            ..Self::mark(family, 0, table)
        }
    }

    /// Sets `priority PRIORITY`.
    #[must_use]
    pub fn at(self, priority: u32) -> Self {
        Self {
            priority: Some(priority),
            ..self
        }
    }

    /// Whether the rule has no selector besides the mark, and looks up a table.
    #[must_use]
    pub fn only_mark(&self) -> bool {
        self.action == RuleAction::Lookup && !self.not && !self.selects_more()
    }

    /// Whether the rule looks up the table that contains this route.
    #[must_use]
    pub fn leads_to(&self, route: &Route) -> bool {
        let to = (self.action, self.family, self.table);
        to == (RuleAction::Lookup, route.family(), route.table)
    }

    /// Whether the rule has another selector besides the mark, or a condition for routes.
    #[must_use]
    pub fn selects_more(&self) -> bool {
        self.selectors != RuleSelectors::default()
    }

    /// `ip -details rule` without priority, protocol and `from all`; `table` names the table.
    pub fn words(&self, table: impl Fn(u32) -> String) -> impl fmt::Display {
        fmt::from_fn(move |f| self.write(f, &table))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, table: &dyn Fn(u32) -> String) -> fmt::Result {
        if self.not {
            f.write_str("not ")?;
        }
        self.selectors.before_mark(f)?;
        if self.fwmark.is_some() || self.fwmask.is_some() {
            match self.fwmark.unwrap_or(0) {
                0 => f.write_str("fwmark 0")?,
                mark => write!(f, "fwmark {mark:#x}")?,
            }
            match self.fwmask {
                Some(u32::MAX) | None => f.write_str(" ")?,
                Some(mask) => write!(f, "/{mask:#x} ")?,
            }
        }
        self.selectors.after_mark(f)?;
        write!(f, "{}", self.action)?;
        match (self.action, self.goto) {
            (RuleAction::Lookup, _) if self.selectors.l3mdev => f.write_str(" [l3mdev-table]")?,
            (RuleAction::Lookup, _) => write!(f, " {}", table(self.table))?,
            (RuleAction::Goto, Some(priority)) => write!(f, " {priority}")?,
            _ => {}
        }
        if self.action == RuleAction::Goto && self.selectors.is_unresolved() {
            f.write_str(" [unresolved]")?;
        }
        self.selectors.after_table(f)
    }

    /// Sets `protocol PROTOCOL`, so that its writer recognizes the rule later.
    #[must_use]
    pub fn by(self, protocol: RouteProtocol) -> Self {
        Self { protocol, ..self }
    }

    /// Whether both send the same packets to the same table, regardless of protocol and priority.
    #[must_use]
    pub fn same_effect(&self, other: &Self) -> bool {
        let key = |r: &Self| {
            // Flags describe the current state, such as whether the link exists.
            let mut selectors = r.selectors.clone();
            selectors.flags = 0;
            let mark = (r.fwmark, r.fwmask);
            (r.family, mark, r.table, r.action, r.not, r.goto, selectors)
        };
        key(self) == key(other)
    }
}

impl fmt::Display for PolicyRule {
    /// Close to `ip rule show`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            self.family,
            self.words(|table| table.to_string())
        )?;
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
    /// [`crate::ErrorKind::Exhausted`] if rules kept changing; `EOPNOTSUPP` without `CONFIG_IP_MULTIPLE_TABLES`.
    pub fn rules(&self) -> Result<Vec<PolicyRule>> {
        let mut rules = self.dump_rules(0, "the policy rules")?;
        // A family that is not built in, or disabled at boot, has no rules.
        rules.sort_by_key(|rule| rule.family == AddressFamily::V6);
        Ok(rules)
    }

    /// Whether a packet that `rule` selects may not reach `later`, a rule of the same family that is evaluated after it.
    ///
    /// That is the case if `rule` finds a route (except in the table of `later` and in the table "local"), jumps beyond
    /// `later`, or has an action that ends the evaluation (`fib_rules_lookup`). Routes for local delivery and `throw` routes
    /// do not count.
    ///
    /// # Errors
    /// The routes of the table that `rule` looks up cannot be read.
    pub fn leads_past(&self, rule: &PolicyRule, later: &PolicyRule) -> Result<bool> {
        let shortest = rule.selectors.suppress_prefixlength;
        let leads = |route: &Route| {
            let is_long = |shortest| u32::from(route.dst.prefix_len()) > shortest;
            let stays = matches!(route.kind, RouteType::Throw | RouteType::Local);
            route.family() == later.family && !stays && shortest.is_none_or(is_long)
        };
        Ok(match rule.action {
            RuleAction::Lookup if [later.table, RT_TABLE_LOCAL].contains(&rule.table) => false,
            RuleAction::Lookup => self.routes(rule.table)?.iter().any(leads),
            // The kernel skips a `goto` without a target.
            RuleAction::Goto => rule.goto > later.priority && !rule.selectors.is_unresolved(),
            RuleAction::Nop => false,
            _ => true,
        })
    }

    /// `ip rule add`, unless a rule with the same effect exists: the kernel accepts any number of such rules, for example with
    /// other priorities. Returns whether the rule was added. If the rule has a priority, an existing rule counts only with the
    /// same priority, because rules between them could apply to its packets.
    ///
    /// # Errors
    /// As [`Routing::rules`]; `EPERM` without `CAP_NET_ADMIN`. Refused: the rule has selectors that are not written.
    pub fn add_rule(&self, rule: &PolicyRule) -> Result<bool> {
        let object = format!("policy rule {rule}");
        refuse_selectors("add", rule, &object)?;
        let there = self.rules_of(rule.family)?;
        let same_place =
            |there: &PolicyRule| rule.priority.is_none() || rule.priority == there.priority;
        if there
            .iter()
            .any(|there| there.same_effect(rule) && same_place(there))
        {
            return Ok(false);
        }
        self.add(RTM_NEWRULE, build(rule), &object)
    }

    /// `ip rule delete`: deletes the first rule with this mark, mask, destination, link, table and protocol, and with this
    /// priority if it is set. False if there is none.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`. Refused: the rule has selectors that are not written.
    pub fn del_rule(&self, rule: &PolicyRule) -> Result<bool> {
        let object = format!("policy rule {rule}");
        refuse_selectors("delete", rule, &object)?;
        self.delete(RTM_DELRULE, build(rule), &object)
    }

    fn rules_of(&self, family: AddressFamily) -> Result<Vec<PolicyRule>> {
        let object = format!("the {family} policy rules");
        match self.dump_rules(family.number(), &object) {
            // IPv6 is not built in, or disabled at boot: it has no rules.
            Err(e) if family == AddressFamily::V6 && e.errno() == Some(libc::EAFNOSUPPORT) => {
                Ok(Vec::new())
            }
            found => found,
        }
    }

    /// Lists rules of one family, or of all: `fib_nl_dumprule()` accepts `AF_UNSPEC` (net/core/fib_rules.c, since 2.6.22).
    fn dump_rules(&self, family: u8, object: &str) -> Result<Vec<PolicyRule>> {
        let header = FibRuleHdr {
            family,
            ..FibRuleHdr::default()
        };
        self.list(RTM_GETRULE, (header, RuleAttrs::default()), object, read)
    }
}

/// Builds a request to add or delete. The protocol prevents the kernel from deleting another writer's rule instead
/// (`rule_find()`, net/core/fib_rules.c).
pub(super) fn build(rule: &PolicyRule) -> (FibRuleHdr, RuleAttrs) {
    let small = u8::try_from(rule.table).ok();
    let to = rule.selectors.to;
    let header = FibRuleHdr {
        family: rule.family.number(),
        dst_len: to.map_or(0, |to| to.prefix_len()),
        table: small.unwrap_or(0),
        action: rule.action.into(),
        flags: if rule.not { FIB_RULE_INVERT } else { 0 },
        ..FibRuleHdr::default()
    };
    let attrs = RuleAttrs {
        dst: to.map(|to| to.addr()),
        iif: rule.selectors.iif.clone(),
        table: small.is_none().then_some(rule.table),
        fwmark: rule.fwmark,
        fwmask: rule.fwmask,
        goto: rule.goto,
        priority: rule.priority,
        protocol: Some(rule.protocol.into()),
        ..RuleAttrs::default()
    };
    (header, attrs)
}

/// Refuses selectors that are not written: without them the rule would apply to more packets, and a delete could remove another
/// writer's rule.
fn refuse_selectors(operation: &str, rule: &PolicyRule, object: &str) -> Result<()> {
    let mut rest = rule.selectors.clone();
    (rest.to, rest.iif) = (None, None);
    // The state of a listed rule is no selector.
    rest.flags &= !(FIB_RULE_UNRESOLVED | FIB_RULE_IIF_DETACHED | FIB_RULE_OIF_DETACHED);
    if rest == RuleSelectors::default() {
        return Ok(());
    }
    let reason = "only rules that select by mark, destination and incoming link are written; use `ip rule` for this one";
    Err(Error::refused(operation, object, reason))
}

/// `None` if it is not a rule of IPv4 or IPv6: multicast routing has rules of its own.
pub(super) fn read(message: &Message<FibRuleHdr>) -> Result<Option<PolicyRule>, DecodeError> {
    let header = &message.header;
    let Some(family) = AddressFamily::of(header.family) else {
        return Ok(None);
    };
    let attrs: RuleAttrs = message.decode()?;
    Ok(Some(PolicyRule {
        family,
        // For mark 0 the kernel sends only the mask, and for mask 0 nothing (`fib_nl_fill_rule()`).
        fwmark: attrs.fwmark.or(attrs.fwmask.map(|_| 0)),
        fwmask: attrs.fwmask,
        table: attrs.table.unwrap_or(u32::from(header.table)),
        priority: attrs.priority,
        protocol: attrs.protocol.unwrap_or(0).into(),
        action: header.action.into(),
        goto: attrs.goto,
        not: header.flags & FIB_RULE_INVERT != 0,
        selectors: RuleSelectors::read(header, &attrs, family)?,
    }))
}
