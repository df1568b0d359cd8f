//! The folder of pins: `weir/v2/NETNS` in a bpf file system, one folder for each namespace.
//!
//! `NETNS` is the inode of the network namespace. The kernel reuses inodes: a folder `netns_COOKIE` among the pins says which
//! namespace they are of, and what is of another one is deleted. Where the kernel has no cookies (before 5.14) it is taken for
//! that if no program is attached any more. The number in `v2` is that of the layout of maps and pins; another version of
//! weir with the same layout continues with what is pinned, one with another layout removes what the old one pinned after
//! its own programs are attached.

mod holders;

use crate::hook::{Hook, Way, pin_name};
use crate::node::Refusals;
use crate::{cookie, events, failed, libc_errno};
use nix::errno::Errno;
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_bpf::{Link, LinkTarget, Pinned, open_pin, pin};
use weir_netlink::{Error, Netns, Result};

/// Where it is mounted on most machines.
pub const BPFFS: &str = "/sys/fs/bpf";
/// The number of the layout.
pub(crate) const LAYOUT: &str = "v2";
/// Entries of one folder that are read: a pod has a few interfaces and four maps, a node at most thousands of pods.
const MOST_PINS: usize = 65_536;
/// Maximum time to wait for another writer.
const LOCK_TIME: Duration = Duration::from_secs(10);
/// Interval between two looks at who holds the lock.
const LOOK: Duration = Duration::from_millis(200);

