//! Pods that meet the criteria of Istio's repair controller: repaired in place, deleted or labelled, once per
//! resource version of the pod.

use super::keeper::{Done, Keeper};
use super::settings::Action;
use super::state::{Cause, Memory, Running};
use super::visit::{Look, Seen};
use std::sync::Arc;
use std::time::Duration;
use weir_core::journal::pod::{Done as Outcome, Event};
use weir_core::sandboxes::place::Identity;
use weir_reconcile::{Job, Next, Start};

/// Maximum number of attempts per resource version of a pod.
const ATTEMPTS: u32 = 5;
/// Delay before the second attempt; it doubles with each further attempt.
const PAUSE: Duration = Duration::from_millis(5);

/// Progress of the action on a broken pod.
#[derive(Debug, Default)]
pub(super) struct Broken {
    /// The resource version to which the other fields apply.
    version: String,
    handled: bool,
    attempts: u32,
}

impl Keeper {
    /// Returns the action for a pod that meets the criteria, unless it was already handled in this version.
    pub(super) fn action(&self, memory: &mut Memory) -> Option<Action> {
        let (settings, view, broken) = (&self.settings, &memory.view, &mut memory.broken);
        let action = settings.action?;
        if broken.version != view.resource_version {
            *broken = Broken {
                version: view.resource_version.clone(),
                ..Broken::default()
            };
        }
        let is_meant = view.pod.spec.node_name == settings.node && settings.filter.meets(view);
        // The object of a terminating pod changes with each container that ends.
        let is_due = is_meant && !view.deleting && !broken.handled;
        (is_due && settings.criteria.meets(view)).then_some(action)
    }

    /// Returns the job for the action, or the next step if no job is needed.
    pub(super) fn act(
        &self,
        action: Action,
        memory: &mut Memory,
        start: &Start,
    ) -> Result<Job<Done>, Next> {
        let view = Arc::clone(&memory.view);
        let running = |look: Option<Look>| Running {
            cause: Cause::Criteria,
            look,
            by: None,
            late: false,
        };
        if action == Action::Repair {
            if memory.repaired {
                memory.broken.handled = true;
                return Err(Next::After(Duration::ZERO));
            }
            return match self.demanded(memory) {
                Ok(look) => {
                    memory.running = Some(running(Some(look.clone())));
                    Ok(self.visit(look, None, start.since))
                }
                Err(why) => Err(self.acted(action, memory, Err(why))),
            };
        }
        memory.running = Some(running(None));
        let (actions, bound) = (Arc::clone(&self.actions), Arc::clone(&self.requests));
        let label = self.settings.label.clone();
        if action == Action::Label && view.pod.metadata.labels.contains_key(&label.0) {
            return Err(self.acted(action, memory, Ok(Outcome::Skipped)));
        }
        let pod = view.reference();
        Ok(Job::Request(Box::pin(async move {
            // The semaphore is never closed.
            let _permit = bound.acquire().await;
            let done = match action {
                Action::Label => actions.label(&pod, &label.0, &label.1).await,
                _ => actions.delete(&pod).await,
            };
            Done::Request(action, done)
        })))
    }

    fn demanded(&self, memory: &Memory) -> Result<Look, String> {
        let desired = self.plane.demand(&memory.view)?;
        let identity = Identity::of(&memory.view);
        if identity.addresses.is_empty() {
            return Err("it has no address yet, so its network namespace cannot be told".into());
        }
        memory.claimed.clone()?;
        Ok(Look { identity, desired })
    }

    /// Records the result of the repair of a broken pod.
    pub(super) fn repaired_in_place(
        &self,
        memory: &mut Memory,
        seen: Result<Seen, String>,
    ) -> Next {
        let (now, what) = match seen {
            Ok(Seen::InSync(now)) => (now, "its rules are in place".to_owned()),
            Ok(Seen::Repaired { now, repair, .. }) => (now, repair.summary),
            Ok(Seen::Unasked(what, _)) => return self.acted(Action::Repair, memory, Err(what)),
            Err(why) => return self.acted(Action::Repair, memory, Err(why)),
        };
        memory.repaired = true;
        memory.is_right(now);
        self.acted(Action::Repair, memory, Ok(Outcome::Repaired(what)))
    }

    /// Records the answer of the API server.
    pub(super) fn requested(
        &self,
        action: Action,
        memory: &mut Memory,
        done: Result<(), String>,
    ) -> Next {
        let (pod, failure) = (memory.view.reference(), done.as_ref().err().cloned());
        let (key, value) = &self.settings.label;
        self.journal.record(match action {
            Action::Label => Event::Labelled {
                pod,
                label: format!("{key}={value}"),
                failure,
            },
            _ => Event::Deleted { pod, failure },
        });
        self.acted(action, memory, done.map(|()| Outcome::Requested))
    }

    fn acted(&self, action: Action, memory: &mut Memory, done: Result<Outcome, String>) -> Next {
        let (view, broken) = (&memory.view, &mut memory.broken);
        // A pod that changed in the meantime is checked again.
        let is_same = broken.version == view.resource_version;
        let mut pause = Duration::ZERO;
        let done = match done {
            Ok(done) => {
                broken.handled = is_same;
                done
            }
            Err(why) => {
                broken.attempts += 1;
                broken.handled = is_same && broken.attempts >= ATTEMPTS;
                if !broken.handled {
                    pause = PAUSE.saturating_mul(1 << broken.attempts.saturating_sub(1).min(8));
                }
                let given_up = broken.handled;
                Outcome::Failed { why, given_up }
            }
        };
        let (pod, action) = (view.reference(), action.name());
        self.journal.record(Event::Criteria { pod, action, done });
        // When the criteria need no further action, the pod's state is compared.
        Next::After(pause)
    }
}
