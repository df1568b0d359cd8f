//! What becomes of events for the API server.

use super::{About, PodRef};
use weir_cni::log::Level::{Debug, Warn};

/// What happens to Kubernetes events.
#[derive(Debug)]
pub enum Event {
    /// None is sent at all, for this reason.
    Off { why: String },
    /// The API server took it.
    Sent { pod: PodRef, reason: &'static str },
    /// The API server did not take it.
    Failed {
        pod: PodRef,
        reason: &'static str,
        why: String,
        /// The one before was not taken either.
        repeated: bool,
    },
    /// Too many were waiting.
    Dropped { reason: &'static str },
    /// It is about the agent's pod, which is not known.
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
                // A server that is gone is said once.
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
