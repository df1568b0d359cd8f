//! The parts that run beside the installer: the servers, the watch of pods, repair, ambient mode.

use super::Settings;
use crate::ambient::{self, Ending, Former, Server};
use crate::repair;
use crate::serve::{self, Ports, Ready, Reserve, Sockets};
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use weir_cni::log::Level;
use weir_core::api::access::Access;
use weir_core::api::connection::Connection;
use weir_core::api::events::Recorder;
use weir_core::journal::serve::{Event, Socket};
use weir_core::journal::{Journal, Ring, api, pod, watch};
use weir_core::log::Log;
use weir_core::pods::Pods;
use weir_core::pods::watch::Watch;
use weir_core::sandboxes::Sandboxes;
use weir_core::sandboxes::cri::{self, sandbox::Runtime};
use weir_core::settings::Resolved;
use weir_core::thread::task::Tasks;
use weir_show::metrics::Metrics;
use weir_show::status::Status;

fn no_socket(path: &Path, e: &io::Error) -> String {
    let path = path.display();
    format!("cannot listen on {path}: {e}; is CNI_AGENT_RUN_DIR mounted and writable?")
}

/// The inputs of all parts.
pub(crate) struct Parts<'a> {
    pub(crate) resolved: &'a Resolved,
    pub(crate) settings: &'a Settings,
    pub(crate) access: &'a Access,
    pub(crate) metrics: Metrics,
    pub(crate) status: Status,
    pub(crate) log: Log,
    /// The last events.
    pub(crate) events: Ring,
    pub(crate) journal: Journal,
    pub(crate) tasks: Tasks,
}

/// The results of the start.
pub(crate) struct Started {
    pub(crate) pods: Option<Pods>,
    pub(crate) names: Names,
    /// The server of ztunnel's socket. The socket file is left to the next agent.
    pub(crate) ztunnel: Option<Server>,
    /// Removes the state of ambient mode on the node when the agent is uninstalled.
    pub(crate) ending: Ending,
}

/// The paths of the sockets that this process bound; removed when dropped.
#[derive(Default)]
pub(crate) struct Names(Vec<PathBuf>);

impl Names {
    fn add(&mut self, listener: &UnixListener) {
        let address = listener.local_addr().ok();
        let name = address.and_then(|a| a.as_pathname().map(Into::into));
        self.0.extend(name);
    }

    /// Keeps the socket files for the next agent, which binds them again.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = std::fs::remove_file(name);
        }
    }
}

