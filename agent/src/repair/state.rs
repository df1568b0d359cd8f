//! What is known of one pod.

use super::broken::Broken;
use super::visit::{InSync, Look};
use std::sync::Arc;
use std::time::SystemTime;
use weir_cni::compile::Engine;
use weir_cni::config::InboundMode;
use weir_core::journal::cut;
use weir_core::journal::pod::{Mode, PodState, Unasked, Writer};
use weir_core::pods::PodView;
use weir_drift::heals::Heals;

/// What is known of one pod, by its UID, until it disappears.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) view: Arc<PodView>,
    /// Why nothing may be written: another pod claims its address or UID.
    pub(super) claimed: Result<(), String>,
    pub(super) broken: Broken,
    /// What is to be known of its state.
    pub(super) asks: Asks,
    pub(super) in_sync: Option<InSync>,
    /// Why it is not; it is tried again.
    pub(super) failed: Option<(String, Option<Look>)>,
    /// When all was right the last time, and who held the rules then.
    seen: Option<(SystemTime, Option<Engine>)>,
    /// Something committed to its rules since the last look; what, as far as it is known.
    pub(super) drifted: Option<Option<Writer>>,
    /// Its repairs lately.
    pub(super) heals: Heals,
    /// The job that goes on.
    pub(super) running: Option<Running>,
    /// Of a pod that asks for nothing: what was found, or why that is not known.
    pub(super) unasked: Option<Result<Unasked, String>>,
}

/// What a pod asks for, as far as that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// It was not looked at yet.
    Unknown,
    /// Nothing.
    Nothing,
    /// A redirection, in this mode if that can be understood.
    Redirection(Option<Mode>),
}

/// A job and what it is for.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub(super) cause: Cause,
    pub(super) look: Option<Look>,
    /// What changed its rules, as far as it is known.
    pub(super) by: Option<Writer>,
    /// It takes long.
    pub(super) late: bool,
}

/// Why there is a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The pod meets Istio's criteria.
    Criteria,
    /// Its state is to be known.
    State,
}

impl Memory {
    pub(super) fn new(view: Arc<PodView>) -> Self {
        Self {
            view,
            claimed: Ok(()),
            broken: Broken::default(),
            asks: Asks::Unknown,
            in_sync: None,
            failed: None,
            seen: None,
            drifted: None,
            heals: Heals::default(),
            running: None,
            unasked: None,
        }
    }

    pub(super) fn is_right(&mut self, now: InSync) {
        self.seen = Some((SystemTime::now(), now.engine));
        (self.in_sync, self.failed) = (Some(now), None);
    }

    /// `None`: nothing is expected of it, as far as is known.
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
            error: self.failed.as_ref().map(|(why, _)| cut(why).into()),
        })
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
