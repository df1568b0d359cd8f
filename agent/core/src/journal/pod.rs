//! Events of verification and repair of pods.

use super::About;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_cni::compile::Engine;
use weir_cni::log::Level::{self, Debug, Error, Info, Warn};
use weir_cni::log::count;
use weir_cni::plugin::Phases;
use weir_cni::redirection::{Change, Difference};

/// The identity of a pod. Displayed as `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`
    pub version: Arc<str>,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// How inbound traffic reaches the sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Redirect,
    Tproxy,
}

impl Mode {
    /// Returns the value of `sidecar.istio.io/interceptionMode`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redirect => "REDIRECT",
            Self::Tproxy => "TPROXY",
        }
    }
}

/// The state of a pod that requests redirection.
#[derive(Debug, Clone)]
pub struct PodState {
    pub pod: PodRef,
    /// `None` if its annotations are invalid.
    pub mode: Option<Mode>,
    /// The engine of its rules at the last look.
    pub engine: Option<Engine>,
    /// Its rules are in sync.
    pub verified: bool,
    /// Time of the last successful verification.
    pub verified_at: Option<SystemTime>,
    /// The reason why they are not in sync.
    pub error: Option<Box<str>>,
}

// A node has up to 250 pods: 30 KB.
const _: () = assert!(size_of::<PodState>() <= 120);

/// A pod that does not request redirection and had rules of weir.
#[derive(Debug, Clone)]
pub struct Unasked {
    pub pod: PodRef,
    /// What was found, and the result of the removal.
    pub message: Box<str>,
    pub removed: bool,
}

impl Unasked {
    /// Returns the reason of the Kubernetes event.
    fn reason(&self) -> &'static str {
        match self.removed {
            true => "RedirectionRemoved",
            false => "RedirectionNotAsked",
        }
    }
}

/// Result of the repair of a broken pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repaired {
    Success,
    /// Nothing had to be done.
    Skip,
    Fail,
}

/// How a pod's actual rules differed from the desired ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Something was missing, without a replacement.
    Missing,
    /// Something was different.
    Changed,
}

impl Cause {
    /// Returns the cause for all differences found.
    pub fn of(found: &[Change]) -> Self {
        let is_missing = |c: &Change| c.difference() == Difference::Missing;
        let mut repaired = found.iter().filter(|c| !c.stays());
        match repaired.all(is_missing) {
            true => Self::Missing,
            false => Self::Changed,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Changed => "changed",
        }
    }
}

/// The process that changed rules, as reported by the kernel (`NFTA_GEN_PROC_PID`, `NFTA_GEN_PROC_NAME`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    pub pid: u32,
    pub name: String,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name.escape_default())
    }
}

/// The differences found in a pod, and what was written.
#[derive(Debug, Clone)]
pub struct Repair {
    /// The first difference.
    pub first: String,
    /// Number of differences.
    pub differences: usize,
    pub cause: Cause,
    /// What was written.
    pub summary: String,
}

/// The rules of a pod had drifted and were repaired, or the repair failed.
#[derive(Debug)]
pub struct Healed {
    pub pod: PodRef,
    pub repair: Repair,
    /// The process that changed them, if a notification of nf_tables led to the repair.
    pub by: Option<Writer>,
    /// The repair failed; its summary states why.
    pub failed: bool,
    /// False if it was counted before, when its repair failed.
    pub is_new: bool,
    /// A Kubernetes event is sent as well.
    pub notify: bool,
}

impl Healed {
    /// `was` names the state that the pod had lost.
    pub(super) fn about(&self, name: &'static str, was: &str) -> About {
        let Repair {
            first,
            differences,
            cause,
            summary,
        } = &self.repair;
        let by = self.by.as_ref().map(|by| format!(", changed by {by}"));
        let by = by.unwrap_or_default();
        let all = count(*differences, "difference");
        let does = format!("was not {was}{by}: {first} ({all} in all); {summary}");
        let reason = match self.failed {
            false => "RedirectionRepaired",
            true => "RedirectionNotRepaired",
        };
        let reason = self.notify.then_some(reason);
        About::of_pod(Warn, name, &self.pod, does, reason)
            .with("cause", cause.name())
            .with("differences", differences)
    }
}

/// Another writer keeps changing the rules of a pod: the next repair is delayed.
#[derive(Debug)]
pub struct Contention {
    pub pod: PodRef,
    pub times: usize,
    pub pause: Duration,
    pub by: Option<Writer>,
}

impl Contention {
    pub(super) fn about(&self, name: &'static str) -> About {
        let (times, pause) = (self.times, self.pause.as_secs());
        let by = self.by.as_ref().map(ToString::to_string);
        let by = by.unwrap_or_else(|| "another program".to_owned());
        let does = format!(
            "needed {times} repairs of its rules within a minute, and {by} changes them again: the next repair is in \
             {pause} s; stop that program"
        );
        About::of_pod(Error, name, &self.pod, does, Some("RedirectionContended"))
    }
}

