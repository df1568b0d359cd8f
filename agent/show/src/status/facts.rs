//! A snapshot as plain values: the content of the page and of `/status.json`.

use super::ambient::AmbientFacts;
use super::text::absolute;
use super::{Pods, Status};
use crate::metrics::ratio;
use serde::{Serialize, Serializer};
use std::sync::Arc;
use std::time::SystemTime;
use weir_core::journal::cut;
use weir_core::journal::pod::{Mode, PodState, Unasked};
use weir_preflight::JobReport;

/// The snapshot. Field names are stable.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// `NODE_NAME`, or empty.
    pub(super) node: String,
    /// Version of weir.
    pub(super) version: &'static str,
    /// `uname -r`
    pub(super) kernel: String,
    /// Time of the snapshot.
    pub(super) time: Time,
    /// Start time of the agent.
    pub(super) started: Time,
    pub(super) uptime_seconds: u64,
    pub(super) install: InstallFacts,
    /// `off`, `begins`, `synced` or `trouble`.
    pub(super) pod_watch: Condition,
    /// State of the plugin's pod socket: `off`, `bound` or `failed`.
    pub(super) pod_socket: Condition,
    pub(super) verification: Verification,
    /// Reason why the agent is not ready although the plugin is installed.
    pub(super) not_ready: Option<String>,
    /// Pods that do not request redirection and had rules of weir.
    pub(super) unasked: Vec<UnaskedFacts>,
    /// Pods that do not request redirection and could not be checked.
    pub(super) unasked_unseen: Unseen,
    /// Pods that request redirection, ordered by namespace and name.
    pub(super) pods: Vec<PodFacts>,
    /// `null` without ambient mode.
    pub(super) ambient: Option<AmbientFacts>,
    pub(super) kernel_jobs: KernelJobs,
}

/// A time, serialized as RFC 3339 in UTC without fractions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time(pub(super) SystemTime);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&absolute(self.0))
    }
}

/// The installation on the node.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InstallFacts {
    /// The plugin is installed and in force.
    pub(super) ready: bool,
    /// Why runtimes may use another configuration although the plugin is installed.
    pub(super) preempted: Option<String>,
    /// Directory of the plugin's executable.
    pub(super) programs: String,
    /// The CNI configuration that contains our entry.
    pub(super) configuration: Option<String>,
    pub(super) last_pass: Option<Time>,
    pub(super) last_failure: Option<Failure>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Failure {
    pub(super) time: Time,
    pub(super) reason: String,
}

/// A state and its reason.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Condition {
    pub(super) state: &'static str,
    pub(super) reason: Option<String>,
}

