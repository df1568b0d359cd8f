//! The cache directory, and the locks that separate concurrent runs.
//!
//! An entry is made in a scratch directory and renamed to its place when it is complete, so a reader never sees a
//! partial one. A scratch directory is locked while its owner is running; an unlocked one was left by a run that was
//! killed, and the next run removes it.
use crate::{At, Error, Result};
use std::fs::{self, File, Metadata, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The directory that holds packages, kernels and saved states. Nothing is written outside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache at `root`, else at `VMTESTS_CACHE`, else at `vmtests` in Cargo's target directory. It need not exist yet.
    pub fn open(root: Option<PathBuf>) -> Result<Self> {
        let root = root
            .or_else(|| variable("VMTESTS_CACHE"))
            .unwrap_or_else(|| target_directory().join("vmtests"));
        // Absolute, because QEMU may be started in another directory.
        let root = std::path::absolute(&root).at(&root)?;
        Ok(Self { root })
    }

    /// The root directory of the cache.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of downloaded packages, by file name.
    pub fn debs(&self) -> PathBuf {
        self.root.join("debs")
    }

    /// The directory of bootable kernels, one subdirectory per kernel.
    pub fn kernels(&self) -> PathBuf {
        self.root.join("kernel")
    }

    /// The directory of saved states of booted machines.
    pub fn states(&self) -> PathBuf {
        self.root.join("state")
    }

    /// The directory of scratch directories, which live as long as their run.
    pub fn scratches(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// The path of a file or directory below the cache; its parent is created.
    pub fn place(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = self.root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).at(parent)?;
        }
        Ok(path)
    }

    /// Takes the exclusive lock of `what`, waiting for other runs; closing the file releases it.
    pub fn lock(&self, what: &str) -> Result<File> {
        loop {
            let path = self.place(format!("lock/{what}"))?;
            let file = File::options().append(true).create(true).open(&path);
            let file = file.at(&path)?;
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                crate::program::note(&format!("another run works on {what}: waiting for it"));
            }
            // A lock that try_lock has taken stays as it is.
            file.lock().at(&path)?;
            // `clean` may have removed the file in the meantime; other runs would then lock a new file.
            let same = |a: Metadata, b: Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
            if let (Ok(ours), Ok(theirs)) = (file.metadata(), fs::metadata(&path))
                && same(ours, theirs)
            {
                return Ok(file);
            }
        }
    }

    /// Creates an empty directory for this run; dropping the value removes it.
    pub fn scratch(&self) -> Result<Scratch> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder = self.scratches();
        fs::create_dir_all(&folder).at(&folder)?;
        remove_abandoned(&folder);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                // Left by a killed run with the same process id, and not yet removed.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
                other => other.at(&path)?,
            }
            // Until the directory is locked, another run may consider it abandoned and remove it.
            let Ok(guard) = File::open(&path) else {
                continue;
            };
            if guard.lock().is_ok() && path.is_dir() {
                crate::interrupt::watch(&path);
                return Ok(Scratch {
                    path,
                    _guard: guard,
                });
            }
        }
    }
}

/// A directory of this run, removed on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _guard: File,
}

impl Scratch {
    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames `name` from this directory to `place`, replacing what is there.
    pub fn publish(&self, name: &str, place: &Path) -> Result<()> {
        let from = self.path.join(name);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).at(parent)?;
        }
        if place.is_dir() {
            // rename(2) replaces only an empty directory, so the old one moves into the scratch directory and is removed with it.
            let old = self.path.join("replaced");
            fs::rename(place, &old).at(place)?;
        }
        fs::rename(&from, place).at(place)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        crate::interrupt::forget(&self.path);
    }
}

/// Writes a file through a temporary file and rename(2), so that a reader never sees a partial one.
pub fn replace(file: &Path, content: &str) -> Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let new = file.with_file_name(name);
    let written = fs::write(&new, content).and_then(|()| fs::rename(&new, file));
    written.map_err(|e| {
        // Best effort: the write or the rename has failed already.
        let _ = fs::remove_file(&new);
        Error::io(file.display(), &e)
    })
}

/// An environment variable as a path; an empty one counts as absent.
pub fn variable(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// Cargo's target directory of the build that this program comes from.
fn target_directory() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let of_build = || target_directory_of(&executable).map(Path::to_owned);
    let found = variable("CARGO_TARGET_DIR").or_else(of_build);
    found.unwrap_or_else(|| "target".into())
}

/// The target directory in which a program was built. Cargo marks a target directory that it created with
/// `CACHEDIR.TAG`, and writes `.rustc_info.json` into any.
pub(crate) fn target_directory_of(program: &Path) -> Option<&Path> {
    let marks = ["CACHEDIR.TAG", ".rustc_info.json"];
    let mut folders = program.ancestors();
    folders.find(|d| marks.iter().any(|mark| d.join(mark).is_file()))
}

/// Removes the scratch directories of runs that have ended.
fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // Closing the file releases the lock.
        if let Ok(folder) = File::open(&path)
            && folder.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(&path);
        }
    }
}
