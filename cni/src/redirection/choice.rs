//! Chooses the engine for an intent when none is configured.
//!
//! The engine that the namespace already uses; else nf_tables, if this kernel has the features that the *intent*
//! needs; else legacy tables, on the same condition. The needs are derived from the compiled rules ([`needs`]), so
//! the choice, `weir preflight` and error messages use the same rows of the probes.
//!
//! [`Visit::choose_engine`] probes first, in a temporary namespace and without loading a module. That costs a
//! namespace and a dozen trials, more than writing the rules. So [`Visit::apply_intent`] writes to nf_tables and
//! probes only if the kernel reports a missing feature, in which case nothing was changed.

use super::engines::Found;
use super::scheme::Desired;
use super::{Failure, Visit};
use crate::compile::{Compiled, Engine, RoutingItem, Rules};
use crate::redirection::Change;
use std::time::Duration;
use weir_netfilter::probe::{
    Finding, RunningKernel,
    needs::{self, Needs},
};
use weir_netlink::{Error, InForce, Netns, Result};

/// An engine, and whether it is already in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The engine.
    pub(super) engine: Engine,
    /// True if the engine holds owned rules, so the choice is final.
    pub(super) is_in_use: bool,
}

impl Choice {
    /// True if legacy tables can still be chosen instead.
    fn is_open(self) -> bool {
        self.engine == Engine::Nft && !self.is_in_use
    }
}

/// The result of [`Visit::apply_intent`].
#[derive(Debug)]
pub struct AppliedRedirection {
    /// The engine that holds the rules now.
    pub engine: Engine,
    /// The changes; empty when the namespace was in sync.
    pub changes: Vec<Change>,
    /// Objects of another writer in our tables: they stay, and [`Sandbox::verify`](super::Sandbox::verify) reports them.
    pub kept: Vec<Change>,
    /// Time spent on reading the rules back; `None` if nothing was written.
    pub read_back: Option<Duration>,
    /// Time spent waiting for the lock of the iptables tools; `None` if it was not taken, as in a pod's network namespace.
    pub lock_wait: Option<Duration>,
    /// The nf_tables generation at which the rules were read back; `None` for legacy tables.
    pub(super) generation: Option<u32>,
    /// The addresses, policy rules and routes that are in force.
    pub(super) routing: Vec<RoutingItem>,
}

impl Compiled {
    /// Returns the kernel features that the rules need, as keys of the rows of `weir preflight`.
    #[must_use]
    pub fn needs(&self) -> Needs {
        match &self.rules {
            Rules::Nft(ruleset) => needs::of_nft(ruleset),
            Rules::Xtables(ruleset) => needs::of_xtables(ruleset),
        }
    }
}

