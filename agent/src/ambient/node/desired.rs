//! Computes the desired state of the node from the state of all its pods.

use super::doubt::{Evidence, Member, kept, told_before};
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
use weir_node_ambient::{Config, Exclude, Proxy};

/// The desired configuration, with the handles that keep its network namespaces open.
pub(super) struct Desired {
    pub(super) config: Config,
    pub(super) _held: Vec<Arc<Held>>,
}

/// Returns the proxies of this node, oldest first.
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

/// Returns the places where an agent that captured at the node may have left something, and the handles that keep their network
/// namespaces open.
///
/// # Errors
/// The network namespace of a proxy is not found, and may have objects in it.
pub(in crate::ambient) fn former(
    settings: &AmbientSettings,
    pods: &Pods,
    sandboxes: &Sandboxes,
) -> Result<(Config, Vec<Arc<Held>>), String> {
    let since = Instant::now();
    let (mut held, mut config) = (Vec::new(), Config::default());
    for view in proxies(settings, pods) {
        let identity = Identity::of(&view);
        let found = match sandboxes.find(&identity, since) {
            Ok(found) => found,
            // A proxy that does not run has no network namespace with objects in it.
            Err(_) if sandboxes.is_absent(&identity, since) => continue,
            Err(why) => return Err(not_found(&view, &why)),
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
    Ok((config, held))
}

fn not_found(proxy: &PodView, why: &str) -> String {
    format!("proxy {}/{}: {why}", proxy.namespace(), proxy.name())
}

/// Returns the exclusions in the pod's annotation, or why they are not in force.
fn excluded(settings: &AmbientSettings, view: &PodView) -> (Exclude, Option<String>) {
    let text = view.pod.metadata.annotations.get(EXCLUDE);
    let Some(text) = text.filter(|_| settings.pod_exclude) else {
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
    pub(super) fn proxies(&self) -> Vec<Arc<PodView>> {
        proxies(&self.0.settings, &self.0.pods)
    }

    /// Returns the active proxy: the newest ready one.
    pub(super) fn active(&self) -> Option<Arc<PodView>> {
        self.proxies().into_iter().rfind(|view| view.ready)
    }

    /// Computes the desired state with the present network namespaces; the processes of the node are listed once for all of them.
    pub(super) fn desired(&self, state: &mut State, since: Instant) -> Result<Desired, String> {
        let shared = &self.0;
        if !shared.pods.synced() {
            return Err("the pods of this node are not known yet".to_owned());
        }
        let mut held = Vec::new();
        let mut proxies = Vec::new();
        let active = self.active();
        let is_new = |view: &PodView| {
            let before = state.applied.as_ref().map(|config| &config.proxies);
            before.is_some_and(|before| before.iter().all(|proxy| proxy.uid != view.uid()))
        };
        let is_absent = |view| shared.sandboxes.is_absent(&Identity::of(view), since);
        for (view, created) in self.proxies().iter().zip(0..) {
            let is_active = active
                .as_ref()
                .is_some_and(|active| active.uid() == view.uid());
            let found = match shared.sandboxes.find(&Identity::of(view), since) {
                Ok(found) => found,
                // It is not running yet, or it has ended. While that is unknown, it may have connections if it was found before.
                Err(_) if !is_active && (is_new(view) || is_absent(view)) => continue,
                Err(why) => return Err(not_found(view, &why)),
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
        let members = self.members(state, since)?;
        let pods = members.iter().map(Member::pod).collect();
        held.extend(members.into_iter().filter_map(|member| member.found));
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

    /// Returns the pods that have to be captured, or stay captured.
    fn members(&self, state: &mut State, since: Instant) -> Result<Vec<Member>, String> {
        let shared = &self.0;
        let mut views = shared.pods.all();
        // If there is not enough room for the exclusions of all pods, older ones keep theirs.
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
        let excluded = |view: &PodView| excluded(&shared.settings, view);
        let (mut members, mut doubtful) = (Vec::new(), Vec::new());
        for view in &views {
            let known = asked.get(view.uid());
            let identity = Identity::of(view).with_addresses(now(view));
            let is_member = self.is_member(view, known.is_some());
            if is_member == Some(false) {
                continue;
            }
            let found = match identity.addresses[..] {
                [] => None,
                _ => shared.sandboxes.find(&identity, since).ok(),
            };
            if known.is_none() && found.is_none() {
                let captured = self.captured(&mut state.captured)?;
                let is_captured = identity.addresses.iter().any(|a| captured.contains(a));
                let unclaimed = captured.iter().copied();
                let unclaimed = unclaimed.filter(|a| claims.of_address(*a).next().is_none());
                let (pod, unclaimed) = (identity.clone(), (&unclaimed.collect(), is_captured));
                let before = told_before(pod, excluded(view), unclaimed, &shared.sandboxes, since);
                if let Some(before) = before {
                    doubtful.push(before);
                    continue;
                }
            }
            if identity.addresses.is_empty() {
                continue;
            }
            // Addresses from the plugin are valid while the sandbox exists.
            let unsure = match known.filter(|_| found.is_some()) {
                Some(known) => known.hearsay(view),
                None => identity.addresses.clone(),
            };
            let claimed = claims.check_for(view, &unsure);
            let member = Member {
                identity,
                exclude: excluded(view),
                found,
            };
            match is_member.is_some() && claimed.is_ok() {
                true => members.push(member),
                false => doubtful.push(member),
            }
        }
        if !doubtful.is_empty() {
            let certain = members.iter().flat_map(|m| &m.identity.addresses);
            let evidence = Evidence {
                claims: &claims,
                addresses: &now,
                sandboxes: &shared.sandboxes,
                since,
            };
            members.extend(kept(
                doubtful,
                certain.copied().collect(),
                self.captured(&mut state.captured)?,
                state.applied.as_ref(),
                &evidence,
            ));
        }
        Ok(members)
    }

    /// Returns whether the pod belongs to the mesh; `None` if that is unknown and no earlier agent annotated it.
    fn is_member(&self, view: &PodView, was_asked: bool) -> Option<bool> {
        let namespace = self.0.pods.namespace(view.namespace());
        match decide(&self.0.settings, view, namespace.as_deref()) {
            Decision::Member => Some(true),
            Decision::No(_) => Some(false),
            // The pod stays as it is.
            Decision::Unknown => {
                let is_annotated = view.pod.metadata.annotations.contains_key(REDIRECTION);
                (was_asked || is_annotated).then_some(true)
            }
        }
    }
}
