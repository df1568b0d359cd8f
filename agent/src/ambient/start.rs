//! Begins: the host's rules, ztunnel's socket, the watch of rules, and the thread that deals with pods.

use super::ebpf::{Programs, bpffs_of_node};
use super::entry::Entry;
use super::hands::{Hands, Rules};
use super::keeper::{self, Keeper, Told};
use super::kernel::{HostRules, Kernel};
use super::roster::Roster;
use super::settings::AmbientSettings;
use super::zds::{self, All, Ztunnel};
use crate::dataplane::ambient::Ambient;
use crate::drift::{Drift, Drifted, Wake, follow, on_commit};
use crate::reconcile::{self, Limits};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weir_core::api::access::Access;
use weir_core::api::actions::Actions;
use weir_core::api::connection::Connection;
use weir_core::journal::Journal;
use weir_core::journal::ambient::{Event, Proxy};
use weir_core::pods::Pods;
use weir_core::sandboxes::Sandboxes;
use weir_core::thread::rights;
use weir_core::thread::task::Tasks;
use weir_zds::{Options, Server};

/// Threads that work in namespaces at once.
const WORKERS: usize = 4;
/// How long the work for one pod keeps others waiting: ztunnel may take its time.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the host's rules are looked at; while they cannot be made, the second.
const HOST: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(2));

/// Deals with the pods of ambient mode for as long as the process lives. What it gives is where the plugin hands pods
/// over.
///
/// # Errors
/// The API server's address cannot be used; ztunnel's socket cannot be bound; no thread or runtime.
pub(crate) fn start(
    settings: &AmbientSettings,
    access: &Access,
    node: &str,
    (pods, sandboxes): (Pods, Sandboxes),
    journal: &Journal,
    tasks: &Tasks,
) -> Result<(Entry, Server), String> {
    let settings = Arc::new(settings.clone());
    let connection = Connection::of_actions(access)?;
    let node = node.to_owned();
    let (roster, told, drifted) = (Roster::default(), Told::default(), Drifted::default());
    let wake = Wake::default();
    let changes = wake.subscribe();
    let all = All {
        roster: roster.clone(),
        sandboxes: sandboxes.clone(),
    };
    let observer = zds::Told {
        journal: journal.clone(),
        wake: wake.clone(),
    };
    let options = Options::new(settings.ztunnel.clone());
    let begin = || Server::start(options, Arc::new(all), Arc::new(observer));
    let (entered, begun) = rights::within("zds", begin).map_err(|e| format!("no thread: {e}"))?;
    journal.rights(entered);
    let server = begun.map_err(|e| {
        let path = settings.ztunnel.display();
        let why = format!("{path}: {e}");
        let failure = Some(why.clone());
        journal.record(Event::Proxy(Proxy::Socket { failure }));
        format!("cannot listen for ztunnel on {why}; is the directory of ZTUNNEL_UDS_ADDRESS mounted and writable?")
    })?;
    let drift = Drift::start(tasks, on_commit(drifted.clone(), wake.clone()));
    let drift = drift.map_err(|e| e.to_string())?;
    let host = host_rules(&settings, journal);
    let plane = Ambient {
        config: settings.rules.clone(),
        native_nftables: settings.native_nftables,
    };
    let bpffs = settings.bpffs.clone().unwrap_or_else(bpffs_of_node);
    let rules: Arc<dyn Rules> = match settings.by_ebpf {
        true => Arc::new(Programs::new(plane, sandboxes.clone(), &bpffs)?),
        false => Arc::new(Kernel {
            plane,
            sandboxes: sandboxes.clone(),
            drift: drift.clone(),
            live_proof: settings.live_proof,
            bpffs,
        }),
    };
    let hands = Hands {
        rules,
        proxy: Arc::new(Ztunnel(server.handle())),
        probes: Arc::new(host.clone()),
    };
    keep_host(host, tasks)?;
    let limits = Limits {
        workers: WORKERS,
        interval: Some(settings.interval),
        patience: PATIENCE,
        patience_of_round: PATIENCE * 5,
        least: Duration::from_millis(50),
    };
    let (handle, questions) = reconcile::handle();
    let entry = Entry {
        settings: Arc::clone(&settings),
        pods: pods.clone(),
        told: told.clone(),
        handle,
    };
    let journal = journal.clone();
    let work = async move {
        tokio::spawn(follow(pods.clone(), wake));
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
            began: false,
            proxy: None,
        };
        reconcile::run(keeper, changes, questions, limits).await;
    };
    tasks
        .start("ambient", || {}, work)
        .map_err(|e| e.to_string())?;
    Ok((entry, server))
}

fn host_rules(settings: &AmbientSettings, journal: &Journal) -> HostRules {
    let host = Path::new("/host/proc");
    let proc: PathBuf = match host.join("1").is_dir() {
        true => host.to_owned(),
        false => PathBuf::from("/proc"),
    };
    let of_first = settings.switches_to_host.then(|| proc.join("1/ns/net"));
    let netns = settings.host_netns.clone().or(of_first);
    HostRules::new(
        settings.rules.clone(),
        (settings.native_nftables, settings.branch_enis),
        netns,
        proc,
        journal.clone(),
    )
}

/// Looks at the host's rules again and again, on a thread of their own.
fn keep_host(host: HostRules, tasks: &Tasks) -> Result<(), String> {
    let work = async move {
        loop {
            let of_thread = host.clone();
            let healed = tokio::task::spawn_blocking(move || of_thread.heal()).await;
            let pause = match healed {
                Ok(Ok(())) => HOST.0,
                _ => HOST.1,
            };
            tokio::time::sleep(pause).await;
        }
    };
    tasks.start("host", || {}, work).map_err(|e| e.to_string())
}
