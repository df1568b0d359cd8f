//! Starts ambient mode: the host's rules, ztunnel's socket, the watch of rules, and the thread that handles pods.

use super::ebpf::{self, ByPrograms};
use super::entry::Entry;
use super::former::{self, Former};
use super::hands::{Hands, Rules};
use super::keep;
use super::keeper::{self, Keeper, Told};
use super::kernel::Kernel;
use super::node::{self, AtNode, Places};
use super::packets;
use super::probes::HostRules;
use super::roster::Roster;
use super::settings::{AmbientSettings, Way};
use super::zds::{self, All, Ztunnel};
use crate::dataplane::ambient::Ambient;
use futures::future::{join, select};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::mpsc;
use weir_core::api::access::Access;
use weir_core::api::actions::Actions;
use weir_core::api::connection::Connection;
use weir_core::journal::Journal;
use weir_core::journal::ambient::{Event, Proxy};
use weir_core::pods::Pods;
use weir_core::sandboxes::Sandboxes;
use weir_core::thread::rights;
use weir_core::thread::task::Tasks;
use weir_drift::listener::{Listener, Of};
use weir_drift::{Attached, Drift, Drifted, Wake, follow, on_commit};
use weir_reconcile::Limits;
use weir_zds::{Options, Server};

/// Maximum time that the work for one pod delays other pods: ztunnel may be slow.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interval between checks of the directory of ztunnel's socket.
const LOOK: Duration = Duration::from_secs(5);
/// Time limit to remove everything from the node when the agent is uninstalled.
const END: Duration = Duration::from_secs(10);

/// Starts ambient mode, which runs until the process ends. Returns the entry where the plugin hands pods over, the server of
/// ztunnel's socket, and the removal of everything from the node.
///
/// # Errors
/// The address of the API server is invalid, ztunnel's socket cannot be bound, or a thread or its runtime cannot be started.
pub(crate) fn start(
    settings: &AmbientSettings,
    access: &Access,
    node: &str,
    (pods, sandboxes): (Pods, Sandboxes),
    journal: &Journal,
    tasks: &Tasks,
) -> Result<(Entry, Server, Ending), String> {
    let settings = Arc::new(settings.clone());
    let connection = Connection::of_actions(access)?;
    let node = node.to_owned();
    let (roster, told, drifted) = (Roster::default(), Told::default(), Drifted::default());
    let (wake, attached) = (Wake::default(), Attached::default());
    let changes = wake.subscribe();
    let all = All {
        roster: roster.clone(),
        sandboxes: sandboxes.clone(),
    };
    let observer = zds::Told {
        journal: journal.clone(),
        roster: roster.clone(),
        wake: wake.clone(),
    };
    let server = listen_for_ztunnel(&settings.ztunnel, all, observer, journal)?;
    let on_change = on_commit(drifted.clone(), wake.clone());
    let drift = Drift::start(tasks, Arc::clone(&on_change)).map_err(|e| e.to_string())?;
    let plane = Ambient {
        config: settings.rules.clone(),
        native_nftables: settings.native_nftables,
        unwatched: false,
    };
    if matches!(settings.way, Way::Programs | Way::NodePrograms) {
        let bpffs = settings.bpffs();
        packets::start(&settings, bpffs, &pods, journal, tasks)?;
    }
    let known = (pods.clone(), sandboxes.clone());
    let hands = match settings.way {
        Way::Node | Way::NodePrograms => at_node(&settings, plane, known, journal, tasks)?,
        Way::Rules | Way::Programs => {
            let host = kept_host(&settings, known, journal, tasks)?;
            Hands {
                rules: in_pod(&settings, plane, (&sandboxes, &drift, &attached))?,
                proxy: Arc::new(Ztunnel(server.handle())),
                probes: Arc::new(host),
            }
        }
    };
    let probes = Arc::clone(&hands.probes);
    let ending = Ending::of(move || probes.end(), std::future::ready(()), tasks)?;
    let limits = Limits::usual(Some(settings.interval), PATIENCE);
    let lost = lost(settings.ztunnel.clone(), journal.clone());
    let (handle, questions) = weir_reconcile::handle();
    let entry = Entry {
        settings: Arc::clone(&settings),
        pods: pods.clone(),
        told: told.clone(),
        roster: roster.clone(),
        sandboxes: sandboxes.clone(),
        handle,
    };
    let journal = journal.clone();
    let work = async move {
        tokio::spawn(follow(pods.clone(), wake));
        if settings.way == Way::Programs {
            tokio::spawn(attached.watch(on_change));
            let (root, journal) = (settings.bpffs(), journal.clone());
            tokio::spawn(ebpf::sweeps(root, pods.clone(), journal, ebpf::SWEEP));
        }
        let keeper = Keeper {
            settings,
            pods,
            sandboxes,
            hands,
            roster,
            annotate: keeper::annotate(Actions::new(&connection, &node)),
            told,
            drifted,
            drift,
            journal,
            memory: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            began: false,
            proxy: None,
            all_captured: false,
        };
        let run = weir_reconcile::run(keeper, changes, questions, limits);
        select(pin!(run), pin!(lost)).await;
    };
    tasks
        .start("ambient", || {}, work)
        .map_err(|e| e.to_string())?;
    Ok((entry, server, ending))
}

