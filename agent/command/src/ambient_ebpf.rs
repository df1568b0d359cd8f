//! `--engine ebpf` of the commands for ambient mode, and eBPF in `weir show` and `weir clean`.

use super::args::{ApplyArgs, EngineArg};
use super::failure::{Failure, code};
use super::node_ambient::namespace;
use super::output;
use super::report::{conflict, lines, report, warned};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Display;
use weir_ambient::{AMBIENT, Redirect};
use weir_cni::redirection::{Difference, Failure as RulesFailure, Sandbox, Visit};
use weir_core::sandboxes::host;
use weir_core::settings::resolve;
use weir_ebpf::show::Of;
use weir_ebpf::{Bpffs, Change, Lock, Pod, describe, if_pinned, show as programs};
use weir_netlink::{Error, ErrorKind, Netns, Result as KernelResult};
use weir_preflight::system::bpffs as root;
use weir_rules::sysctl;

pub(super) fn bpffs() -> KernelResult<Bpffs> {
    Bpffs::at(&root())
}

/// The namespace whose processes reach pods without being captured: that of an agent with this environment.
fn node() -> Result<Netns, Failure> {
    let settings = resolve(&BTreeMap::new(), &|name: &str| std::env::var_os(name));
    let (_, path) = host::netns_of(&settings);
    namespace(path.as_deref())
}

/// `weir plan ambient --engine ebpf`
pub(super) fn plan(redirect: &Redirect, as_json: bool) -> Result<u8, Failure> {
    let lines = describe(redirect).map_err(Failure::failed)?;
    match as_json {
        true => output::json(&json!({ "engine": "ebpf", "changes": lines })),
        false => output::text(&(lines.join("\n") + "\n")),
    }
}

/// `weir apply ambient --engine ebpf`. Netfilter rules are removed after the programs are attached: at any moment, packets are
/// captured by one or both.
pub(super) fn apply(
    redirect: &Redirect,
    sandbox: &Sandbox,
    a: &ApplyArgs,
    lock: Option<Lock>,
) -> Result<u8, Failure> {
    let (bpffs, node) = (bpffs().map_err(Failure::failed)?, node()?);
    let beside = |e: RulesFailure| match a.dry_run {
        true => Failure::failed(e),
        false => not_removed(e),
    };
    let warnings = |visit: &Visit<'_>| hindrances(redirect, visit).unwrap_or_else(|why| vec![why]);
    let attach = |visit: &Visit<'_>| {
        let pod = Pod::in_sandbox(sandbox, &bpffs).beside(&node);
        let programs = match a.dry_run {
            true => pod.plan(redirect),
            false => pod.apply(redirect),
        };
        let programs = programs.map_err(Failure::failed)?;
        let in_use = visit.engine_in_use().map_err(|e| beside(e.into()))?;
        let alone = in_use.is_none().then(|| (Vec::new(), warnings(visit)));
        Ok((programs, alone))
    };
    let remove = |visit: &Visit<'_>| {
        let removed = redirect.remove_rules(visit, a.dry_run).map_err(beside)?;
        Ok((removed, warnings(visit)))
    };
    let attached = sandbox.visit_for(&AMBIENT, attach);
    let (programs, alone) = attached.map_err(Failure::failed)??;
    // With rules there is a second visit: the addresses may have changed while the first one waited for another writer.
    let (rules, warnings) = match alone {
        Some(alone) => alone,
        None => {
            let removed = sandbox.visit_for(&AMBIENT, remove);
            removed.map_err(|e| beside(e.into()))??
        }
    };
    let changes = lines(&programs, &rules);
    drop(lock);
    let by = (Some("ebpf"), warnings);
    report(&changes, sandbox, by, a.desired.json, a.dry_run)
}

/// The error of the removal of rules beside programs. What it says of a redirection is not that of the programs.
fn not_removed(e: RulesFailure) -> Failure {
    let why = [*e.reason].into_iter().chain(e.rest);
    let why: Vec<String> = why.map(|e| e.to_string()).collect();
    Failure::failed(format!(
        "the programs are attached; netfilter rules may still be in force beside them, and a second apply removes these: {}",
        why.join("; ")
    ))
}

/// Returns the foreign objects that keep packets from the programs.
fn hindrances(redirect: &Redirect, visit: &Visit<'_>) -> Result<Vec<String>, String> {
    visit.hindrances_of_programs(&redirect.compile_without_rules())
}