impl Visit<'_> {
    /// Chooses the engine to use when none is configured: the one in use, else nf_tables if the kernel has the features
    /// that the intent needs, else legacy tables. Changes nothing and loads no module.
    ///
    /// # Errors
    /// Both engines lack features that the intent needs: the error names them and the kernel options that provide them.
    /// The kernel does not permit this process to read.
    pub fn choose_engine<D: Desired>(&self, intent: &D) -> Result<Engine> {
        let preferred = self.found()?.choice()?;
        if !preferred.is_open() {
            return Ok(preferred.engine);
        }
        let lacks = |engine| lacking(&self.possible(&intent.compile_chosen(engine)));
        let nft = lacks(Engine::Nft);
        if nft.is_empty() {
            return Ok(Engine::Nft);
        }
        let xtables = lacks(Engine::Xtables);
        if xtables.is_empty() {
            return Ok(Engine::Xtables);
        }
        Err(self.served_by_none(&words(&nft), &words(&xtables)))
    }

    /// Returns the engine that holds owned rules in the namespace; `None` if there are none, or the kernel has neither engine.
    ///
    /// # Errors
    /// The kernel does not permit this process to read.
    pub fn engine_in_use(&self) -> Result<Option<Engine>> {
        self.found()?.in_use()
    }

    /// Returns the engine to try first, and whether it is in use: the one that holds owned rules, else nf_tables if the
    /// kernel has them, else legacy tables. Cheaper than [`Visit::choose_engine`], and sufficient for a comparison: without
    /// owned rules all of them are missing, for either engine.
    ///
    /// # Errors
    /// The kernel has neither engine, or does not permit this process to read.
    pub fn engine_to_try(&self) -> Result<(Engine, bool)> {
        let Choice { engine, is_in_use } = self.found()?.choice()?;
        Ok((engine, is_in_use))
    }

    /// Returns the engine to compare with, and the one in use. The first is `named`, else that of [`Visit::engine_to_try`].
    /// With a named engine the engine in use need not be readable: the comparison reports what failed.
    ///
    /// # Errors
    /// Without a named engine, as [`Visit::engine_to_try`].
    pub fn engine_to_compare(&self, named: Option<Engine>) -> Result<(Engine, InUse)> {
        to_compare(named, self.engine_to_try())
    }

    /// Compiles for `engine`, or for the chosen engine ([`Desired::compile_for`]), and applies as
    /// [`Sandbox::apply`](super::Sandbox::apply) does.
    ///
    /// # Errors
    /// As [`Sandbox::apply`](super::Sandbox::apply) and [`Visit::choose_engine`].
    pub fn apply_intent<D: Desired>(
        &self,
        intent: &D,
        engine: Option<Engine>,
    ) -> Result<AppliedRedirection, Failure> {
        self.write(intent, engine, |desired, found| {
            self.apply_beside(desired, found)
        })
    }

    /// Compiles for `engine`, or for the chosen engine, and calls `write`.
    pub(super) fn write<D: Desired, T>(
        &self,
        intent: &D,
        engine: Option<Engine>,
        write: impl Fn(&Compiled, Found) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let with = |chosen, found| write(&intent.compile_for(engine, chosen), found);
        let found = self.found()?;
        if let Some(engine) = engine {
            return with(engine, found);
        }
        let preferred = found.choice()?;
        match with(preferred.engine, found) {
            Err(refused) if is_lack(&refused) && preferred.is_open() => {
                // nf_tables need no probing: the kernel refused the rules.
                let lacking = lacking(&self.possible(&intent.compile_chosen(Engine::Xtables)));
                if lacking.is_empty() {
                    return with(Engine::Xtables, self.found()?);
                }
                let refused = refused.reason.to_string();
                Err(self.served_by_none(&refused, &words(&lacking)).into())
            }
            done => done,
        }
    }

    fn served_by_none(&self, nft: &str, xtables: &str) -> Error {
        let reason =
            format!("neither engine supports it here; nf_tables: {nft}; legacy tables: {xtables}");
        let object = self.sandbox().netns().id().to_string();
        Error::unsupported("choose an engine for", object, reason)
    }
}

/// True if the kernel lacks a feature and the namespace is unchanged.
fn is_lack(failure: &Failure) -> bool {
    let is_undone = failure.in_force == InForce::No && failure.rest.is_empty();
    is_undone && failure.reason.is_unsupported()
}

/// The features for these rules that the kernel certainly lacks. Excludes features that cannot be probed: the attempt
/// to write shows whether they exist.
fn lacking(compiled: &Compiled) -> Vec<Finding> {
    let (needs, kernel) = (compiled.needs(), RunningKernel::read());
    let found = Netns::create().and_then(|ns| ns.run(|| needs::findings(&kernel, &needs)));
    let mut found = found.unwrap_or_default();
    found.retain(|finding| finding.answer.is_lack());
    found
}