impl Parts<'_> {
    /// Starts all parts; they run until the process ends.
    ///
    /// # Errors
    /// A required socket cannot be bound, or a thread cannot be started.
    pub(crate) fn start(self, ready: Ready, reserve: Reserve) -> Result<Started, String> {
        let no_servers = |e| format!("cannot start the servers: {e}");
        // Before the sockets, of which an agent that cannot start would take the names from one that runs.
        let (ports, numbers) = (self.ports(reserve)?, self.metrics.clone());
        let mut sockets = self.bind()?;
        let mut names = Names::default();
        names.add(&sockets.logs);
        serve::start_ports(
            ports,
            ready,
            numbers,
            self.status.clone(),
            self.journal.clone(),
            &self.tasks,
        )
        .map_err(no_servers)?;
        sockets.pods = self.pods();
        let watched = sockets.pods.as_ref().map(|(_, watch)| watch.pods());
        if let Some(Err(why)) = watched.clone().map(|pods| self.events(pods)) {
            self.journal.record(api::Event::Off { why });
        }
        sockets.report = self.report();
        let pods = sockets.pods.as_ref().and_then(|(pods, _)| pods.as_ref());
        let report = sockets.report.as_ref().map(|(report, ..)| report);
        pods.into_iter().chain(report).for_each(|l| names.add(l));
        self.repair(&sockets);
        let (ztunnel, ending) = self.ambient(&mut sockets)?;
        let entry = sockets.entry.as_ref().map(|(listener, _)| listener);
        entry.into_iter().for_each(|l| names.add(l));
        let Self {
            metrics,
            status,
            log,
            journal,
            tasks,
            ..
        } = self;
        serve::start(
            sockets,
            metrics,
            status.clone(),
            (log, journal.clone()),
            &tasks,
        )
        .map_err(no_servers)?;
        status.ask_kernel(journal);
        Ok(Started {
            pods: watched,
            names,
            ztunnel,
            ending,
        })
    }

    fn ports(&self, reserve: Reserve) -> Result<Ports, String> {
        let settings = self.settings;
        let metrics = settings.monitoring_port.and_then(|port| {
            let bound = u16::try_from(port)
                .map_err(|_| "ports go to 65535".to_owned())
                .and_then(|port| serve::bind_port(port).map_err(|e| e.to_string()));
            let missing = |why| self.journal.record(Event::NoMetrics { port, why });
            bound.map_err(missing).ok()
        });
        let port = settings.health_port;
        let health = serve::bind_port(port).map_err(|e| {
            format!(
                "cannot listen on port {port} for health: {e}; WEIR_HEALTH_PORT chooses another"
            )
        })?;
        Ok(Ports {
            health,
            metrics,
            reserve,
        })
    }

    fn bind(&self) -> Result<Sockets, String> {
        let path = self.settings.run_dir.join(weir_cni::plugin::LOG_SOCKET);
        let logs = serve::bind_logs(&path).map_err(|e| no_socket(&path, &e))?;
        Ok(Sockets {
            run_dir: self.settings.run_dir.clone(),
            logs,
            pods: None,
            sandboxes: Sandboxes::asking(self.runtime()),
            entry: None,
            report: None,
        })
    }

    /// The container runtime, if its socket is set. An invalid path is reported when the settings are read.
    fn runtime(&self) -> Option<Runtime> {
        let socket = self.resolved.text(cri::SOCKET);
        Runtime::at(socket).ok().filter(|_| !socket.is_empty())
    }

    /// Starts the watch of this node's pods and binds the socket for the plugin's queries. Without either, the plugin
    /// queries the API server, so a failure does not stop the agent.
    fn pods(&self) -> Option<(Option<UnixListener>, Watch)> {
        let settings = self.settings;
        let path = settings.run_dir.join(weir_cni::plugin::POD_SOCKET);
        let begin = || {
            let node = &settings.node_name;
            if node.is_empty() {
                return Err("NODE_NAME is not set".to_owned());
            }
            let is_ambient = settings.ambient.is_some();
            Watch::new(self.access, node, is_ambient, self.journal.clone())
        };
        let watch = match begin() {
            Ok(watch) => watch,
            Err(why) => {
                self.journal.record(watch::Event::Off { why });
                // Left by an earlier agent.
                let _ = weir_zds::may_bind_at(&path).and_then(|()| std::fs::remove_file(&path));
                return None;
            }
        };
        let listener = self.listener(Socket::Pods, path);
        Some((listener, watch))
    }

    /// Binds the socket where operators' commands query this agent. It is optional.
    fn report(&self) -> Option<(UnixListener, Resolved, Ring)> {
        let path = self.settings.run_dir.join(weir_core::report::SOCKET);
        let listener = self.listener(Socket::Agent, path)?;
        Some((listener, self.resolved.clone(), self.events.clone()))
    }

    /// Binds an optional socket.
    fn listener(&self, socket: Socket, path: PathBuf) -> Option<UnixListener> {
        let missing = |e: io::Error| {
            let (path, why) = (path.clone(), e.to_string());
            let missing = Event::SocketMissing { socket, path, why };
            self.journal.record(missing);
        };
        serve::bind_for_root(&path).map_err(missing).ok()
    }

    /// Starts repair, which requires the watch of pods.
    fn repair(&self, sockets: &Sockets) {
        let (settings, journal) = (self.settings, &self.journal);
        let off = |why: &str, level| {
            let why = why.to_owned();
            journal.record(pod::Event::Off { why, level });
        };
        let Some(repair) = settings.repair.clone().filter(|r| r.action.is_some()) else {
            let why = "none of REPAIR_REPAIR_PODS, REPAIR_DELETE_PODS, REPAIR_LABEL_PODS is on";
            return off(why, Some(Level::Info));
        };
        let Some((_, watch)) = &sockets.pods else {
            let why = "the pods of this node are not watched";
            return off(why, Some(Level::Warn));
        };
        if repair.interval.is_none() {
            let why = "broken pods are deleted or labelled, and not repaired in place";
            off(why, None);
        }
        let (node, pods) = (&settings.node_name, watch.pods());
        let pods = (pods, sockets.sandboxes.clone());
        let begun = repair::start(
            repair,
            self.access,
            node,
            pods,
            journal.clone(),
            &self.tasks,
        );
        if let Err(why) = begun {
            off(&why, Some(Level::Warn));
        }
    }

    /// Starts ambient mode, which requires the watch of pods.
    fn ambient(&self, sockets: &mut Sockets) -> Result<(Option<Server>, Ending), String> {
        let Some(ambient) = &self.settings.ambient else {
            let former = Former::of(self.resolved);
            let ending = ambient::without(former, &self.journal, &self.tasks);
            return ending.map(|ending| (None, ending));
        };
        self.status.in_ambient_mode();
        let Some((_, watch)) = &sockets.pods else {
            return Err(
                "ambient mode needs the pods of this node, which are not watched; the log says why"
                    .to_owned(),
            );
        };
        let path = self.settings.run_dir.join(weir_cni::plugin::EVENT_SOCKET);
        let listener = serve::bind_logs(&path).map_err(|e| no_socket(&path, &e))?;
        let pods = (watch.pods(), sockets.sandboxes.clone());
        let node = &self.settings.node_name;
        let begun = ambient::start(ambient, self.access, node, pods, &self.journal, &self.tasks);
        let (entry, server, ending) = begun?;
        sockets.entry = Some((listener, entry));
        Ok((Some(server), ending))
    }

    /// Starts the recorder that sends events about pods to the API server.
    fn events(&self, pods: Pods) -> Result<(), String> {
        let connection = Connection::new(self.access)?;
        let settings = self.settings;
        let own = (settings.pod_namespace.clone(), settings.pod_name.clone());
        let own_pod = move || pods.get(&own.0, &own.1).map(|view| view.reference());
        let recorder = Recorder::start(
            &connection,
            &settings.node_name,
            own_pod,
            &self.journal,
            &self.tasks,
        )?;
        self.journal.add(recorder);
        Ok(())
    }
}
