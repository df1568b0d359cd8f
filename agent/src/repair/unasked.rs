//! Pods that ask for no redirection, and have rules of ours all the same.
//!
//! Another agent may have taken the namespace for that of another pod. Their traffic goes to a proxy that is not there.
//! What is found is always told. It is removed only where it is ours beyond doubt: the pod has no container that could ever
//! have been its proxy and none that could have written rules itself, it is not an ambient pod, and our tables and chains
//! hold nothing but what this program writes.

use super::pass::{Look, Repairer};
use super::state::{WHOLE, fingerprint_of};
use super::work::{Progress, Work};
use crate::journal::cut;
use crate::journal::pod::{Event, Unasked};
use crate::pods::PodView;
use crate::sandboxes::place::{Identity, Place, Processes, Scan};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_cni::pod::{PodFacts, SidecarDecision, Skip};
use weir_cni::redirection::Fingerprint;

/// Set by Istio on pods of ambient mode.
const AMBIENT: &str = "ambient.istio.io/redirection";

/// Set by Istio's injection.
const INJECTED: &str = "sidecar.istio.io/status";

/// What is known of one pod that asks for nothing.
#[derive(Debug, Default)]
pub(super) struct Memory {
    clean: Option<Clean>,
    /// What was said last; it is said once.
    said: Option<String>,
    late: Option<Work<Result<Found, String>>>,
}

impl Memory {
    pub(super) fn is_late(&self) -> bool {
        self.late.is_some()
    }
}

/// A namespace in which nothing of ours was.
#[derive(Debug, Clone)]
struct Clean {
    identity: Identity,
    place: Place,
    fingerprint: Option<Fingerprint>,
    at: Instant,
}

/// What was found in the namespace.
#[derive(Debug)]
enum Found {
    Nothing(Clean),
    /// What it is in words; whether it was removed, or why not.
    Rules(String, Result<(), String>),
}

/// Whether to look, and why what is found may not be removed.
fn judge(view: &PodView) -> Option<Result<(), String>> {
    let facts = PodFacts::of(&view.pod);
    if !view.lives() || facts.host_network || view.addresses().is_empty() {
        return None;
    }
    if view.pod.metadata.annotations.contains_key(AMBIENT) {
        return None;
    }
    let SidecarDecision::Skip(reason) = SidecarDecision::of(&facts) else {
        return None;
    };
    Some(match reason {
        // It makes its own.
        Skip::InitContainer => return None,
        Skip::NoProxy if view.may_write_rules => {
            Err("a container of it may write rules itself".to_owned())
        }
        // By the criteria it may have been repaired as it is.
        Skip::NoProxy if facts.annotations.contains_key(INJECTED) => {
            Err("it was injected by Istio".to_owned())
        }
        Skip::NoProxy => Ok(()),
        // It may have asked when it started.
        reason => Err(format!("it has a proxy, and {reason}")),
    })
}

impl Repairer {
    /// Looks whether a pod that asks for nothing has rules of ours. `None`: it has none.
    ///
    /// # Errors
    /// Why that is not known.
    pub(super) async fn unasked(
        &self,
        view: &Arc<PodView>,
        memory: &mut Memory,
        look: &mut Look,
    ) -> Result<Option<Unasked>, String> {
        let Some(removable) = judge(view) else {
            *memory = Memory::default();
            return Ok(None);
        };
        look.claims.check(view)?;
        let progress = match memory.late.take() {
            Some(work) => work.wait(Duration::ZERO).await,
            None => {
                let (processes, scan) = (self.processes.clone(), Arc::clone(&look.scan));
                let (identity, before) = (Identity::of(view), memory.clean.take());
                let begun = Work::begin(&self.done, move || {
                    let scan = || scan.get_or_init(|| processes.scan().map(Arc::new)).clone();
                    find(&identity, before, &processes, &scan, removable)
                });
                look.wait(begun?).await
            }
        };
        let found = match progress {
            Progress::Done(found) => found,
            Progress::Lost => return Err("looking at it ended abruptly".into()),
            Progress::Late(work) => {
                memory.late = Some(work);
                return Err("its network namespace takes long to look at".into());
            }
        };
        Ok(match found? {
            Found::Nothing(clean) => {
                (memory.clean, memory.said) = (Some(clean), None);
                None
            }
            Found::Rules(what, removed) => Some(self.say(view, memory, &what, removed)),
        })
    }

