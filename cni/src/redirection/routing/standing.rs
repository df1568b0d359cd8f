//! The status of a desired item: whether the kernel holds it, and whether packets reach it.
//!
//! A policy rule before ours takes marked packets if it selects our mark, all packets, or all packets except some (`not`),
//! and looks up another table, drops the packets, or jumps behind our rule. A route takes them if it is in our table and
//! more specific than ours, or before ours. Policy rules with other selectors than the mark (`from`, `iif`) that do not
//! select our mark block nothing, unless they lead packets without a mark into our table, where every address is local;
//! some of them are a hindrance.
//!
//! A policy rule without a given priority is added before foreign rules that take its packets or, if the caller asked for
//! it ([`Held::past`]), lead them past the proxy: the kernel places a new rule there, too.

use super::{Held, rule_of, tables};
use crate::compile::RoutingItem;
use crate::redirection::Change;
use weir_netlink::route::{PolicyRule, RT_TABLE_LOCAL, Route, RuleAction};

impl Held {
    /// Returns the changes for items that do not exist or have no effect.
    pub(in crate::redirection) fn missing(&self, items: &[RoutingItem]) -> Vec<Change> {
        let change = |item: &RoutingItem| match self.holds(item) {
            Ok(true) => {
                let by = "policy rule leads replies past the proxy".to_owned();
                Some(Change::Overtake(self.overtaking(item)?, by))
            }
            Ok(false) => Some(Change::Add(item.clone())),
            Err(by) => Some(match self.overtaking(item) {
                Some(first) => Change::Overtake(first, by),
                None => Change::Blocked(item.clone(), by),
            }),
        };
        items.iter().filter_map(change).collect()
    }

    /// The items, with the priority of each policy rule that must be placed before foreign ones. The rule behind those then
    /// differs from the desired one.
    pub(super) fn placed(&self, items: &[RoutingItem]) -> Vec<RoutingItem> {
        let placed = |item: &RoutingItem| self.overtaking(item).unwrap_or_else(|| item.clone());
        items.iter().map(placed).collect()
    }

    /// Returns true if the item, or one with the same effect, exists.
    ///
    /// # Errors
    /// The foreign item that takes its packets.
    fn holds(&self, item: &RoutingItem) -> Result<bool, String> {
        match item {
            // The kernel holds an address only once per link, with any prefix length.
            RoutingItem::Address(net) => {
                let mut on_lo = self.on_lo();
                Ok(on_lo.any(|a| a.net.addr() == net.addr() && !a.tentative))
            }
            RoutingItem::PolicyRule(rule) => self.rule(rule),
            RoutingItem::LocalDefault(route) => self.route(route),
        }
    }

    /// For a policy rule that exists behind foreign rules which take its packets: the rule with the priority that the kernel
    /// would choose for a new one, before those rules. `None` if the item is not such a rule, has a fixed priority, or the
    /// kernel would not place it before all of them (`fib_default_rule_pref()`, net/core/fib_rules.c).
    fn overtaking(&self, item: &RoutingItem) -> Option<RoutingItem> {
        let rule = rule_of(item).filter(|rule| rule.priority.is_none())?;
        let (before, here) = self.before(rule)?;
        let mut of_family = self.rules.iter().filter(|r| r.family == rule.family);
        let place = of_family.nth(1)?.priority.unwrap_or(0).saturating_sub(1);
        let is_behind = |r: &PolicyRule| r.priority.unwrap_or(0) > place;
        let mut taking = before
            .iter()
            .filter(|r| self.leads_away(r, here) || self.past.contains(r));
        let is_possible = taking.next().is_some_and(is_behind) && taking.all(is_behind);
        is_possible.then(|| RoutingItem::PolicyRule(rule.clone().at(place)))
    }

    fn rule(&self, desired: &PolicyRule) -> Result<bool, String> {
        let (before, here) = self.ahead(desired);
        match before.iter().find(|r| self.leads_away(r, here)) {
            Some(r) => Err(format!("policy rule {r} takes its packets")),
            None => Ok(self.before(desired).is_some()),
        }
    }

