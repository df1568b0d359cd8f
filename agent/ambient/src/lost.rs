//! Distinguishes a redirection that another program has changed from one that was never there, or has another form.
//!
//! Nobody watches the rules of a pod while no agent runs. The next agent knows that the pod was captured, but not in which
//! sandbox, by which version, and with which settings.

use crate::TABLES;
use crate::redirect::{AMBIENT, Redirect, VERSION};
use weir_cni::compile::{Compiled, Engine};
use weir_cni::redirection::{Change, Desired, Difference, Visit, has_legacy_tables};
use weir_netfilter::nft::{NftEngine, Ruleset, TableFamily};
use weir_netfilter::xtables::{Ownership, XtEngine, XtOp};
use weir_netlink::Result;

/// The generation of nf_tables in a namespace in which nothing was committed yet.
const FIRST_GENERATION: u32 = 1;

impl Redirect {
    /// Returns true if the redirection of a pod that was captured before was removed or changed by another program, in the
    /// visited namespace. False for a new sandbox, in which no rules were written yet, for rules of another version of weir or
    /// of Istio's agent, and for rules that are in sync with other settings.
    ///
    /// `found` are the differences from `self`; `None`: no owned rules exist. If something cannot be read, the answer is true.
    pub fn is_lost(&self, visit: &Visit<'_>, found: Option<&[Change]>) -> bool {
        let Some(found) = found else {
            // Rules of Istio's agent in tables of `iptables-nft` are replaced.
            let is_rule = |change: &Change| matches!(change, Change::Rules(_));
            let has_rules = |left: Vec<Change>| left.iter().any(is_rule);
            return was_written().unwrap_or(true) && !visit.plan_clean(None).is_ok_and(has_rules);
        };
        // What only a foreign object blocks was not removed.
        let is_blocked = |change: &Change| matches!(change, Change::Blocked(..));
        if found.iter().all(is_blocked) {
            return false;
        }
        let is_missing = |change: &Change| change.difference() == Difference::Missing;
        let is_of_this_form = match versions() {
            // Legacy rules: those of another form would be replaced.
            Ok(versions) if versions.is_empty() => {
                found.iter().all(is_missing) || is_signed(found).unwrap_or(true)
            }
            Ok(versions) => versions.iter().all(|version| *version == Some(VERSION)),
            Err(_) => true,
        };
        let is_in_sync = |other: &Compiled| {
            let found = visit.differences(other);
            found.is_ok_and(|found| found.iter().all(|c| c.stays() || is_blocked(c)))
        };
        is_of_this_form && !self.forms().iter().any(is_in_sync)
    }

    /// The rules of the same pod with all settings of the node, and all annotations but names of interfaces.
    fn forms(&self) -> Vec<Compiled> {
        let mut all = Vec::new();
        for bits in 0..8_u8 {
            let is_on = |bit: u8| bits & bit != 0;
            let mut other = self.clone();
            other.dns ^= is_on(1);
            other.ingress ^= is_on(2);
            other.config.enable_ipv6 ^= is_on(4);
            for engine in [Engine::Nft, Engine::Xtables] {
                all.extend([other.compile(engine), other.compile_chosen(engine)]);
            }
        }
        all.dedup();
        all
    }
}

/// The versions of the owned tables of nf_tables in the network namespace of the thread.
fn versions() -> Result<Vec<Option<u32>>> {
    let owned = TABLES.map(|name| (TableFamily::Inet, name.to_owned()));
    // Without the contents of the tables.
    let nothing = Ruleset { tables: Vec::new() };
    match NftEngine::open().and_then(|mut engine| engine.read_for(&nothing, &owned)) {
        Ok(found) => Ok(found.ruleset.tables.iter().map(|t| t.version).collect()),
        Err(e) if e.is_unsupported() => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// True if weir wrote the legacy rules in the network namespace of the thread, and in this version: chains with rules of another one
/// are flushed.
fn is_signed(found: &[Change]) -> Result<bool> {
    let signed = Ownership {
        tag: AMBIENT.legacy.tag,
        others: AMBIENT.legacy.others,
        ..Ownership::default()
    };
    let is_flush = |op: &XtOp| matches!(op, XtOp::FlushChain(..));
    let is_flushed = |change: &Change| matches!(change, Change::Legacy(op) if is_flush(op));
    let is_read = has_legacy_tables()? && !found.iter().any(is_flushed);
    Ok(is_read && XtEngine::open()?.holds(&signed)?)
}

/// Returns true if some program has written rules in the network namespace of the thread since it exists.
fn was_written() -> Result<bool> {
    if has_legacy_tables()? {
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
    use crate::{Config, PodOverrides};
    use weir_cni::redirection::Sandbox;
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
            let is_lost = |redirect: &Redirect| is_lost(&sandbox, redirect, engine);
            if engine == Engine::Nft {
                assert!(!is_lost(&new), "nothing was written yet");
            }
            sandbox.apply(&compile(&old)).unwrap();
            assert!(!is_lost(&new), "another setting");
            run("ip route flush table 100");
            run("ip route add blackhole default table 100");
            assert!(!is_lost(&new), "another setting, and a foreign route");
            run("ip route flush table 100");
            sandbox.apply(&old.compile_chosen(engine)).unwrap();
            assert!(!is_lost(&new) && !is_lost(&old), "the other form");
            sandbox.apply(&compile(&old)).unwrap();
            run(match engine {
                Engine::Nft => "nft insert rule inet istio-ambient-nat istio-output accept",
                Engine::Xtables => "iptables-legacy -t nat -I ISTIO_OUTPUT -j RETURN",
            });
            assert!(is_lost(&new) && is_lost(&old), "a foreign rule");
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

    fn is_lost(sandbox: &Sandbox, redirect: &Redirect, engine: Engine) -> bool {
        let look = |visit: &Visit<'_>| {
            let in_use = visit.engine_in_use().unwrap();
            let compare = || visit.differences(&redirect.compile(engine)).unwrap();
            redirect.is_lost(visit, in_use.map(|_| compare()).as_deref())
        };
        sandbox.visit_for(&AMBIENT, look).unwrap()
    }

    /// Rules of Istio's agent, of which legacy ones have no version, and rules for the other engine.
    #[test]
    fn what_is_taken_over_is_not_lost() {
        let sandbox = Sandbox::of(weir_testing::namespace_or_skip!()).unwrap();
        let run = |command: &str| assert_eq!(output(sandbox.netns(), command), "");
        run("ip link set lo up");
        let redirect = Redirect::new(Config::default(), &PodOverrides::default()).unwrap();
        let legacy = redirect.compile(Engine::Xtables);
        sandbox.apply(&legacy).unwrap();
        assert!(
            !is_lost(&sandbox, &redirect, Engine::Nft),
            "by legacy rules"
        );
        sandbox.clean(Some(&legacy)).unwrap();
        for tool in ["iptables-legacy", "iptables-nft"] {
            for rule in [
                "-N ISTIO_PRERT",
                "-A ISTIO_PRERT -p tcp -j ACCEPT",
                "-I PREROUTING -j ISTIO_PRERT",
            ] {
                run(&format!("{tool} -t nat {rule}"));
            }
            assert!(!is_lost(&sandbox, &redirect, Engine::Xtables), "{tool}");
            run(&format!("{tool} -t nat -F"));
            run(&format!("{tool} -t nat -X"));
            assert!(is_lost(&sandbox, &redirect, Engine::Xtables), "{tool}");
        }
    }
}
