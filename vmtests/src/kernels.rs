//! The kernels of the matrix: what is known of each, what is in the cache, and getting the rest.
use crate::archive::Archive;
use crate::catalogue::{Entry, Variant};
use crate::lock::{KernelLock, Locked, Part};
use crate::modules::Signature;
use crate::own::Own;
use crate::prepare::{self, Prepared};
use crate::progress::note;
use crate::{Cache, Catalogue, Error, Kernel, Result, digest, variant};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The builds that were taken because the locked ones are not in the archive any more.
const USED: &str = "used.lock";

/// `kernels.toml`, `kernels.lock` and a cache.
#[derive(Debug)]
pub struct Kernels {
    cache: Cache,
    catalogue: Catalogue,
    lock: KernelLock,
    used: KernelLock,
    own: Vec<Own>,
}

/// What is known about one kernel without a look into the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status<'a> {
    /// Its line in `kernels.toml`.
    pub entry: &'a Entry,
    /// The build that is used, if one is known.
    pub locked: Option<&'a Locked>,
    /// Is it the one of `kernels.lock`?
    pub from_lock: bool,
    /// Is it ready to boot?
    pub state: State,
}

/// Is a kernel in the cache?
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Ready to boot.
    Ready,
    /// Not there.
    Absent,
    /// There, and not whole: why.
    Damaged(String),
}

impl Kernels {
    /// Reads `kernels.lock`, or the file that is given in its place.
    ///
    /// # Errors
    /// A file is not what it should be.
    pub fn open(cache: &Cache, lock: Option<&Path>) -> Result<Self> {
        let used = cache.root().join(USED);
        Ok(Self {
            catalogue: Catalogue::load()?,
            lock: KernelLock::load(lock)?,
            used: match used.is_file() {
                true => KernelLock::load(Some(&used))?,
                false => KernelLock::default(),
            },
            cache: cache.clone(),
            own: Own::from_environment()?,
        })
    }

    /// The kernels and variants that there are.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The kernels of a person's own, from [`crate::own::KERNEL_VARIABLE`] and [`Kernels::add`].
    #[must_use]
    pub fn own(&self) -> &[Own] {
        &self.own
    }

    /// One more kernel, in the place of one that has its name.
    pub fn add(&mut self, own: Own) {
        self.own.retain(|o| o.name != own.name);
        self.own.push(own);
    }

    /// The lock.
    #[must_use]
    pub fn lock(&self) -> &KernelLock {
        &self.lock
    }

