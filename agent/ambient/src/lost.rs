//! Distinguishes a redirection that another program has changed from one that was never there, or has another form.
//!
//! Nobody watches the rules of a pod while no agent runs. The next agent knows that the pod was captured, but not in which
//! sandbox, by which version, and with which settings.

use crate::TABLES;
use crate::redirect::{Redirect, VERSION};
use weir_cni::redirection::{Change, Difference, Visit};
use weir_netfilter::nft::{NftEngine, Ruleset, TableFamily};
use weir_netlink::Result;

/// Files that list the legacy tables of the thread's network namespace. They stay when all rules are deleted.
const TABLE_NAMES: [&str; 2] = [
    "/proc/thread-self/net/ip_tables_names",
    "/proc/thread-self/net/ip6_tables_names",
];
/// The generation of nf_tables in a namespace in which nothing was committed yet.
const FIRST_GENERATION: u32 = 1;

impl Redirect {
    /// Returns true if the redirection of a pod that was captured before was removed or changed by another program, in the
    /// visited namespace. False for a new sandbox, in which no rules were written yet, for rules of another version of weir or
    /// of Istio's agent, and for rules that are in sync with other settings.
    ///
    /// `found` are the differences from `self` as `compile` compiles it; `None`: no owned rules exist. If something cannot be read,
    /// the answer is true.
    pub fn is_lost(
        &self,
        visit: &Visit<'_>,
        found: Option<&[Change]>,
        compile: impl Fn(&Self) -> weir_cni::compile::Compiled,
    ) -> bool {
        let Some(found) = found else {
            return was_written().unwrap_or(true);
        };
        // What only a foreign object blocks was not removed.
        if found.iter().all(|c| matches!(c, Change::Blocked(..))) {
            return false;
        }
        let is_missing = |change: &Change| change.difference() == Difference::Missing;
        let is_of_this_form = match versions() {
            // Legacy rules: those of another form would be replaced.
            Ok(versions) if versions.is_empty() => found.iter().all(is_missing),
            Ok(versions) => versions.iter().all(|version| *version == Some(VERSION)),
            Err(_) => true,
        };
        let is_in_sync = |other: &Self| {
            let found = visit.differences(&compile(other));
            found.is_ok_and(|found| found.iter().all(Change::stays))
        };
        is_of_this_form && !self.other_settings().iter().any(is_in_sync)
    }

    /// The same pod with other settings of the node, or other annotations.
    fn other_settings(&self) -> Vec<Self> {
        let all = (1..8_u8).map(|bits| {
            let is_on = |bit: u8| bits & bit != 0;
            let mut other = self.clone();
            other.dns ^= is_on(1);
            other.ingress ^= is_on(2);
            other.config.enable_ipv6 ^= is_on(4);
            other
        });
        all.collect()
    }
}

/// The versions of the owned tables of nf_tables in the network namespace of the thread.
fn versions() -> Result<Vec<Option<u32>>> {
    let owned = TABLES.map(|name| (TableFamily::Inet, name.to_owned()));
    // Without the contents of the tables.
    let nothing = Ruleset { tables: Vec::new() };
    let found = NftEngine::open()?.read_for(&nothing, &owned)?;
    Ok(found.ruleset.tables.iter().map(|t| t.version).collect())
}

/// Returns true if some program has written rules in the network namespace of the thread since it exists.
fn was_written() -> Result<bool> {
    let has_names = |path: &&str| std::fs::read(path).is_ok_and(|names| !names.is_empty());
    if TABLE_NAMES.iter().any(has_names) {
        return Ok(true);
    }
    match NftEngine::open().and_then(|mut engine| engine.generation()) {
        Ok(generation) => Ok(generation != FIRST_GENERATION),
        // Such a kernel has no rules of nf_tables.
        Err(e) if e.is_unsupported() => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AMBIENT, Config, PodOverrides};
    use weir_cni::compile::Engine;
    use weir_cni::redirection::{Desired, Sandbox};
    use weir_testing::tool::output;

    /// Every setting differs from that of the rules that exist.
    #[test]
    fn only_what_another_program_has_changed_is_lost() {
        let sandbox = Sandbox::of(weir_testing::namespace_or_skip!()).unwrap();
        let run = |command: &str| assert_eq!(output(sandbox.netns(), command), "");
        run("ip link set lo up");
        let redirect =
            |config: &Config| Redirect::new(config.clone(), &PodOverrides::default()).unwrap();
        let (old, new) = (
            redirect(&Config::default()),
            redirect(&Config {
                enable_ipv6: true,
                redirect_dns: true,
                ..Config::default()
            }),
        );
        for engine in [Engine::Nft, Engine::Xtables] {
            let compile = |redirect: &Redirect| redirect.compile(engine);
            let is_lost = |redirect: &Redirect| {
                let look = |visit: &Visit<'_>| {
                    let in_use = visit.engine_in_use().unwrap();
                    let found = in_use.map(|_| visit.differences(&compile(redirect)).unwrap());
                    redirect.is_lost(visit, found.as_deref(), compile)
                };
                sandbox.visit_for(&AMBIENT, look).unwrap()
            };
            if engine == Engine::Nft {
                assert!(!is_lost(&new), "nothing was written yet");
            }
            sandbox.apply(&compile(&old)).unwrap();
            assert!(!is_lost(&new), "another setting");
            run(match engine {
                Engine::Nft => "nft flush chain inet istio-ambient-nat istio-output",
                Engine::Xtables => "iptables-legacy -t nat -F ISTIO_OUTPUT",
            });
            assert!(is_lost(&new) && is_lost(&old), "an empty chain");
            run(match engine {
                Engine::Nft => "nft flush ruleset",
                Engine::Xtables => "iptables-legacy -t nat -F",
            });
            assert!(is_lost(&new) && is_lost(&old), "no rules");
            sandbox.clean(Some(&compile(&old))).unwrap();
        }
    }
}
