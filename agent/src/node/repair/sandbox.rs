//! The network namespace of a pod, found by its addresses.
//!
//! Nobody tells an agent which namespace a pod has: the runtime does not know this agent. But a process of the
//! pod lives in it, and the pod's addresses are there and in no other namespace of the node.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir_cni::redirection::Sandbox;
use weir_netlink::{Netns, NetnsId};

/// Where the processes of the node are seen by a container; without that mount, `/proc`.
const HOST_PROC: &str = "/host/proc";

/// The processes of the node.
#[derive(Debug, Clone)]
pub(crate) struct Processes {
    root: PathBuf,
}

/// A namespace, and a process that lives in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    id: NetnsId,
    pid: u32,
    /// When the process started, in ticks since boot; the highest number where it cannot be read.
    started: u64,
}

/// All namespaces of the node but its own, each with its oldest process and its addresses.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    found: Vec<(Place, Vec<IpAddr>)>,
    /// Processes whose namespace may not be looked at.
    hidden: usize,
}

impl Processes {
    /// Those of the node, or of this machine where there is no mount of the node's.
    pub(crate) fn of_node() -> Self {
        let host = Path::new(HOST_PROC);
        let root = match host.join("1").is_dir() {
            true => host,
            false => Path::new("/proc"),
        };
        Self {
            root: root.to_owned(),
        }
    }

    /// Whether a place is still what it was: the process lives, and in that namespace.
    pub(crate) fn is_there(&self, place: &Place) -> bool {
        self.look(place.pid).is_ok_and(|now| now == *place)
    }

    /// The namespace of a place, held.
    ///
    /// # Errors
    /// The process is gone, or lives in another one; it is the host's.
    pub(crate) fn open(&self, place: &Place) -> Result<Sandbox, String> {
        let netns = Netns::open(&self.link(place.pid)).map_err(|e| e.to_string())?;
        if netns.id() != place.id || Some(netns.id()) == self.host() {
            return Err(format!("process {} is not of the pod any more", place.pid));
        }
        Sandbox::of(netns).map_err(|e| e.to_string())
    }

    /// Looks at every namespace once.
    ///
    /// # Errors
    /// The processes cannot be listed.
    pub(crate) fn scan(&self) -> Result<Scan, String> {
        let entries = fs::read_dir(&self.root)
            .map_err(|e| format!("cannot list {}: {e}", self.root.display()))?;
        let names = entries.flatten().map(|e| e.file_name());
        let pids = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
        let host = self.host();
        let (mut oldest, mut scan) = (BTreeMap::<NetnsId, Place>::new(), Scan::default());
        for pid in pids {
            match self.look(pid) {
                Ok(place) if Some(place.id) == host => {}
                Ok(place) => {
                    let known = oldest.entry(place.id).or_insert(place);
                    if place.started < known.started {
                        *known = place;
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => scan.hidden += 1,
                // It ended meanwhile, or is a kernel thread without namespaces.
                Err(_) => {}
            }
        }
        for place in oldest.into_values() {
            // What goes away meanwhile, or is our own, is no pod's.
            let addresses = self.open(&place).and_then(|sandbox| addresses(&sandbox));
            if let Ok(addresses) = addresses {
                scan.found.push((place, addresses));
            }
        }
        Ok(scan)
    }

    fn link(&self, pid: u32) -> PathBuf {
        self.root.join(format!("{pid}/ns/net"))
    }

    /// The node's own namespace.
    fn host(&self) -> Option<NetnsId> {
        self.look(1).ok().map(|place| place.id)
    }

    fn look(&self, pid: u32) -> std::io::Result<Place> {
        let meta = fs::metadata(self.link(pid))?;
        let id = NetnsId {
            dev: meta.dev(),
            ino: meta.ino(),
        };
        let stat = fs::read_to_string(self.root.join(format!("{pid}/stat")));
        let started = stat.ok().and_then(|text| start_time(&text));
        let started = started.unwrap_or(u64::MAX);
        Ok(Place { id, pid, started })
    }
}

impl Scan {
    /// The namespace that has all these addresses; of several the one with the oldest process.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find(&self, wanted: &[IpAddr]) -> Result<Place, String> {
        let has_all = |have: &[IpAddr]| wanted.iter().all(|w| have.contains(w));
        let matching = self.found.iter().filter(|(_, have)| has_all(have));
        let oldest = matching.map(|(place, _)| place).min_by_key(|p| p.started);
        oldest.copied().ok_or_else(|| {
            let hidden = match self.hidden {
                0 => String::new(),
                n => format!("; {n} processes may not be looked at, which needs CAP_SYS_PTRACE"),
            };
            let (count, list) = (self.found.len(), list(wanted));
            format!(
                "none of the {count} network namespaces of pods has the addresses {list}{hidden}"
            )
        })
    }
}

/// Whether the namespace has all these addresses; one without any belongs to nobody.
///
/// # Errors
/// It has not, or cannot be read.
pub(crate) fn owns(sandbox: &Sandbox, wanted: &[IpAddr]) -> Result<(), String> {
    let have = addresses(sandbox)?;
    match !wanted.is_empty() && wanted.iter().all(|w| have.contains(w)) {
        true => Ok(()),
        false => Err(format!(
            "{} does not have the addresses {} any more",
            sandbox.netns().id(),
            list(wanted)
        )),
    }
}

fn addresses(sandbox: &Sandbox) -> Result<Vec<IpAddr>, String> {
    sandbox.addresses().map_err(|e| e.to_string())
}

fn list(addresses: &[IpAddr]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(" and ")
}

/// Field 22 of `/proc/PID/stat`. The second, the program's name, may hold anything.
fn start_time(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::start_time;

    #[test]
    fn a_name_may_hold_anything() {
        let rest = "S 1 2 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        for name in ["sleep", "a b", ") 1 (", "(("] {
            assert_eq!(
                start_time(&format!("7 ({name}) {rest}")),
                Some(4711),
                "{name}"
            );
        }
        assert_eq!(start_time("7 (x) S 1"), None);
        assert_eq!(start_time(""), None);
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(start_time(&own).unwrap() > 0, "{own}");
    }
}
