//! `weir plan|apply|verify|clean node-ambient`
//!
//! They act on the network namespace of the node, by default on the one that the command runs in.

use super::args::{EngineArg, NodeAmbientApplyArgs, NodeAmbientArgs, NodeAmbientCleanArgs};
use super::failure::{Failure, code};
use super::output::{self, push_line};
use super::source::{DESCRIPTION, name, named, read};
use serde_json::{Value, json};
use std::path::Path;
use weir_cni::compile::Engine;
use weir_netlink::Netns;
use weir_node_ambient::{Change, Config};

/// `weir plan node-ambient`
pub(super) fn plan(a: &NodeAmbientArgs) -> Result<u8, Failure> {
    let change = compared(a, Failure::failed)?;
    shown(&change, a.json, "would be changed")
}

/// `weir verify node-ambient`: others' objects with the same numbers are warnings.
pub(super) fn verify(a: &NodeAmbientArgs) -> Result<u8, Failure> {
    let change = compared(a, Failure::unknown)?;
    let ending = match change.is_empty() {
        true => code::SUCCESS,
        false => code::FAILED,
    };
    shown(&change, a.json, "differs").map(|written| written.max(ending))
}

/// `weir apply node-ambient`
pub(super) fn apply(a: &NodeAmbientApplyArgs) -> Result<u8, Failure> {
    if a.dry_run {
        return plan(&a.about);
    }
    let (config, netns, engine) = asked(&a.about)?;
    let change = weir_node_ambient::apply(&config, &netns, engine, a.force);
    shown(&change.map_err(Failure::failed)?, a.about.json, "changed")
}

/// `weir clean node-ambient`
pub(super) fn clean(a: &NodeAmbientCleanArgs) -> Result<u8, Failure> {
    let config = a.config.as_deref().map(config).transpose()?;
    let netns = namespace(a.host_netns.as_deref())?;
    let removed = weir_node_ambient::remove(&netns, config.as_ref()).map_err(Failure::failed)?;
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

fn config(file: &Path) -> Result<Config, Failure> {
    let text = read(file, DESCRIPTION)?;
    Config::from_json(&text, &name(file)).map_err(Failure::usage)
}

fn namespace(path: Option<&Path>) -> Result<Netns, Failure> {
    let netns = path.map_or_else(Netns::current, Netns::open);
    netns.map_err(|e| Failure::of_namespace(&e, |e| Failure::usage(e)))
}

fn asked(a: &NodeAmbientArgs) -> Result<(Config, Netns, Option<Engine>), Failure> {
    if a.engine == EngineArg::Ebpf {
        return Err(Failure::usage(
            "node-ambient has no engine ebpf; give nft, xtables or auto",
        ));
    }
    let netns = namespace(a.host_netns.as_deref())?;
    Ok((config(&a.config)?, netns, named(a.engine, None)))
}

fn compared(
    a: &NodeAmbientArgs,
    fail: fn(weir_netlink::Error) -> Failure,
) -> Result<Change, Failure> {
    let (config, netns, engine) = asked(a)?;
    weir_node_ambient::compare(&config, &netns, engine).map_err(fail)
}

fn shown(change: &Change, is_json: bool, verb: &str) -> Result<u8, Failure> {
    let node = &change.node;
    let proxy = node.place.as_ref().map(|place| place.proxy.uid.as_str());
    if is_json {
        let lines = |steps: &[weir_node_ambient::plan::Step]| -> Value {
            steps.iter().map(ToString::to_string).collect()
        };
        let collisions: Vec<String> = change.collisions.iter().map(ToString::to_string).collect();
        return output::json(&json!({
            "capturing": node.is_capturing(),
            "proxy": proxy,
            "carrier": node.carrier.to_string(),
            "engine": change.engine.to_string(),
            "host": lines(&change.host),
            "proxy_namespace": lines(&change.proxy),
            "collisions": collisions,
        }));
    }
    let mut text = String::new();
    let state = match (proxy, node.is_capturing()) {
        (Some(uid), _) => format!("active proxy {uid}, first packets by {}", node.carrier),
        (None, true) => "no proxy is ready: TCP of enrolled pods is refused".to_owned(),
        (None, false) => {
            "no proxy is ready: pods are not captured, as without_proxy says".to_owned()
        }
    };
    push_line(&mut text, &format!("rules by {}; {state}", change.engine));
    for collision in &change.collisions {
        push_line(&mut text, &format!("collision: {collision}"));
    }
    for (place, steps) in [("node", &change.host), ("proxy", &change.proxy)] {
        for step in steps {
            for line in step.to_string().lines() {
                push_line(&mut text, &format!("{place}: {line}"));
            }
        }
    }
    if change.is_empty() {
        text.push_str(&format!("nothing {verb}\n"));
    }
    output::text(&text)
}
