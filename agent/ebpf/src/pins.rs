//! The directory of pins: `weir/v2/NETNS` in a bpf file system, one directory per namespace.
//!
//! `NETNS` is the inode of the network namespace. The kernel reuses inodes: a directory `netns_COOKIE` among the pins records the
//! namespace that they belong to, and pins of another one are deleted. If the kernel has no cookies (before 5.14), pins count as those
//! of another namespace when no program is attached any longer. The number in `v2` is that of the layout of maps and pins; another
//! version of weir with the same layout continues with the existing pins, one with another layout removes the old pins after
//! its own programs are attached.

mod lock;

pub(crate) use lock::Flock;
pub use lock::Lock;

use crate::hook::{Hook, Way, pin_name};
use crate::node::Refusals;
use crate::{cookie, events, failed, libc_errno};
use nix::errno::Errno;
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, Permissions};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_bpf::{Link, LinkTarget, Pinned, open_pin, pin};
use weir_netlink::{Error, Netns, Result};

/// The usual mount point of the bpf file system.
pub const BPFFS: &str = "/sys/fs/bpf";
/// The number of the layout.
pub(crate) const LAYOUT: &str = "v2";
/// Maximum number of entries of one directory: a pod has a few interfaces and four maps, a node at most thousands of pods.
const MOST_PINS: usize = 65_536;

/// A mounted bpf file system.
#[derive(Clone, Debug)]
pub struct Bpffs {
    root: PathBuf,
    /// `None`: the way that the kernel supports.
    way: Option<Way>,
    /// True if programs report events, provided that the kernel has ring buffers.
    reports: bool,
    /// See [`Bpffs::leaving_out`].
    pub(crate) refusals: Option<Refusals>,
}

impl Bpffs {
    /// Opens the file system mounted at `root`.
    ///
    /// # Errors
    /// It is not a bpf file system; the error has the remedy.
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

    /// Like [`Bpffs::at`], but `None` if no bpf file system is mounted, in which case there are no pins.
    ///
    /// # Errors
    /// It is unknown whether one is mounted.
    pub fn if_mounted(root: &Path) -> Result<Option<Self>> {
        match Self::at(root) {
            // `at` itself refused it, without an error of the kernel.
            Err(e) if e.errno().is_none() => Ok(None),
            found => found.map(Some),
        }
    }

    /// True if a bpf file system is mounted at the path, or if that is not known: its use then fails. False if access is denied, as to
    /// the root of the node without CAP_SYS_PTRACE.
    #[must_use]
    pub fn may_be_at(root: &Path) -> bool {
        match Self::if_mounted(root) {
            Ok(found) => found.is_some(),
            Err(e) => !e.is_permission(),
        }
    }

    /// Attaches programs as filters of a clsact qdisc, as on a kernel before 6.6. Existing attachments are kept.
    #[must_use]
    pub fn by_filters(self) -> Self {
        Self {
            way: Some(Way::Clsact),
            ..self
        }
    }

    /// Leaves out a pod from a change of the node ([`crate::node::Changes::left_out`]) if no program can be attached to its link, instead
    /// of failing. `refusals` stores such links, which are not retried until something changes that the result depends on.
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

    /// Disables events, as on a kernel before 5.8. Existing programs are kept until the next comparison.
    #[must_use]
    pub fn without_events(self) -> Self {
        Self {
            reports: false,
            ..self
        }
    }

    /// True if programs report events.
    ///
    /// # Errors
    /// It is unknown whether the kernel has ring buffers.
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

    /// Returns the directory of a namespace, which need not exist.
    pub(crate) fn folder(&self, netns: &Netns) -> PathBuf {
        self.weir().join(LAYOUT).join(netns.id().ino.to_string())
    }

