//! Finds the network namespace of a pod.

use super::identity::{has_addresses, not_nested};
use super::place::{Identity, Scan};
use super::{Held, Read, Sandboxes, Source, id_of, is_owner, locked};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use weir_cni::files::exists;
use weir_cni::plugin::NetnsOfPod;
use weir_netlink::NetnsId;

impl Sandboxes {
    /// Finds the namespace of a pod. Scans the processes of the node again if the last scan is older than `since`.
    ///
    /// # Errors
    /// No namespace is certainly the pod's, or several are; the text names the condition that does not hold.
    pub fn find(&self, pod: &Identity, since: Instant) -> Result<Arc<Held>, String> {
        let announced = pod
            .uid()
            .and_then(|uid| locked(&self.0.state).announced.get(uid).cloned());
        // Why the namespace announced by the plugin is not accepted; reported if no other source finds one.
        let mut refused = None;
        let named = announced.as_ref().and_then(|netns| {
            let held = self.named(netns, pod, since);
            let held = held.and_then(|held| self.taken_alone(held, pod));
            let path = netns.path.display();
            held.map_err(|why| {
                refused = Some(format!(
                    "the plugin named {path}, which is not taken: {why}"
                ));
            })
            .ok()
        });
        // The announcement stays until it is accepted: the addresses may appear later, or the known ones may be those of an
        // earlier sandbox.
        if let Some(uid) = pod.uid().filter(|_| named.is_some()) {
            let mut state = locked(&self.0.state);
            // The plugin may have announced another one in the meantime.
            if state.announced.get(uid) == announced.as_ref() {
                state.announced.remove(uid);
            }
        }
        let kept = || self.kept(pod).filter(|held| is_owner(held, pod).is_ok());
        let held = match named.or_else(kept) {
            Some(held) => held,
            None => self.by_others(pod, since).map_err(|why| match &refused {
                Some(refused) => format!("{refused}; {why}"),
                None => why,
            })?,
        };
        if let Some(uid) = pod.uid() {
            locked(&self.0.state).hold(uid, &held);
        }
        Ok(held)
    }

    /// Takes a namespace that the plugin named, unless it is held for another pod: the proxy would act for both in one namespace.
    fn taken_alone(&self, held: Held, pod: &Identity) -> Result<Arc<Held>, String> {
        let held = Arc::new(held);
        if let Some(uid) = pod.uid() {
            let mut state = locked(&self.0.state);
            let mut others = state.held.iter().filter(|(of, _)| *of != uid);
            if let Some((of, _)) = others.find(|(_, other)| other.id() == held.id()) {
                let id = held.id();
                return Err(format!("{id} is that of another pod, with the UID {of}"));
            }
            state.hold(uid, &held);
        }
        Ok(held)
    }

    /// Returns true if nothing of the pod runs here, after [`Sandboxes::find`] has found nothing: no process is in a control
    /// group of the pod, the container runtime knows no sandbox, and the announced namespace is gone. False if unknown.
    pub fn is_absent(&self, pod: &Identity, since: Instant) -> bool {
        let announced = pod
            .uid()
            .and_then(|uid| locked(&self.0.state).announced.get(uid).cloned());
        let is_named = announced.is_some_and(|netns| {
            let mut places = self.places(&netns.path).into_iter();
            places.any(|place| match exists(&place) {
                Ok(is_there) => is_there,
                // This agent may lack access to the root of the node, which says nothing about the path.
                Err(e) => e.kind() != ErrorKind::PermissionDenied,
            })
        });
        let runtime = self.0.runtime.as_ref();
        let is_unknown = runtime.is_none_or(|runtime| {
            let mut uids = pod.uids().iter();
            uids.all(|uid| matches!(runtime.netns(uid), Ok(None)))
        });
        !is_named && is_unknown && self.scan(since).is_ok_and(|scan| scan.has_none_of(pod))
    }

