//! Detects from the status reported by the kubelet that a pod started without redirection.

use weir_core::pods::{InitStatus, PodView, Terminated};

/// The criteria for a broken pod. Empty texts and 0 match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Criteria {
    /// Key of an annotation that the pod must have.
    pub(crate) annotation: String,
    /// Name of the init container that detects the missing redirection.
    pub(crate) container: String,
    /// The termination message of that container.
    pub(crate) message: String,
    /// The exit code of that container.
    pub(crate) exit_code: i64,
}

impl Criteria {
    /// Returns true if the pod is broken.
    pub(crate) fn meets(&self, view: &PodView) -> bool {
        let annotations = &view.pod.metadata.annotations;
        let has_sidecar =
            self.annotation.is_empty() || annotations.contains_key(self.annotation.as_str());
        has_sidecar && view.init_statuses.iter().any(|status| self.failed(status))
    }

    fn failed(&self, status: &InitStatus) -> bool {
        let is_meant = self.container.is_empty() || status.name == self.container;
        // The container may have succeeded since: another agent repaired the pod.
        let passed = |t: &Terminated| t.exit_code == 0 || t.reason == "Completed";
        is_meant && !status.state.as_ref().is_some_and(passed) && self.ended(status.last.as_ref())
    }

    fn ended(&self, last: Option<&Terminated>) -> bool {
        let (wanted, any_code) = (self.message.trim(), self.exit_code == 0);
        last.is_some_and(|last| {
            (wanted.is_empty() || last.message.trim() == wanted)
                && (any_code || last.exit_code == self.exit_code)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit_code: i64, reason: &str, message: &str) -> Option<Terminated> {
        Some(Terminated {
            exit_code,
            reason: reason.into(),
            message: message.into(),
            started_at: String::new(),
        })
    }

    fn pod(name: &str, state: Option<Terminated>, last: Option<Terminated>) -> PodView {
        let mut view = PodView::default();
        let annotations = &mut view.pod.metadata.annotations;
        annotations.insert("sidecar.istio.io/status".into(), "{}".into());
        view.init_statuses = vec![
            InitStatus {
                name: "other".into(),
                ..InitStatus::default()
            },
            InitStatus {
                name: name.into(),
                state,
                last,
                restart_count: 1,
            },
        ];
        view
    }

    /// The defaults of the settings.
    fn usual() -> Criteria {
        Criteria {
            annotation: "sidecar.istio.io/status".into(),
            container: "istio-validation".into(),
            message: String::new(),
            exit_code: 126,
        }
    }

    #[test]
    fn all_must_hold() {
        let name = "istio-validation";
        let broken = pod(name, None, ended(126, "Error", "no rules"));
        assert!(usual().meets(&broken));
        for (why, view) in [
            ("it never ended", pod(name, None, None)),
            ("by another status", pod(name, None, ended(1, "Error", ""))),
            ("another container", pod("x", None, ended(126, "Error", ""))),
            (
                "it passes now",
                pod(name, ended(0, "", ""), ended(126, "Error", "")),
            ),
            (
                "it is complete",
                pod(name, ended(3, "Completed", ""), ended(126, "Error", "")),
            ),
        ] {
            assert!(!usual().meets(&view), "{why}");
        }
        let again = pod(name, ended(126, "Error", ""), ended(126, "Error", ""));
        assert!(usual().meets(&again), "it fails now as before");
        let mut without = broken.clone();
        without.pod.metadata.annotations.clear();
        assert!(!usual().meets(&without), "no sidecar");
        let any_pod = Criteria {
            annotation: String::new(),
            ..usual()
        };
        assert!(any_pod.meets(&without));
    }

    #[test]
    fn empty_is_any() {
        let view = pod("x", None, ended(3, "Error", " some words\n"));
        assert!(Criteria::default().meets(&view));
        let of_message = |message: &str| Criteria {
            message: message.into(),
            ..Criteria::default()
        };
        assert!(of_message("some words ").meets(&view));
        assert!(of_message("  ").meets(&view));
        assert!(!of_message("some").meets(&view));
        let of_status = |exit_code| Criteria {
            exit_code,
            ..Criteria::default()
        };
        assert!(of_status(3).meets(&view) && !of_status(126).meets(&view));
    }
}
