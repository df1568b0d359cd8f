//! `weir plan|apply|verify|clean node-ambient`
//!
//! They act on the network namespace of the node; by default, the one that the command runs in.

use super::ambient_ebpf::{after, bpffs, is_ebpf, refuse_elsewhere};
use super::args::{EngineArg, namespace as at};
use super::failure::{Failure, code, warn};
use super::files::{DESCRIPTION, name, read};
use super::output::{self, push_line};
use super::source::named;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use weir_cni::compile::Engine;
use weir_ebpf::netns_if_there;
use weir_ebpf::node::Node as Programs;
use weir_ebpf::show::Of;
use weir_netlink::{InForce, Netns};
use weir_node_ambient::plan::Step;
use weir_node_ambient::{Change, Collision, Config, apply_instead, ebpf, remove_all};
use weir_preflight::system::bpffs as root;

#[derive(Debug, Args)]
pub(super) struct NodeAmbientArgs {
    /// Proxies, pods and numbers of the node as JSON ("-" is stdin)
    #[arg(long, value_name = "FILE")]
    pub(super) config: PathBuf,
    /// The kernel subsystem that captures: rules in nft or xtables, or eBPF programs without rules and tunnels
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    pub(super) engine: EngineArg,
    /// The node's network namespace: a name in `ip netns list`, or a path [default: that of this command]
    #[arg(long, value_name = "NAME|PATH", value_parser = at)]
    pub(super) host_netns: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct NodeAmbientApplyArgs {
    #[command(flatten)]
    pub(super) about: NodeAmbientArgs,
    /// Print changes and make none
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Apply although foreign objects use the same marks, tables or priorities
    #[arg(long)]
    pub(super) force: bool,
}

#[derive(Debug, Args)]
pub(super) struct NodeAmbientCleanArgs {
    /// The configuration of `weir plan node-ambient`: the namespaces of its proxies are cleaned as well
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The node's network namespace: a name in `ip netns list`, or a path [default: that of this command]
    #[arg(long, value_name = "NAME|PATH", value_parser = at)]
    pub(super) host_netns: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// `weir plan node-ambient`
pub(super) fn plan(a: &NodeAmbientArgs) -> Result<u8, Failure> {
    match compared(a, Failure::failed)? {
        Compared::Programs(change) => programs_shown(&change, a.json, "would be changed"),
        Compared::Rules(change, replaces) => {
            let replaces = replaces.unwrap_or_else(|e| {
                warn(format_args!(
                    "it is unknown whether eBPF programs capture as well: {e}"
                ));
                false
            });
            shown(&change, replaces, a.json, "would be changed")
        }
    }
}

/// `weir verify node-ambient`. Foreign objects with the same numbers are only warnings, unless they make packets bypass the proxy
/// or be lost.
pub(super) fn verify(a: &NodeAmbientArgs) -> Result<u8, Failure> {
    let ending = |is_empty| match is_empty {
        true => code::SUCCESS,
        false => code::FAILED,
    };
    match compared(a, Failure::unknown)? {
        Compared::Programs(change) => {
            let written = programs_shown(&change, a.json, "differs")?;
            Ok(written.max(ending(change.is_empty() && change.collisions.is_empty())))
        }
        Compared::Rules(change, replaces) => {
            let replaces = replaces.map_err(Failure::unknown)?;
            let written = shown(&change, replaces, a.json, "differs")?;
            let bypasses = change.collisions.iter().any(|c| c.bypasses);
            Ok(written.max(ending(change.is_empty() && !replaces && !bypasses)))
        }
    }
}

/// `weir apply node-ambient`
pub(super) fn apply(a: &NodeAmbientApplyArgs) -> Result<u8, Failure> {
    if a.dry_run {
        return plan(&a.about);
    }
    let (config, netns, engine) = asked(&a.about)?;
    known(&netns, Some(&config)).map_err(Failure::failed)?;
    if is_by_programs(a.about.engine, &netns).map_err(Failure::failed)? {
        let bpffs = bpffs().map_err(Failure::failed)?;
        let change = ebpf::apply(&config, &netns, &bpffs).map_err(unfinished)?;
        return programs_shown(&change, a.about.json, "changed");
    }
    let applied = apply_instead(&config, &netns, (engine, a.force), &root());
    let (change, replaces) = applied.map_err(unfinished)?;
    shown(&change, replaces, a.about.json, "changed")
}

/// Returns the failure of a change, with the remedy for a part that may be in force.
fn unfinished(e: weir_netlink::Error) -> Failure {
    let way_out = match e.in_force {
        InForce::No => "",
        InForce::Yes | InForce::Unknown => {
            "; rules, eBPF programs or both may be in force: `weir verify node-ambient` lists what is missing, a second \
             `weir apply node-ambient` completes it, and `weir clean node-ambient` removes what there is"
        }
    };
    Failure::failed(format!("{e}{way_out}"))
}

/// `weir clean node-ambient`
pub(super) fn clean(a: &NodeAmbientCleanArgs) -> Result<u8, Failure> {
    let config = a.config.as_deref().map(config).transpose()?;
    let netns = namespace(a.host_netns.as_deref())?;
    known(&netns, config.as_ref()).map_err(Failure::failed)?;
    let both = remove_all(&netns, &root(), config.as_ref());
    let (detached, removed) = both.map_err(|e| match e.in_force {
        InForce::No => Failure::failed(e),
        InForce::Yes | InForce::Unknown => Failure::failed(format!(
            "{e}; eBPF programs may be attached, and then the routing at the proxy stays, too: a second \
             `weir clean node-ambient` removes what is left"
        )),
    })?;
    let mut removed = removed.map_err(|e| after(&detached, e))?;
    removed.extend(detached);
    if a.json {
        return output::json(&json!({ "removed": removed }));
    }
    let mut text = String::new();
    removed.iter().for_each(|line| push_line(&mut text, line));
    if removed.is_empty() {
        text.push_str("nothing to remove\n");
    }
    output::text(&text)
}

/// Fails if weir's programs at the node or at these proxies are pinned where this command does not look.
fn known(netns: &Netns, config: Option<&Config>) -> weir_netlink::Result<()> {
    let mut proxies = Vec::new();
    for proxy in config.into_iter().flat_map(|config| &config.proxies) {
        match netns_if_there(&proxy.netns) {
            Ok(netns) => proxies.extend(netns),
            // It is not a network namespace: the code that opens it reports this.
            Err(e) if e.errno().is_none() => {}
            Err(e) => return Err(e),
        }
    }
    let unknown = refuse_elsewhere(std::iter::once(netns).chain(&proxies), Of::Node)?;
    unknown.iter().for_each(warn);
    Ok(())
}

fn config(file: &Path) -> Result<Config, Failure> {
    let text = read(file, DESCRIPTION)?;
    Config::from_json(&text, &name(file)).map_err(Failure::usage)
}

pub(super) fn namespace(path: Option<&Path>) -> Result<Netns, Failure> {
    let netns = path.map_or_else(Netns::current, Netns::open);
    netns.map_err(|e| Failure::of_namespace(&e, |e| Failure::usage(e)))
}

fn asked(a: &NodeAmbientArgs) -> Result<(Config, Netns, Option<Engine>), Failure> {
    let netns = namespace(a.host_netns.as_deref())?;
    Ok((config(&a.config)?, netns, named(a.engine, None)))
}

/// Whether to use eBPF: `--engine` names it, or is `auto` and the node already uses it.
fn is_by_programs(engine: EngineArg, netns: &Netns) -> weir_netlink::Result<bool> {
    is_ebpf(engine, |bpffs| Programs::of(netns, bpffs).is_in_use())
}

/// Differences between the node and the configuration.
enum Compared {
    /// And whether programs capture, too.
    Rules(Box<Change>, weir_netlink::Result<bool>),
    Programs(Box<ebpf::Change>),
}

fn compared(
    a: &NodeAmbientArgs,
    fail: fn(weir_netlink::Error) -> Failure,
) -> Result<Compared, Failure> {
    let (config, netns, engine) = asked(a)?;
    known(&netns, Some(&config)).map_err(fail)?;
    if is_by_programs(a.engine, &netns).map_err(fail)? {
        let bpffs = bpffs().map_err(fail)?;
        let change = ebpf::compare(&config, &netns, &bpffs).map_err(fail)?;
        return Ok(Compared::Programs(Box::new(change)));
    }
    let change = weir_node_ambient::compare(&config, &netns, engine).map_err(fail)?;
    let replaces = ebpf::is_pinned(&netns, &root(), &config);
    Ok(Compared::Rules(Box::new(change), replaces))
}

fn programs_shown(change: &ebpf::Change, is_json: bool, verb: &str) -> Result<u8, Failure> {
    let node = &change.node;
    let proxy = node.active.as_ref().map(|active| active.proxy.uid.as_str());
    let lines = |steps: &[weir_ebpf::node::Change]| -> Vec<String> {
        steps.iter().map(ToString::to_string).collect()
    };
    let (mut host, of_proxy) = (lines(&change.steps.host), lines(&change.steps.proxy));
    if change.replaces {
        host.push("remove rules and routing that capture instead".to_owned());
    }
    if is_json {
        return output::json(&json!({
            "capturing": node.is_capturing(),
            "proxy": proxy,
            "engine": "ebpf",
            "host": host,
            "proxy_namespace": of_proxy,
            "replaces_rules": change.replaces,
            "collisions": lines_of(&change.collisions),
        }));
    }
    let mut text = String::new();
    let state = state_of(proxy, node.is_capturing());
    push_line(&mut text, &format!("eBPF programs; {state}"));
    for collision in &change.collisions {
        push_line(&mut text, &format!("collision: {collision}"));
    }
    for (place, steps) in [("proxy", &of_proxy), ("node", &host)] {
        for step in steps {
            push_line(&mut text, &format!("{place}: {step}"));
        }
    }
    if change.is_empty() {
        text.push_str(&format!("nothing {verb}\n"));
    }
    output::text(&text)
}

fn lines_of(collisions: &[Collision]) -> Vec<String> {
    collisions.iter().map(ToString::to_string).collect()
}

fn state_of(proxy: Option<&str>, is_capturing: bool) -> String {
    match (proxy, is_capturing) {
        (Some(uid), _) => format!("active proxy {uid}"),
        (None, true) => "no proxy is ready: TCP of enrolled pods is refused".to_owned(),
        (None, false) => {
            "no proxy is ready: pods are not captured, as without_proxy says".to_owned()
        }
    }
}

fn shown(change: &Change, replaces: bool, is_json: bool, verb: &str) -> Result<u8, Failure> {
    let node = &change.node;
    let proxy = node.active.as_ref().map(|active| active.proxy.uid.as_str());
    let lines = |steps: &[Step]| -> Vec<String> { steps.iter().flat_map(Step::commands).collect() };
    let (mut host, of_proxy) = (lines(&change.host), lines(&change.proxy));
    if replaces {
        host.push("detach programs that capture instead".to_owned());
    }
    if is_json {
        return output::json(&json!({
            "capturing": node.is_capturing(),
            "proxy": proxy,
            "tunnel": node.carrier.to_string(),
            // Former name of `tunnel`.
            "carrier": node.carrier.to_string(),
            "engine": change.engine.to_string(),
            "host": host,
            "proxy_namespace": of_proxy,
            "replaces_programs": replaces,
            "collisions": lines_of(&change.collisions),
        }));
    }
    let mut text = String::new();
    let mut state = state_of(proxy, node.is_capturing());
    if proxy.is_some() {
        state.push_str(&format!(", first packets by {}", node.carrier));
    }
    push_line(&mut text, &format!("rules by {}; {state}", change.engine));
    for collision in &change.collisions {
        push_line(&mut text, &format!("collision: {collision}"));
    }
    for (place, steps) in [("node", &host), ("proxy", &of_proxy)] {
        for step in steps {
            // Several entries of a set are one change, with a line for each.
            for line in step.lines() {
                push_line(&mut text, &format!("{place}: {line}"));
            }
        }
    }
    if change.is_empty() && !replaces {
        text.push_str(&format!("nothing {verb}\n"));
    }
    output::text(&text)
}