    fn say(
        &self,
        view: &Arc<PodView>,
        memory: &mut Memory,
        what: &str,
        removed: Result<(), String>,
    ) -> Unasked {
        let after = match &removed {
            Ok(()) => "it was removed".to_owned(),
            Err(why) => format!(
                "it is left alone: {why}; delete the pod, or remove it by weir clean --pid with a process of it"
            ),
        };
        let message = format!("asks for no redirection and has rules of ours: {what}; {after}");
        let mut found = Unasked {
            pod: view.reference(),
            message: message.as_str().into(),
            removed: removed.is_ok(),
        };
        self.journal.record(Event::Unasked {
            is_new: memory.said.as_ref() != Some(&message),
            found: found.clone(),
        });
        found.message = cut(&message).into();
        memory.said = Some(message);
        found
    }
}

fn find(
    identity: &Identity,
    before: Option<Clean>,
    processes: &Processes,
    scan: &dyn Fn() -> Result<Arc<Scan>, String>,
    removable: Result<(), String>,
) -> Result<Found, String> {
    if let Some(clean) = before.filter(|clean| still_clean(clean, identity, processes)) {
        return Ok(Found::Nothing(clean));
    }
    let place = processes.find(&*scan()?, identity)?;
    let sandbox = processes.open(&place, identity)?;
    let fingerprint = fingerprint_of(&sandbox);
    let text = |e: weir_netlink::Error| e.to_string();
    let Some(strays) = sandbox.strays().map_err(text)? else {
        return Ok(Found::Nothing(Clean {
            identity: identity.clone(),
            place,
            fingerprint,
            at: Instant::now(),
        }));
    };
    let first = strays.changes.first().map(|c| c.object());
    let what = format!(
        "{} ({} in all)",
        first.unwrap_or_default(),
        strays.changes.len()
    );
    let certain = match strays.certain {
        true => Ok(()),
        false => Err(
            "not all of it is what this program writes, so another one may have written it"
                .to_owned(),
        ),
    };
    let removed = removable.and(certain).and_then(|()| {
        // Whose the namespace is may have changed while it was read.
        match processes.is_there(&place, identity) {
            true => sandbox.clean(None).map(|_| ()).map_err(|e| e.to_string()),
            false => Err("its process ended while its rules were read".to_owned()),
        }
    });
    Ok(Found::Rules(what, removed))
}

/// Whether the result of the last look still holds: same pod, same process, same rules and routing.
fn still_clean(clean: &Clean, identity: &Identity, processes: &Processes) -> bool {
    clean.fingerprint.is_some()
        && clean.identity == *identity
        && clean.at.elapsed() < WHOLE
        && processes
            .open(&clean.place, identity)
            .is_ok_and(|sandbox| fingerprint_of(&sandbox) == clean.fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(change: impl FnOnce(&mut Value)) -> Option<Result<(), String>> {
        let mut pod = json!({"metadata": {"name": "a", "annotations": {}},
            "spec": {"containers": [{"name": "app"}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1"}});
        change(&mut pod);
        judge(&PodView::from_value(&pod).unwrap())
    }

    #[test]
    fn what_may_be_removed() {
        assert_eq!(of(|_| {}), Some(Ok(())));
        // Not looked at.
        let proxy = json!([{"name": "istio-proxy"}]);
        assert_eq!(of(|p| p["spec"]["hostNetwork"] = true.into()), None);
        assert_eq!(of(|p| p["status"]["podIP"] = Value::Null), None);
        assert_eq!(of(|p| p["status"]["phase"] = "Succeeded".into()), None);
        assert_eq!(
            of(|p| p["metadata"]["deletionTimestamp"] = "2026-11-20T21:15:02Z".into()),
            None
        );
        assert_eq!(
            of(|p| p["metadata"]["annotations"][AMBIENT] = "enabled".into()),
            None
        );
        assert_eq!(
            of(|p| p["spec"]["initContainers"] = json!([{"name": "istio-init"}])),
            None
        );
        let asks = |p: &mut Value| {
            p["spec"]["containers"] = proxy.clone();
            p["metadata"]["annotations"]["sidecar.istio.io/status"] = "{}".into();
        };
        assert_eq!(of(asks), None);
        // Looked at, and left alone.
        let opted_out = |p: &mut Value| p["spec"]["containers"] = proxy.clone();
        assert!(matches!(of(opted_out), Some(Err(_))));
        let injected = |p: &mut Value| p["metadata"]["annotations"][INJECTED] = "{}".into();
        assert!(matches!(of(injected), Some(Err(_))));
        let writes = |p: &mut Value| {
            p["spec"]["containers"][0]["securityContext"]["privileged"] = true.into();
        };
        assert!(matches!(of(writes), Some(Err(_))));
    }
}
