//! `weir cni`: the plugin runner.

use super::args::{CniArgs, CniCommand, GcArgs, ListArgs, PodArgs};
use super::failure::Failure;
use super::output;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use weir_netlink::Netns;
use weir_runner::{Attachment, Error, NetworkList, PodNetworks, Runner};

pub(super) fn run(verb: CniCommand) -> Result<u8, Failure> {
    match verb {
        CniCommand::Add(a) => {
            let pod = Pod::of(&a)?;
            has_namespace(&pod.attachment)?;
            let result = pod.runner.add_pod(&pod.networks, &pod.attachment);
            output::report(
                &output::json_text(&result.map_err(failure)?),
                "the attachment is added, and `weir cni del` removes it",
            )
        }
        CniCommand::Check(a) => {
            let pod = Pod::of(&a)?;
            has_namespace(&pod.attachment)?;
            let checked = pod.runner.check_pod(&pod.networks, &pod.attachment);
            checked.map_err(failure)?;
            Ok(super::code::SUCCESS)
        }
        CniCommand::Del(a) => {
            let pod = Pod::of(&a)?;
            let deleted = pod.runner.del_pod(&pod.networks, &pod.attachment);
            deleted.map_err(failure)?;
            Ok(super::code::SUCCESS)
        }
        CniCommand::Gc(a) => {
            let (runner, list) = load(&a.list)?;
            runner.gc(&list, &kept(&a)?).map_err(Failure::failed)?;
            Ok(super::code::SUCCESS)
        }
        CniCommand::Status(a) => {
            let (runner, list) = load(&a)?;
            runner.status(&list).map_err(Failure::failed)?;
            Ok(super::code::SUCCESS)
        }
        CniCommand::Version(a) => {
            let (runner, list) = load(&a)?;
            let mut versions = Map::new();
            for plugin in &list.plugins {
                let supported = runner.versions(&plugin.kind).map_err(Failure::failed)?;
                versions.insert(plugin.kind.clone(), json!(supported));
            }
            output::json(&Value::Object(versions))
        }
    }
}

/// What ADD, CHECK and DEL are about.
struct Pod {
    runner: Runner,
    networks: PodNetworks,
    attachment: Attachment,
}

impl Pod {
    fn of(a: &PodArgs) -> Result<Self, Failure> {
        let (runner, default) = load(&a.attachment.list)?;
        let networks = match &a.networks {
            None => PodNetworks::from(default),
            Some(networks) => {
                PodNetworks::select(default, networks, &a.net_dir).map_err(Failure::usage)?
            }
        };
        let attachment = attachment(&a.attachment)?;
        Ok(Self {
            runner,
            networks,
            attachment,
        })
    }
}

/// Interfaces of networks are compared when these are attached.
fn failure(e: Error) -> Failure {
    match e {
        Error::Config { .. } => Failure::usage(e),
        e => Failure::failed(e),
    }
}

/// Plugins say in words of their own, or not at all, that there is no such namespace. For DEL it may be gone.
fn has_namespace(attachment: &Attachment) -> Result<(), Failure> {
    if attachment.netns.is_empty() {
        return Err(Failure::usage(
            "--netns is missing: give the pod's network namespace, a name as of `ip netns list` or a path",
        ));
    }
    let opened = Netns::open(Path::new(&attachment.netns));
    opened.map_err(|e| Failure::of_namespace(&e, |e| Failure::failed(e)))?;
    Ok(())
}

fn load(a: &ListArgs) -> Result<(Runner, NetworkList), Failure> {
    let list = NetworkList::load(&a.conf).map_err(Failure::usage)?;
    let mut dirs = a.bin_dir.clone();
    if dirs.is_empty() {
        let path = std::env::var_os("CNI_PATH").unwrap_or_default();
        dirs.extend(std::env::split_paths(&path).filter(|d| !d.as_os_str().is_empty()));
        dirs.push(PathBuf::from("/opt/cni/bin"));
    }
    Ok((Runner::new(dirs, &a.cache_dir), list))
}

fn attachment(a: &CniArgs) -> Result<Attachment, Failure> {
    let pairs = a.args.split(';').filter(|p| !p.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            Failure::usage(format!("--args: {pair:?} has no \"=\"; write K=V;K=V"))
        })?;
        Ok((key.to_owned(), value.to_owned()))
    });
    let capability_args = serde_json::from_str(&a.capability_args).map_err(|e| {
        Failure::usage(format!(
            "--capability-args: not a JSON object ({e}); write {{\"name\": value}}"
        ))
    })?;
    let attachment = Attachment {
        container_id: a.id.clone(),
        netns: a.netns.clone(),
        ifname: a.ifname.clone(),
        args: pairs.collect::<Result<_, Failure>>()?,
        capability_args,
    };
    attachment.validate().map_err(Failure::usage)?;
    Ok(attachment)
}

fn kept(a: &GcArgs) -> Result<Vec<Attachment>, Failure> {
    a.keep
        .iter()
        .map(|k| {
            let (id, ifname) = k.split_once('/').ok_or_else(|| {
                Failure::usage(format!("--keep: {k:?} has no \"/\"; write ID/IFNAME"))
            })?;
            let (container_id, ifname) = (id.to_owned(), ifname.to_owned());
            Ok(Attachment {
                container_id,
                ifname,
                ..Attachment::default()
            })
        })
        .collect()
}
