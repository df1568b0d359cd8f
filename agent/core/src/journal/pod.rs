//! Verification and repair of pods.

use super::About;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_cni::compile::Engine;
use weir_cni::log::Level::{self, Debug, Error, Info, Warn};
use weir_cni::plugin::Phases;
use weir_cni::redirection::{Change, Difference};

/// A pod, by what names it. Displayed as `NAMESPACE/NAME`.
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

/// How inbound traffic is led to the sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Redirect,
    Tproxy,
}

impl Mode {
    /// As `sidecar.istio.io/interceptionMode` names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redirect => "REDIRECT",
            Self::Tproxy => "TPROXY",
        }
    }
}

/// A pod that asks for redirection.
#[derive(Debug, Clone)]
pub struct PodState {
    pub pod: PodRef,
    /// `None`: what it asks for cannot be understood.
    pub mode: Option<Mode>,
    /// Who held its rules when they were seen last.
    pub engine: Option<Engine>,
    /// Its rules are as it asks.
    pub verified: bool,
    /// When they were seen to be, the last time.
    pub verified_at: Option<SystemTime>,
    /// Why they are not.
    pub error: Option<Box<str>>,
}

// A node has up to 250 pods: 30 KB.
const _: () = assert!(size_of::<PodState>() <= 120);

/// A pod that asks for no redirection and had rules of ours.
#[derive(Debug, Clone)]
pub struct Unasked {
    pub pod: PodRef,
    /// What was found and what became of it.
    pub message: Box<str>,
    pub removed: bool,
}

impl Unasked {
    /// Of the Kubernetes event.
    fn reason(&self) -> &'static str {
        match self.removed {
            true => "RedirectionRemoved",
            false => "RedirectionNotAsked",
        }
    }
}

/// What became of a broken pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repaired {
    Success,
    /// Nothing was left to do.
    Skip,
    Fail,
}

/// How a pod's rules differed from what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Something was missing, and nothing else was there instead.
    Missing,
    /// Something else was there.
    Changed,
}

impl Cause {
    /// Of everything that was found and is repaired.
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

/// The process that changed rules, as far as the kernel says (`NFTA_GEN_PROC_PID`, `NFTA_GEN_PROC_NAME`).
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

/// How the rules of a pod differed from what they should be, and what was written.
#[derive(Debug, Clone)]
pub struct Repair {
    /// The first difference.
    pub first: String,
    /// How many there were.
    pub differences: usize,
    pub cause: Cause,
    /// What was written.
    pub summary: String,
}

/// The rules of a pod were not as they should be, and are now.
#[derive(Debug)]
pub struct Healed {
    pub pod: PodRef,
    pub repair: Repair,
    /// The process that changed them, if a notification of nf_tables led to the repair.
    pub by: Option<Writer>,
    /// A Kubernetes event says so too.
    pub notify: bool,
}

impl Healed {
    /// `was` says what the pod was not.
    pub(super) fn about(&self, name: &'static str, was: &str) -> About {
        let Repair {
            first,
            differences,
            cause,
            summary,
        } = &self.repair;
        let by = self.by.as_ref().map(|by| format!(", changed by {by}"));
        let by = by.unwrap_or_default();
        let does =
            format!("was not {was}{by}: {first} ({differences} differences in all); {summary}");
        let reason = self.notify.then_some("RedirectionRepaired");
        About::of_pod(Warn, name, &self.pod, does, reason)
            .with("cause", cause.name())
            .with("differences", differences)
    }
}

/// Another writer changes the rules of a pod again and again: the next repair comes later.
#[derive(Debug)]
pub struct Contention {
    pub pod: PodRef,
    pub times: usize,
    pub pause: Duration,
    pub by: Option<Writer>,
}

impl Contention {
    pub(super) fn about(&self, name: &'static str) -> About {
        let (times, pause) = (self.times, self.pause);
        let by = self.by.as_ref().map(ToString::to_string);
        let by = by.unwrap_or_else(|| "another program".to_owned());
        let does = format!(
            "had its rules repaired {times} times within a minute, and {by} changes them again: the next repair is in \
             {pause:?}; stop that program"
        );
        About::of_pod(Error, name, &self.pod, does, Some("RedirectionContended"))
    }
}

/// What happens to pods.
#[derive(Debug)]
pub enum Event {
    /// No pod is verified, for this reason; `level` when none is repaired either.
    Off { why: String, level: Option<Level> },
    /// From here on a round of verification should end within each interval.
    RoundsBegin { interval: Duration },
    /// The pods that ask for redirection, and how they are.
    Seen { expected: Arc<[PodState]> },
    /// A round that looked at every pod has ended.
    RoundEnded {
        interval: Duration,
        /// Pods that ask for nothing and have, or had, rules of ours.
        unasked: Arc<[Unasked]>,
        /// How many pods that ask for nothing could not be looked at, and why the first could not.
        unseen: (usize, Option<String>),
    },
    /// What was spent on one pod, by `plugin` or `agent`.
    Measured { by: &'static str, phases: Phases },
    /// It was not redirected as it asks, and is now.
    Repaired(Healed),
    /// Something changes its rules again and again.
    Contention(Contention),
    /// It cannot be looked at or repaired. Recorded once for each reason.
    NotVerified { pod: PodRef, why: String },
    /// It asks for no redirection and has, or had, rules of ours.
    Unasked { found: Unasked, is_new: bool },
    /// It asks for no redirection and could not be looked at.
    UnaskedUnknown { pod: PodRef, why: String },
    /// It met the criteria, and this was done: `repair`, `delete`, `label`.
    Criteria {
        pod: PodRef,
        action: &'static str,
        done: Done,
    },
    /// It was deleted, or cannot be.
    Deleted {
        pod: PodRef,
        failure: Option<String>,
    },
    /// It got this label, or cannot.
    Labelled {
        pod: PodRef,
        label: String,
        failure: Option<String>,
    },
    /// It met the criteria, and one of its name and another UID was repaired before.
    Replaced { pod: PodRef, repaired: String },
}

/// How dealing with a broken pod ended.
#[derive(Debug)]
pub enum Done {
    /// Its rules are in place; what was written, if anything.
    Repaired(String),
    /// By a request to the API server.
    Requested,
    /// Nothing was left to do.
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
                let does = format!("cannot be verified: {why}; it is tried again");
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
            Self::Replaced { pod, repaired } => {
                let text = format!(
                    "broken pod {pod} has the UID {}, and one with {repaired} was repaired: left alone until it was \
                     seen to go",
                    pod.uid
                );
                About::new(Error, "broken_pod_replaced", text).pod(pod)
            }
        }
    }
}