fn listen_for_ztunnel(
    path: &Path,
    all: All,
    observer: zds::Told,
    journal: &Journal,
) -> Result<Server, String> {
    let options = Options::new(path.to_owned());
    let begin = || Server::start(options, Arc::new(all), Arc::new(observer));
    let (entered, begun) = rights::within("zds", begin).map_err(|e| e.to_string())?;
    journal.rights(entered);
    begun.map_err(|e| {
        let why = format!("{}: {e}", path.display());
        let failure = Some(why.clone());
        journal.record(Event::Proxy(Proxy::Socket { failure }));
        format!("cannot listen for ztunnel on {why}; ZTUNNEL_UDS_ADDRESS names it, and its directory has to be mounted and writable")
    })
}

/// Waits until the directory of ztunnel's socket is deleted on the node: this container's mount still shows the deleted directory, and
/// ztunnel does not see a socket in it.
async fn lost(socket: PathBuf, journal: Journal) {
    let dir = socket.parent().unwrap_or(Path::new("/"));
    while std::fs::metadata(dir).map_or(true, |meta| meta.nlink() > 0) {
        tokio::time::sleep(LOOK).await;
    }
    let failure = Some(format!(
        "{} was deleted on the node, and only a new container sees the one in its place",
        dir.display()
    ));
    journal.record(Event::Proxy(Proxy::Socket { failure }));
}

/// Returns the implementation that captures in the network namespaces of pods.
fn in_pod(
    settings: &AmbientSettings,
    plane: Ambient,
    (sandboxes, drift, attached): (&Sandboxes, &Drift, &Attached),
) -> Result<Arc<dyn Rules>, String> {
    let (sandboxes, drift) = (sandboxes.clone(), drift.clone());
    if settings.way == Way::Programs {
        let known = (sandboxes, drift, attached.clone());
        return Ok(Arc::new(ByPrograms::new(plane, known, settings)?));
    }
    let ((_, host), bpffs) = (settings.host.clone(), settings.bpffs());
    let root = bpffs.clone();
    // A loss is reported only if it is known to be one.
    let at_node = move || former::is_at_node(host.as_deref(), &root).unwrap_or(true);
    Ok(Arc::new(Kernel {
        plane,
        sandboxes,
        drift,
        live_proof: settings.live_proof,
        bpffs,
        at_node: LazyLock::new(Box::new(at_node)),
    }))
}

