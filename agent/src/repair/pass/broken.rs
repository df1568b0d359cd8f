//! Pods that meet the criteria of Istio's repair controller: repaired in place, deleted or labelled.

use super::{Failure, Look, Memory, PATIENCE, Repairer};
use crate::metrics::Repaired;
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
        let (namespace, name) = (view.namespace(), view.name());
        match result {
            Ok(None) => {}
            Ok(Some(result)) => self.metrics.repaired(action.name(), result),
            Err(Failure::Late(_)) => {
                (memory.handled, memory.due) = (false, Some(Instant::now() + PATIENCE));
            }
            Err(Failure::Refused(why)) => {
                self.metrics.repaired(action.name(), Repaired::Fail);
                memory.attempts += 1;
                memory.handled = memory.attempts >= ATTEMPTS;
                let pause = PAUSE.saturating_mul(1 << memory.attempts.saturating_sub(1).min(8));
                memory.due = (!memory.handled).then(|| Instant::now() + pause);
                let after = match memory.handled {
                    true => "given up until the pod changes",
                    false => "tried again",
                };
                self.log.error(&format!(
                    "broken pod {namespace}/{name}: cannot {}: {why}; {after}",
                    action.name()
                ));
            }
        }
    }

    /// `None`: it was repaired before.
    async fn repair(
        &self,
        view: &PodView,
        memory: &mut Memory,
        look: &mut Look,
    ) -> Result<Option<Repaired>, Failure> {
        let (namespace, name) = (view.namespace(), view.name());
        match &memory.repaired {
            Some(uid) if uid == view.uid() => return Ok(None),
            Some(uid) => {
                self.log.error(&format!(
                    "broken pod {namespace}/{name} has the UID {}, and one with {uid} was repaired: left alone \
                     until it was seen to go",
                    view.uid()
                ));
                return Ok(None);
            }
            None => {}
        }
        let wanted = state::demanded(view, &self.settings).map_err(Failure::Refused)?;
        look.claims.check(view).map_err(Failure::Refused)?;
        let found = self.heal(&wanted, memory, None, look).await?;
        memory.repaired = Some(view.uid().to_owned());
        let what = match &found {
            Found::Right(_) => "its rules are in place",
            Found::Repaired { summary, .. } => summary,
        };
        self.log.info(&format!(
            "broken pod {namespace}/{name} is repaired: {what}"
        ));
        let (Found::Right(now) | Found::Repaired { now, .. }) = found;
        memory.is_right(now);
        Ok(Some(Repaired::Success))
    }

    async fn delete(&self, view: &Arc<PodView>) -> Result<Repaired, String> {
        let done = self.actions.delete(view).await;
        let message = match &done {
            Ok(()) => "started outside of the mesh, and was deleted".to_owned(),
            Err(e) => format!("started outside of the mesh, and cannot be deleted: {e}"),
        };
        self.events.tell(view, "DeleteBrokenPod", message);
        done.map(|()| Repaired::Success)
    }

    async fn label(&self, view: &Arc<PodView>) -> Result<Repaired, String> {
        let (key, value) = &self.settings.label;
        if view.pod.metadata.labels.contains_key(key) {
            return Ok(Repaired::Skip);
        }
        let done = self.actions.label(view, key, value).await;
        let message = match &done {
            Ok(()) => format!("started outside of the mesh, and got the label {key}={value}"),
            Err(e) => format!("started outside of the mesh, and cannot be labelled: {e}"),
        };
        self.events.tell(view, "LabelBrokenPod", message);
        done.map(|()| Repaired::Success)
    }
}
