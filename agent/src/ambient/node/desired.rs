//! What the node is to have, from all that is known of its pods.

use super::{AtNode, State};
use crate::ambient::decision::{Decision, decide, is_ztunnel};
use crate::ambient::settings::AmbientSettings;
use crate::ambient::{EXCLUDE, REDIRECTION};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use weir_core::pods::{PodView, Pods};
use weir_core::sandboxes::claims::Claims;
use weir_core::sandboxes::place::Identity;
use weir_core::sandboxes::{Held, Sandboxes};
use weir_node_ambient::{Config, Exclude, Pod, Proxy};

/// What is asked for, and what keeps its namespaces open.
pub(super) struct Desired {
    pub(super) config: Config,
    pub(super) _held: Vec<Arc<Held>>,
}

/// The proxies of this node, the oldest first.
fn proxies(settings: &AmbientSettings, pods: &Pods) -> Vec<Arc<PodView>> {
    let is_proxy = |view: &Arc<PodView>| {
        let is_there = !view.ended() && !view.addresses().is_empty();
        is_there && is_ztunnel(settings, view)
    };
    let mut proxies: Vec<_> = pods.all().into_iter().filter(is_proxy).collect();
    // RFC 3339 in UTC sorts by time.
    proxies.sort_by(|a, b| (&a.created, a.uid()).cmp(&(&b.created, b.uid())));
    proxies
}

/// What an agent that captured at the node may have left: where it was written, and what keeps these namespaces open.
pub(in crate::ambient) fn former(
    settings: &AmbientSettings,
    pods: &Pods,
    sandboxes: &Sandboxes,
) -> (Config, Vec<Arc<Held>>) {
    let since = Instant::now();
    let (mut held, mut config) = (Vec::new(), Config::default());
    for view in proxies(settings, pods) {
        // One that is not there has no namespace with anything in it.
        let Ok(found) = sandboxes.find(&Identity::of(&view), since) else {
            continue;
        };
        config.proxies.push(Proxy {
            uid: view.uid().to_owned(),
            netns: found.sandbox.netns().path(),
            addresses: view.addresses(),
            created: 0,
            ready: false,
        });
        held.push(found);
    }
    (config, held)
}

/// What the pod says that is not to be captured of it, or why nothing of that is in force.
fn excluded(view: &PodView) -> (Exclude, Option<String>) {
    let Some(text) = view.pod.metadata.annotations.get(EXCLUDE) else {
        return Default::default();
    };
    match Exclude::from_annotation(text, EXCLUDE) {
        Ok(exclude) => (exclude, None),
        Err(e) => {
            let why = format!("annotation {e}; nothing of it is excluded");
            (Exclude::default(), Some(why))
        }
    }
}

impl AtNode {
    fn proxies(&self) -> Vec<Arc<PodView>> {
        proxies(&self.0.settings, &self.0.pods)
    }

    /// The active proxy: of the ready ones the newest.
    pub(super) fn active(&self) -> Option<Arc<PodView>> {
        self.proxies().into_iter().rfind(|view| view.ready)
    }

    /// Namespaces are those of now; the processes of the node are listed once for all of them.
    pub(super) fn desired(&self, state: &mut State, since: Instant) -> Result<Desired, String> {
        let shared = &self.0;
        if !shared.pods.synced() {
            return Err("the pods of this node are not known yet".to_owned());
        }
        let mut held = Vec::new();
        let mut proxies = Vec::new();
        let active = self.active();
        for (view, created) in self.proxies().iter().zip(0..) {
            let is_active = active
                .as_ref()
                .is_some_and(|active| active.uid() == view.uid());
            let found = match shared.sandboxes.find(&Identity::of(view), since) {
                Ok(found) => found,
                // It is on its way to go, or not there yet.
                Err(_) if !is_active => continue,
                Err(e) => return Err(format!("proxy {}/{}: {e}", view.namespace(), view.name())),
            };
            proxies.push(Proxy {
                uid: view.uid().to_owned(),
                netns: found.sandbox.netns().path(),
                addresses: view.addresses(),
                created,
                ready: is_active,
            });
            held.push(found);
        }
        let mut views = shared.pods.all();
        // Where there is no room for what all of them exclude, older ones keep theirs.
        views.sort_by(|a, b| (&a.created, a.uid()).cmp(&(&b.created, b.uid())));
        let uids: BTreeSet<&str> = views.iter().map(|view| view.uid()).collect();
        let asked = &mut state.asked;
        asked.retain(|uid, _| uids.contains(uid.as_str()));
        for view in &views {
            if let Some(by) = asked.get_mut(view.uid()).and_then(|a| a.by_plugin.as_mut()) {
                by.saw(view);
            }
        }
        let now = |view: &PodView| match asked.get(view.uid()) {
            Some(known) => known.now(view),
            None => view.addresses(),
        };
        let claims = Claims::with(&views, now);
        let mut pods = Vec::new();
        for view in &views {
            let known = asked.get(view.uid());
            let identity = Identity::of(view).with_addresses(now(view));
            let is_member = self.is_member(view, known.is_some());
            let claimed = match known {
                Some(known) => claims.check_for(view, &known.hearsay(view)),
                None => claims.check(view),
            };
            if !is_member || identity.addresses.is_empty() || claimed.is_err() {
                continue;
            }
            // Without it the main table's routes say which link is the pod's.
            let found = shared.sandboxes.find(&identity, since).ok();
            let (exclude, refused) = excluded(view);
            pods.push(Pod {
                uid: view.uid().to_owned(),
                addresses: identity.addresses,
                netns: found.as_ref().map(|found| found.sandbox.netns().path()),
                exclude,
                refused,
            });
            held.extend(found);
        }
        let config = Config {
            proxies,
            pods,
            dns_capture: shared.settings.rules.redirect_dns,
            without_proxy: shared.settings.without_proxy,
            ..shared.settings.node.clone()
        };
        let config = match shared.settings.rules.enable_ipv6 {
            true => config,
            false => config.without_ipv6(),
        };
        Ok(Desired {
            config,
            _held: held,
        })
    }

    /// While it is not known whether a pod belongs to the mesh, what is so stays so.
    fn is_member(&self, view: &PodView, was_asked: bool) -> bool {
        let namespace = self.0.pods.namespace(view.namespace());
        match decide(&self.0.settings, view, namespace.as_deref()) {
            Decision::Member => true,
            Decision::No(_) => false,
            Decision::Unknown => {
                was_asked || view.pod.metadata.annotations.contains_key(REDIRECTION)
            }
        }
    }
}