/// Returns the implementation that captures at the node, whose state is kept from now on.
fn at_node(
    settings: &Arc<AmbientSettings>,
    plane: Ambient,
    known: (Pods, Sandboxes),
    journal: &Journal,
    tasks: &Tasks,
) -> Result<Hands, String> {
    let (_, netns) = settings.host.clone();
    let places = Places {
        netns: netns.clone(),
        bpffs: settings.bpffs(),
    };
    let node = AtNode::new(Arc::clone(settings), plane, known, places, journal.clone());
    let listener = Listener::new(netns, Of::All, journal.clone());
    keep::node(node.clone(), listener, keep::PACE, tasks)?;
    let node = Arc::new(node);
    Ok(Hands {
        rules: node.clone(),
        proxy: node.clone(),
        probes: node,
    })
}

/// Returns the rules of the host for probes, which are kept from now on.
fn kept_host(
    settings: &Arc<AmbientSettings>,
    (pods, sandboxes): (Pods, Sandboxes),
    journal: &Journal,
    tasks: &Tasks,
) -> Result<HostRules, String> {
    let (proc, netns) = settings.host.clone();
    let of_former = Arc::clone(settings);
    let host = HostRules::new(
        settings.rules.clone(),
        (settings.native_nftables, settings.branch_enis),
        netns.clone(),
        (proc, settings.bpffs()),
        move || node::former(&of_former, &pods, &sandboxes),
        journal.clone(),
    );
    let host = match settings.way {
        Way::Programs => host.without_rules(),
        _ => host,
    };
    let listener = Listener::new(netns, Of::Rules, journal.clone());
    keep::host(host.clone(), listener, keep::PACE, tasks)?;
    Ok(host)
}

/// Handles ambient mode being off: what an earlier agent left at the node is removed, now and when this agent is uninstalled. An
/// agent without the required capabilities, which may only install the plugin, removes nothing; the log says so.
///
/// # Errors
/// The thread or its runtime cannot be started.
pub(crate) fn without(former: Former, journal: &Journal, tasks: &Tasks) -> Result<Ending, String> {
    if !rights::may_change_networks() {
        return Ending::of(|| Ok(Vec::new()), std::future::ready(()), tasks);
    }
    let former = Arc::new(former);
    let first = former::removed(Arc::clone(&former), journal.clone());
    Ending::of(move || former.remove(), first, tasks)
}

/// Removes the state of ambient mode in the node's network namespace; see [`Ending::remove`].
pub(crate) struct Ending(mpsc::Sender<Answer>);

/// What was removed, one line each, or what may still be present.
pub(super) type Removed = Result<Vec<String>, String>;
type Answer = std::sync::mpsc::SyncSender<Removed>;

impl Ending {
    /// Starts a thread with the required capabilities, which runs `first` and then calls `end` on request.
    fn of(
        end: impl Fn() -> Removed + Send + Sync + 'static,
        first: impl Future<Output = ()> + Send + 'static,
        tasks: &Tasks,
    ) -> Result<Self, String> {
        let (ask, mut asked) = mpsc::channel::<Answer>(1);
        let end = Arc::new(end);
        let answers = async move {
            while let Some(answer) = asked.recv().await {
                let end = Arc::clone(&end);
                let ended = tokio::task::spawn_blocking(move || end()).await;
                let _ = answer.send(ended.unwrap_or_else(|e| Err(e.to_string())));
            }
            // The end of a task would be reported.
            std::future::pending::<()>().await;
        };
        let work = async move {
            join(first, answers).await;
        };
        let started = tasks.start("host", || {}, work);
        started.map_err(|e| e.to_string()).map(|()| Self(ask))
    }

    /// Called when the agent is uninstalled, not when another agent follows: removes rules for probes, address sets and policy
    /// rules; if the node captures, everything that captures there. Rules in pods stay, as upstream.
    ///
    /// # Errors
    /// What may still be present.
    pub(crate) fn remove(&self) -> Removed {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let asked = self.0.blocking_send(answer).map_err(|e| e.to_string());
        asked.and_then(|()| {
            let late = |_| format!("the rules of the node were not removed within {END:?}");
            answered.recv_timeout(END).unwrap_or_else(|e| Err(late(e)))
        })
    }
}
