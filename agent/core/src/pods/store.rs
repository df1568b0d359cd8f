//! The store of the node's pods and the cluster's namespaces.

use super::PodView;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Maximum number of known pods: more than any kubelet runs (`maxPods`). Ended pods that were not deleted, of which the API
/// server keeps 12,500 by default, are kept while there is room, and do not displace others.
const PODS: usize = 4096;
const TOO_MANY: &str = "the API server has more than 4096 pods that run on this node, where the kubelet runs 110 unless told otherwise";
/// Maximum number of known namespaces; Kubernetes is designed for 10,000.
const NAMESPACES: usize = 16_384;
const TOO_MANY_NAMESPACES: &str = "the API server has more than 16384 namespaces";

/// `metav1.PartialObjectMetadata` of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceView {
    /// `metadata.name`
    pub name: String,
    /// `metadata.labels`
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`
    pub annotations: BTreeMap<String, String>,
}

/// The pods and namespaces from the watch. Clones share their state. A reader holds a lock only during the lookup.
#[derive(Clone, Debug)]
pub struct Pods(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Incremented by every change, and when a list is complete.
    generation: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<Key, Arc<PodView>>,
    namespaces: BTreeMap<String, Arc<NamespaceView>>,
    /// True once a list of pods was complete.
    synced: bool,
}

/// Namespace and name.
type Key = (String, String);

impl Pods {
    /// Creates an empty store that is not synced, and its writer.
    #[must_use]
    pub fn new() -> (Self, Writer) {
        let shared = Shared {
            state: Mutex::default(),
            generation: watch::Sender::new(0),
        };
        let pods = Self(Arc::new(shared));
        let writer = Writer {
            pods: pods.clone(),
            listed: None,
            namespaces_listed: None,
            told: BTreeSet::new(),
            left_out: None,
            namespaces_left_out: None,
        };
        (pods, writer)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No holder of the lock panics in the middle of a change.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current pod with this name.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<PodView>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.state().pods.get(&key).cloned()
    }

    /// Returns all pods, sorted by namespace and name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<PodView>> {
        self.state().pods.values().cloned().collect()
    }

    /// Returns the number of pods.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().pods.len()
    }

    /// Returns true if there is no pod.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of known namespaces.
    #[must_use]
    pub fn namespaces(&self) -> usize {
        self.state().namespaces.len()
    }

    /// Returns the namespace with this name; also `None` before the namespaces are listed.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<Arc<NamespaceView>> {
        self.state().namespaces.get(name).cloned()
    }

    /// Returns true once all pods of the node were listed. Stays true if the API server becomes unreachable: the store then has
    /// the last known state.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.state().synced
    }

    /// Returns a receiver that is notified of every change. The value only indicates a change: read the store again.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.generation.subscribe()
    }
}

/// The only writer of [`Pods`].
///
/// A list is collected separately and replaces the store's content when it is complete: readers never see a partial list.
#[derive(Debug)]
pub struct Writer {
    pods: Pods,
    listed: Option<BTreeMap<Key, Arc<PodView>>>,
    namespaces_listed: Option<BTreeMap<String, Arc<NamespaceView>>>,
    /// Exceeded limits that were reported; each is reported once.
    told: BTreeSet<&'static str>,
    /// Why some pods are not known, as of the last list and the changes after it.
    left_out: Option<String>,
    /// The same for namespaces.
    namespaces_left_out: Option<String>,
}

/// Returns the number of pods that are kept regardless of ended ones.
fn needed(known: &BTreeMap<Key, Arc<PodView>>) -> usize {
    known.values().filter(|view| view.is_needed()).count()
}

/// Returns true if there is room for this pod, or it replaces a known one.
fn fits(known: &BTreeMap<Key, Arc<PodView>>, key: &Key, view: &PodView) -> bool {
    has_room(known, key, PODS) || (view.is_needed() && needed(known) < PODS)
}

/// Returns true if there is room for one more entry, or it replaces a known one.
fn has_room<K: Ord, V>(known: &BTreeMap<K, V>, key: &K, limit: usize) -> bool {
    known.len() < limit || known.contains_key(key)
}

impl Writer {
    /// Begins a list and discards one that was not completed.
    pub fn begin(&mut self) {
        self.listed = Some(BTreeMap::new());
        self.left_out = None;
    }

    /// Returns why some pods of the node are not known: there were too many in the last list or after it.
    #[must_use]
    pub fn left_out(&self) -> Option<&str> {
        self.left_out.as_deref()
    }

    /// Adds or updates a pod, in the list in progress or else in the store.
    ///
    /// # Errors
    /// There are too many pods, which is reported once. The pod is then not stored, unless it was known before. An ended pod
    /// without redirection annotation is left out without an error.
    pub fn apply(&mut self, view: PodView) -> Result<(), String> {
        let key = (view.namespace().to_owned(), view.name().to_owned());
        let is_room = {
            let known = &self.pods.state().pods;
            match &self.listed {
                // A pod that was known before stays, even if others in the list came first.
                Some(listed) => {
                    fits(listed, &key, &view) || (view.is_needed() && known.contains_key(&key))
                }
                None => fits(known, &key, &view),
            }
        };
        if !is_room {
            return match view.is_needed() {
                true => self.leave_out(),
                false => Ok(()),
            };
        }
        match &mut self.listed {
            Some(listed) => _ = listed.insert(key, Arc::new(view)),
            None => self.change(|state| _ = state.pods.insert(key, Arc::new(view))),
        }
        Ok(())
    }

    fn leave_out(&mut self) -> Result<(), String> {
        self.left_out = Some(format!("{TOO_MANY}: further ones are not known"));
        let meanwhile = "the plugin asks the API server for them itself";
        self.refuse(TOO_MANY, meanwhile)
    }

    fn refuse(&mut self, why: &'static str, meanwhile: &str) -> Result<(), String> {
        match self.told.insert(why) {
            false => Ok(()),
            true => Err(format!(
                "{why}: further ones are not known to this agent, and {meanwhile}"
            )),
        }
    }

    /// Keeps the known state of a pod whose new state cannot be decoded. If the UID differs, it is another pod of that name, and
    /// the known one is removed.
    pub fn keep(&mut self, namespace: &str, name: &str, uid: Option<&str>) {
        let key = (namespace.to_owned(), name.to_owned());
        let is_it = |view: &&Arc<PodView>| uid.is_none_or(|uid| uid == view.uid());
        let known = self.pods.state().pods.get(&key).filter(is_it).cloned();
        match (known, &mut self.listed) {
            (None, _) => self.delete(namespace, name, None),
            (Some(view), Some(listed)) => _ = listed.insert(key, view),
            (Some(_), None) => {}
        }
    }

    /// Removes a pod. A later one of that name, which has another UID, stays.
    pub fn delete(&mut self, namespace: &str, name: &str, uid: Option<&str>) {
        let key = (namespace.to_owned(), name.to_owned());
        let is_other = |known: &Arc<PodView>| uid.is_some_and(|uid| uid != known.uid());
        let is_later = match &self.listed {
            Some(listed) => listed.get(&key).is_some_and(is_other),
            None => self.pods.state().pods.get(&key).is_some_and(is_other),
        };
        match &mut self.listed {
            _ if is_later => {}
            Some(listed) => _ = listed.remove(&key),
            None => self.change(|state| _ = state.pods.remove(&key)),
        }
    }

    /// Completes the list: pods that are not in it are removed.
    pub fn complete(&mut self) {
        let Some(mut listed) = self.listed.take() else {
            return;
        };
        self.trim(&mut listed);
        self.change(|state| {
            state.pods = listed;
            state.synced = true;
        });
    }

    /// Removes the last new pods if the list exceeds the limit, which happens when pods that were known before are kept.
    fn trim(&mut self, listed: &mut BTreeMap<Key, Arc<PodView>>) {
        let excess = needed(listed).saturating_sub(PODS);
        if excess == 0 {
            return;
        }
        let new = {
            let known = &self.pods.state().pods;
            let is_new =
                |(key, view): &(&Key, &Arc<PodView>)| view.is_needed() && !known.contains_key(*key);
            let new = listed.iter().rev().filter(is_new).take(excess);
            new.map(|(key, _)| key.clone()).collect::<Vec<Key>>()
        };
        for key in &new {
            listed.remove(key);
        }
        self.left_out = Some(format!("{TOO_MANY}: further ones are not known"));
    }

    /// As [`begin`](Self::begin), for namespaces.
    pub fn begin_namespaces(&mut self) {
        self.namespaces_listed = Some(BTreeMap::new());
        self.namespaces_left_out = None;
    }

    /// As [`left_out`](Self::left_out), for namespaces.
    #[must_use]
    pub fn namespaces_left_out(&self) -> Option<&str> {
        self.namespaces_left_out.as_deref()
    }

    /// As [`apply`](Self::apply), for a namespace.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn apply_namespace(&mut self, view: NamespaceView) -> Result<(), String> {
        let is_room = match &self.namespaces_listed {
            Some(listed) => has_room(listed, &view.name, NAMESPACES),
            None => has_room(&self.pods.state().namespaces, &view.name, NAMESPACES),
        };
        if !is_room {
            let meanwhile = "pods in them are not decided about by labels of their namespace";
            self.namespaces_left_out = Some(format!(
                "{TOO_MANY_NAMESPACES}: further ones are not known, and {meanwhile}"
            ));
            return self.refuse(TOO_MANY_NAMESPACES, meanwhile);
        }
        match &mut self.namespaces_listed {
            Some(listed) => _ = listed.insert(view.name.clone(), Arc::new(view)),
            None => {
                self.change(|state| _ = state.namespaces.insert(view.name.clone(), Arc::new(view)))
            }
        }
        Ok(())
    }

    /// As [`delete`](Self::delete), for a namespace.
    pub fn delete_namespace(&mut self, name: &str) {
        match &mut self.namespaces_listed {
            Some(listed) => _ = listed.remove(name),
            None => self.change(|state| _ = state.namespaces.remove(name)),
        }
    }

    /// As [`complete`](Self::complete), for namespaces.
    pub fn complete_namespaces(&mut self) {
        if let Some(listed) = self.namespaces_listed.take() {
            self.change(|state| state.namespaces = listed);
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.pods.state());
        self.pods.0.generation.send_modify(|n| *n += 1);
    }
}

#[cfg(test)]
mod tests;
