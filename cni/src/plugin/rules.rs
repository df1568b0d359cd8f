//! The rules of a compiled redirection, by the engine they were compiled for.

use weir_netfilter::nft;
use weir_netlink::netns::Netns;

use crate::compile::Rules;

/// The tables that belong to a redirection, whether this one needs them or not:
/// what an earlier one left in the others goes away.
const TABLES: [&str; 3] = ["istio-proxy-nat", "istio-proxy-mangle", "istio-proxy-raw"];

/// One transaction, read back and compared; a summary of what was written.
pub(super) fn apply(netns: &Netns, rules: &Rules) -> Result<String, String> {
    let ruleset = nft_ruleset(rules)?;
    let applied = engine(netns)?.apply(ruleset, &owned()).map_err(text)?;
    Ok(match applied.ops.len() {
        0 => format!("the rules were there (generation {})", applied.generation),
        count => format!(
            "{count} operations, verified (generation {})",
            applied.generation
        ),
    })
}

/// What is missing or different, one line each.
pub(super) fn verify(netns: &Netns, rules: &Rules) -> Result<Vec<String>, String> {
    let drift = engine(netns)?
        .drift(nft_ruleset(rules)?, &owned())
        .map_err(text)?;
    Ok(drift
        .ops
        .iter()
        .map(|op| format!("needs: {op}"))
        .collect())
}

/// Whether this process may read nf_tables on this kernel at all. Asks for the
/// generation of the ruleset, which changes nothing.
pub(super) fn probe() -> Result<(), String> {
    nft::Engine::open()
        .and_then(|mut engine| engine.generation())
        .map(|_| ())
        .map_err(text)
}

/// The rules as text.
pub(super) fn print(rules: &Rules) -> String {
    match rules {
        Rules::Nft(ruleset) => ruleset.to_string(),
        Rules::Xtables(ruleset) => ruleset.to_string(),
    }
}

fn nft_ruleset(rules: &Rules) -> Result<&nft::Ruleset, String> {
    match rules {
        Rules::Nft(ruleset) => Ok(ruleset),
        Rules::Xtables(_) => Err("this version writes nf_tables only, not legacy tables; \
                                  set native_nftables to true"
            .into()),
    }
}

/// A socket that was opened in the namespace stays there.
fn engine(netns: &Netns) -> Result<nft::Engine, String> {
    netns.run(nft::Engine::open).map_err(text)?.map_err(text)
}

fn owned() -> Vec<nft::TableId> {
    TABLES
        .iter()
        .map(|name| (nft::Family::Inet, (*name).to_owned()))
        .collect()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
