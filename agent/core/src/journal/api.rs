//! Kubernetes events sent to the API server.

use super::{About, PodRef};
use weir_cni::log::Level::{Debug, Warn};

/// An event about a Kubernetes event.
#[derive(Debug)]
pub enum Event {
    /// No Kubernetes events are sent, for this reason.
    Off { why: String },
    /// The API server accepted it.
    Sent { pod: PodRef, reason: &'static str },
    /// The API server did not accept it.
    Failed {
        pod: PodRef,
        reason: &'static str,
        why: String,
        /// The previous one failed as well.
        repeated: bool,
    },
    /// Dropped because the queue is full.
    Dropped { reason: &'static str },
    /// Not sent because the agent's own pod is not known.
    NoOwnPod { reason: &'static str },
}

impl Event {
    pub(super) fn about(&self) -> About {
        match self {
            Self::Off { why } => About::new(
                Warn,
                "events_off",
                format!("no event is sent to the API server: {why}"),
            ),
            Self::Sent { pod, reason } => {
                About::silent("event_sent").pod(pod).with("reason", reason)
            }
            Self::Failed {
                pod,
                reason,
                why,
                repeated,
            } => {
                // An unreachable server is logged once.
                let level = if *repeated { Debug } else { Warn };
                let text = format!("no event {reason} on pod {pod}: {why}");
                About::new(level, "event_failed", text)
                    .pod(pod)
                    .with("reason", reason)
            }
            Self::Dropped { reason } => About::silent("event_dropped").with("reason", reason),
            Self::NoOwnPod { reason } => {
                let text = format!(
                    "no event {reason}: POD_NAMESPACE and POD_NAME name no pod of this node"
                );
                About::new(Debug, "event_without_pod", text).with("reason", reason)
            }
        }
    }
}
