//! Explains a refused batch: which operation, which attribute, what the kernel lacks.

use super::NftOp;
use crate::features::Feature;
use crate::features::families::FAMILIES;
use crate::nft::context::Context;
use crate::nft::expr::{Expr, FEATURES};
use crate::nft::linearize;
use crate::nft::model::Rule;
use weir_netlink::Error;
use weir_netlink::attr::Step;
use weir_netlink::nfnetlink::Refusal;

/// The reason of EPERM for one operation.
const OWNED: &str = "a process that keeps its socket open owns the table (NFT_TABLE_F_OWNER), and no other may change it; end that \
    process, such as `nft -i`";

/// The error for the first failure.
pub(super) fn explain(refusals: &[Refusal], ops: &[NftOp], origin: &[usize]) -> Error {
    let Some(first) = refusals.first() else {
        return Error::malformed("apply", "the batch", "refused without a reason");
    };
    let op = first
        .index
        .and_then(|i| origin.get(i))
        .and_then(|o| ops.get(*o));
    let object = op.map_or_else(|| "the batch".to_owned(), ToString::to_string);
    // Without CAP_NET_ADMIN the kernel refuses the batch as a whole (`nfnetlink_rcv`), and an operation only for this
    // (`nft_table_lookup`).
    if op.is_some() && first.errno == libc::EPERM {
        return Error::refused("apply", object, OWNED);
    }
    if let Some(lacking) = op.and_then(|op| lacking(op, first)) {
        return Error::unsupported("apply", object, format!("this kernel lacks {lacking}"));
    }
    first.clone().into_error("apply", object)
}

/// The option and module that provide an expression; `None` if it is part of nf_tables.
fn given_by(expression: &str) -> Option<String> {
    Feature::find(FEATURES, &format!("expression {expression}"))?.given_by()
}

/// Whether the extended ack points at the chain's type, or at no attribute, as in old kernels.
fn of_chain_type(f: &Refusal) -> bool {
    let Some(step) = f.attribute.as_ref().and_then(|path| path.steps().last()) else {
        return true;
    };
    matches!(
        step,
        Step::Attribute {
            name: Some("NFTA_CHAIN_TYPE"),
            ..
        }
    )
}

/// The expressions that name an object, a set or a flowtable.
const REFERRING: &[&str] = &["dynset", "flow_offload", "lookup", "objref"];