    /// Returns the announced namespace if it is the pod's. Opens and reads it, unless [`Sandboxes::there`] has done that for this
    /// announcement after `since`.
    fn named(
        &self,
        announced: &NetnsOfPod,
        pod: &Identity,
        since: Instant,
    ) -> Result<Held, String> {
        let read = pod
            .uid()
            .and_then(|uid| locked(&self.0.state).read.remove(uid));
        match read.filter(|read| read.began >= since && read.announced == *announced) {
            Some(read) if pod.addresses.is_empty() => Ok(read.held),
            Some(Read {
                held, addresses, ..
            }) => {
                has_addresses(held.id(), &addresses, pod)?;
                Ok(held)
            }
            None => {
                let held = self.announced(announced, pod)?;
                is_owner(&held, pod).map(|()| held)
            }
        }
    }

    /// Opens the namespace that the plugin announced, by its path here or below the root of the node.
    ///
    /// # Errors
    /// It is not visible here, is not the announced one, or cannot be a pod's; the caller then tries the other sources.
    pub(super) fn announced(&self, netns: &NetnsOfPod, pod: &Identity) -> Result<Held, String> {
        let id = NetnsId {
            dev: netns.dev,
            ino: netns.ino,
        };
        let mut places = self.places(&netns.path).into_iter();
        let path = places
            .find(|path| id_of(path) == Some(id))
            .ok_or_else(|| format!("{id} is not seen there by this agent"))?;
        let sandbox = self.opened(&path).map_err(|e| e.to_string())?;
        if sandbox.netns().id() != id {
            return Err(format!("{id} was there, and another one is now"));
        }
        not_nested(sandbox.netns(), pod)?;
        Ok(Held::new(sandbox, Source::Plugin(path)))
    }

    /// Finds the namespace by the container runtime, otherwise by the processes of the node.
    fn by_others(&self, pod: &Identity, since: Instant) -> Result<Arc<Held>, String> {
        match self.by_runtime(pod) {
            Ok(Some(held)) => Ok(Arc::new(held)),
            Ok(None) => self.by_process(pod, since),
            Err(of_runtime) => self
                .by_process(pod, since)
                .map_err(|why| format!("{why}; {of_runtime}")),
        }
    }

    /// Queries the container runtime. `None` if there is none to query, or it knows no sandbox of the pod.
    pub(super) fn by_runtime(&self, pod: &Identity) -> Result<Option<Held>, String> {
        let Some(runtime) = &self.0.runtime else {
            return Ok(None);
        };
        let mut refused = None;
        for uid in pod.uids() {
            let Some(path) = runtime.netns(uid)? else {
                continue;
            };
            match self.named_by_runtime(&path, pod) {
                Ok(held) => return Ok(Some(held)),
                Err(why) => _ = refused.get_or_insert(why),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    /// Opens the namespace that the container runtime names, at the first path where it is visible and is the pod's.
    fn named_by_runtime(&self, path: &Path, pod: &Identity) -> Result<Held, String> {
        let mut refused = None;
        for place in self.places(path) {
            if id_of(&place).is_none() {
                continue;
            }
            let held = self.opened(&place).map_err(|e| e.to_string());
            let held = held.and_then(|sandbox| {
                not_nested(sandbox.netns(), pod)?;
                let held = Held::new(sandbox, Source::Runtime(place));
                is_owner(&held, pod).map(|()| held)
            });
            match held {
                Ok(held) => return Ok(held),
                Err(why) => _ = refused.get_or_insert(why),
            }
        }
        Err(match refused {
            None => Self::unseen(path, ""),
            Some(why) => format!(
                "the container runtime names {}, which is not taken: {why}",
                path.display()
            ),
        })
    }

    fn by_process(&self, pod: &Identity, since: Instant) -> Result<Arc<Held>, String> {
        let place = self.0.processes.find(&*self.scan(since)?, pod)?;
        let sandbox = self.0.processes.open(&place, pod)?;
        let folder = self.0.processes.folder(&place);
        Ok(Arc::new(Held::new(sandbox, Source::Process(place, folder))))
    }

    fn scan(&self, since: Instant) -> Result<Arc<Scan>, String> {
        let mut scan = locked(&self.0.scan);
        if let Some((_, scan)) = scan.as_ref().filter(|(begun, _)| *begun >= since) {
            return Ok(Arc::clone(scan));
        }
        let begun = Instant::now();
        let new = Arc::new(self.0.processes.scan()?);
        *scan = Some((begun, Arc::clone(&new)));
        Ok(new)
    }
}
