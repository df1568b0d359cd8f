//! What is done to the stand-ins, which may fail or lose the answer.

use super::{NETNS, Shared};
use crate::ambient::hands::{
    Asked, Captured, NotCaptured, NotReleased, Outcome, Probes, Proxy, Rules, Workload,
};
use crate::dataplane::Spent;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_core::journal::pod::{Cause, Repair};
use weir_netlink::NetnsId;

fn missing() -> Repair {
    Repair {
        first: "missing".into(),
        differences: 1,
        cause: Cause::Missing,
        summary: "made".into(),
    }
}

fn uid_of(asked: &Asked) -> String {
    asked.identity.uid().unwrap_or_default().to_owned()
}

impl Rules for Shared {
    fn capture(
        &self,
        asked: &Asked,
        before: Option<&Captured>,
        _: Instant,
        _: &mut Spent,
    ) -> Result<(Captured, Outcome), NotCaptured> {
        let mut world = self.world();
        let netns = world.netns.get(&uid_of(asked)).copied();
        let netns = netns.ok_or_else(|| "no namespace".to_owned())?;
        let (done, said) = world.tried('r');
        let had = world.rules.contains(&netns);
        if done {
            world.rules.insert(netns);
            world.ruled.insert(netns);
            world.ruled_pods.insert(uid_of(asked));
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
            let is_lost = !had && before.is_some_and(|b| b.netns == id);
            let drift = is_lost.then(|| Box::new(missing()));
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

    fn release(&self, asked: &Asked, _: Option<&Captured>) -> Result<(), NotReleased> {
        let mut world = self.world();
        let (done, said) = world.tried('r');
        let netns = world.netns.get(&uid_of(asked)).copied();
        let netns = netns.ok_or_else(|| NotReleased::Absent("no namespace".into()))?;
        if done {
            world.rules.remove(&netns);
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
        let mut world = self.world();
        let netns = workload.captured.as_ref().map(|c| c.netns.ino);
        if netns.is_none_or(|netns| !world.ruled.contains(&netns)) {
            world.wrong = Some(format!(
                "{} is told to the proxy and never had rules",
                workload.uid
            ));
        }
        let (done, said) = world.tried('p');
        let Some((id, mut known)) = world.proxies.last_entry().map(|e| e.remove_entry()) else {
            return Err("no proxy is connected".into());
        };
        if done {
            known.insert(workload.uid.to_string(), netns);
        }
        world.proxies.insert(id, known);
        said.map(|()| Some(id).filter(|_| !world.is_slow))
    }

    fn remove(&self, uid: &str) -> Result<(), String> {
        let mut world = self.world();
        let (done, said) = world.tried('p');
        if done {
            world
                .proxies
                .values_mut()
                .for_each(|known| _ = known.remove(uid));
        }
        said
    }
}

impl Probes for Shared {
    fn put(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String> {
        let mut world = self.world();
        let (done, said) = world.tried('h');
        for address in addresses.iter().filter(|_| done) {
            world.probes.insert(*address, uid.to_owned());
        }
        said
    }

    fn remove(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String> {
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
