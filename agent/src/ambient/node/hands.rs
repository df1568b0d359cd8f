//! Implements the requests of the keeper, to capture and release pods, at the node.

use super::{Addresses, AtNode, text};
use crate::ambient::ebpf;
use crate::ambient::former::{Attempts, remove_probes};
use crate::ambient::hands::{
    Asked, Captured, NotCaptured, NotReleased, Outcome, Probes, Proxy, Rules, Workload,
};
use crate::ambient::kernel::held_last;
use crate::dataplane::Spent;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_cni::log::count;
use weir_cni::plugin::Phase;
use weir_core::journal::ambient::By;
use weir_core::journal::pod::{Cause, Repair};
use weir_core::sandboxes::Held;
use weir_node_ambient::Config;

/// Returns a number that identifies a proxy.
fn number(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}

impl AtNode {
    /// Removes what an agent with another setting wrote in the pod's network namespace.
    fn remove_in_pod(&self, held: &Held, asked: &Asked) -> Result<(), String> {
        ebpf::remove_all(&self.0.plane, held, asked, &self.0.places.bpffs)
    }
}

impl Rules for AtNode {
    fn capture(
        &self,
        asked: &Asked,
        before: Option<&Captured>,
        since: Instant,
        spent: &mut Spent,
    ) -> Result<(Captured, Outcome), NotCaptured> {
        let uid = asked.identity.uid();
        let uid = uid.ok_or_else(|| "it has no UID".to_owned())?;
        let find = || self.0.sandboxes.find(&asked.identity, since);
        let held = spent.measure(Phase::Facts, find)?;
        let mut state = self.state();
        let addresses = Addresses {
            all: asked.identity.addresses.clone(),
            by_plugin: asked.by_plugin.clone(),
        };
        state.asked.insert(uid.to_owned(), addresses);
        let synced = spent.measure(Phase::Apply, || self.sync(&mut state, Some(since)))?;
        drop(state);
        let node = &synced.seen.node;
        if let Some(why) = synced.seen.but().filter(|_| synced.seen.is_bypassed()) {
            return Err(why.into());
        }
        if !node.is_capturing() {
            let why = "no proxy of this node is ready, so it is not captured (WEIR_AMBIENT_WITHOUT_PROXY=open)";
            return Err(why.to_owned().into());
        }
        if let Some(why) = node.left_out.get(uid) {
            return Err(why.clone().into());
        }
        let mut pods = node.config.pods.iter();
        let pod = pods.find(|pod| pod.uid == uid);
        let pod =
            pod.ok_or_else(|| "it is not one of the pods to be captured any more".to_owned())?;
        let is_known = before.is_some_and(|before| before.netns == held.id());
        if !is_known {
            self.remove_in_pod(&held, asked)?;
        }
        // The pod is captured as if it excluded nothing.
        if let Some(why) = &pod.refused {
            return Err(why.clone().into());
        }
        // TCP over that family fails; the other one is captured.
        if let Some((address, why)) = node.config.unserved(pod) {
            let remedy = "the proxy's pod needs an address of each family that pods have";
            return Err(format!("address {address}: {why}; {remedy}").into());
        }
        let captured = Captured {
            engine: Some(synced.seen.by),
            compared: synced.seen.at,
            // Hindrances are reported for the node.
            ..Captured::at(held, asked)
        };
        let differences = synced.steps.len();
        let how = match synced.seen.by {
            By::Rules(_) => format!("first packets by {}", node.carrier),
            By::Ebpf => "by programs of eBPF".to_owned(),
        };
        let summary = format!(
            "captured at the node, {how}: {}, verified",
            count(differences, "change")
        );
        let first = synced.steps.first().filter(|_| synced.healed);
        Ok((
            captured,
            match (first, is_known) {
                (_, false) => Outcome::Made { summary },
                (None, true) => Outcome::Same,
                (Some(step), true) => Outcome::Healed(Repair {
                    first: format!("weir would {step}"),
                    differences,
                    cause: Cause::Missing,
                    summary,
                }),
            },
        ))
    }

    fn release(&self, asked: &Asked, before: Option<&Captured>) -> Result<(), NotReleased> {
        let uid = asked.identity.uid().unwrap_or_default();
        // A failure concerns the node, which reports it, and not this pod.
        Probes::remove(self, uid, &[]).map_err(NotReleased::Unseen)?;
        // In the network namespaces of proxies are the node's own rules and programs.
        let is_proxy = self.proxies().iter().any(|view| view.uid() == uid);
        if before.is_none() && !is_proxy {
            let held = held_last(&self.0.sandboxes, asked, None)?;
            self.remove_in_pod(&held, asked)?;
        }
        Ok(())
    }
}

impl Proxy for AtNode {
    fn newest(&self) -> Option<u64> {
        self.active().map(|view| number(view.uid()))
    }

    fn peers(&self) -> Vec<weir_zds::Peer> {
        Vec::new()
    }

    fn add(&self, _: &Workload, _: Duration) -> Result<Option<u64>, String> {
        let state = self.state();
        let active = state.applied.as_ref().and_then(Config::active);
        let uid = active.map(|proxy| number(&proxy.uid));
        uid.map(Some)
            .ok_or_else(|| "no proxy of this node is ready: its TCP connections are refused".into())
    }

    fn remove(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

impl Probes for AtNode {
    /// Nothing to do: the capturing rules exempt connections of the node itself.
    fn put(&self, _: &str, _: &[IpAddr]) -> Result<(), String> {
        Ok(())
    }

    fn remove(&self, uid: &str, _: &[IpAddr]) -> Result<(), String> {
        let mut state = self.state();
        state.asked.remove(uid);
        self.sync(&mut state, None).map(drop)
    }

    fn expect(&self, _: BTreeMap<IpAddr, Arc<str>>, _: BTreeMap<Arc<str>, Vec<IpAddr>>) {}

    /// Removes rules for probes of an agent that captured in pods; they are no longer needed.
    fn all_captured(&self) {
        if std::mem::replace(&mut self.state().is_alone, true) {
            return;
        }
        let node = self.clone();
        let work = move || {
            let mut attempts = Attempts::begin();
            while !node.state().ended {
                let removed = node.host().and_then(|host| remove_probes(&host));
                match attempts.ended(removed, &node.0.journal) {
                    Some(pause) => std::thread::sleep(pause),
                    None => return,
                }
            }
        };
        // On a separate thread: another program may hold the lock of the host's tables.
        let _ = std::thread::Builder::new().name("host".into()).spawn(work);
    }

    fn end(&self) -> Result<Vec<String>, String> {
        let mut state = self.state();
        state.ended = true;
        let config = state.applied.take().map(|config| Config {
            sysctls: std::mem::take(&mut state.sysctls),
            ..config
        });
        let host = self.host()?;
        let detached = self.detach(&host, config.as_ref());
        let removed = weir_node_ambient::remove(&host, config.as_ref()).map_err(text);
        // Also if not all pods were captured yet.
        let of_probes = remove_probes(&host);
        let mut all = removed?;
        all.extend(detached?);
        all.extend(of_probes?);
        Ok(all)
    }
}