/// A locked file or folder (`flock(2)`), until the end of the process at the latest. Unlocked on purpose: a thread with a descriptor
/// table of its own may hold a copy.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// # Errors
    /// Another process or thread has it, or `flock(2)` fails.
    pub(crate) fn of(file: File) -> std::result::Result<Self, (File, TryLockError)> {
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(e) => Err((file, e)),
        }
    }

    /// Locks the file or folder at `path`; `object` is its name in errors. Waits up to 10 s for another writer.
    ///
    /// Any process that may open the file can lock it, also one without privileges. Locks of processes that cannot be writers,
    /// because they are not root or cannot have `CAP_NET_ADMIN`, are ignored: then this returns `None`, without a lock.
    ///
    /// # Errors
    /// Another writer, or a process that cannot be seen from here, holds the lock for longer; or the file cannot be opened.
    pub fn wait(path: &Path, object: &str) -> Result<Option<Self>> {
        let io = |e: &std::io::Error| failed("lock", object, e);
        let mut file = File::open(path).map_err(|e| io(&e))?;
        let begun = Instant::now();
        let mut looked = begun;
        loop {
            file = match Self::of(file) {
                Ok(lock) => return Ok(Some(lock)),
                Err((file, TryLockError::WouldBlock)) => file,
                Err((_, TryLockError::Error(e))) => return Err(io(&e)),
            };
            let is_over = begun.elapsed() > LOCK_TIME;
            if is_over || looked.elapsed() > LOOK {
                looked = Instant::now();
                let holders = holders::of(&file);
                if !holders.is_empty() && !holders.iter().any(holders::Holder::may_write) {
                    return Ok(None);
                }
                if is_over {
                    return Err(Error::exhausted("lock", object, holders::text(&holders)));
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It is closed in any case.
        let _ = self.0.unlock();
    }
}

/// A mounted bpf file system.
#[derive(Clone, Debug)]
pub struct Bpffs {
    root: PathBuf,
    /// `None`: as the kernel can.
    way: Option<Way>,
    /// Programs report events, where the kernel has ring buffers.
    reports: bool,
    /// See [`Bpffs::leaving_out`].
    pub(crate) refusals: Option<Refusals>,
}

impl Bpffs {
    /// # Errors
    /// It is no bpf file system: the remedy.
    pub fn at(root: &Path) -> Result<Self> {
        let object = root.display().to_string();
        let stats = statfs(root).map_err(|e| match e {
            Errno::ENOENT => {
                let reason = "there is no such folder; name in WEIR_BPFFS where a bpf file system is mounted (mount -t bpf bpf FOLDER)";
                Error::refused("use the bpf file system", &object, reason)
            }
            e => Error::kernel("use the bpf file system", &object, e as i32),
        })?;
        if stats.filesystem_type() != BPF_FS_MAGIC {
            return Err(Error::refused(
                "use the bpf file system",
                &object,
                format!(
                    "no bpf file system is mounted there, so that programs would be detached when this process ends; \
                     mount -t bpf bpf {object}, and in a container mount the host's with Bidirectional propagation; WEIR_BPFFS names another place"
                ),
            ));
        }
        Ok(Self {
            root: root.to_path_buf(),
            way: None,
            reports: true,
            refusals: None,
        })
    }

    /// Where none is mounted nothing is pinned; any other error says nothing of pins.
    ///
    /// # Errors
    /// Whether one is there cannot be found out.
    pub fn if_mounted(root: &Path) -> Result<Option<Self>> {
        match Self::at(root) {
            // Refused by `at` itself, without an error of the kernel.
            Err(e) if e.errno().is_none() || e.is_not_found() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Programs are attached as filters of a clsact qdisc, as on a kernel before 6.6. What is attached already stays as it is.
    #[must_use]
    pub fn by_filters(self) -> Self {
        Self {
            way: Some(Way::Clsact),
            ..self
        }
    }

    /// A pod whose link takes no program is left out of a change of the node ([`crate::node::Changes::left_out`]), which fails
    /// otherwise. Such links are remembered there, and left alone until something changes that the kernel's answer depends on.
    #[must_use]
    pub fn leaving_out(self, refusals: &Refusals) -> Self {
        Self {
            refusals: Some(refusals.clone()),
            ..self
        }
    }

    pub(crate) fn way(&self) -> Option<Way> {
        self.way
    }

    /// Programs report no events, as on a kernel before 5.8. What is attached already stays as it is until it is compared.
    #[must_use]
    pub fn without_events(self) -> Self {
        Self {
            reports: false,
            ..self
        }
    }

    /// Whether programs report events.
    ///
    /// # Errors
    /// The kernel does not say whether it has ring buffers.
    pub fn has_events(&self) -> Result<bool> {
        match self.reports {
            true => events::is_supported(),
            false => Ok(false),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn weir(&self) -> PathBuf {
        self.root.join("weir")
    }

    /// The folder of a namespace, which need not exist.
    pub(crate) fn folder(&self, netns: &Netns) -> PathBuf {
        self.weir().join(LAYOUT).join(netns.id().ino.to_string())
    }

    /// Folders of the same namespace by versions with another layout.
    pub(crate) fn other_layouts(&self, netns: &Netns) -> Result<Vec<PathBuf>> {
        let name = netns.id().ino.to_string();
        let layouts = entries(&self.weir())?;
        let others = layouts.into_iter().filter(|path| !path.ends_with(LAYOUT));
        let mut found = Vec::new();
        for folder in others.map(|path| path.join(&name)) {
            // A map that all share is beside them.
            match is_folder(&folder) {
                Ok(true) => found.push(folder),
                Ok(false) => {}
                Err(e) if e.errno() == Some(libc_errno::ENOTDIR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(found)
    }

    /// Something is pinned under the inode of a namespace, whichever the layout.
    pub(crate) fn has_folder(&self, netns: &Netns) -> Result<bool> {
        Ok(is_folder(&self.folder(netns))? || !self.other_layouts(netns)?.is_empty())
    }

    /// The folders of a namespace, that of this layout first; none of another namespace that had the same inode and is gone.
    pub(crate) fn folders(&self, netns: &Netns) -> Result<Vec<PathBuf>> {
        let own = self.folder(netns);
        let is_there = is_folder(&own)?;
        let mut all: Vec<PathBuf> = Some(own).filter(|_| is_there).into_iter().collect();
        all.extend(self.other_layouts(netns)?);
        let mut folders = Vec::new();
        for folder in all {
            if cookie::is_of_another(&folder, netns)? != Some(true) {
                folders.push(folder);
            }
        }
        Ok(folders)
    }

    /// One writer at a time, on this machine; see [`Lock::wait`].
    pub(crate) fn lock(&self) -> Result<Option<Lock>> {
        let folder = self.weir();
        let object = folder.display().to_string();
        // Only root may open it, and lock it.
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        let private =
            made.and_then(|()| std::fs::set_permissions(&folder, Permissions::from_mode(0o700)));
        private.map_err(|e| failed("lock", &object, &e))?;
        Lock::wait(&folder, &object)
    }

    /// Deletes the folders of namespaces that are gone. Returns how many. If no link has an interface any more or there are none, as
    /// of a filter only its program is pinned, `living` is asked for the inodes of the namespaces that exist. `None`: they cannot be
    /// told. Then a folder stays that has no links, and one whose links have lost their interfaces is deleted.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn sweep(&self, living: impl FnOnce() -> Option<BTreeSet<u64>>) -> Result<usize> {
        let _lock = self.lock()?;
        let gone = self.sweep_locked(living)?;
        events::forget(self)?;
        Ok(gone)
    }

    fn sweep_locked(&self, living: impl FnOnce() -> Option<BTreeSet<u64>>) -> Result<usize> {
        let mut unknown = Vec::new();
        // Of pods that ended before another layout took over as well. Beside layouts there are maps that all share.
        let layouts = entries(&self.weir())?.into_iter();
        let folders = layouts
            .filter(|path| path.is_dir())
            .map(|path| entries(&path));
        for folder in folders.collect::<Result<Vec<_>>>()?.into_iter().flatten() {
            let has_lost_all = has_lost_its_interfaces(&folder)?;
            if has_lost_all != Some(false) {
                unknown.push((folder, has_lost_all.is_some()));
            }
        }
        if unknown.is_empty() {
            return Ok(0);
        }
        let living = living();
        let inode = |folder: &Path| folder.file_name()?.to_str()?.parse::<u64>().ok();
        let mut gone = 0;
        for (folder, has_lost_all) in unknown {
            let is_gone = match &living {
                Some(living) => inode(&folder).is_some_and(|inode| !living.contains(&inode)),
                None => has_lost_all,
            };
            if is_gone {
                delete(&folder)?;
                gone += 1;
            }
        }
        Ok(gone)
    }
}

/// Whether there is a folder of this name.
pub(crate) fn is_folder(path: &Path) -> Result<bool> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(found.is_dir()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(failed("read", &path.display().to_string(), &e)),
    }
}

/// The paths in a folder; none when it does not exist.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let object = folder.display().to_string();
    let list = match std::fs::read_dir(folder) {
        Ok(list) => list,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed("list", &object, &e)),
    };
    let paths: Result<Vec<PathBuf>> = list
        .take(MOST_PINS + 1)
        .map(|entry| {
            entry
                .map(|e| e.path())
                .map_err(|e| failed("list", &object, &e))
        })
        .collect();
    match paths {
        Ok(paths) if paths.len() > MOST_PINS => Err(Error::refused(
            "list",
            &object,
            format!(
                "it has more than {MOST_PINS} entries, which weir does not make; delete those that are not its own"
            ),
        )),
        paths => paths,
    }
}

/// The pinned links of a folder.
pub(crate) fn links(folder: &Path) -> Result<Vec<(PathBuf, Link)>> {
    let mut links = Vec::new();
    for path in entries(folder)? {
        match open_pin(&path) {
            Ok(Pinned::Link(link)) => links.push((path, link)),
            Ok(_) => {}
            // Listed, and unpinned since: readers take no lock. A folder is no pin.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound || path.is_dir() => {}
            Err(e) => return Err(failed("open", &path.display().to_string(), &e)),
        }
    }
    Ok(links)
}

/// Its links are of no interface any more; `lo` goes with the namespace only. `None`: it has no links.
fn has_lost_its_interfaces(folder: &Path) -> Result<Option<bool>> {
    let mut all = None;
    for (path, link) in links(folder)? {
        let info = link.info();
        let info = info.map_err(|e| failed("read", &path.display().to_string(), &e))?;
        let is_gone = matches!(info.target, LinkTarget::Interface(0, _));
        all = Some(all.unwrap_or(true) && is_gone);
    }
    Ok(all)
}

/// Deletes a folder and its pins: what only they kept alive is detached. Links go first, so that no program runs
/// without a map that its reader expects.
pub(crate) fn delete(folder: &Path) -> Result<()> {
    let links: Vec<PathBuf> = links(folder)?.into_iter().map(|(path, _)| path).collect();
    let rest = entries(folder)?
        .into_iter()
        .filter(|path| !links.contains(path));
    for path in links.iter().cloned().chain(rest) {
        unpin(&path)?;
    }
    match std::fs::remove_dir(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("delete", &folder.display().to_string(), &e))
        }
        _ => Ok(()),
    }
}

/// The pin of what is attached for a hook, until it takes the place of the older one. A bpf file system allows no dot in names.
pub(crate) fn next(folder: &Path, hook: Hook) -> PathBuf {
    folder.join(format!("next_{}", pin_name(hook)))
}

/// Pins what is to take the place of the older one. What has this name is known to be weir's, whenever weir is killed; what had it before
/// is of an attempt that was not finished.
pub(crate) fn pin_next(folder: &Path, hook: Hook, object: BorrowedFd<'_>) -> Result<()> {
    let path = next(folder, hook);
    unpin(&path)?;
    pin(object, &path).map_err(|e| failed("pin", &path.display().to_string(), &e))
}

/// It has the place of the older one, whose pin is gone.
pub(crate) fn rename_next(folder: &Path, hook: Hook) -> Result<()> {
    let path = folder.join(pin_name(hook));
    let renamed = std::fs::rename(next(folder, hook), &path);
    renamed.map_err(|e| failed("pin", &path.display().to_string(), &e))
}

/// Detaches a link that is or was pinned there.
pub(crate) fn detach(link: &Link, path: &Path) -> Result<()> {
    match link.detach() {
        // Only some kinds of links can be told to detach.
        Err(e) if e.raw_os_error() != Some(libc_errno::EOPNOTSUPP) => {
            Err(failed("detach", &path.display().to_string(), &e))
        }
        _ => Ok(()),
    }
}

/// Takes a name away. A link is detached first: the kernel does that with the last reference to it, but later, after a grace
/// period of RCU.
pub(crate) fn unpin(path: &Path) -> Result<()> {
    let object = path.display().to_string();
    if let Ok(Pinned::Link(link)) = open_pin(path) {
        detach(&link, path)?;
    }
    let removed = match path.is_dir() {
        true => std::fs::remove_dir(path),
        false => std::fs::remove_file(path),
    };
    match removed {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed("unpin", &object, &e)),
        _ => Ok(()),
    }
}