    /// Returns the directories of the same namespace by versions with another layout.
    pub(crate) fn other_layouts(&self, netns: &Netns) -> Result<Vec<PathBuf>> {
        let name = netns.id().ino.to_string();
        let layouts = entries(&self.weir())?;
        let others = layouts.into_iter().filter(|path| !path.ends_with(LAYOUT));
        let mut found = Vec::new();
        for folder in others.map(|path| path.join(&name)) {
            // Shared maps are in the same directory as the layouts.
            match is_folder(&folder) {
                Ok(true) => found.push(folder),
                Ok(false) => {}
                Err(e) if e.errno() == Some(libc_errno::ENOTDIR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(found)
    }

    /// True if there are pins under the inode of a namespace, in any layout.
    pub(crate) fn has_folder(&self, netns: &Netns) -> Result<bool> {
        Ok(is_folder(&self.folder(netns))? || !self.other_layouts(netns)?.is_empty())
    }

    /// Returns the directories of a namespace, that of this layout first, without those of a former namespace with the same inode.
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

    /// Locks the pins against other writers on this machine; see [`Flock::wait`].
    pub(crate) fn lock(&self) -> Result<Option<Flock>> {
        let folder = self.weir();
        let object = folder.display().to_string();
        // Only root may open the directory, and so lock it.
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        let private =
            made.and_then(|()| std::fs::set_permissions(&folder, Permissions::from_mode(0o700)));
        private.map_err(|e| failed("lock", &object, &e))?;
        Flock::wait(&folder, &object)
    }

    /// Deletes the directories of namespaces that are gone, and returns their number. If a directory has no link with an interface, or no
    /// links at all (for filters only the program is pinned), `living` is called for the inodes of the namespaces that exist. If it
    /// returns `None`, they are unknown: then a directory without links stays, and one whose links have lost their interfaces is deleted.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn sweep(&self, living: impl FnOnce() -> Option<BTreeSet<u64>>) -> Result<usize> {
        let _lock = self.lock()?;
        let gone = self.sweep_locked(living)?;
        events::forget(self)?;
        Ok(gone)
    }

    fn sweep_locked(&self, living: impl FnOnce() -> Option<BTreeSet<u64>>) -> Result<usize> {
        let mut unknown = Vec::new();
        // All layouts, because pods may have ended before an upgrade to another layout. Shared maps are in the same directory.
        for layout in entries(&self.weir())? {
            if !is_folder(&layout)? {
                continue;
            }
            for folder in entries(&layout)? {
                let has_lost_all = has_lost_its_interfaces(&folder)?;
                if has_lost_all != Some(false) {
                    unknown.push((folder, has_lost_all.is_some()));
                }
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

/// True if there is a directory of this name.
pub(crate) fn is_folder(path: &Path) -> Result<bool> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(found.is_dir()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(failed("read", &path.display().to_string(), &e)),
    }
}

/// Opens a pin. `None`: there is none of this name.
pub(crate) fn find(path: &Path) -> Result<Option<Pinned>> {
    match open_pin(path) {
        Ok(pinned) => Ok(Some(pinned)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("open", &path.display().to_string(), &e)),
    }
}

/// Returns the paths in a directory; empty if it does not exist.
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

/// Returns the pinned links of a directory.
pub(crate) fn links(folder: &Path) -> Result<Vec<(PathBuf, Link)>> {
    let mut links = Vec::new();
    for path in entries(folder)? {
        match open_pin(&path) {
            Ok(Pinned::Link(link)) => links.push((path, link)),
            Ok(_) => {}
            // Unpinned after it was listed, since readers take no lock; or a directory, which is not a pin.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound || path.is_dir() => {}
            Err(e) => return Err(failed("open", &path.display().to_string(), &e)),
        }
    }
    Ok(links)
}

/// True if no link of the directory has an interface any longer; `lo` is deleted only with the namespace. `None`: it has no links.
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

/// Deletes a directory and its pins, which detaches programs without other references. Links are deleted first, so that no program
/// runs without a map that its reader expects.
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

/// Returns the temporary pin of a new attachment, until it replaces the older one. A bpf file system allows no dot in names.
pub(crate) fn next(folder: &Path, hook: Hook) -> PathBuf {
    folder.join(format!("next_{}", pin_name(hook)))
}

/// Pins the object that will replace the older one. An object with this name is known to be weir's, even if weir is killed; a previous
/// one is from an attempt that was not finished.
pub(crate) fn pin_next(folder: &Path, hook: Hook, object: BorrowedFd<'_>) -> Result<()> {
    let path = next(folder, hook);
    unpin(&path)?;
    pin(object, &path).map_err(|e| failed("pin", &path.display().to_string(), &e))
}

/// Moves the pin to the place of the older one, which it replaces.
pub(crate) fn rename_next(folder: &Path, hook: Hook) -> Result<()> {
    let path = folder.join(pin_name(hook));
    let renamed = std::fs::rename(next(folder, hook), &path);
    renamed.map_err(|e| failed("pin", &path.display().to_string(), &e))
}

/// Detaches a link that is or was pinned at this path.
pub(crate) fn detach(link: &Link, path: &Path) -> Result<()> {
    match link.detach() {
        // Only some kinds of links support `BPF_LINK_DETACH`.
        Err(e) if e.raw_os_error() != Some(libc_errno::EOPNOTSUPP) => {
            Err(failed("detach", &path.display().to_string(), &e))
        }
        _ => Ok(()),
    }
}

/// Deletes a pin. A link is detached first: the kernel detaches it with the last reference, but later, after an RCU grace
/// period.
pub(crate) fn unpin(path: &Path) -> Result<()> {
    let removed = if is_folder(path)? {
        std::fs::remove_dir(path)
    } else {
        if let Some(Pinned::Link(link)) = find(path)? {
            detach(&link, path)?;
        }
        std::fs::remove_file(path)
    };
    match removed {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("unpin", &path.display().to_string(), &e))
        }
        _ => Ok(()),
    }
}
