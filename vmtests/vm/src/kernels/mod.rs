//! The kernels of the matrix, and their state in the cache.
mod fetch;

pub(crate) use fetch::{How, LazyArchive, UPDATING, opened};

use crate::catalogue::{Entry, Variant};
use crate::lock::{KernelLock, Locked};
use crate::modules::Signature;
use crate::own::Own;
use crate::{Cache, Catalogue, Error, Kernel, Result, prepare, variant};
use std::path::Path;

/// The file with the builds that were used because the archive no longer has the locked ones.
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

/// The state of one kernel, determined without access to the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status<'a> {
    /// Its entry in `kernels.toml`.
    pub entry: &'a Entry,
    /// The build in use, if one is known.
    pub locked: Option<&'a Locked>,
    /// Whether that build is the one of `kernels.lock`.
    pub from_lock: bool,
    /// Its state in the cache.
    pub state: State,
}

/// The state of a kernel in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Ready to boot.
    Ready,
    /// Not in the cache.
    Absent,
    /// In the cache, but damaged or incomplete; the reason.
    Damaged(String),
}

impl Kernels {
    /// Reads `kernels.lock`, or the given file instead.
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

    /// The catalogue of kernels and variants.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The user's own kernels, from [`crate::own::KERNEL_VARIABLE`] and [`Kernels::add`].
    pub fn own(&self) -> &[Own] {
        &self.own
    }

    /// Adds a kernel; it replaces one of the same name.
    pub fn add(&mut self, own: Own) {
        self.own.retain(|o| o.name != own.name);
        self.own.push(own);
    }

    /// The content of the lock.
    pub fn lock(&self) -> &KernelLock {
        &self.lock
    }

    /// The state of all kernels, oldest first.
    pub fn status(&self) -> Vec<Status<'_>> {
        let all = self.catalogue.kernels.iter();
        all.map(|e| self.status_of(e)).collect()
    }

    fn status_of<'a>(&'a self, entry: &'a Entry) -> Status<'a> {
        let state = |locked: &Locked| match prepare::open(&self.cache, &self.key(locked)) {
            Ok(Some(_)) => State::Ready,
            Ok(None) => State::Absent,
            Err(e) => State::Damaged(e.reason),
        };
        let known = |lock: &'a KernelLock| lock.find(&entry.name).map(|l| (Some(l), state(l)));
        let is_there = |(_, state): &(_, State)| *state != State::Absent;
        let locked = known(&self.lock);
        let from_lock = locked.as_ref().is_some_and(is_there);
        // A replacement build is in use only while the locked build is not in the cache.
        let used = known(&self.used).filter(|used| !from_lock && is_there(used));
        let from_lock = used.is_none() && locked.is_some();
        let (locked, state) = used.or(locked).unwrap_or((None, State::Absent));
        Status {
            entry,
            locked,
            from_lock,
            state,
        }
    }

    /// The kernel directories and the package names that belong to a known build.
    pub(crate) fn in_use(&self) -> (Vec<String>, Vec<String>) {
        let known = || self.lock.kernels.iter().chain(&self.used.kernels);
        let packages = known().flat_map(|l| &l.parts);
        let packages = packages.map(|p| p.file().to_owned()).collect();
        (known().map(|l| self.key(l)).collect(), packages)
    }

    /// Returns a kernel that is ready to boot, by name: `6.12`, `newest`, `7.2`, `6.1-no-xtables`. Uses only the cache.
    pub fn get(&self, name: &str) -> Result<Kernel> {
        let (kernel, variant) = self.catalogue.split(name);
        if let Some(own) = self.own.iter().find(|o| o.name == name || o.name == kernel) {
            let variant = variant.filter(|_| own.name != name);
            let prepared = own.prepare(&self.cache, &self.catalogue.modules.wanted)?;
            return variant::kernel(&self.cache, &prepared, name, variant);
        }
        let (entry, variant) = self.find(name)?;
        let locked = self.status_of(entry).locked;
        let open = |locked| prepare::open(&self.cache, &self.key(locked));
        let (Some(locked), Some(prepared)) = (locked, locked.map(open).transpose()?.flatten())
        else {
            let name = &entry.name;
            let reason = format!("it is not in the cache {}", self.cache.root().display());
            let remedy = format!("`weir-vm fetch {name}` gets it");
            return Err(Error::new(format!("the kernel {name}"), reason, remedy));
        };
        let mut name = locked.environment().into_owned();
        if let Some(variant) = variant {
            name += &format!("-{}", variant.name);
        }
        variant::kernel(&self.cache, &prepared, &name, variant)
    }

    /// Returns the entry of `kernels.toml` and the variant for a name.
    pub fn find(&self, name: &str) -> Result<(&Entry, Option<&Variant>)> {
        let (kernel, variant) = self.catalogue.split(name);
        let entry = self.catalogue.kernels.iter().find(|entry| {
            let is_series = |l: &Locked| l.environment() == kernel;
            entry.name == kernel || self.status_of(entry).locked.is_some_and(is_series)
        });
        entry.map(|entry| (entry, variant)).ok_or_else(|| {
            let (kernels, variants) = (&self.catalogue.kernels, &self.catalogue.variants);
            let kernels: Vec<&str> = kernels.iter().map(|k| &*k.name).collect();
            let variants: Vec<&str> = variants.iter().map(|v| &*v.name).collect();
            let (kernels, variants) = (kernels.join(", "), variants.join(", "));
            let remedy = format!("Kernels: {kernels}. With a variant after a dash: {variants}");
            let name = format!("the kernel {name}");
            Error::new(name, "there is none of that name", remedy)
        })
    }

    fn key(&self, locked: &Locked) -> String {
        let hashes: Vec<&str> = locked.parts.iter().map(|p| p.sha256.as_str()).collect();
        let wanted = &self.catalogue.modules.wanted;
        let label = format!("{}-{}", locked.name, locked.version);
        prepare::key(&label, &hashes, wanted, Signature::Cut)
    }
}
