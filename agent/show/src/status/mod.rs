//! The state of the agent and its node: an HTML page for people, JSON for programs.
//!
//! ```text
//! journal, survey -> Status (shared, small)
//! Status -> Facts (plain, of one moment) -> page::html, JSON
//! ```
//! [`Status`] is a sink of the journal: a request triggers no work.

mod ambient;
mod facts;
mod kernel;
mod page;
mod text;

pub use facts::Facts;
use facts::{Condition, Failure, InstallFacts, KernelJobs, Time};
pub use page::{POLICY, html};

use crate::metrics::Metrics;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};
use weir_core::journal::pod::{self, PodState, Unasked};
use weir_core::journal::serve::{self, Socket};
use weir_core::journal::watch::{self, Objects};
use weir_core::journal::{Event, Journal, Sink, cut, install};
use weir_preflight::system::kernel_release;

/// The recorded state. Clones share it.
#[derive(Clone)]
pub struct Status(Arc<Shared>);

struct Shared {
    node: String,
    kernel: String,
    began: (SystemTime, Instant),
    metrics: Metrics,
    state: Mutex<State>,
}

struct State {
    install: InstallFacts,
    failing: Option<Failing>,
    watch: Condition,
    /// State of the watch of namespaces, if pods depend on them.
    namespaces: Option<Condition>,
    /// State of the plugin's pod socket.
    pod_socket: Condition,
    /// Reason why log lines of the plugin do not arrive.
    log_socket: Option<String>,
    pods: Pods,
    unasked: Arc<[Unasked]>,
    /// Number of pods without a request that could not be examined, and the reason for the first.
    unseen: (usize, Option<String>),
    /// `None` without ambient mode.
    ambient: Option<ambient::Ambient>,
    jobs: KernelJobs,
    /// Reason why nothing can be opened, while file descriptors are exhausted.
    exhausted: Option<String>,
}

/// The last check of the installation was not completed.
#[derive(Clone)]
struct Failing {
    why: String,
    /// What changed in the installation; `None` if it is unchanged.
    damage: Option<String>,
}

impl State {
    fn watched(&mut self, of: &Objects, condition: Condition) {
        match of {
            Objects::Pods(_) => self.watch = condition,
            Objects::Namespaces { needed } => self.namespaces = needed.then_some(condition),
        }
    }

    /// Returns the watch that does not work, if either fails.
    fn watch(&self) -> &Condition {
        match &self.namespaces {
            Some(namespaces) if self.watch.state == "synced" => namespaces,
            _ => &self.watch,
        }
    }

    fn installation(&mut self, event: &install::Event) {
        let install = &mut self.install;
        let path = |path: &Option<PathBuf>| path.as_ref().map(|p| p.display().to_string());
        match event {
            install::Event::Installed {
                configuration,
                preempted,
                ..
            } => {
                install.ready = preempted.is_none();
                install.preempted = preempted.as_deref().map(cut);
                install.configuration = path(configuration);
                install.last_pass = Some(Time(SystemTime::now()));
                self.failing = None;
            }
            install::Event::NotInForce { configuration } => {
                install.ready = false;
                install.preempted = None;
                install.configuration = path(configuration);
            }
            install::Event::Failed { why, retry, .. } | install::Event::Waits { why, retry } => {
                install.last_failure = Some(failure(why));
                if let Some(retry) = retry {
                    self.failing = Some(Failing {
                        why: cut(why),
                        damage: retry.damage.as_deref().map(cut),
                    });
                }
            }
            install::Event::Contention { .. } => {
                install.last_failure = Some(failure(&event.about().text));
            }
            _ => {}
        }
    }
}

fn failure(why: &str) -> Failure {
    Failure {
        time: Time(SystemTime::now()),
        reason: cut(why),
    }
}

/// Result of verification.
#[derive(Clone)]
enum Pods {
    /// Verification is off, for this reason.
    Off(String),
    /// The first pass is not complete yet.
    Begins,
    /// Result of the last pass.
    Seen(Arc<[PodState]>),
}

impl Sink for Status {
    fn record(&self, _: SystemTime, event: &Event) {
        if let Event::Serve(event) = event {
            return self.served(event);
        }
        let mut state = self.state();
        match event {
            Event::Pod(pod::Event::Off { why, .. }) => state.pods = Pods::Off(cut(why)),
            Event::Pod(pod::Event::Seen { expected }) => {
                state.pods = Pods::Seen(Arc::clone(expected));
            }
            Event::Pod(pod::Event::RoundEnded {
                unasked, unseen, ..
            }) => {
                state.unasked = Arc::clone(unasked);
                state.unseen = (unseen.0, unseen.1.as_deref().map(cut));
            }
            Event::Watch(watch::Event::Off { why }) => {
                let off = Condition::new("off", Some(why));
                (state.watch, state.pod_socket) = (off.clone(), off);
            }
            Event::Watch(watch::Event::Begins { of }) => {
                state.watched(of, Condition::new("begins", None));
            }
            Event::Watch(watch::Event::Works { of, left_out, .. }) => {
                let condition = match left_out {
                    None => Condition::new("synced", None),
                    Some(why) => Condition::new("trouble", Some(why)),
                };
                state.watched(of, condition);
            }
            Event::Watch(watch::Event::Fails { of, why, .. }) => {
                let why = match of {
                    Objects::Pods(_) => why.clone(),
                    Objects::Namespaces { .. } => format!("the {of} are not watched: {why}"),
                };
                state.watched(of, Condition::new("trouble", Some(&why)));
            }
            Event::Install(event) => state.installation(event),
            // Without ambient mode, events report what an earlier agent left behind.
            Event::Ambient(event) => {
                if let Some(ambient) = &mut state.ambient {
                    ambient.record(event);
                }
            }
            Event::Pod(_)
            | Event::Watch(_)
            | Event::Api(_)
            | Event::Process(_)
            | Event::Serve(_) => {}
        }
    }
}

