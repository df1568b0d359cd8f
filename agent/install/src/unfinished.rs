//! Files that are written next to their target, and renamed when they are complete.
//!
//! The agents of two pods may write at the same time, for example during an upgrade, and each is process 1 of its own
//! container: names are random and the file must be new. The writer holds a lock (`flock(2)`), which ends with the
//! process, so that leftovers of a killed agent can be distinguished from files that another one is writing.

use super::copy::has_ours;
use super::desired::Desired;
use super::entry::PLUGIN;
use super::files::{Stamp, is_absence};
use super::listing::{ends_in, read_json};
use std::borrow::Cow;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// Part of the names of our unfinished files, so that no other program's files are removed.
const MARK: &str = ".tmp.weir-";
/// Maximum number of names that are tried; each has 64 random bits.
const ATTEMPTS: u32 = 8;

/// A file that is not renamed yet. Dropping it before removes the file.
pub(super) struct Unfinished {
    path: PathBuf,
    target: PathBuf,
    /// Holds the lock. Opened for reading: a program that any process has open for writing cannot be executed (`ETXTBSY`), and
    /// it may be executed as soon as it is renamed.
    lock: File,
    finished: bool,
}

impl Unfinished {
    /// Creates a file in the directory of `target` with mode 0600, and returns the descriptor for writing. Removes what killed
    /// processes left of the same target: names are random, so leftovers would accumulate.
    pub(super) fn beside(target: &Path) -> io::Result<(Self, File)> {
        let _ = remove_beside(target, MARK);
        let mut attempt = 1;
        loop {
            let tried = Self::create(target, &random_name(target));
            match tried {
                Ok(Some(made)) => return Ok(made),
                Ok(None) if attempt < ATTEMPTS => {}
                Ok(None) => {
                    let why = "another process removes what is written beside it";
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => {}
                Err(e) => return Err(e),
            }
            attempt += 1;
        }
    }

    /// Creates and locks the file; `None` if another agent, which removes leftovers, locked or removed it first.
    fn create(target: &Path, path: &Path) -> io::Result<Option<(Self, File)>> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let locked = open(path).map(|lock| is_free(&lock).then_some(lock));
        let made = file.metadata()?;
        let same = |lock: &File| {
            let meta = lock.metadata()?;
            Ok::<_, io::Error>((meta.dev(), meta.ino()) == (made.dev(), made.ino()))
        };
        let lock = match locked {
            Ok(Some(lock)) if same(&lock)? && is_linked(&lock)? => lock,
            Ok(_) => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => {
                let _ = std::fs::remove_file(path);
                return Err(e);
            }
        };
        let (path, target) = (path.to_owned(), target.to_owned());
        let finished = false;
        let unfinished = Self {
            path,
            target,
            lock,
            finished,
        };
        Ok(Some((unfinished, file)))
    }

    /// Syncs the file and renames it. Returns its stamp: another installer may have replaced it at its path since.
    pub(super) fn finish(mut self, file: File, mode: u32) -> io::Result<Stamp> {
        self.sync(file, mode)?;
        self.rename()
    }

    /// As [`Unfinished::finish`], if `still`, which is called between the two, returns true; else `None`.
    pub(super) fn finish_if(
        mut self,
        file: File,
        mode: u32,
        still: impl FnOnce() -> bool,
    ) -> io::Result<Option<Stamp>> {
        self.sync(file, mode)?;
        still().then(|| self.rename()).transpose()
    }

    fn sync(&self, file: File, mode: u32) -> io::Result<()> {
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.sync_all()
    }

    fn rename(&mut self) -> io::Result<Stamp> {
        std::fs::rename(&self.path, &self.target)?;
        self.finished = true;
        let stamp = Stamp::from(&self.lock.metadata()?);
        super::files::sync_dir(&self.target);
        super::files::forget(&self.lock);
        Ok(stamp)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn random_name(target: &Path) -> PathBuf {
    // The keys are random numbers from the kernel, per thread.
    let random = RandomState::new().build_hasher().finish();
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!("{MARK}{random:016x}"));
    target.with_file_name(name)
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
}

/// Takes the lock; false if another process holds it. A file system without locks, or without locks for a read-only
/// descriptor (NFS), counts as free.
fn is_free(file: &File) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

fn is_linked(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.nlink() > 0)
}

