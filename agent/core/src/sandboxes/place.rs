//! Finds the network namespace of a pod by the processes of the node, and checks that it has the pod's addresses.
//!
//! The container runtime does not tell the agent which namespace belongs to a pod. An address alone proves nothing: an
//! ordinary user in any pod can create a namespace and assign it any address. So a namespace is attributed to a pod only if
//!
//! - a process in it belongs to the pod, by the control group that the kubelet made for the pod's UID (`cgroup`);
//! - it was not created inside the pod, in a user namespace of one of the pod's users; and
//! - it has all addresses of the pod.
//!
//! If two namespaces meet these conditions, neither is accepted; nor is one if another one cannot be examined.

use super::cgroup;
pub use super::identity::Identity;
use caps::{CapSet, Capability};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{SFlag, fstatat};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind, Read};
use std::net::IpAddr;
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

/// Why a namespace is not accepted as that of a pod.
#[derive(Debug)]
pub enum Refusal {
    /// It is not the pod's: a condition does not hold.
    Other(String),
    /// A condition could not be checked, so it may be the pod's.
    Unknown(String),
}

impl From<Refusal> for String {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Other(why) | Refusal::Unknown(why) => why,
        }
    }
}

/// The refusal of a namespace that could not be examined.
fn unknown(error: impl std::fmt::Display) -> Refusal {
    Refusal::Unknown(error.to_string())
}

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

/// The network namespaces of processes, without the node's own.
#[derive(Debug, Default)]
pub struct Scan {
    /// The oldest process by UID of the pod and namespace.
    oldest: BTreeMap<(String, NetnsId), FoundNetns>,
    /// All namespaces, whether of pods or not.
    seen: BTreeSet<NetnsId>,
    /// Number of processes whose namespace cannot be read for lack of permission, by the UID of the pod that their control
    /// group names.
    hidden: BTreeMap<Option<String>, usize>,
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
        let mut unexamined = None;
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

impl Scan {
    fn add(&mut self, place: FoundNetns, uid: Option<String>) {
        self.seen.insert(place.id);
        let Some(uid) = uid else {
            return;
        };
        let known = self.oldest.entry((uid, place.id)).or_insert(place);
        if place.started < known.started {
            *known = place;
        }
    }

    /// Returns the places of processes of this pod.
    fn of(&self, pod: &Identity) -> impl Iterator<Item = FoundNetns> {
        let all = self.oldest.iter();
        all.filter(|((uid, _), _)| pod.is_called(uid))
            .map(|(_, place)| *place)
    }

    /// Returns true if no process is in a control group of this pod, while processes of other pods are seen in theirs.
    pub(super) fn has_none_of(&self, pod: &Identity) -> bool {
        let is_its = |uid: &Option<String>| uid.as_ref().is_some_and(|u| pod.is_called(u));
        let names_pods = !self.oldest.is_empty();
        names_pods && self.of(pod).next().is_none() && !self.hidden.keys().any(is_its)
    }

    /// Explains why no namespace is the pod's. A missing capability is reported alone if it is the whole explanation: control
    /// groups can be read without it, namespaces cannot.
    fn missing(&self, pod: &Identity, other: Option<String>) -> String {
        let may_be_of_pod = |uid: &Option<String>| uid.as_ref().is_none_or(|u| pod.is_called(u));
        let hidden = self.hidden.iter().filter(|(uid, _)| may_be_of_pod(uid));
        let (named, unnamed): (Vec<_>, Vec<_>) = hidden.partition(|(uid, _)| uid.is_some());
        let pods_are_named = !self.oldest.is_empty() || self.hidden.keys().any(|uid| uid.is_some());
        // If control groups name pods, a process in none of them belongs to no pod.
        let unknown = if pods_are_named { 0 } else { sum(&unnamed) };
        let of_pod = sum(&named);
        if of_pod > 0 && other.is_none() {
            return format!(
                "the network namespace of this pod's processes may not be looked at: {}",
                withheld()
            );
        }
        let why = match other {
            Some(first) => first,
            None if !pods_are_named && !self.seen.is_empty() => {
                "no process of this node is in a control group that names a pod; the kubelet makes them unless it \
                 runs with cgroupsPerQOS: false"
                    .to_owned()
            }
            None => format!(
                "no process is in a control group of the UID {}",
                pod.uids.join(" or ")
            ),
        };
        let hidden = match of_pod + unknown {
            0 => String::new(),
            n => format!(
                "; of {n} processes the namespace may not be looked at: {}",
                withheld()
            ),
        };
        format!(
            "none of the {} network namespaces of pods has a process of this pod{}: {why}{hidden}",
            self.seen.len(),
            pod.and_addresses(" and has the addresses ")
        )
    }
}

fn sum(hidden: &[(&Option<String>, &usize)]) -> usize {
    hidden.iter().map(|(_, count)| **count).sum()
}

/// Explains why the kernel denies access to the namespace of another user's process (`PTRACE_MODE_READ_FSCREDS`,
/// `ptrace(2)`).
fn withheld() -> &'static str {
    match caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_PTRACE) {
        Ok(false) => "this agent lacks CAP_SYS_PTRACE; add it to the container's capabilities",
        _ => {
            "this agent has CAP_SYS_PTRACE, so a security module (AppArmor, SELinux) refuses it; its audit log names \
             the profile"
        }
    }
}

/// Refuses a namespace that was created inside the pod, by a process in a user namespace of its own.
pub(super) fn not_nested(netns: &Netns, pod: &Identity) -> Result<(), Refusal> {
    let depth = netns.user_namespace_depth().map_err(unknown)?;
    match (depth, pod.own_users) {
        (Some(0), _) | (Some(1), true) => Ok(()),
        (Some(_), _) => Err(Refusal::Other(format!(
            "{} belongs to a user namespace that was made inside of the pod",
            netns.id()
        ))),
        (None, _) => Err(Refusal::Other(format!(
            "{} belongs to a user namespace outside of this agent's",
            netns.id()
        ))),
    }
}

