//! Links of pods where no program could be attached. They are not retried until something changes that the result depends on: each
//! attempt attaches a program at one hook, which drops packets of the pod, and detaches it again.

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

/// Links where no program could be attached, kept while the process runs: see [`crate::Bpffs::leaving_out`]. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<Mutex<BTreeMap<String, Refusal>>>);

/// What the result depends on: the index of the link, the programs attached there, and the desired programs.
type Place = (u32, Occupants, NodeTraits);

#[derive(Debug)]
struct Refusal {
    place: Place,
    why: String,
    at: Instant,
}

/// Time until a retry, because a shortage in the kernel or in another program may have ended.
const AGAIN: Duration = Duration::from_secs(600);

/// Errors that do not depend on the link.
const TRANSIENT: [Errno; 4] = [Errno::ENOMEM, Errno::ENOBUFS, Errno::EAGAIN, Errno::EINTR];

impl Refusals {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Refusal>> {
        // No code that holds the lock panics in the middle of a change.
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

/// Returns the desired state without pods at links that are refused in their current state, and those links with the reason. Deletes
/// the other refusals.
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