/// `weir verify ambient --engine ebpf`
pub(super) fn verify(redirect: &Redirect, sandbox: &Sandbox, as_json: bool) -> Result<u8, Failure> {
    let bpffs = bpffs().map_err(Failure::unknown)?;
    let node = node()?;
    let inside = |visit: &Visit<'_>| {
        let pod = Pod::in_sandbox(sandbox, &bpffs).beside(&node);
        let left = pod.verify(redirect).map_err(Failure::unknown)?;
        // The routing is compared above.
        let mut rules = redirect
            .remove_rules(visit, true)
            .map_err(Failure::unknown)?;
        rules.retain(|change| change.difference() == Difference::Unexpected);
        let left = lines(&left, &rules);
        let warnings = match hindrances(redirect, visit) {
            Err(why) if left.is_empty() => return Err(Failure::unknown(why)),
            found => found.unwrap_or_else(|why| vec![why]),
        };
        Ok((left, warnings))
    };
    let found = sandbox.visit_for(&AMBIENT, inside);
    let (left, warnings) = found.map_err(Failure::unknown)??;
    let is_good = left.is_empty() && warnings.is_empty();
    let netns = sandbox.netns().id().to_string();
    if as_json {
        output::json(&json!({
            "netns": netns,
            "engine": "ebpf",
            "verified": is_good,
            "differences": left,
            "warnings": warnings,
        }))?;
    } else if left.is_empty() && !is_good {
        output::text(&conflict(netns))?;
    } else if left.is_empty() {
        output::text(&format!(
            "verified: {netns} holds the redirection by eBPF\n"
        ))?;
    } else {
        let mut text = format!("drift: {netns} differs; `weir apply` would:\n");
        left.iter()
            .for_each(|line| output::push_line(&mut text, line));
        output::text(&text)?;
    }
    if !as_json {
        output::text(&warned(&warnings))?;
    }
    Ok(match is_good {
        true => code::SUCCESS,
        false => code::FAILED,
    })
}

/// Whether to use eBPF for a pod: `--engine` names it, or is `auto` and the namespace already uses it.
///
/// # Errors
/// See [`is_ebpf`].
pub(super) fn is_asked(engine: EngineArg, sandbox: &Sandbox) -> KernelResult<bool> {
    is_ebpf(engine, |bpffs| Pod::in_sandbox(sandbox, bpffs).is_present())
}

/// Whether to use eBPF: `--engine` names it, or is `auto` and `is_in_use` finds it by its pins.
///
/// # Errors
/// The pins cannot be read: programs may capture nevertheless.
pub(super) fn is_ebpf(
    engine: EngineArg,
    is_in_use: impl FnOnce(&Bpffs) -> KernelResult<bool>,
) -> KernelResult<bool> {
    match engine {
        EngineArg::Ebpf => return Ok(true),
        EngineArg::Nft | EngineArg::Xtables => return Ok(false),
        EngineArg::Auto => {}
    }
    let root = root();
    let found = Bpffs::if_mounted(&root).and_then(|bpffs| match bpffs {
        Some(bpffs) => is_in_use(&bpffs),
        None => Ok(false),
    });
    found.map_err(|e| {
        let reason = format!(
            "it is unknown whether eBPF programs capture there: {e}; run this as root of the node, name the right file system \
             in WEIR_BPFFS, or name what captures with --engine"
        );
        Error::refused("look for pins in", root.display().to_string(), reason)
    })
}

/// Names the eBPF objects of weir in a pod in which netfilter rules capture; `weir apply` removes them.
pub(super) fn beside(sandbox: &Sandbox) -> Result<Vec<String>, Failure> {
    let found = if_pinned(sandbox, &root(), |pod| {
        if !pod.has_pins()? {
            return Ok(Vec::new());
        }
        let mut changes = pod.plan_removal()?;
        changes.retain(is_of_ebpf_alone);
        let object = |change: &Change| match change {
            Change::Switch(name, on) => format!("net.ipv4.conf.lo.{name}={}", u8::from(!on)),
            Change::Detach(..) => change.to_string().replacen("detach", "program", 1),
            _ => change.to_string(),
        };
        Ok(match changes.is_empty() {
            true => vec!["eBPF pins without programs".to_owned()],
            false => changes.iter().map(object).collect(),
        })
    });
    let found: KernelResult<_> = found.and_then(Option::transpose);
    Ok(found.map_err(Failure::unknown)?.unwrap_or_default())
}

/// False for a change of routing, which netfilter rules need as well.
fn is_of_ebpf_alone(change: &Change) -> bool {
    !matches!(change, Change::DeleteRoute(_) | Change::DeleteRule(_))
}

/// Detaches weir's programs but keeps the routing for netfilter rules, or for their removal.
pub(super) fn hand_over(sandbox: &Sandbox, dry_run: bool) -> Result<Vec<Change>, Failure> {
    removed(sandbox, |pod| match dry_run {
        true => {
            let mut changes = pod.plan_removal().map_err(Failure::failed)?;
            changes.retain(is_of_ebpf_alone);
            Ok(changes)
        }
        false => pod.hand_over().map_err(gone),
    })
}

