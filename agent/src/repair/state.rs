//! The state that repair keeps for one pod.

use super::broken::Broken;
use super::visit::{InSync, Look};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_cni::compile::Engine;
use weir_cni::config::InboundMode;
use weir_core::journal::cut;
use weir_core::journal::pod::{Mode, PodState, Unasked, Writer};
use weir_core::pods::PodView;
use weir_drift::heals::Heals;

/// The state of one pod, keyed by its UID, until the pod disappears.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) view: Arc<PodView>,
    /// The error forbids writes: another pod claims its address or UID.
    pub(super) claimed: Result<(), String>,
    pub(super) broken: Broken,
    /// It was repaired in place by the criteria.
    pub(super) repaired: bool,
    /// What the pod asks for.
    pub(super) asks: Asks,
    pub(super) in_sync: Option<InSync>,
    /// Why the pod is not in sync, and the look that failed; it is retried.
    pub(super) failed: Option<(String, Option<Look>)>,
    /// When the pod was last in sync, and the engine that held its rules.
    seen: Option<(SystemTime, Option<Engine>)>,
    /// Set if its rules were committed to since the last look, with the writer if it is known.
    pub(super) drifted: Option<Option<Writer>>,
    /// Its recent repairs.
    pub(super) heals: Heals,
    /// Its rules changed, and the next look is this long after the change was noticed.
    pub(super) postponed: Option<Duration>,
    /// The running job.
    pub(super) running: Option<Running>,
    /// For a pod that does not ask for redirection: rules that were found, or why they could not be looked for.
    pub(super) unasked: Option<Result<Unasked, String>>,
}

/// What a pod asks for, if known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// Not determined yet.
    Unknown,
    /// No redirection.
    Nothing,
    /// A redirection, with its mode if the pod's configuration is valid.
    Redirection(Option<Mode>),
}

/// A job and its purpose.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub(super) cause: Cause,
    pub(super) look: Option<Look>,
    /// The writer that changed its rules, if known.
    pub(super) by: Option<Writer>,
    /// The job takes longer than usual; it continues.
    pub(super) late: bool,
}

/// The reason for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The pod meets Istio's criteria.
    Criteria,
    /// The state of its network namespace is compared.
    State,
}

impl Memory {
    pub(super) fn new(view: Arc<PodView>) -> Self {
        Self {
            view,
            claimed: Ok(()),
            broken: Broken::default(),
            repaired: false,
            asks: Asks::Unknown,
            in_sync: None,
            failed: None,
            seen: None,
            drifted: None,
            heals: Heals::default(),
            postponed: None,
            running: None,
            unasked: None,
        }
    }

    pub(super) fn is_right(&mut self, now: InSync) {
        self.seen = Some((SystemTime::now(), now.engine));
        (self.in_sync, self.failed, self.postponed) = (Some(now), None, None);
    }

    /// Returns the public state; `None` if the pod is not known to ask for redirection.
    pub(super) fn state(&self) -> Option<PodState> {
        let Asks::Redirection(mode) = self.asks else {
            return None;
        };
        Some(PodState {
            pod: self.view.reference(),
            mode,
            engine: self.seen.and_then(|(_, engine)| engine),
            verified: self.in_sync.is_some(),
            verified_at: self.seen.map(|(at, _)| at),
            error: self.why_not_verified().map(|why| cut(&why).into()),
        })
    }

    fn why_not_verified(&self) -> Option<String> {
        let postponed = |pause: Duration| {
            format!(
                "its rules were changed, as again and again: they are looked at and repaired after a pause of at most \
                 {} s",
                pause.as_secs_f32().ceil()
            )
        };
        let failed = self.failed.as_ref().map(|(why, _)| why.clone());
        failed.or_else(|| self.postponed.map(postponed))
    }
}

impl Look {
    pub(super) fn mode(&self) -> Option<Mode> {
        self.desired.mode().map(|mode| match mode {
            InboundMode::Tproxy(_) => Mode::Tproxy,
            InboundMode::Redirect => Mode::Redirect,
        })
    }
}
