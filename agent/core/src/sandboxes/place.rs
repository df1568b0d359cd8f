//! Finds the network namespace of a pod by the processes of the node, and checks that it has the pod's addresses.
//!
//! The container runtime does not tell the agent which namespace belongs to a pod. An address alone proves nothing: an
//! ordinary user in any pod can create a namespace and assign it any address. So a namespace is attributed to a pod only if
//!
//! - a process in it belongs to the pod, by the control group that the kubelet made for the pod's UID (`cgroup`);
//! - it was not created inside the pod, in a user namespace of one of the pod's users; and
//! - it has all addresses of the pod.
//!
//! If two namespaces meet these conditions, neither is accepted; nor is one if another one cannot be examined. A process to whose
//! namespace access is denied is left out: without `CAP_SYS_PTRACE` the pause process of most pods is such a one. If the addresses
//! of the pod are not known, it counts: a process of the pod can create further namespaces, and nothing else distinguishes them.

mod scan;

pub use scan::Scan;

use super::cgroup;
pub use super::identity::{Identity, Refusal};
use super::identity::{not_nested, owns, unknown};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{SFlag, fstatat};
use scan::withheld;
use std::collections::BTreeSet;
use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weir_cni::files::exists;
use weir_cni::redirection::Sandbox;
use weir_netlink::{Netns, NetnsId};

/// Where a container sees the processes of the node; without that mount, `/proc`.
const HOST_PROC: &str = "/host/proc";

/// Returns the mounted `/proc` of the node: without that mount, this process's own `/proc`. If it is not known whether it is
/// mounted, it is used, and fails: in a container, its own `/proc` would be taken for the node's.
pub(super) fn proc_of_node() -> &'static Path {
    let host = Path::new(HOST_PROC);
    match exists(&host.join("1")) {
        Ok(false) => Path::new("/proc"),
        _ => host,
    }
}

/// Returns true if the error means that the process has ended, or is a zombie, which has no namespaces.
fn has_ended(error: &io::Error) -> bool {
    let ended = [Errno::ENOENT, Errno::ESRCH].map(|errno| Some(errno as i32));
    ended.contains(&error.raw_os_error())
}

/// Maximum number of namespaces with processes of one pod whose addresses are read, not counting those created inside the
/// pod, which any user of the pod can create in any number. A pod that runs containers of its own has several.
const NAMESPACES: usize = 256;
/// Maximum size in bytes read of `/proc/PID/cgroup` and `/proc/PID/stat`: a path has up to 4 KiB, in about ten hierarchies.
const FILE: u64 = 128 << 10;

/// The processes of the node.
#[derive(Debug, Clone)]
pub struct Processes {
    root: PathBuf,
}

/// A namespace, and a process that lives in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundNetns {
    id: NetnsId,
    pid: u32,
    /// When the process started, in ticks since boot.
    started: u64,
}

/// The `/proc` directory of a process, held open. It stays bound to this process: after its end, lookups in the directory
/// fail, even if another process gets the same PID.
#[derive(Debug)]
pub(super) struct Folder(File);

impl Folder {
    /// Returns the current network namespace of the process. `None` if it has ended or access is denied.
    pub(super) fn netns(&self) -> Option<NetnsId> {
        let stat = fstatat(&self.0, "ns/net", AtFlags::empty()).ok()?;
        netns_id(stat.st_mode, stat.st_dev, stat.st_ino)
    }
}