/// Checks that the namespace has all addresses of the pod, or one of them if that is sufficient. Fails if the pod has no
/// addresses.
///
/// # Errors
/// It does not, or it cannot be read.
pub fn owns(sandbox: &Sandbox, pod: &Identity) -> Result<(), Refusal> {
    let have = sandbox
        .visit(|visit| visit.addresses(&[]))
        .map_err(unknown)?;
    has_addresses(sandbox.netns().id(), &have, pod)
}

/// Like [`owns`], for a namespace whose addresses are known.
pub(super) fn has_addresses(
    netns: NetnsId,
    have: &[IpAddr],
    pod: &Identity,
) -> Result<(), Refusal> {
    let wanted = &pod.addresses;
    let is_there = |wanted: &IpAddr| have.contains(wanted);
    let has_them = match pod.by_any {
        true => wanted.iter().any(is_there),
        false => !wanted.is_empty() && wanted.iter().all(is_there),
    };
    match has_them {
        true => Ok(()),
        false => Err(Refusal::Other(format!(
            "{netns} does not have the addresses {}",
            pod.list()
        ))),
    }
}

/// Returns field 22 of `/proc/PID/stat`. Field 2, the program's name, may contain any character.
fn start_time(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A scan that leaves out a process would say that its pod does not run here, and what is of the pod would be removed.
    #[test]
    fn a_process_that_cannot_be_read_is_not_left_out() {
        let dir = weir_testing::TempDir::new();
        let add = |pid: u32| {
            let at = dir.path().join(pid.to_string());
            fs::create_dir_all(at.join("ns")).unwrap();
            fs::write(at.join("ns/net"), "").unwrap();
            let stat = format!("{pid} (x) S 1 2 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid} 0 0");
            fs::write(at.join("stat"), stat).unwrap();
            fs::write(at.join("cgroup"), format!("0::/kubepods/pod{pid}/c\n")).unwrap();
        };
        add(1);
        add(7);
        // It has ended.
        fs::create_dir(dir.path().join("9")).unwrap();
        let processes = Processes {
            root: dir.path().to_owned(),
        };
        let has_none_of = |uid: &str| {
            let scan = processes.scan();
            scan.map(|scan| scan.has_none_of(&Identity::called(uid)))
        };
        assert_eq!(has_none_of("7"), Ok(false));
        assert_eq!(has_none_of("8"), Ok(true));
        let names = processes.root_of_node().join("run/netns");
        assert_eq!(processes.namespaces().unwrap().len(), 2, "none has a name");
        fs::create_dir_all(&names).unwrap();
        fs::write(names.join("a"), "").unwrap();
        assert_eq!(processes.namespaces().unwrap().len(), 3);
        symlink("b", names.join("b")).unwrap();
        assert_eq!(processes.namespaces(), None);
        fs::remove_file(names.join("b")).unwrap();
        add(8);
        fs::remove_file(dir.path().join("8/ns/net")).unwrap();
        // What Linux 5.10 shows where access is denied.
        symlink(".", dir.path().join("8/ns/net")).unwrap();
        assert_eq!(has_none_of("8"), Ok(false));
        assert_eq!(processes.namespaces(), None);
        fs::remove_file(dir.path().join("8/ns/net")).unwrap();
        symlink("net", dir.path().join("8/ns/net")).unwrap();
        let why = has_none_of("8").unwrap_err();
        assert!(why.contains("/8: "), "{why}");
        assert_eq!(processes.namespaces(), None);
    }

    /// What cannot be examined may be the pod's, and then it is unknown which one is.
    #[test]
    fn one_namespace_is_not_taken_while_another_one_cannot_be_examined() {
        let (first, second) = (
            weir_testing::namespace_or_skip!(),
            weir_testing::namespace_or_skip!(),
        );
        let dir = weir_testing::TempDir::new();
        let of = |pid: u32| dir.path().join(pid.to_string());
        let start = |pid: u32, netns: &Netns| {
            fs::create_dir_all(of(pid).join("ns")).unwrap();
            symlink(netns.path(), of(pid).join("ns/net")).unwrap();
            let stat = format!("{pid} (x) S 1 2 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid} 0 0");
            fs::write(of(pid).join("stat"), stat).unwrap();
            fs::write(of(pid).join("cgroup"), "0::/kubepods/podu/c\n").unwrap();
        };
        let own = Netns::current().unwrap();
        start(1, &own);
        start(7, &first);
        start(8, &second);
        let processes = Processes {
            root: dir.path().to_owned(),
        };
        let scan = processes.scan().unwrap();
        let find = || processes.find(&scan, &Identity::called("u"));
        let both = find().unwrap_err();
        assert!(both.contains("each have a process"), "{both}");
        for file in ["cgroup", "stat", "ns/net"] {
            let (it, kept) = (of(8).join(file), dir.path().join("kept"));
            fs::rename(&it, &kept).unwrap();
            symlink("loop", of(8).join("loop")).unwrap();
            symlink(of(8).join("loop"), &it).unwrap();
            let why = find().unwrap_err();
            assert!(why.contains("cannot be examined"), "{file}: {why}");
            fs::remove_file(of(8).join("loop")).unwrap();
            fs::rename(&kept, &it).unwrap();
        }
        // It has ended.
        fs::remove_dir_all(of(8)).unwrap();
        assert_eq!(find().map(|place| place.pid), Ok(7));
    }

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
