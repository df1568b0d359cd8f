//! Links of pods that took no program. They are left alone until something changes that the kernel's answer depends on: each
//! attempt attaches a program at one hook, which drops what the pod sends, and detaches it again.

use super::desired::Wanted;
use super::programs::NodeTraits;
use super::space::Space;
use crate::hook::Occupants;
use nix::errno::Errno;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_netlink::route::Routing;
use weir_netlink::{Error, Result};

/// Links that took no program, for as long as their writer runs: see [`crate::Bpffs::leaving_out`]. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<Mutex<BTreeMap<String, Refusal>>>);

/// What the answer depends on: the index of the link, what was attached there, and which programs were to be.
type Place = (u32, Occupants, NodeTraits);

#[derive(Debug)]
struct Refusal {
    place: Place,
    why: String,
    at: Instant,
}

/// What the kernel was short of, or another program held, may be there again: it is tried again after this time.
const AGAIN: Duration = Duration::from_secs(600);

/// They say nothing of the link.
const TRANSIENT: [Errno; 4] = [Errno::ENOMEM, Errno::ENOBUFS, Errno::EAGAIN, Errno::EINTR];

impl Refusals {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Refusal>> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn remember(&self, device: String, place: Place, why: &Error) {
        let is_transient = |e: &Errno| why.errno() == Some(*e as i32);
        if !TRANSIENT.iter().any(is_transient) {
            let why = why.to_string();
            let at = Instant::now();
            self.all().insert(device, Refusal { place, why, at });
        }
    }
}

/// What is wanted without pods at links that took no program as they are, and those links with the reason. Others that are
/// remembered are forgotten.
pub(super) fn possible<'w>(
    space: &Space<'_>,
    wanted: &'w Wanted,
    traits: NodeTraits,
) -> Result<(Cow<'w, Wanted>, BTreeMap<String, String>)> {
    let all = (Cow::Borrowed(wanted), BTreeMap::new());
    let Some(refusals) = &space.bpffs.refusals else {
        return Ok(all);
    };
    let mut refused = refusals.all();
    refused.retain(|device, refusal| {
        let is_wanted = wanted.pods.values().any(|of_pod| of_pod == device);
        is_wanted && refusal.at.elapsed() < AGAIN
    });
    if refused.is_empty() {
        return Ok(all);
    }
    let links = space.netns.run(|| Routing::open()?.links())??.into_iter();
    let there: BTreeMap<String, u32> = links.map(|link| (link.name, link.index)).collect();
    refused.retain(|device, refusal| there.get(device) == Some(&refusal.place.0));
    let indexes: BTreeSet<u32> = refused.values().map(|refusal| refusal.place.0).collect();
    let now = space.occupants(&indexes)?;
    refused.retain(|_, Refusal { place, .. }| {
        now.get(&place.0) == Some(&place.1) && place.2 == traits
    });
    let mut wanted = wanted.clone();
    wanted
        .pods
        .retain(|_, device| !refused.contains_key(device));
    let reason = |(device, refusal): (&String, &Refusal)| (device.clone(), refusal.why.clone());
    Ok((Cow::Owned(wanted), refused.iter().map(reason).collect()))
}
