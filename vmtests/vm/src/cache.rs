//! Where everything is kept, and how two runs stay out of each other's way.
//!
//! A thing is made in a scratch folder and renamed to its place when it is complete: a reader finds it
//! whole. A scratch folder is locked as long as its owner lives; one that nobody has locked was left by a
//! run that was killed, and the next run removes it.
use crate::{At, Error, Result};
use std::fs::{self, File, Metadata, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The folder that holds packages, kernels and saved states. Nothing is written outside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache at `root`, else where `VMTESTS_CACHE` says, else `vmtests` in Cargo's target directory.
    /// It need not be there yet.
    pub fn open(root: Option<PathBuf>) -> Result<Self> {
        let root = root
            .or_else(|| variable("VMTESTS_CACHE"))
            .unwrap_or_else(|| target_directory().join("vmtests"));
        // Absolute, because QEMU may be started in another directory.
        let root = std::path::absolute(&root).at(&root)?;
        Ok(Self { root })
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Packages as they were downloaded, by file name.
    pub fn debs(&self) -> PathBuf {
        self.root.join("debs")
    }

    /// Kernels that are ready to boot, a folder each.
    pub fn kernels(&self) -> PathBuf {
        self.root.join("kernel")
    }

    /// Saved states of booted machines.
    pub fn states(&self) -> PathBuf {
        self.root.join("state")
    }

    /// What a run needs while it lasts.
    pub fn scratches(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// A file or folder below the cache, its parent made.
    pub fn place(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = self.root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).at(parent)?;
        }
        Ok(path)
    }

    /// Waits until no other run works on `what`, and keeps others away until the file is closed.
    pub fn lock(&self, what: &str) -> Result<File> {
        loop {
            let path = self.place(format!("lock/{what}"))?;
            let file = File::options().append(true).create(true).open(&path);
            let file = file.at(&path)?;
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                crate::program::note(&format!("another run works on {what}: waiting for it"));
            }
            // One that we have already stays as it is.
            file.lock().at(&path)?;
            // `clean` may have removed the file meanwhile: then the others lock a new one.
            let same = |a: Metadata, b: Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
            if let (Ok(ours), Ok(theirs)) = (file.metadata(), fs::metadata(&path))
                && same(ours, theirs)
            {
                return Ok(file);
            }
        }
    }

    /// A new empty folder of this run, removed when the value is dropped.
    pub fn scratch(&self) -> Result<Scratch> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder = self.scratches();
        fs::create_dir_all(&folder).at(&folder)?;
        remove_abandoned(&folder);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                // A run that had the same process id was killed, and its folder is not removed yet.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
                other => other.at(&path)?,
            }
            // Another run may take the folder for an abandoned one until it is locked.
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

/// A folder of this run; goes away with the value.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _guard: File,
}

impl Scratch {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves `name` out of here to its place, in one step; what is there is replaced.
    pub fn publish(&self, name: &str, place: &Path) -> Result<()> {
        let from = self.path.join(name);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).at(parent)?;
        }
        if place.is_dir() {
            // rename(2) replaces an empty directory only; a broken one goes where it is removed with us.
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

/// Writes a file under a name beside it first: a reader never sees half of it.
pub fn replace(file: &Path, content: &str) -> Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let new = file.with_file_name(name);
    let written = fs::write(&new, content).and_then(|()| fs::rename(&new, file));
    written.map_err(|e| {
        // What is left of it helps nobody.
        let _ = fs::remove_file(&new);
        Error::io(file.display(), &e)
    })
}

/// An environment variable as a path; an empty one counts as absent.
pub fn variable(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// Cargo's target directory: the one of this build.
fn target_directory() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let of_build = || target_directory_of(&executable).map(Path::to_owned);
    let found = variable("CARGO_TARGET_DIR").or_else(of_build);
    found.unwrap_or_else(|| "target".into())
}

/// The target directory in which a program was built. Cargo marks it with `CACHEDIR.TAG` if it made it, and keeps
/// what it knows of the compiler there in any case.
pub(crate) fn target_directory_of(program: &Path) -> Option<&Path> {
    let marks = ["CACHEDIR.TAG", ".rustc_info.json"];
    let mut folders = program.ancestors();
    folders.find(|d| marks.iter().any(|mark| d.join(mark).is_file()))
}

/// Removes the scratch folders of runs that are no more.
fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // Unlocked when it is closed.
        if let Ok(folder) = File::open(&path)
            && folder.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(&path);
        }
    }
}