impl Condition {
    pub(super) fn new(state: &'static str, reason: Option<&str>) -> Self {
        let reason = reason.map(cut);
        Self { state, reason }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UnaskedFacts {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) message: String,
    pub(super) removed: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Unseen {
    pub(super) count: u64,
    /// The first of them, with the reason.
    pub(super) first: Option<String>,
}

/// `state` is `off`, `begins`, `on` or `overdue`. The numbers are those of the last pass and equal the metrics. While
/// verification is overdue, no pod counts as verified.
#[derive(Debug, Serialize)]
pub(super) struct Verification {
    pub(super) state: &'static str,
    pub(super) reason: Option<String>,
    pub(super) expected: u64,
    pub(super) verified: u64,
    /// 1 if no pod is expected; `null` before the first pass and while verification is overdue.
    pub(super) ratio: Option<f64>,
    pub(super) repairs: Vec<Repairs>,
    pub(super) drift: Vec<Drift>,
}

/// Same as `weir_repairs_total`.
#[derive(Debug, Serialize)]
pub(super) struct Repairs {
    pub(super) cause: &'static str,
    pub(super) result: &'static str,
    pub(super) count: u64,
}

/// Same as `weir_drift_total`.
#[derive(Debug, Serialize)]
pub(super) struct Drift {
    pub(super) cause: &'static str,
    pub(super) count: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodFacts {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) mode: Option<&'static str>,
    pub(super) engine: Option<String>,
    pub(super) verified: bool,
    pub(super) verified_at: Option<Time>,
    pub(super) error: Option<String>,
}

/// `state` is `asking`, `asked` or `failed`; jobs are as in `weir preflight --json`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct KernelJobs {
    pub(super) state: &'static str,
    pub(super) reason: Option<String>,
    pub(super) jobs: Vec<JobReport>,
}

impl Facts {
    /// Takes a snapshot of `status`.
    pub fn of(status: &Status) -> Self {
        let (install, watch, socket, pods, unasked, unseen, jobs, ambient) = {
            let state = status.state();
            (
                state.install.clone(),
                state.watch().clone(),
                state.pod_socket.clone(),
                state.pods.clone(),
                Arc::clone(&state.unasked),
                state.unseen.clone(),
                state.jobs.clone(),
                state.ambient.clone(),
            )
        };
        let shared = &status.0;
        let overdue = status.overdue();
        Self {
            node: shared.node.clone(),
            version: env!("CARGO_PKG_VERSION"),
            kernel: shared.kernel.clone(),
            time: Time(SystemTime::now()),
            started: Time(shared.began.0),
            uptime_seconds: shared.began.1.elapsed().as_secs(),
            install,
            pod_watch: watch,
            pod_socket: socket,
            not_ready: status.not_ready(),
            unasked: unasked.iter().map(UnaskedFacts::of).collect(),
            unasked_unseen: Unseen {
                count: count(unseen.0),
                first: unseen.1,
            },
            pods: match &pods {
                Pods::Seen(pods) => {
                    let of = |pod| PodFacts::of(pod, overdue.as_deref());
                    pods.iter().map(of).collect()
                }
                Pods::Off(_) | Pods::Begins => Vec::new(),
            },
            verification: verification(status, &pods, overdue),
            ambient: ambient.as_ref().map(AmbientFacts::of),
            kernel_jobs: jobs,
        }
    }

    /// Returns the text of `/status.json`.
    pub fn json(&self) -> String {
        // Serialization of these types does not fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn verification(status: &Status, pods: &Pods, overdue: Option<String>) -> Verification {
    let (mut state, mut reason, seen): (_, _, &[PodState]) = match pods {
        Pods::Off(why) => ("off", Some(why.clone()), &[]),
        Pods::Begins => ("begins", None, &[]),
        Pods::Seen(pods) => ("on", None, pods),
    };
    let known = matches!(pods, Pods::Seen(_)) && overdue.is_none();
    let is_verified = |p: &&PodState| known && p.verified;
    if let Some(why) = overdue {
        (state, reason) = ("overdue", Some(why));
    }
    let (expected, verified) = (seen.len(), seen.iter().filter(is_verified).count());
    let metrics = &status.0.metrics;
    let repairs = metrics.repairs().into_iter();
    let drift = metrics.drifts().into_iter();
    Verification {
        state,
        reason,
        expected: count(expected),
        verified: count(verified),
        ratio: known.then(|| ratio(expected, verified)),
        repairs: repairs
            .map(|(cause, result, count)| Repairs {
                cause,
                result,
                count,
            })
            .collect(),
        drift: drift.map(|(cause, count)| Drift { cause, count }).collect(),
    }
}

impl PodFacts {
    /// While verification is overdue (the reason), no pod is reported as verified.
    fn of(pod: &PodState, overdue: Option<&str>) -> Self {
        Self {
            namespace: pod.pod.namespace.to_string(),
            name: pod.pod.name.to_string(),
            mode: pod.mode.map(Mode::name),
            engine: pod.engine.map(|e| e.to_string()),
            verified: pod.verified && overdue.is_none(),
            verified_at: pod.verified_at.map(Time),
            error: pod.error.as_deref().or(overdue).map(str::to_owned),
        }
    }
}

impl UnaskedFacts {
    fn of(found: &Unasked) -> Self {
        Self {
            namespace: found.pod.namespace.to_string(),
            name: found.pod.name.to_string(),
            message: found.message.clone().into(),
            removed: found.removed,
        }
    }
}