    /// All kernels, oldest first.
    #[must_use]
    pub fn status(&self) -> Vec<Status<'_>> {
        self.catalogue
            .kernels
            .iter()
            .map(|e| self.status_of(e))
            .collect()
    }

    fn status_of<'a>(&'a self, entry: &'a Entry) -> Status<'a> {
        let locked = self.lock.find(&entry.name);
        let used = self.used.find(&entry.name);
        let state = |locked: &Locked| match prepare::open(&self.cache, &self.key(locked)) {
            Ok(Some(_)) => State::Ready,
            Ok(None) => State::Absent,
            Err(e) => State::Damaged(e.reason),
        };
        let first = locked.map(|l| (l, state(l)));
        let second = used.map(|l| (l, state(l)));
        match (first, second) {
            // A build that had to be taken instead counts as long as the locked one is not there.
            (Some((_, State::Absent)) | None, Some((locked, state))) if state != State::Absent => {
                Status {
                    entry,
                    locked: Some(locked),
                    from_lock: false,
                    state,
                }
            }
            (Some((locked, state)), _) => Status {
                entry,
                locked: Some(locked),
                from_lock: true,
                state,
            },
            (None, _) => Status {
                entry,
                locked: None,
                from_lock: false,
                state: State::Absent,
            },
        }
    }

    /// The folders of kernels and the names of packages that belong to a known build.
    pub(crate) fn in_use(&self) -> (Vec<String>, Vec<String>) {
        let known = || self.lock.kernels.iter().chain(&self.used.kernels);
        let packages = known().flat_map(|l| &l.parts);
        (
            known().map(|l| self.key(l)).collect(),
            packages.map(|p| p.file().to_owned()).collect(),
        )
    }

    /// The kernel of that name, ready to boot: `6.12`, `newest`, `7.2`, `6.1-no-xtables`. Offline.
    ///
    /// # Errors
    /// There is no such kernel or variant; it is not fetched; the variant cannot be had of it.
    pub fn get(&self, name: &str) -> Result<Kernel> {
        let (kernel, variant) = self.catalogue.split(name);
        if let Some(own) = self.own.iter().find(|o| o.name == name || o.name == kernel) {
            let variant = variant.filter(|_| own.name != name);
            let prepared = own.prepare(&self.cache, &self.catalogue.modules.wanted)?;
            return variant::kernel(&self.cache, &prepared, name, variant);
        }
        let (entry, variant) = self.find(name)?;
        let status = self.status_of(entry);
        let prepared = match (status.locked, status.state) {
            (Some(locked), State::Ready | State::Damaged(_)) => {
                prepare::open(&self.cache, &self.key(locked))?
            }
            _ => None,
        };
        let Some(prepared) = prepared else {
            return Err(Error::new(
                format!("the kernel {}", entry.name),
                format!("it is not in the cache {}", self.cache.root().display()),
                format!("`weir-vmtests fetch {}` gets it", entry.name),
            ));
        };
        let environment = status
            .locked
            .map_or(entry.name.as_str(), Locked::environment);
        let name = match variant {
            Some(variant) => format!("{environment}-{}", variant.name),
            None => environment.to_owned(),
        };
        variant::kernel(&self.cache, &prepared, &name, variant)
    }

    /// The line of `kernels.toml`, and the variant, that a name stands for.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, name: &str) -> Result<(&Entry, Option<&Variant>)> {
        let (kernel, variant) = self.catalogue.split(name);
        let entry = self.catalogue.kernels.iter().find(|entry| {
            let series = || {
                self.status_of(entry)
                    .locked
                    .map(|l| l.environment().to_owned())
            };
            entry.name == kernel || series().is_some_and(|s| s == kernel)
        });
        entry.map(|entry| (entry, variant)).ok_or_else(|| {
            let names: Vec<_> = self
                .catalogue
                .kernels
                .iter()
                .map(|k| k.name.as_str())
                .collect();
            let variants: Vec<_> = self
                .catalogue
                .variants
                .iter()
                .map(|v| v.name.as_str())
                .collect();
            Error::new(
                format!("the kernel {name}"),
                "there is none of that name",
                format!(
                    "Kernels: {}. With a variant after a dash: {}",
                    names.join(", "),
                    variants.join(", ")
                ),
            )
        })
    }

    fn key(&self, locked: &Locked) -> String {
        let hashes: Vec<&str> = locked.parts.iter().map(|p| p.sha256.as_str()).collect();
        let wanted = &self.catalogue.modules.wanted;
        let label = format!("{}-{}", locked.name, locked.version);
        prepare::key(&label, &hashes, wanted, Signature::Cut)
    }

    /// Makes a kernel ready to boot: from the cache, else from the archive. `None` if the archive does not have
    /// it and it may be missing.
    ///
    /// # Errors
    /// It cannot be had; with `locked`, also when the archive has another build only.
    pub(crate) fn fetch(
        &mut self,
        archive: &LazyArchive,
        name: &str,
        locked: bool,
    ) -> Result<Option<Fetched>> {
        let entry = self.find(name)?.0.clone();
        let _guard = self.cache.lock(&format!("kernel-{}", entry.name))?;
        let mut notes = Vec::new();
        if let Some(build) = self.lock.find(&entry.name).cloned() {
            if let Some(how) = self.make(archive, &build)? {
                return Ok(Some(Fetched {
                    locked: build,
                    how,
                    notes,
                }));
            }
            if locked {
                return Err(Error::new(
                    format!("the kernel {} {}", entry.name, build.version),
                    "the archive does not have the packages of kernels.lock any more",
                    "`weir-vmtests update` takes the newest build; `fetch` without --locked does so once",
                ));
            }
            notes.push(format!(
                "{} {} of kernels.lock is not in the archive any more: the newest build is taken. \
                 `weir-vmtests update` makes that lasting",
                entry.name, build.version
            ));
        } else if locked {
            return Err(Error::new(
                format!("the kernel {}", entry.name),
                "kernels.lock does not have it",
                "`weir-vmtests update` adds it",
            ));
        }
        let Some(found) = archive.get()?.newest(&self.cache, &entry)? else {
            return self.unavailable(&entry);
        };
        notes.extend(found.notes);
        let Some(how) = self.make(archive, &found.locked)? else {
            return Err(Error::new(
                format!("the kernel {} {}", entry.name, found.locked.version),
                "the archive lists packages that it does not have",
                "Try again later: the mirror may be in the middle of an update",
            ));
        };
        self.remember(found.locked.clone())?;
        Ok(Some(Fetched {
            locked: found.locked,
            how,
            notes,
        }))
    }

    /// The newest build of every named kernel goes into the lock that will be written. Gives what changed.
    ///
    /// # Errors
    /// The archive cannot be asked, or lacks a kernel that it must have.
    pub(crate) fn update(
        &mut self,
        archive: &LazyArchive,
        names: &[String],
    ) -> Result<Vec<Update>> {
        let mut updates = Vec::new();
        for name in names {
            let entry = self.find(name)?.0.clone();
            let before = self.lock.find(&entry.name).cloned();
            let found = archive.get()?.newest(&self.cache, &entry)?;
            let (after, notes) = match found {
                Some(found) => (Some(found.locked), found.notes),
                None => (self.unavailable(&entry)?.map(|f| f.locked), Vec::new()),
            };
            if let Some(after) = &after {
                self.lock.set(after.clone());
            }
            updates.push(Update {
                name: entry.name,
                before,
                after,
                notes,
            });
        }
        let order = |name: &str| self.catalogue.kernels.iter().position(|k| k.name == name);
        self.lock.kernels.sort_by_key(|k| order(&k.name));
        Ok(updates)
    }

    fn unavailable(&self, entry: &Entry) -> Result<Option<Fetched>> {
        if !entry.required {
            return Ok(None);
        }
        Err(Error::new(
            format!("the kernel {}", entry.name),
            format!(
                "the archive has no build of it in {} ({})",
                entry.suite, entry.flavour
            ),
            "Use another mirror with --archive URL, or correct kernels.toml",
        ))
    }

    /// Another run may have written the file since it was read.
    fn remember(&mut self, build: Locked) -> Result<()> {
        let _guard = self.cache.lock("used")?;
        let place = self.cache.place(USED)?;
        if place.is_file() {
            self.used = KernelLock::load(Some(&place))?;
        }
        self.used.set(build);
        let scratch = self.cache.scratch()?;
        let file = scratch.path().join(USED);
        fs::write(&file, self.used.text()?).map_err(|e| Error::io(file.display(), &e))?;
        scratch.publish(USED, &place)
    }

    /// `None`: the archive does not have the packages.
    fn make(&self, archive: &LazyArchive, build: &Locked) -> Result<Option<How>> {
        let key = self.key(build);
        // One that is not whole is made again.
        if let Ok(Some(_)) = prepare::open(&self.cache, &key) {
            return Ok(Some(How::Cached));
        }
        let mut packages = Vec::new();
        let mut how = How::Prepared;
        for part in &build.parts {
            let place = self.cache.debs().join(part.file());
            if !is_whole(&place, part)? {
                let scratch = self.cache.scratch()?;
                if archive
                    .get()?
                    .download(&scratch, &build.suite, part)?
                    .is_none()
                {
                    return Ok(None);
                }
                scratch.publish(part.file(), &place)?;
                how = How::Downloaded;
            }
            packages.push(place);
        }
        self.prepare(build, &key, &packages)?;
        Ok(Some(how))
    }

    fn prepare(&self, build: &Locked, key: &str, packages: &[PathBuf]) -> Result<Prepared> {
        let material = prepare::unpack(build.environment(), &build.version, packages)?;
        prepare::build(&self.cache, key, material, &self.catalogue.modules.wanted)
    }
}