/// An event of verification or repair.
#[derive(Debug)]
pub enum Event {
    /// Verification is off, for this reason; `level` is set if repair is off as well.
    Off { why: String, level: Option<Level> },
    /// Verification starts: a pass should end within each interval.
    RoundsBegin { interval: Duration },
    /// The pods that request redirection, with their states.
    Seen { expected: Arc<[PodState]> },
    /// A pass over all pods has ended.
    RoundEnded {
        interval: Duration,
        /// Pods that do not request redirection and have, or had, rules of weir.
        unasked: Arc<[Unasked]>,
        /// Number of pods without a request that could not be examined, and the reason for the first.
        unseen: (usize, Option<String>),
    },
    /// Time spent on one pod by `plugin` or `agent`.
    Measured { by: &'static str, phases: Phases },
    /// It was not redirected as requested, and was repaired.
    Repaired(Healed),
    /// Another writer keeps changing its rules.
    Contention(Contention),
    /// It cannot be examined or repaired. Recorded once per reason.
    NotVerified { pod: PodRef, why: String },
    /// It does not request redirection and has, or had, rules of weir.
    Unasked { found: Unasked, is_new: bool },
    /// It does not request redirection and could not be examined.
    UnaskedUnknown { pod: PodRef, why: String },
    /// It met the criteria; the action was `repair`, `delete` or `label`.
    Criteria {
        pod: PodRef,
        action: &'static str,
        done: Done,
    },
    /// It was deleted, or deletion failed.
    Deleted {
        pod: PodRef,
        failure: Option<String>,
    },
    /// It was labelled, or labelling failed.
    Labelled {
        pod: PodRef,
        label: String,
        failure: Option<String>,
    },
}

/// The result of handling a broken pod.
#[derive(Debug)]
pub enum Done {
    /// Its rules are in force; the text says what was written, if anything.
    Repaired(String),
    /// A request to the API server succeeded.
    Requested,
    /// Nothing had to be done.
    Skipped,
    Failed {
        why: String,
        given_up: bool,
    },
}

impl Done {
    pub fn result(&self) -> Repaired {
        match self {
            Self::Repaired(_) | Self::Requested => Repaired::Success,
            Self::Skipped => Repaired::Skip,
            Self::Failed { .. } => Repaired::Fail,
        }
    }
}

impl Event {
    pub(super) fn about(&self) -> About {
        match self {
            Self::Off { why, level } => About::new(
                *level,
                "verification_off",
                format!("no pod is repaired: {why}"),
            ),
            Self::RoundsBegin { .. } => About::silent("verification_begins"),
            Self::Seen { .. } => About::silent("pods_seen"),
            Self::RoundEnded { .. } => About::silent("verification_round"),
            Self::Measured { .. } => About::silent("phases"),
            Self::Repaired(healed) => healed.about("pod_repaired", "redirected as it asks"),
            Self::Contention(contention) => contention.about("pod_contention"),
            Self::NotVerified { pod, why } => {
                let does = format!("cannot be verified: {why}; it is retried");
                About::of_pod(Warn, "pod_not_verified", pod, does, None)
            }
            Self::Unasked { found, is_new } => {
                let (level, reason) = (is_new.then_some(Warn), found.reason());
                let (pod, reason) = (&found.pod, is_new.then_some(reason));
                About::of_pod(level, "rules_not_asked_for", pod, &*found.message, reason)
                    .with("removed", found.removed)
            }
            Self::UnaskedUnknown { pod, why } => {
                let text = format!(
                    "whether it has rules that it does not ask for is not known of pod {pod}: {why}"
                );
                About::new(Debug, "pod_not_seen", text).pod(pod)
            }
            Self::Criteria { pod, action, done } => {
                let (level, does) = match done {
                    Done::Repaired(what) => (Some(Info), format!(" is repaired: {what}")),
                    Done::Requested => (None, format!(": {action} is done")),
                    Done::Skipped => (None, format!(": {action} was done before")),
                    Done::Failed { why, given_up } => {
                        let after = match given_up {
                            true => "given up until the pod changes",
                            false => "tried again",
                        };
                        (Some(Error), format!(": cannot {action}: {why}; {after}"))
                    }
                };
                About::new(level, "broken_pod", format!("broken pod {pod}{does}"))
                    .pod(pod)
                    .with("action", action)
            }
            Self::Deleted { pod, failure } => {
                let became = match failure {
                    None => "was deleted".to_owned(),
                    Some(e) => format!("cannot be deleted: {e}"),
                };
                let does = format!("started outside of the mesh, and {became}");
                About::of_pod(None, "pod_deleted", pod, does, Some("DeleteBrokenPod"))
            }
            Self::Labelled {
                pod,
                label,
                failure,
            } => {
                let became = match failure {
                    None => format!("got the label {label}"),
                    Some(e) => format!("cannot be labelled: {e}"),
                };
                let does = format!("started outside of the mesh, and {became}");
                About::of_pod(None, "pod_labelled", pod, does, Some("LabelBrokenPod"))
            }
        }
    }
}
