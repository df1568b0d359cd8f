//! What is done to the stand-ins, which may fail or lose the answer.

use super::steps::Operation;
use super::{Known, NETNS, Shared, World};
use crate::ambient::hands::{
    Asked, Captured, NotCaptured, NotReleased, Outcome, Probes, Proxy, Rules, Workload,
};
use crate::dataplane::Spent;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_core::journal::pod::{Cause, Repair};
use weir_live::Proof;
use weir_netlink::NetnsId;

fn missing() -> Repair {
    Repair {
        first: "missing".into(),
        differences: 1,
        cause: Cause::Missing,
        summary: "made".into(),
    }
}

impl World {
    /// What the proxy of this connection knows.
    pub(super) fn known(&mut self, id: u64) -> Option<&mut Known> {
        match &mut self.arriving {
            Some((arriving, known)) if *arriving == id => Some(known),
            _ => self.proxies.get_mut(&id),
        }
    }

    fn found(&self, asked: &Asked) -> Option<u64> {
        let uid = asked.identity.uid()?;
        let mistaken = || asked.by_plugin.as_ref().and(self.mistaken.get(uid));
        self.netns.get(uid).or_else(mistaken).copied()
    }
}

impl Rules for Shared {
    fn capture(
        &self,
        asked: &Asked,
        before: Option<&Captured>,
        _: Instant,
        _: &mut Spent,
    ) -> Result<(Captured, Outcome), NotCaptured> {
        let _operation = Operation::begin();
        let netns = self.world().found(asked);
        let netns = netns.ok_or_else(|| "no namespace".to_owned())?;
        Operation::midway();
        let mut world = self.world();
        let (done, said) = world.tried('r');
        let had = world.rules.contains(&netns);
        if done {
            world.rules.insert(netns);
        }
        let dev = NETNS.as_ref().map_or(4, |real| real.id().dev);
        let id = NetnsId { dev, ino: netns };
        let captured = Captured {
            netns: id,
            asked: asked.clone(),
            engine: None,
            fingerprint: None,
            hindered: world.foreign.clone(),
            compared: Instant::now(),
            held: None,
        };
        if let Err(why) = said {
            let at = Some(Box::new(captured));
            let differences = usize::from(!had);
            let is_known = before.is_some_and(|b| b.netns == id);
            let drift = is_known.then(|| {
                Box::new(Repair {
                    differences,
                    ..missing()
                })
            });
            return Err(NotCaptured { why, at, drift });
        }
        let outcome = match (had, before.is_some_and(|b| b.netns == id)) {
            (true, _) => Outcome::Same,
            (false, false) => Outcome::Made {
                summary: "made".into(),
            },
            (false, true) => Outcome::Healed(missing()),
        };
        Ok((captured, outcome))
    }

    fn prove(&self, _: &Captured) -> Option<Proof> {
        let mut world = self.world();
        world.proofs += usize::from(world.proof.is_some());
        world.proof.clone()
    }

    fn release(&self, asked: &Asked, _: Option<&Captured>) -> Result<(), NotReleased> {
        let _operation = Operation::begin();
        let netns = self.world().found(asked);
        let netns = netns.ok_or_else(|| NotReleased::Absent("no namespace".into()))?;
        Operation::midway();
        let mut world = self.world();
        let (done, said) = world.tried('r');
        if done {
            world.rules.remove(&netns);
            // Without an answer the agent cannot know that they are gone.
            match said {
                Ok(()) => world.lost.remove(&netns),
                Err(_) => world.lost.insert(netns),
            };
        }
        Ok(said?)
    }
}

impl Proxy for Shared {
    fn peers(&self) -> Vec<weir_zds::Peer> {
        Vec::new()
    }

    fn newest(&self) -> Option<u64> {
        self.world().proxies.keys().next_back().copied()
    }

    fn add(&self, workload: &Workload, _: Duration) -> Result<Option<u64>, String> {
        let _operation = Operation::begin();
        let mut world = self.world();
        let netns = workload.captured.as_ref().map(|c| c.netns.ino);
        let has_rules = |n| world.rules.contains(&n) || world.lost.contains(&n);
        if !netns.is_some_and(has_rules) {
            let uid = &workload.uid;
            world.wrong = Some(format!("{uid} is told to the proxy and has no rules"));
        }
        let (done, said) = world.tried('p');
        // One that has its snapshot comes first.
        let newest = world.proxies.keys().next_back();
        let arriving = world.arriving.as_ref().map(|(id, _)| id);
        let Some(id) = newest.or(arriving).copied() else {
            return Err("no proxy is connected".into());
        };
        if world.is_slow {
            world.ask(id, &workload.uid, netns);
            return Ok(None);
        }
        if let Some(known) = world.known(id).filter(|_| done) {
            known.insert(workload.uid.to_string(), netns);
        }
        said.map(|()| Some(id))
    }

    fn remove(&self, uid: &str) -> Result<(), String> {
        let _operation = Operation::begin();
        let mut world = self.world();
        let (done, said) = world.tried('p');
        let arriving = world.arriving.as_ref().map(|(id, _)| id);
        let all: Vec<u64> = world.proxies.keys().chain(arriving).copied().collect();
        if world.is_slow && !all.is_empty() {
            all.iter().for_each(|proxy| world.ask(*proxy, uid, None));
            return Err("not answered yet".into());
        }
        for id in all.iter().filter(|_| done) {
            world.known(*id).map(|known| known.remove(uid));
        }
        said
    }
}

impl Probes for Shared {
    fn put(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String> {
        let _operation = Operation::begin();
        let mut world = self.world();
        let (done, said) = world.tried('h');
        for address in addresses.iter().filter(|_| done) {
            world.probes.insert(*address, uid.to_owned());
        }
        said
    }

    fn remove(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String> {
        let _operation = Operation::begin();
        let mut world = self.world();
        let (done, said) = world.tried('h');
        if done {
            world
                .probes
                .retain(|address, of| of != uid || !addresses.contains(address));
        }
        said
    }

    fn all_captured(&self) {
        self.world().all_captured = true;
    }

    fn expect(&self, all: BTreeMap<IpAddr, Arc<str>>, spared: BTreeMap<Arc<str>, Vec<IpAddr>>) {
        let mut world = self.world();
        world.probes.retain(|address, of| {
            let is_expected = all.get(address).is_some_and(|uid| **uid == **of);
            is_expected || spared.contains_key(of.as_str())
        });
        let all = all.iter().map(|(address, uid)| (*address, uid.to_string()));
        world.probes.extend(all);
    }
}