/// The identity of the file behind `/proc/PID/ns/net`. `None` for a directory: where access is denied, Linux 5.10 follows the link
/// to the directory that contains it.
fn netns_id(mode: u32, dev: u64, ino: u64) -> Option<NetnsId> {
    let is_denied = SFlag::from_bits_truncate(mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
    (!is_denied).then_some(NetnsId { dev, ino })
}

impl Processes {
    /// The processes in the mounted `/proc` of the node; without that mount, in this process's own `/proc`.
    pub fn of_node() -> Self {
        Self {
            root: proc_of_node().to_owned(),
        }
    }

    /// Returns the root directory of the node's first process.
    pub fn root_of_node(&self) -> PathBuf {
        self.root.join("1/root")
    }

    /// Returns true if the place is unchanged: the process lives, in that namespace, and belongs to the pod.
    pub fn is_there(&self, place: &FoundNetns, pod: &Identity) -> bool {
        self.is_still(place, pod).unwrap_or(false)
    }

    /// As [`Processes::is_there`]; an error if that cannot be determined.
    fn is_still(&self, place: &FoundNetns, pod: &Identity) -> io::Result<bool> {
        let uid = self.pod_of(place.pid)?;
        if !uid.is_some_and(|uid| pod.is_called(&uid)) {
            return Ok(false);
        }
        // Last, because the PID may have been reused in between: then the start time differs.
        match self.look(place.pid) {
            Ok(now) => Ok(now == *place),
            Err(e) if has_ended(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Opens the `/proc` directory of the process, a cheaper check than [`Processes::is_there`]. `None` if it cannot be opened
    /// or is now that of another process.
    pub(super) fn folder(&self, place: &FoundNetns) -> Option<Folder> {
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_PATH | OFlag::O_DIRECTORY).bits())
            .open(self.root.join(place.pid.to_string()))
            .ok()?;
        // Checked after the open: a process with the same start time owns this directory.
        self.look(place.pid)
            .is_ok_and(|now| now == *place)
            .then_some(Folder(file))
    }

    /// Opens the namespace of a place, and checks while it is held that it is the pod's.
    ///
    /// # Errors
    /// The process is gone, lives in another namespace, or does not belong to the pod; the namespace is the host's, or
    /// was created inside the pod; or one of these cannot be determined.
    pub fn open(&self, place: &FoundNetns, pod: &Identity) -> Result<Sandbox, Refusal> {
        let gone = || Refusal::Other(format!("process {} is not of the pod any more", place.pid));
        let netns = Netns::open(&self.link(place.pid)).map_err(|e| match e.is_not_found() {
            true => gone(),
            false => unknown(e),
        })?;
        // While the namespace is held, its inode number is not reused. The process is checked afterwards: if its PID
        // was reused in between, the start time differs.
        if netns.id() != place.id
            || self.is_host(&netns).map_err(unknown)?
            || !self.is_still(place, pod).map_err(unknown)?
        {
            return Err(gone());
        }
        not_nested(&netns, pod)?;
        Sandbox::of(netns).map_err(|e| match e.kind {
            weir_netlink::ErrorKind::Refused(_) => Refusal::Other(e.to_string()),
            _ => unknown(e),
        })
    }

    /// Reads the network namespace and the pod of every process once.
    ///
    /// # Errors
    /// The processes cannot be listed, or one of them cannot be read for another reason than its end or a missing
    /// permission: an incomplete scan would say that a pod has no process here.
    pub fn scan(&self) -> Result<Scan, String> {
        let entries = list(&self.root)?;
        let names = entries.iter().map(DirEntry::file_name);
        let pids = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
        let host = self.host()?;
        let mut scan = Scan::default();
        for pid in pids {
            let failed = |e| {
                format!(
                    "cannot read {}: {e}",
                    self.root.join(pid.to_string()).display()
                )
            };
            match self.look(pid) {
                Ok(place) if Some(place.id) == host => {}
                Ok(place) => scan.add(place, self.pod_of(pid).map_err(failed)?),
                Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                    let uid = self.pod_of(pid).map_err(failed)?;
                    *scan.hidden.entry(uid).or_default() += 1;
                }
                Err(e) if has_ended(&e) => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(scan)
    }

    /// Returns the inodes of all network namespaces of the node in which a process lives or which have a name. `None` if
    /// the list would be incomplete, as when access to a process is denied.
    pub fn namespaces(&self) -> Option<BTreeSet<u64>> {
        let scan = self.scan().ok().filter(|scan| scan.hidden.is_empty())?;
        let seen = scan.seen.into_iter().chain(self.host().ok()?);
        let mut found: BTreeSet<u64> = seen.map(|id| id.ino).collect();
        let names = self.root_of_node().join("run/netns");
        if exists(&names).ok()? {
            for name in list(&names).ok()? {
                match fs::metadata(name.path()) {
                    Ok(meta) => _ = found.insert(meta.ino()),
                    Err(e) if e.kind() == ErrorKind::NotFound => {}
                    Err(_) => return None,
                }
            }
        }
        Some(found)
    }

    /// Finds the namespace of a pod.
    ///
    /// # Errors
    /// No namespace is certainly the pod's, or several are; the text names the condition that does not hold.
    pub fn find(&self, scan: &Scan, pod: &Identity) -> Result<FoundNetns, String> {
        let (mut found, mut other, mut looked_at) = (Vec::new(), None, 0);
        let is_hidden = pod.by_group && scan.hides(pod);
        let mut unexamined = is_hidden.then(|| withheld().to_owned());
        for place in scan.of(pod) {
            let owned = self.open(&place, pod).and_then(|sandbox| {
                looked_at += 1;
                match pod.by_group {
                    true => Ok(()),
                    false => owns(&sandbox, pod),
                }
            });
            if looked_at > NAMESPACES {
                return Err(format!(
                    "processes of the pod live in more than {NAMESPACES} network namespaces that were not made by its \
                     users, and no more are looked at"
                ));
            }
            match owned {
                Ok(()) => found.push(place),
                Err(refusal) => {
                    if let Refusal::Unknown(why) = &refusal {
                        unexamined.get_or_insert_with(|| format!("{}: {why}", place.id));
                    }
                    other.get_or_insert(String::from(refusal));
                }
            }
        }
        if found.len() > 1 && pod.by_any {
            // A namespace with all addresses is preferred.
            let strict = Identity {
                by_any: false,
                ..pod.clone()
            };
            let mut whole = Vec::new();
            for place in &found {
                let sandbox = self.open(place, &strict);
                match sandbox.and_then(|sandbox| owns(&sandbox, &strict)) {
                    Ok(()) => whole.push(*place),
                    Err(Refusal::Other(_)) => {}
                    Err(Refusal::Unknown(why)) => return Err(why),
                }
            }
            if !whole.is_empty() {
                found = whole;
            }
        }
        match (&found[..], unexamined) {
            ([place], None) => Ok(*place),
            ([], _) => Err(scan.missing(pod, other)),
            ([place], Some(why)) => Err(format!(
                "{} has a process of the pod{}, but another one may be the pod's and cannot be examined, \
                 so nothing is written to any: {why}",
                place.id,
                pod.and_addresses(" and the addresses ")
            )),
            (several, _) => {
                let ids: Vec<String> = several.iter().map(|p| p.id.to_string()).collect();
                Err(format!(
                    "{} each have a process of the pod{}: which one is the pod's cannot be told, \
                     so nothing is written to any",
                    ids.join(" and "),
                    pod.and_addresses(" and the addresses ")
                ))
            }
        }
    }

    fn link(&self, pid: u32) -> PathBuf {
        self.root.join(format!("{pid}/ns/net"))
    }

    /// Returns true if this is the node's own network namespace. If it cannot be compared with that of process 1 for lack
    /// of permission, true for the initial one of the machine.
    ///
    /// # Errors
    /// It cannot be determined.
    pub(super) fn is_host(&self, netns: &Netns) -> Result<bool, String> {
        match self.host()? {
            Some(host) => Ok(host == netns.id()),
            None => netns.is_initial().map_err(|e| e.to_string()),
        }
    }

    /// Returns the node's own network namespace; `None` if access to it is denied, or this `/proc` has no process 1.
    ///
    /// # Errors
    /// It cannot be read.
    fn host(&self) -> Result<Option<NetnsId>, String> {
        match self.look(1) {
            Ok(place) => Ok(Some(place.id)),
            Err(e) if e.kind() == ErrorKind::PermissionDenied || has_ended(&e) => Ok(None),
            Err(e) => Err(format!(
                "cannot read {}: {e}",
                self.root.join("1").display()
            )),
        }
    }

    fn look(&self, pid: u32) -> io::Result<FoundNetns> {
        let meta = fs::metadata(self.link(pid))?;
        let id =
            netns_id(meta.mode(), meta.dev(), meta.ino()).ok_or(ErrorKind::PermissionDenied)?;
        let started = start_time(&self.read(pid, "stat")?);
        let started = started.ok_or(ErrorKind::InvalidData)?;
        Ok(FoundNetns { id, pid, started })
    }

    /// Returns the UID of the pod to which a process belongs; `None` if it belongs to none, has ended, or access is denied.
    fn pod_of(&self, pid: u32) -> io::Result<Option<String>> {
        match self.read(pid, "cgroup") {
            Ok(text) => Ok(cgroup::pod(&text)),
            Err(e) if e.kind() == ErrorKind::PermissionDenied || has_ended(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn read(&self, pid: u32, name: &str) -> io::Result<String> {
        let file = fs::File::open(self.root.join(format!("{pid}/{name}")))?;
        let mut bytes = Vec::new();
        file.take(FILE).read_to_end(&mut bytes)?;
        // Names of programs and control groups may contain any bytes.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Lists a directory completely.
pub(super) fn list(dir: &Path) -> Result<Vec<DirEntry>, String> {
    let listed = fs::read_dir(dir).and_then(Iterator::collect);
    listed.map_err(|e| format!("cannot list {}: {e}", dir.display()))
}

/// Returns field 22 of `/proc/PID/stat`. Field 2, the program's name, may contain any character.
fn start_time(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests;