    /// The rules before the desired one, and the desired one: as found, or as it will be added. The kernel inserts a rule
    /// without a priority before all others, so only rules added later can be before it.
    fn ahead<'h>(&'h self, desired: &'h PolicyRule) -> (&'h [PolicyRule], &'h PolicyRule) {
        self.before(desired).unwrap_or_else(|| {
            let is_before =
                |r: &PolicyRule| r.family != desired.family || r.priority <= desired.priority;
            let behind = self.rules.iter().position(|r| !is_before(r));
            let end = desired.priority.map(|_| behind.unwrap_or(self.rules.len()));
            (
                self.rules.get(..end.unwrap_or(0)).unwrap_or_default(),
                desired,
            )
        })
    }

    /// True if the earlier rule `r` takes packets of the desired rule `here`.
    fn leads_away(&self, r: &PolicyRule, here: &PolicyRule) -> bool {
        match takes(r, here) {
            Takes::Marked => true,
            // If the lookup finds no route, the next rule applies.
            Takes::All => {
                let mut routes = self.routes.iter();
                routes.any(|there| (there.table, there.family()) == (r.table, r.family))
            }
            Takes::Others => false,
        }
    }

    /// The first rule with the same effect as the desired one, and the rules before it; `None` if there is no such rule.
    fn before(&self, desired: &PolicyRule) -> Option<(&[PolicyRule], &PolicyRule)> {
        let at = self.rules.iter().position(|r| r.same_effect(desired))?;
        Some((self.rules.get(..at)?, self.rules.get(at)?))
    }

    /// The tables in which rules before the desired ones look up every packet.
    pub(super) fn tables_before(&self, items: &[RoutingItem]) -> Vec<u32> {
        let known = tables(items);
        let leads = items.iter().filter_map(rule_of).flat_map(|desired| {
            let (before, here) = self.ahead(desired);
            let all = |r: &&PolicyRule| matches!(takes(r, here), Takes::All);
            before.iter().filter(all)
        });
        let mut tables: Vec<u32> = leads.map(|r| r.table).collect();
        tables.sort_unstable();
        tables.dedup();
        tables.retain(|table| !known.contains(table));
        tables
    }

    /// Like [`Held::holds`]. The kernel uses the most specific route, and the first of those with the same destination.
    fn route(&self, desired: &Route) -> Result<bool, String> {
        let here = |r: &&Route| (r.table, r.family()) == (desired.table, desired.family());
        let is_local = |r: &Route| {
            Route {
                dst: desired.dst,
                ..r.clone()
            }
            .same_effect(desired)
        };
        let mut specific = self.routes.iter().filter(here);
        if let Some(r) = specific.find(|r| r.dst != desired.dst && !is_local(r)) {
            return Err(format!("route {r} takes its packets"));
        }
        let takes = |r: &&PolicyRule| takes_unmarked(r, desired) && !self.owns_rule(r);
        if let Some(r) = self.rules.iter().find(takes) {
            return Err(format!(
                "policy rule {r} leads other packets into its table"
            ));
        }
        let mut same = self
            .routes
            .iter()
            .filter(here)
            .filter(|r| r.dst == desired.dst);
        match same.next() {
            Some(r) if r.same_effect(desired) => Ok(true),
            Some(r) if r.metric() <= desired.metric() || same.any(|r| r.same_effect(desired)) => {
                Err(format!("route {r} takes its packets"))
            }
            _ => Ok(false),
        }
    }
}

/// Packets of a desired rule that another rule takes.
enum Takes {
    /// Its marked packets, whatever the action.
    Marked,
    /// Every packet for which its table has a route.
    All,
    /// None, or packets selected by other keys than the mark.
    Others,
}

/// True if a rule leads packets without a mark, such as all of the pod's own, to the table of this route.
fn takes_unmarked(r: &PolicyRule, route: &Route) -> bool {
    let matches = r.fwmark.unwrap_or(0) & r.fwmask.unwrap_or(u32::MAX) == 0;
    let is_there = (r.family, r.table) == (route.family(), route.table);
    // `not` inverts all selectors together.
    let selects = match (matches, r.not) {
        (true, false) => !r.selects_more(),
        (true, true) => r.selects_more(),
        (false, not) => not,
    };
    is_there && r.action == RuleAction::Lookup && selects
}

/// True if rule `r` takes packets of the desired rule `here`: by their mark, or along with all others.
pub(in crate::redirection) fn leads_away(r: &PolicyRule, here: &PolicyRule) -> bool {
    !matches!(takes(r, here), Takes::Others)
}

/// Determines which packets of `here`, the desired rule as found, rule `r` takes.
fn takes(r: &PolicyRule, here: &PolicyRule) -> Takes {
    if r.family != here.family {
        return Takes::Others;
    }
    let mask = r.fwmask.unwrap_or(u32::MAX);
    let mark = r.fwmark.filter(|_| mask != 0);
    let is_ours = mark.map(|mark| mark & mask == here.fwmark.unwrap_or(0) & mask);
    let selected = match (is_ours, r.not) {
        // `not` inverts all selectors together: the packets that another selector does not match are most packets.
        (Some(is_ours), true) => !is_ours || r.selects_more(),
        (None, true) => r.selects_more(),
        (Some(is_ours), false) => is_ours,
        (None, false) => !r.selects_more(),
    };
    if !selected {
        return Takes::Others;
    }
    match r.action {
        RuleAction::Lookup if r.table == here.table => Takes::Others,
        RuleAction::Lookup if is_ours == Some(true) && !r.not => Takes::Marked,
        RuleAction::Lookup if r.table == RT_TABLE_LOCAL => Takes::Others,
        RuleAction::Lookup => Takes::All,
        // The target is after the desired rule, which is skipped.
        RuleAction::Goto if r.goto > here.priority => Takes::Marked,
        RuleAction::Goto | RuleAction::Nop => Takes::Others,
        _ => Takes::Marked,
    }
}
