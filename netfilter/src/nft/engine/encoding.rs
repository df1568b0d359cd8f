//! Differences between the expressions of rules that print the same text.

use super::plan::canonical;
use crate::nft::expr::Expr;
use crate::nft::listing::rule_text;
use crate::nft::model::{Rule, TableFamily};
use std::collections::BTreeMap;
use weir_netlink::attr::Attrs;

/// A rule as `nft list ruleset` prints it, with its counters at zero.
#[must_use]
pub fn text_without_counters(rule: &Rule, family: TableFamily) -> String {
    rule_text(&rule.without_counters(), family)
}

/// The first difference between the expressions of a rule in the kernel and those of a desired rule that prints the same
/// text: other tools encode the same rule with other expressions. `None` if the texts differ, or the expressions are equal.
#[must_use]
pub fn other_encoding(found: &Rule, desired: &Rule, family: TableFamily) -> Option<String> {
    let (listed, wanted) = (found.without_counters(), canonical(desired, family));
    if text_without_counters(&listed, family) != text_without_counters(desired, family)
        || listed == wanted
    {
        return None;
    }
    Some(difference(&listed, &wanted, family))
}

/// The first difference between their expressions, or between rules of their own chains.
fn difference(found: &Rule, desired: &Rule, family: TableFamily) -> String {
    let (listed, wanted) = (found.expressions(family), desired.expressions(family));
    if listed == wanted
        && let (Some(own), Some(desired)) = (&found.chain, &desired.chain)
        && let Some((n, (a, b))) = own
            .iter()
            .zip(desired)
            .enumerate()
            .find(|(_, (a, b))| a != b)
    {
        let inside = difference(a, b, family);
        return format!("{inside} of rule {} of its chain", n + 1);
    }
    let at = listed
        .iter()
        .zip(&wanted)
        .take_while(|(a, b)| a == b)
        .count();
    match (listed.get(at), wanted.get(at)) {
        (Some(a), Some(b)) if a.name() == b.name() => {
            format!(
                "{} in expression {} ({})",
                attributes(a, b),
                at + 1,
                a.name()
            )
        }
        (Some(a), Some(b)) => {
            format!("expression {} is {}, not {}", at + 1, a.name(), b.name())
        }
        (Some(a), None) => format!("expression {} ({}) is one too many", at + 1, a.name()),
        (None, Some(b)) => format!("expression {} ({}) is missing", at + 1, b.name()),
        (None, None) => "the set that a lookup names".to_owned(),
    }
}

/// The attributes in which two expressions of one name differ, by their C names.
fn attributes(a: &Expr, b: &Expr) -> String {
    let of = |e: &Expr| -> BTreeMap<u16, Vec<u8>> {
        let data = e.data();
        let attrs = Attrs::new(&data).filter_map(Result::ok);
        attrs.map(|a| (a.number, a.payload.to_vec())).collect()
    };
    let (left, right) = (of(a), of(b));
    let numbers = left.keys().chain(right.keys());
    let mut differing: Vec<u16> = numbers
        .filter(|n| left.get(n) != right.get(n))
        .copied()
        .collect();
    differing.sort_unstable();
    differing.dedup();
    let name = |n: &u16| match a.attribute_name(*n) {
        Some(name) => name.to_owned(),
        None => format!("attribute {n}"),
    };
    match differing.is_empty() {
        true => "unknown attributes".to_owned(),
        false => differing.iter().map(name).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::difference;
    use crate::nft::model::{CmpOp, Rule, TableFamily};

    #[test]
    fn a_difference_in_its_own_chain_is_found() {
        let leading = |rules: [Rule; 2]| Rule {
            chain: Some(rules.to_vec()),
            ..Rule::builder().jump("")
        };
        let mark = |mark| Rule::builder().mark(CmpOp::Eq, mark).build();
        let [found, desired] = [2, 3].map(|last| leading([mark(1), mark(last)]));
        let found = difference(&found, &desired, TableFamily::Inet);
        assert_eq!(
            found,
            "NFTA_CMP_DATA in expression 2 (cmp) of rule 2 of its chain"
        );
    }
}