impl Status {
    /// Creates the state of an agent that starts now and installs the plugin into `programs`.
    pub fn new(node: &str, programs: &Path, metrics: Metrics) -> Self {
        let install = InstallFacts {
            programs: programs.display().to_string(),
            ..InstallFacts::default()
        };
        Self(Arc::new(Shared {
            node: node.to_owned(),
            kernel: kernel_release(),
            began: (SystemTime::now(), Instant::now()),
            metrics,
            state: Mutex::new(State {
                install,
                failing: None,
                watch: Condition::new("begins", None),
                namespaces: None,
                pod_socket: Condition::new("off", Some("the agent starts")),
                log_socket: None,
                pods: Pods::Begins,
                unasked: Arc::default(),
                unseen: (0, None),
                jobs: KernelJobs {
                    state: "asking",
                    reason: None,
                    jobs: Vec::new(),
                },
                ambient: None,
                exhausted: None,
            }),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No holder of the lock panics in the middle of a change.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the agent as running in ambient mode.
    pub fn in_ambient_mode(&self) {
        self.state().ambient.get_or_insert_default();
    }

    fn served(&self, event: &serve::Event) {
        let mut state = self.state();
        match (event, event.of_socket()) {
            (_, Some((Socket::Pods, failure))) => {
                state.pod_socket = match &failure {
                    None => Condition::new("bound", None),
                    Some(_) => Condition::new("failed", failure.as_deref()),
                };
            }
            (_, Some((Socket::Lines, failure))) => {
                state.log_socket = failure.as_deref().map(cut);
            }
            // A pod that cannot be handed over does not start, and the runtime reports the reason. Nothing depends on the
            // operator's socket.
            (_, Some((Socket::Entry | Socket::Agent, _))) => {}
            (serve::Event::DescriptorsExhausted { why }, _) => state.exhausted = Some(why.clone()),
            (serve::Event::DescriptorsFree, _) => state.exhausted = None,
            _ => {}
        }
    }

    /// Returns the reason why the agent is not ready although the plugin is installed. Only problems of this process or its
    /// mounts count: an unreachable API server would make all agents unready at once, and restarting them would not
    /// help.
    pub(crate) fn not_ready(&self) -> Option<String> {
        self.missing().into_iter().next().map(|(_, why)| why)
    }

    /// Returns the unmet readiness conditions besides the installation, each with the reason.
    pub fn missing(&self) -> Vec<(&'static str, String)> {
        let state = self.state();
        let exhausted = state.exhausted.as_ref();
        let pods = Some(&state.pod_socket).filter(|socket| socket.state == "failed");
        let pods = pods.map(|socket| socket.reason.as_deref().unwrap_or_default());
        let guards = [
            (
                "descriptors free",
                exhausted.map(|why| format!("this agent can open nothing: {why}")),
            ),
            (
                "sockets bound",
                pods.map(|why| format!("the plugin cannot ask this agent for pods: {why}")),
            ),
            (
                "sockets bound",
                state
                    .log_socket
                    .as_ref()
                    .map(|why| format!("the plugin's lines do not reach this agent: {why}")),
            ),
            ("pods verified", self.overdue()),
        ];
        let ambient = state.ambient.iter().flat_map(ambient::Ambient::missing);
        let missing = |(name, why): (_, Option<String>)| Some((name, why?));
        guards
            .into_iter()
            .chain(ambient)
            .filter_map(missing)
            .collect()
    }

    /// Returns the reason why the plugin is not known to be installed and in force. The kubelet shows it.
    pub fn not_installed(&self) -> String {
        let state = self.state();
        let install = &state.install;
        match (&state.failing, &install.last_failure) {
            (Some(Failing { why, damage: None }), _) => {
                format!("the CNI plugin is installed; the last check failed: {why}; it is retried")
            }
            (
                Some(Failing {
                    why,
                    damage: Some(damage),
                }),
                _,
            ) => format!(
                "the installation of the CNI plugin was changed: {damage}; repairing it failed: {why}; it is retried"
            ),
            (None, _) if install.last_pass.is_some() => {
                "the CNI plugin was installed at the last check; something changed, and it is being checked again"
                    .to_owned()
            }
            (None, Some(Failure { reason, .. })) => {
                format!("the CNI plugin is not installed yet: {reason}")
            }
            (None, None) => {
                "the CNI plugin is not installed yet; the log says what is missing".to_owned()
            }
        }
    }

    /// Returns a message if verification is overdue.
    fn overdue(&self) -> Option<String> {
        let since = self.0.metrics.overdue()?.as_secs();
        Some(format!(
            "no verification pass has ended for {since} s, so the state of pods is outdated; see the agent's log, or restart the agent"
        ))
    }

    /// Probes the kernel in the background, once.
    pub fn ask_kernel(&self, journal: Journal) {
        kernel::ask(self.clone(), journal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_that_changed_is_not_called_installed() {
        let status = Status::new("node", Path::new("/nonexistent"), Metrics::new());
        let installed = install::Event::Installed {
            configuration: None,
            preempted: None,
            quiet: false,
        };
        for event in [
            installed,
            install::Event::NotInForce {
                configuration: None,
            },
        ] {
            status.record(SystemTime::now(), &event.into());
        }
        let why = status.not_installed();
        assert!(
            why.contains("was installed") && !why.contains("is installed"),
            "{why}"
        );
    }
}