/// The feature that this kernel lacks: it refused an expression's name with `ENOENT`, or a chain's type with `EOPNOTSUPP` or
/// `ENOENT`. `None` for other refusals.
fn lacking(op: &NftOp, f: &Refusal) -> Option<String> {
    // A chain without a name; a rule that is too long gets the same answer.
    let refused_own = |op: &NftOp| match op {
        NftOp::AddRule(id, _, rule, _) => {
            let is_short = |r: &Rule| r.expressions(id.0).len() <= Rule::MAX_EXPRESSIONS;
            rule.chain.is_some() && rule.with_own().all(is_short)
        }
        _ => false,
    };
    if f.errno == libc::EINVAL && f.attribute.is_none() && refused_own(op) {
        return Some("chains of rules (`jump { ... }`): Linux 5.9".to_owned());
    }
    if !matches!(
        f.errno,
        libc::ENOENT | libc::EOPNOTSUPP | libc::EAFNOSUPPORT
    ) {
        return None;
    }
    match op {
        NftOp::AddRule(id, _, rule, _) => {
            let steps = f.attribute.as_ref()?.steps();
            let named = steps.iter().find_map(|step| match step {
                Step::Kind(name) if Expr::KNOWN.contains(&name.as_str()) => Some(name.clone()),
                _ => None,
            });
            // The kernel may point at the expression as a whole, by its index.
            let placed = || {
                let Some(Step::Element(place)) = steps.last() else {
                    return None;
                };
                // The refused rule may be one of its chain.
                if rule.chain.is_some() {
                    return None;
                }
                let exprs = linearize::rule(rule, Context::of(id.0)).exprs;
                let name = exprs.get(*place)?.name().to_owned();
                given_by(&name).map(|_| name)
            };
            let name = named.or_else(placed)?;
            // If it does not point at the name of such an expression, the object that it refers to does not exist.
            let at_name = matches!(
                steps.last(),
                Some(Step::Attribute {
                    name: Some("NFTA_EXPR_NAME"),
                    ..
                })
            );
            if f.errno == libc::ENOENT && !at_name && REFERRING.contains(&name.as_str()) {
                return None;
            }
            let option = given_by(&name).unwrap_or_else(|| "a newer kernel".to_owned());
            Some(format!("the expression {name}: {option}"))
        }
        // For a device or a table that no longer exists the kernel answers ENOENT too, and points at that attribute.
        NftOp::AddChain((family, _), c) if of_chain_type(f) => {
            let kind = c.base.as_ref()?.chain_type.as_str();
            let row = Feature::find(FAMILIES, &format!("chain {family} {kind}"))?;
            let (option, since) = (row.given_by()?, row.since);
            Some(format!(
                "chains of type {kind} in {family} tables: {option}, Linux {since}"
            ))
        }
        // Since 5.18 `EOPNOTSUPP` (`nft_supported_family`), which is also the answer to an unknown flag. Before, the table is
        // accepted, and its chains are refused.
        NftOp::AddTable(t) if f.errno != libc::ENOENT && t.flags == 0 && f.attribute.is_none() => {
            let row = Feature::find(FAMILIES, &format!("family {}", t.family))?;
            Some(format!("{} tables: {}", t.family, row.given_by()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{NftOp, Refusal, lacking};
    use crate::nft::model::{Chain, ChainType, Counter, Hook, Rule, Statement, Table, TableFamily};
    use crate::nft::raw;

    #[test]
    fn a_missing_family_and_a_missing_type_of_chain_name_their_option() {
        let refusal = |errno| Refusal {
            index: Some(0),
            errno,
            extack: None,
            attribute: None,
            echo: Vec::new(),
        };
        let mut table = Table::new(TableFamily::Ip, "t");
        for errno in [libc::EOPNOTSUPP, libc::EAFNOSUPPORT] {
            let said = lacking(&NftOp::AddTable(table.clone()), &refusal(errno));
            assert_eq!(said.as_deref(), Some("ip tables: CONFIG_NF_TABLES_IPV4"));
        }
        // The flag may be the reason.
        table.flags = raw::NFT_TABLE_F_DORMANT;
        let said = lacking(&NftOp::AddTable(table), &refusal(libc::EOPNOTSUPP));
        assert_eq!(said, None);
        for (family, option) in [(TableFamily::Ip, "IPV4"), (TableFamily::Ip6, "IPV6")] {
            let chain = Chain::base("c", ChainType::Filter, Hook::Output, 0);
            let op = NftOp::AddChain((family, "t".to_owned()), chain);
            let said = lacking(&op, &refusal(libc::ENOENT));
            let text = format!(
                "chains of type filter in {family} tables: CONFIG_NF_TABLES_{option}, Linux 3.13"
            );
            assert_eq!(said, Some(text));
        }
        let chain = Chain::base("c", ChainType::Nat, Hook::Output, 0);
        let op = NftOp::AddChain((TableFamily::Inet, "t".to_owned()), chain);
        let said = lacking(&op, &refusal(libc::ENOENT));
        let text =
            "chains of type nat in inet tables: CONFIG_NFT_NAT (module nft_chain_nat), Linux 5.2";
        assert_eq!(said.as_deref(), Some(text));
    }

    #[test]
    fn a_rule_that_is_too_long_does_not_need_another_kernel() {
        let refusal = Refusal {
            index: Some(0),
            errno: libc::EINVAL,
            extack: None,
            attribute: None,
            echo: Vec::new(),
        };
        let says = |inner: usize, outer: usize| {
            let counters = |count| vec![Statement::Counter(Counter::default()); count];
            let mut rule = Rule::builder().jump("");
            rule.statements.splice(0..0, counters(outer));
            rule.chain = Some(vec![Rule {
                statements: counters(inner),
                ..Rule::default()
            }]);
            let table = (TableFamily::Inet, "t".to_owned());
            lacking(&NftOp::AddRule(table, "c".to_owned(), rule, None), &refusal)
        };
        let most = Rule::MAX_EXPRESSIONS;
        assert!(says(most, most - 1).is_some_and(|text| text.contains("Linux 5.9")));
        assert_eq!(says(most + 1, 0), None);
        assert_eq!(says(0, most), None);
    }
}
