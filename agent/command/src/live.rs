//! `weir verify pod|netns --live`

use super::ambient_ebpf::refuse_elsewhere;
use super::args::namespace;
use super::failure::{Failure, code};
use super::output;
use clap::Args;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use weir_core::sandboxes::cri::sandbox::Runtime;
use weir_core::sandboxes::named;
use weir_ebpf::show::Of;
use weir_ebpf::{Bpffs, Pod};
use weir_live::{Answer, Counted, Direction, Plan, prove};
use weir_netlink::Netns;
use weir_preflight::system::bpffs as root;

#[derive(Debug, Args)]
pub(super) struct LivePodArgs {
    /// The pod; without a namespace, of the namespace default
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub(super) pod: String,
    /// Find the pod's network namespace by the container runtime at this socket, instead of by its processes
    #[arg(long, value_name = "SOCKET")]
    pub(super) cri_socket: Option<String>,
    #[command(flatten)]
    pub(super) live: LiveArgs,
}

#[derive(Debug, Args)]
pub(super) struct LiveNetnsArgs {
    /// The network namespace: a name in `ip netns list`, or a path, which has a slash
    #[arg(value_name = "NAME|PATH", value_parser = namespace)]
    pub(super) netns: PathBuf,
    #[command(flatten)]
    pub(super) live: LiveArgs,
}

#[derive(Debug, Args)]
pub(super) struct LiveArgs {
    /// Make connections (required; `verify sidecar` and `verify ambient` compare rules)
    #[arg(long, required = true)]
    pub(super) live: bool,
    /// The network namespace that inbound connections come from [default: that of this process]
    #[arg(long, value_name = "NAME|PATH", value_parser = namespace, conflicts_with = "outbound_only")]
    pub(super) from: Option<PathBuf>,
    /// Make no inbound connection
    #[arg(long)]
    pub(super) outbound_only: bool,
    /// A name server to which DNS queries of the pod are captured; may be repeated [default: DNS is not tried]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) dns: Vec<IpAddr>,
    /// The destination of an outbound connection; may be repeated [default: 192.0.2.1, and 2001:db8::1 for IPv6]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) to: Vec<IpAddr>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// `weir verify netns --live`
pub(super) fn netns(a: &LiveNetnsArgs) -> Result<u8, Failure> {
    run(&open(&a.netns)?, &a.live)
}

/// `weir verify pod --live`
pub(super) fn pod(a: &LivePodArgs) -> Result<u8, Failure> {
    let (namespace, name) = a.pod.split_once('/').unwrap_or(("default", &a.pod));
    let runtime = a.cri_socket.as_deref().map(Runtime::at).transpose();
    let runtime = runtime.map_err(Failure::usage)?;
    let netns = named::find(namespace, name, runtime).map_err(Failure::unknown)?;
    run(&netns, &a.live)
}

fn open(path: &Path) -> Result<Netns, Failure> {
    let unknown = |e: &weir_netlink::Error| Failure::unknown(e);
    Netns::open(path).map_err(|e| Failure::of_namespace(&e, unknown))
}

/// The programs that redirect a pod; `None` without any.
///
/// # Errors
/// It is unknown whether there are programs.
fn programs<'a>(netns: &'a Netns, bpffs: &'a Bpffs) -> Result<Option<Pod<'a>>, String> {
    let pod = match Pod::of(netns, bpffs) {
        // It is no pod's namespace.
        Err(e) if e.errno().is_none() => return Ok(None),
        pod => pod.map_err(|e| e.to_string())?,
    };
    match (pod.is_present(), pod.captured(false)) {
        (Ok(false), _) => Ok(None),
        (Ok(true), Some(_)) => Ok(Some(pod)),
        (Ok(true), None) => Err("the counters of its pinned programs cannot be read".to_owned()),
        (Err(e), _) => Err(e.to_string()),
    }
}

fn run(netns: &Netns, a: &LiveArgs) -> Result<u8, Failure> {
    let caller = match (&a.from, a.outbound_only) {
        (_, true) => None,
        (Some(path), _) => Some(open(path)?),
        (None, _) => Some(Netns::current().map_err(Failure::unknown)?),
    };
    if caller.as_ref().is_some_and(|c| c.id() == netns.id()) {
        return Err(Failure::usage(
            "a caller in the same namespace proves nothing about inbound connections: name another one with --from, \
             or give --outbound-only",
        ));
    }
    let bpffs = Bpffs::if_mounted(&root());
    let found = match &bpffs {
        Ok(bpffs) => bpffs.as_ref().map_or(Ok(None), |b| programs(netns, b)),
        Err(e) => Err(e.to_string()),
    };
    let found = found.and_then(
        |programs| match (programs, refuse_elsewhere([netns], Of::Pod)) {
            (None, Err(e)) => Err(e.to_string()),
            (programs, _) => Ok(programs),
        },
    );
    let (programs, unread) = match found {
        Ok(programs) => (programs, None),
        Err(why) => (None, Some(why)),
    };
    let count = |of: Direction| {
        let pod = programs.as_ref()?;
        match of {
            Direction::Inbound => pod.captured_inbound(),
            Direction::Outbound | Direction::Dns => pod.captured(of == Direction::Dns),
        }
    };
    let counted: Counted<'_> = &count;
    let plan = Plan {
        destinations: a.to.clone(),
        name_servers: a.dns.clone(),
        all: true,
        caller: caller.as_ref(),
        counted: programs.is_some().then_some(counted),
        // If that is unknown, a refused connection does not prove that others are not captured.
        passes: caller
            .as_ref()
            .zip(programs.as_ref())
            .is_some_and(|(caller, pod)| pod.lets_pass(caller).unwrap_or(true)),
        ..Plan::default()
    };
    let proof = prove(netns, &plan).map_err(Failure::unknown)?;
    if let (Some(why), Answer::No) = (unread, proof.answer()) {
        return Err(Failure::unknown(format!(
            "connections of {} are not redirected by rules, and it is unknown whether eBPF programs capture them: {why}; run this \
             as root of the node, or name the right file system in WEIR_BPFFS",
            netns.id()
        )));
    }
    match a.json {
        true => output::json(&proof.json())?,
        false => output::text(&proof.to_string())?,
    };
    Ok(match proof.answer() {
        Answer::Yes => code::SUCCESS,
        Answer::No => code::FAILED,
        Answer::Unknown => code::UNKNOWN,
    })
}
