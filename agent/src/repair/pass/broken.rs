//! Pods that meet the criteria of Istio's repair controller: repaired in place, deleted or labelled.

use super::{Failure, Look, Memory, PATIENCE, Repairer};
use crate::journal::pod::{Done, Event};
use crate::pods::PodView;
use crate::repair::settings::Action;
use crate::repair::state::{self, Found};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Attempts for one version of a pod.
const ATTEMPTS: u32 = 5;
/// Before the second attempt; each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(5);

impl Repairer {
    /// Looks whether the pod meets the criteria and does then what is to be done with such pods, once for each version of it.
    pub(super) async fn by_criteria(
        &self,
        view: &Arc<PodView>,
        memory: &mut Memory,
        look: &mut Look,
    ) {
        let settings = &self.settings;
        let Some(action) = settings.action else {
            return;
        };
        if memory.version != view.resource_version {
            memory.version.clone_from(&view.resource_version);
            (memory.handled, memory.attempts, memory.due) = (false, 0, None);
        }
        let is_meant = view.pod.spec.node_name == settings.node && settings.filter.meets(view);
        if memory.handled || !is_meant || !settings.criteria.meets(view) {
            memory.due = None;
            return;
        }
        if memory.due.is_some_and(|due| due > Instant::now()) {
            return;
        }
        let result = match action {
            Action::Repair => self.repair(view, memory, look).await,
            Action::Delete => self.delete(view).await.map(Some).map_err(Failure::Refused),
            Action::Label => self.label(view).await.map(Some).map_err(Failure::Refused),
        };
        (memory.handled, memory.due) = (true, None);
        let done = match result {
            Ok(None) => return,
            Ok(Some(done)) => done,
            Err(Failure::Late(_)) => {
                (memory.handled, memory.due) = (false, Some(Instant::now() + PATIENCE));
                return;
            }
            Err(Failure::Refused(why)) => {
                memory.attempts += 1;
                memory.handled = memory.attempts >= ATTEMPTS;
                let pause = PAUSE.saturating_mul(1 << memory.attempts.saturating_sub(1).min(8));
                memory.due = (!memory.handled).then(|| Instant::now() + pause);
                let given_up = memory.handled;
                Done::Failed { why, given_up }
            }
        };
        let (pod, action) = (view.reference(), action.name());
        self.journal.record(Event::Criteria { pod, action, done });
    }

    /// `None`: it was repaired before.
    async fn repair(
        &self,
        view: &PodView,
        memory: &mut Memory,
        look: &mut Look,
    ) -> Result<Option<Done>, Failure> {
        match &memory.repaired {
            Some(uid) if uid == view.uid() => return Ok(None),
            Some(uid) => {
                let (pod, repaired) = (view.reference(), uid.clone());
                self.journal.record(Event::Replaced { pod, repaired });
                return Ok(None);
            }
            None => {}
        }
        let wanted = state::demanded(view, &self.settings).map_err(Failure::Refused)?;
        look.claims.check(view).map_err(Failure::Refused)?;
        let found = self.heal(&wanted, memory, None, look).await?;
        memory.repaired = Some(view.uid().to_owned());
        let what = match &found {
            Found::Right(_) => "its rules are in place".to_owned(),
            Found::Repaired { summary, .. } => summary.clone(),
        };
        let (Found::Right(now) | Found::Repaired { now, .. }) = found;
        memory.is_right(now);
        Ok(Some(Done::Repaired(what)))
    }

    async fn delete(&self, view: &Arc<PodView>) -> Result<Done, String> {
        let pod = view.reference();
        let done = self.actions.delete(&pod).await;
        let failure = done.as_ref().err().cloned();
        self.journal.record(Event::Deleted { pod, failure });
        done.map(|()| Done::Requested)
    }

    async fn label(&self, view: &Arc<PodView>) -> Result<Done, String> {
        let (key, value) = &self.settings.label;
        if view.pod.metadata.labels.contains_key(key) {
            return Ok(Done::Skipped);
        }
        let pod = view.reference();
        let done = self.actions.label(&pod, key, value).await;
        self.journal.record(Event::Labelled {
            pod,
            label: format!("{key}={value}"),
            failure: done.as_ref().err().cloned(),
        });
        done.map(|()| Done::Requested)
    }
}