/// Calls [`tidy`] for every directory into which the installer writes, and removes what killed agents of Istio left there.
pub(super) fn tidy_all(desired: &Desired) -> Vec<String> {
    let kubeconfig = desired.kubeconfig.parent();
    let dirs = [desired.bin_dir.as_path(), &desired.net_dir].into_iter();
    let failed = dirs.chain(kubeconfig).flat_map(tidy);
    let of_istio = of_istio(desired).map(|stale| remove_all(&stale));
    failed
        .chain(of_istio.unwrap_or_else(|why| vec![why]))
        .collect()
}

/// Returns the unfinished files of killed agents, of all kinds.
///
/// # Errors
/// A directory cannot be read.
pub(super) fn left(desired: &Desired) -> Result<Vec<PathBuf>, String> {
    let program = desired.bin_dir.join(PLUGIN);
    let start = format!("{PLUGIN}.tmp.");
    let is_copy = |path: &Path| name(path).starts_with(&start);
    let mut found = of_istio(desired)?;
    let kubeconfig = desired.kubeconfig.parent();
    let dirs = [desired.bin_dir.as_path(), &desired.net_dir].into_iter();
    for dir in dirs.chain(kubeconfig) {
        let of_dir = entries(dir)?;
        let copies = program.parent() == Some(dir);
        found.extend(
            of_dir
                .into_iter()
                .filter(|path| name(path).contains(MARK) || (copies && is_copy(path))),
        );
    }
    Ok(found)
}

/// Returns unfinished files of a killed agent of Istio: of the kubeconfig, and of configurations that contain our entry. Their names
/// are the target's with `.tmp.` and a number, as those of other programs in Go. Its copies of programs: see [`tidy_copies`].
fn of_istio(desired: &Desired) -> Result<Vec<PathBuf>, String> {
    let target = |path: &Path| {
        let name = name(path);
        let (target, number) = name.rsplit_once(".tmp.")?;
        let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| PathBuf::from(target))
    };
    let run_dir = desired.kubeconfig.parent().map(entries).transpose()?;
    let kubeconfig = desired.kubeconfig.file_name().map(PathBuf::from);
    let of_kubeconfig = run_dir.into_iter().flatten();
    let of_kubeconfig = of_kubeconfig.filter(|path| target(path) == kubeconfig);
    let is_list = |path: &Path| ends_in(path, ".conf") || ends_in(path, ".conflist");
    let of_list = entries(&desired.net_dir)?.into_iter().filter(|path| {
        target(path).is_some_and(|target| is_list(&target))
            && read_json(path).is_ok_and(|json| has_ours(&json))
    });
    Ok(of_kubeconfig.chain(of_list).collect())
}

/// Removes unfinished files of killed agents from a directory, for any target, and returns the failures.
/// Files that another agent is writing stay.
pub(super) fn tidy(dir: &Path) -> Vec<String> {
    remove_where(dir, |name| name.contains(MARK))
}

/// As [`tidy`], for copies of one program, including those of another installer.
pub(super) fn tidy_copies(program: &Path) -> Vec<String> {
    remove_beside(program, ".tmp.")
}

fn remove_beside(target: &Path, mark: &str) -> Vec<String> {
    let (Some(dir), Some(name)) = (target.parent(), target.file_name()) else {
        return Vec::new();
    };
    let start = format!("{}{mark}", name.to_string_lossy());
    remove_where(dir, |name| name.starts_with(&start))
}

/// Returns the name of a file, for comparisons.
fn name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// Returns the paths in a directory; none if there is no directory.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let paths = |entries: std::fs::ReadDir| entries.map(|e| Ok(e?.path())).collect();
    match std::fs::read_dir(dir).and_then(paths) {
        Err(e) if is_absence(&e) => Ok(Vec::new()),
        listed => listed.map_err(|e| {
            format!(
                "unfinished files in {} cannot be listed: {e}",
                dir.display()
            )
        }),
    }
}

