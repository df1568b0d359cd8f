//! All pods of the node, and what is known of the namespaces.

use super::PodView;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Pods that are known at most: more than any kubelet runs (`maxPods`). Ended ones that nobody deleted, of which the API server keeps
/// 12,500 unless told otherwise, are known as long as there is room, and take it from no other.
const PODS: usize = 4096;
const TOO_MANY: &str = "the API server has more than 4096 pods that run on this node, where the kubelet runs 110 unless told otherwise";
/// Namespaces: Kubernetes is made for 10,000.
const NAMESPACES: usize = 16_384;
const TOO_MANY_NAMESPACES: &str = "the API server has more than 16384 namespaces";

/// `metav1.PartialObjectMetadata` of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceView {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// What the watch has seen; clones look at the same place. Reading takes a lock for the time of a look-up.
#[derive(Clone, Debug)]
pub struct Pods(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Goes up with every change, and when a list is complete.
    generation: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<Key, Arc<PodView>>,
    namespaces: BTreeMap<String, Arc<NamespaceView>>,
    /// A list was complete once.
    synced: bool,
}

/// Namespace and name.
type Key = (String, String);

impl Pods {
    /// Empty, not synced, with the one that fills it.
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
        // Nothing in here panics half-way.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pod with this name now.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<PodView>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.state().pods.get(&key).cloned()
    }

    /// All pods, sorted by namespace and name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<PodView>> {
        self.state().pods.values().cloned().collect()
    }

    /// How many pods there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state().pods.len()
    }

    /// There is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many namespaces are known.
    #[must_use]
    pub fn namespaces(&self) -> usize {
        self.state().namespaces.len()
    }

    /// The namespace of this name; `None` also while namespaces were not listed.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<Arc<NamespaceView>> {
        self.state().namespaces.get(name).cloned()
    }

    /// Every pod of the node has been seen once. Stays true when the API server is lost: what is here
    /// is then the last that was known.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.state().synced
    }

    /// Wakes its waiters after every change. A value says only that something changed: look again.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.generation.subscribe()
    }
}

/// The only one who changes [`Pods`].
///
/// A list is collected apart and takes the place of what was known when it is complete: readers never see half of one.
#[derive(Debug)]
pub struct Writer {
    pods: Pods,
    listed: Option<BTreeMap<Key, Arc<PodView>>>,
    namespaces_listed: Option<BTreeMap<String, Arc<NamespaceView>>>,
    /// What there is too much of, each told once.
    told: BTreeSet<&'static str>,
    /// Why not all pods are known, since the last list or after it.
    left_out: Option<String>,
    /// The same for namespaces.
    namespaces_left_out: Option<String>,
}

/// How many of these are there whatever room they take.
fn needed(known: &BTreeMap<Key, Arc<PodView>>) -> usize {
    known.values().filter(|view| view.is_needed()).count()
}

/// Whether this pod fits, or takes the place of an older one.
fn fits(known: &BTreeMap<Key, Arc<PodView>>, key: &Key, view: &PodView) -> bool {
    has_room(known, key, PODS) || (view.is_needed() && needed(known) < PODS)
}

/// Whether one more fits, or takes the place of an older one.
fn has_room<K: Ord, V>(known: &BTreeMap<K, V>, key: &K, limit: usize) -> bool {
    known.len() < limit || known.contains_key(key)
}

impl Writer {
    /// A list begins; one that was not completed is forgotten.
    pub fn begin(&mut self) {
        self.listed = Some(BTreeMap::new());
        self.left_out = None;
    }

    /// Why not all pods of the node are known: there were too many when they were listed, or since.
    #[must_use]
    pub fn left_out(&self) -> Option<&str> {
        self.left_out.as_deref()
    }

    /// A pod is there, as part of the list that was begun, or by itself.
    ///
    /// # Errors
    /// There are too many, which is told once. It is not known then, unless it was before; one that has ended and that nothing was
    /// made for is not missed.
    pub fn apply(&mut self, view: PodView) -> Result<(), String> {
        let key = (view.namespace().to_owned(), view.name().to_owned());
        let is_room = {
            let known = &self.pods.state().pods;
            match &self.listed {
                // What was known before is not taken for gone because others came first.
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

    /// A pod is there, and what the API server says of it cannot be read: what was known of it before is known further. One
    /// with another UID is another pod of that name.
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

    /// A pod is gone. A later one of that name, which has another UID, stays.
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

    /// The list is complete: what it does not name is gone.
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

    /// Where those that were known before left no room for all others, the last of these go.
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