/// Formats the findings, for example `no expression tproxy: CONFIG_NFT_TPROXY (module nft_tproxy)`.
fn words(lacking: &[Finding]) -> String {
    let one = |f: &Finding| format!("no {}: {}", f.feature, f.given_by());
    lacking.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The engine that holds owned rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InUse {
    /// No engine holds owned rules.
    None,
    /// This engine holds them.
    By(Engine),
    /// The rules cannot be read.
    Unknown,
}

impl InUse {
    /// Returns the engine that is known to hold rules.
    #[must_use]
    pub fn engine(self) -> Option<Engine> {
        match self {
            Self::By(engine) => Some(engine),
            Self::None | Self::Unknown => None,
        }
    }
}

/// Implements [`Visit::engine_to_compare`]; `found` is the result of [`Visit::engine_to_try`].
fn to_compare(named: Option<Engine>, found: Result<(Engine, bool)>) -> Result<(Engine, InUse)> {
    match (named, found) {
        (Some(named), Err(_)) => Ok((named, InUse::Unknown)),
        (named, Ok((engine, true))) => Ok((named.unwrap_or(engine), InUse::By(engine))),
        (named, Ok((engine, false))) => Ok((named.unwrap_or(engine), InUse::None)),
        (None, Err(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile;
    use crate::config::{Dns, Intent, texts};
    use weir_netfilter::probe::{Answer, nft, xtables};

    fn compiled(engine: Engine, change: impl FnOnce(&mut Intent)) -> Compiled {
        let mut intent = Intent {
            proxy_uids: texts::ids("1337"),
            proxy_gids: texts::ids("1337"),
            inbound: texts::inbound("*"),
            ..Intent::default()
        };
        change(&mut intent);
        compile(&intent, engine)
    }

    fn tproxy(intent: &mut Intent) {
        intent.mode = texts::tproxy();
    }

    fn everything(intent: &mut Intent) {
        tproxy(intent);
        intent.enable_ipv6 = true;
        intent.dns = Dns::All;
        intent.drop_invalid = true;
        intent.inbound_ports_exclude = texts::ports("1-5");
        intent.exclude_interfaces = texts::interfaces("eth1");
        let groups: Vec<String> = (0..64)
            .map(|n| format!("{}-{}", 10 * n, 10 * n + 5))
            .collect();
        intent.owner_groups = texts::groups(&groups.join(","));
        intent.outbound_include = texts::destinations("10.0.0.0/9,fd00::/8");
    }

    #[test]
    fn every_need_is_a_row_of_the_probes() {
        let rows = [nft::untried(""), xtables::untried("")].concat();
        for engine in [Engine::Nft, Engine::Xtables] {
            for change in [everything as fn(&mut Intent), tproxy, |_| ()] {
                for need in compiled(engine, change).needs() {
                    assert!(rows.iter().any(|f| f.key() == need), "{need:?}");
                }
            }
        }
    }

    #[test]
    fn an_intent_needs_what_its_rules_use_and_no_more() {
        let has = |engine, change: fn(&mut Intent), feature: &str| {
            let area = match engine {
                Engine::Nft => nft::AREA,
                Engine::Xtables => xtables::AREA,
            };
            let needs = compiled(engine, change).needs();
            needs.contains(&(area, feature.to_owned()))
        };
        for (engine, key) in [
            (Engine::Nft, "expression tproxy"),
            (Engine::Nft, "ct mark set"),
            (Engine::Nft, "chain inet route"),
            (Engine::Xtables, "target ip TPROXY"),
            (Engine::Xtables, "table ip mangle"),
        ] {
            assert!(has(engine, tproxy, key), "{key}");
            assert!(!has(engine, |_| (), key), "{key}");
        }
        for (engine, key) in [
            (Engine::Nft, "ct zone set"),
            (Engine::Nft, "set interval"),
            (Engine::Xtables, "target ip CT"),
            (Engine::Xtables, "target ip6 TPROXY"),
        ] {
            assert!(has(engine, everything, key), "{key}");
            assert!(!has(engine, tproxy, key), "{key}");
        }
    }

    #[test]
    fn a_named_engine_is_compared_with_whatever_is_in_use() {
        use Engine::{Nft, Xtables};
        let unread = || Err(Error::refused("read", "rules", "not permitted"));
        let of = |named, found| to_compare(named, found).unwrap();
        let by = InUse::By(Xtables);
        assert_eq!(of(None, Ok((Nft, false))), (Nft, InUse::None));
        assert_eq!(of(None, Ok((Xtables, true))), (Xtables, by));
        assert_eq!(of(Some(Nft), Ok((Xtables, true))), (Nft, by));
        assert_eq!(of(Some(Nft), Ok((Xtables, false))), (Nft, InUse::None));
        assert_eq!(of(Some(Nft), unread()), (Nft, InUse::Unknown));
        assert!(to_compare(None, unread()).is_err());
    }

    #[test]
    fn what_is_lacking_names_option_and_module() {
        let rows = nft::untried("");
        let finding = rows.into_iter().find(|f| f.feature == "expression tproxy");
        let lacking = Finding {
            answer: Answer::Lack(String::new()),
            ..finding.unwrap()
        };
        let text = words(&[lacking]);
        assert_eq!(
            text,
            "no expression tproxy: CONFIG_NFT_TPROXY (module nft_tproxy)"
        );
    }
}