/// Returns a warning if the sysctls have the values that programs need, although there are no pins, which store the previous values.
pub(super) fn switches_left(sandbox: &Sandbox) -> Vec<String> {
    const KEYS: [&str; 2] = ["accept_local", "route_localnet"];
    let is_on = |key: &&str| sysctl::read(&format!("ipv4/conf/lo/{key}")).is_ok_and(|v| v != "0");
    let on = sandbox.netns().run(|| KEYS.iter().all(is_on));
    match on {
        Ok(true) => vec![
            "net.ipv4.conf.lo.accept_local=1 and net.ipv4.conf.lo.route_localnet=1 are left unchanged, because no pins of programs store \
             the previous values; the kernel's default of each is 0"
                .to_owned(),
        ],
        _ => Vec::new(),
    }
}

/// Detaches weir's programs in a namespace. Without a bpf file system there are none.
pub(super) fn clean(sandbox: &Sandbox) -> Result<Vec<Change>, Failure> {
    removed(sandbox, |pod| pod.remove().map_err(gone))
}

fn gone(e: Error) -> Failure {
    Failure::failed(format!("{e}; what could be removed is gone"))
}

/// The error of a removal that failed after programs were detached.
pub(super) fn after<T>(detached: &[T], e: impl Display) -> Failure {
    match detached.is_empty() {
        true => Failure::failed(e),
        false => Failure::failed(format!(
            "{e}; what could be removed is gone: eBPF programs are detached"
        )),
    }
}

fn removed(
    sandbox: &Sandbox,
    remove: impl FnOnce(&Pod<'_>) -> Result<Vec<Change>, Failure>,
) -> Result<Vec<Change>, Failure> {
    let removed = if_pinned(sandbox, &root(), remove);
    removed.map_err(Failure::failed)?.unwrap_or(Ok(Vec::new()))
}

/// Fails if weir's programs are pinned in another bpf file system: comparing or removing would miss them. Returns a warning
/// if bpf(2) is not permitted, so that this is unknown.
///
/// # Errors
/// A namespace has such programs, or cannot be read.
pub(super) fn refuse_elsewhere<'a>(
    netns: impl IntoIterator<Item = &'a Netns>,
    of: Of,
) -> KernelResult<Option<String>> {
    let (root, mut unknown) = (root(), None);
    // If the pins here cannot be read, every program of weir counts as pinned elsewhere; the caller reports the reason.
    let bpffs = Bpffs::if_mounted(&root).ok().flatten();
    for netns in netns {
        let found = match programs::elsewhere(netns, bpffs.as_ref(), of) {
            // Without bpf(2) there are no programs.
            Err(e) if e.is_unsupported() => continue,
            Err(e) if matches!(e.kind, ErrorKind::Translated { .. }) && e.is_permission() => {
                // Rules can be changed without it, for example in a user namespace.
                unknown = Some(format!(
                    "it is unknown whether eBPF programs capture in {}, and none is compared or removed: {e}",
                    netns.id()
                ));
                continue;
            }
            // The caller reports that the namespace or the pins cannot be read.
            Err(e) if e.is_permission() => continue,
            found => found?,
        };
        if let Some(one) = found.first() {
            let object = format!("program {} at {} of {}", one.name, one.hook, one.interface);
            let reason = format!(
                "it is weir's, and pinned in another bpf file system than {}; set WEIR_BPFFS to that file system",
                root.display()
            );
            return Err(Error::refused("use", object, reason));
        }
    }
    Ok(unknown)
}

/// Reads the programs attached in a namespace; without a bpf file system none is known to be weir's.
pub(super) fn show(netns: &Netns) -> KernelResult<programs::Shown> {
    programs::read(netns, Bpffs::if_mounted(&root())?.as_ref())
}

/// The attached programs as JSON.
pub(super) fn json(shown: &programs::Shown) -> Value {
    let one = |program: &programs::Attached| {
        json!({
            "interface": program.interface,
            "hook": program.hook,
            "program": program.id,
            "name": program.name,
            "tag": program.tag,
            "link": program.link,
            "pin": program.pin.as_ref().map(|pin| pin.display().to_string()),
            "pins_of_others": program.pins.iter().map(|pin| pin.display().to_string()).collect::<Vec<_>>(),
            "ours": program.pin.is_some(),
            "pinned_elsewhere": program.is_pinned_elsewhere(),
            "does": program.words(),
            "maps": program.maps,
        })
    };
    let counters: serde_json::Map<String, Value> = shown
        .counters
        .iter()
        .map(|(name, count)| ((*name).to_owned(), json!(count)))
        .collect();
    json!({
        "programs": shown.programs.iter().map(one).collect::<Vec<_>>(),
        "counters": counters,
        "has_more_pins": shown.has_more_pins,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_are_left_beside_programs_do_not_unsay_them() {
        let reason = Error::refused("replace", "ip table nat", "a test");
        let text = not_removed(reason.into()).message;
        let parts = ["the programs are attached", "ip table nat", "a test"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert!(!text.contains("nothing is changed"), "{text}");
    }
}