/// A fetched kernel.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) locked: Locked,
    pub(crate) how: How,
    pub(crate) notes: Vec<String>,
}

/// What `update` found about one kernel.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) name: String,
    pub(crate) before: Option<Locked>,
    /// `None`: the archive does not have it any more, and the old entry stays.
    pub(crate) after: Option<Locked>,
    pub(crate) notes: Vec<String>,
}

/// What had to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Cached,
    Prepared,
    Downloaded,
}

/// An archive that is looked for when it is needed: a warm cache works on a system without one.
#[derive(Debug)]
pub(crate) struct LazyArchive {
    url: Option<String>,
    verify: bool,
    archive: std::cell::OnceCell<Archive>,
}

impl LazyArchive {
    pub(crate) fn new(url: Option<String>, verify: bool) -> Self {
        Self {
            url,
            verify,
            archive: std::cell::OnceCell::new(),
        }
    }

    pub(crate) fn get(&self) -> Result<&Archive> {
        if let Some(archive) = self.archive.get() {
            return Ok(archive);
        }
        let bases = crate::archive::Bases::find(self.url.as_deref())?;
        let archive = Archive::new(bases, self.verify)?;
        Ok(self.archive.get_or_init(|| archive))
    }
}

/// Is the package there with the right bytes? One with others is as good as none.
fn is_whole(place: &Path, part: &Part) -> Result<bool> {
    let file = match File::open(place) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        other => other.map_err(|e| Error::io(place.display(), &e))?,
    };
    let whole = digest::sha256_of(file).map_err(|e| Error::io(place.display(), &e))? == part.sha256;
    if !whole {
        note(&format!(
            "{} is damaged: it is fetched again",
            place.display()
        ));
    }
    Ok(whole)
}
