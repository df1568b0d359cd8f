//! `weir cni`: the plugin runner.

use super::args::namespace;
use super::failure::{Failure, code};
use super::help::{self, with};
use super::output;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use weir_netlink::Netns;
use weir_runner::{Attachment, Error, NetworkList, PodNetworks, Runner};

#[derive(Debug, Subcommand)]
pub(super) enum CniCommand {
    /// Attach a namespace: call ADD of every plugin in order; if one fails, DEL of all
    #[command(after_help = with(help::CNI_ADD, help::RUNS_PLUGINS))]
    Add(Box<PodArgs>),
    /// Check an attachment: every plugin in order
    #[command(after_help = with(help::CNI_CHECK, help::RUNS_PLUGINS))]
    Check(Box<PodArgs>),
    /// Detach a namespace: every plugin in reverse order; twice is success
    #[command(after_help = with(help::CNI_DEL, help::RUNS_PLUGINS))]
    Del(Box<PodArgs>),
    /// Detach the attachments to the network of --conf, except those given by --keep or made with --networks, and call GC of its plugins
    #[command(after_help = with(help::CNI_GC, help::RUNS_PLUGINS))]
    Gc(GcArgs),
    /// Ask the plugins whether they are ready for ADD
    #[command(after_help = with(help::CNI_STATUS, help::RUNS_PLUGINS))]
    Status(ListArgs),
    /// Print the CNI versions that the plugins support
    #[command(after_help = with(help::CNI_VERSION, help::RUNS_PLUGINS))]
    Version(ListArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// A .conf, .json or .conflist file
    #[arg(long, value_name = "FILE")]
    pub(super) conf: PathBuf,
    /// A directory of plugins; may be repeated [default: $CNI_PATH, then /opt/cni/bin]
    #[arg(long, value_name = "DIR")]
    pub(super) bin_dir: Vec<PathBuf>,
    /// The directory for results between calls
    #[arg(long, value_name = "DIR", default_value = weir_runner::DEFAULT_CACHE_DIR)]
    pub(super) cache_dir: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct CniArgs {
    #[command(flatten)]
    pub(super) list: ListArgs,
    /// The network namespace: a name in `ip netns list`, or a path; for `del` it may be empty
    #[arg(long, value_name = "NAME|PATH", default_value = "", value_parser = namespace_or_none)]
    pub(super) netns: String,
    /// The container's id
    #[arg(long, value_name = "ID")]
    pub(super) id: String,
    /// The interface in the namespace
    #[arg(long, value_name = "NAME", default_value = "eth0")]
    pub(super) ifname: String,
    /// CNI_ARGS
    #[arg(long, value_name = "K=V;...", default_value = "")]
    pub(super) args: String,
    /// Values for the plugins' capabilities, a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(super) capability_args: String,
}

/// The networks of a pod under Multus.
#[derive(Debug, Args)]
pub(super) struct PodArgs {
    #[command(flatten)]
    pub(super) attachment: CniArgs,
    /// Further networks, as the annotation k8s.v1.cni.cncf.io/networks selects them; called after the one of --conf, for `del` before
    /// it, last one first
    #[arg(long, value_name = "[NAMESPACE/]NAME[@INTERFACE],...")]
    pub(super) networks: Option<String>,
    /// The directory of those networks' configurations
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/multus/net.d")]
    pub(super) net_dir: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct GcArgs {
    #[command(flatten)]
    pub(super) list: ListArgs,
    /// An attachment to keep; may be repeated
    #[arg(long, value_name = "ID/IFNAME")]
    pub(super) keep: Vec<String>,
}

fn namespace_or_none(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    namespace(text).map(|path| path.to_string_lossy().into_owned())
}

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
            Ok(code::SUCCESS)
        }
        CniCommand::Del(a) => {
            let pod = Pod::of(&a)?;
            let deleted = pod.runner.del_pod(&pod.networks, &pod.attachment);
            deleted.map_err(failure)?;
            Ok(code::SUCCESS)
        }
        CniCommand::Gc(a) => {
            let (runner, list) = load(&a.list)?;
            runner
                .gc_pods(&list.into(), &kept(&a)?)
                .map_err(Failure::failed)?;
            Ok(code::SUCCESS)
        }
        CniCommand::Status(a) => {
            let (runner, list) = load(&a)?;
            runner.status(&list).map_err(Failure::failed)?;
            Ok(code::SUCCESS)
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

/// The arguments of ADD, CHECK and DEL.
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

/// Interface names of the networks are only compared when the networks are attached: a configuration error is a usage error.
fn failure(e: Error) -> Failure {
    match e {
        Error::Config { .. } => Failure::usage(e),
        e => Failure::failed(e),
    }
}

/// Checks that the network namespace exists: plugins report this in different words or not at all. For DEL it may be gone.
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