fn remove_where(dir: &Path, is_unfinished: impl Fn(&str) -> bool) -> Vec<String> {
    let stale = |path: &PathBuf| is_unfinished(&name(path));
    match entries(dir) {
        Ok(paths) => remove_all(paths.iter().filter(|path| stale(path))),
        Err(why) => vec![why],
    }
}

/// Removes files and returns the failures.
fn remove_all<'a>(stale: impl IntoIterator<Item = &'a PathBuf>) -> Vec<String> {
    let failed = stale.into_iter().filter_map(|path| {
        let failed = remove_stale(path).err()?;
        let path = path.display();
        Some(format!("unfinished {path} cannot be removed: {failed}"))
    });
    failed.collect()
}

/// Removes a file unless it is being written. Of a symbolic link, the link itself is removed.
fn remove_stale(path: &Path) -> io::Result<()> {
    let meta = match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        meta => meta?,
    };
    // The lock is held until the file is removed: its writer may be about to lock it.
    let file = meta.is_file().then(|| open(path)).and_then(Result::ok);
    if let Some(file) = &file
        && !is_free(file)
    {
        return Ok(());
    }
    super::files::remove(path).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
    use std::io::Write;
    use std::os::unix::fs::symlink;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let name = format!("weir-unfinished-{name}-{}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            let name = |e: io::Result<std::fs::DirEntry>| e.unwrap().file_name();
            let mut names: Vec<_> = entries.map(|e| name(e).into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// A runtime may execute a program as soon as it has its name.
    #[test]
    fn no_descriptor_can_write_when_it_gets_its_name() {
        let dir = Dir::new("order");
        let flags = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO;
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
        inotify.add_watch(&dir.0, flags).unwrap();
        let source = Dir::new("source");
        std::fs::write(source.0.join("p"), "a program").unwrap();
        let target = dir.0.join("p");
        let copied = super::super::files::copy(&source.0.join("p"), &target, 0o755, &|| false);
        assert!(copied.unwrap().is_some());
        super::super::files::replace(&target, b"another", 0o600).unwrap();
        let events = inotify.read_events().unwrap();
        let masks: Vec<_> = events.iter().map(|e| e.mask).collect();
        let (closed, moved) = (AddWatchFlags::IN_CLOSE_WRITE, AddWatchFlags::IN_MOVED_TO);
        assert_eq!(masks, [closed, moved, closed, moved]);
    }

    #[test]
    fn what_is_being_written_stays_and_what_was_left_goes() {
        let dir = Dir::new("tidy");
        let target = dir.0.join("10-pods.conflist");
        std::fs::write(dir.0.join("10-pods.conflist.tmp.weir-0"), "half").unwrap();
        let (first, mut file) = Unfinished::beside(&target).unwrap();
        let (second, _) = Unfinished::beside(&target).unwrap();
        assert_ne!(first.path, second.path);
        drop(second);
        assert_eq!(dir.names().len(), 1, "{:?}", dir.names());
        std::fs::write(dir.0.join("old.conf.tmp.weir-7-1"), "half").unwrap();
        std::fs::write(dir.0.join("victim"), "").unwrap();
        symlink("victim", dir.0.join("x.tmp.weir-1-0")).unwrap();
        std::fs::write(dir.0.join("10-pods.conflist.tmp.other"), "").unwrap();
        nix::unistd::mkfifo(&dir.0.join("y.tmp.weir-2"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink("loop", dir.0.join("loop")).unwrap();
        let failed = tidy(&dir.0.join("loop"));
        assert!(failed.concat().contains("cannot be listed"), "{failed:?}");
        std::fs::remove_file(dir.0.join("loop")).unwrap();
        assert_eq!(tidy(&dir.0.join("none")), Vec::<String>::new());
        assert_eq!(tidy(&dir.0), Vec::<String>::new());
        assert_eq!(tidy_copies(&target), Vec::<String>::new());
        let own = first.path.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(dir.names(), [own, "victim".to_owned()]);
        file.write_all(b"whole").unwrap();
        first.finish(file, 0o640).unwrap();
        assert_eq!(dir.names(), ["10-pods.conflist", "victim"]);
        assert_eq!(std::fs::read(&target).unwrap(), b"whole");
    }
}
