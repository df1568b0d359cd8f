//! Gets kernels from the cache or the archive, and looks for newer builds.
use super::{Kernels, USED};
use crate::archive::Archive;
use crate::catalogue::Entry;
use crate::lock::{KernelLock, Locked, Part};
use crate::prepare;
use crate::program::note;
use crate::{At, Error, Result, digest, replace};
use std::cell::LazyCell;
use std::fs::File;
use std::path::Path;

/// The remedy for an archive that lacks files that it lists.
pub(crate) const UPDATING: &str = "Try again later: the mirror may be in the middle of an update";

impl Kernels {
    /// Makes a kernel ready to boot, from the cache or the archive. `None` if the archive does not have it and it is not
    /// required. With `locked`, any build other than that of `kernels.lock` is an error.
    pub(crate) fn fetch(
        &mut self,
        archive: &LazyArchive,
        name: &str,
        locked: bool,
    ) -> Result<Option<(Locked, How)>> {
        let entry = self.find(name)?.0.clone();
        let _guard = self.cache.lock(&format!("kernel-{}", entry.name))?;
        if let Some(build) = self.lock.find(&entry.name).cloned() {
            match (self.make(archive, &build), self.fallback(&entry.name)) {
                (Ok(Some(how)), _) => return Ok(Some((build, how))),
                // The archive cannot be reached, but the build that replaced the locked one earlier is in the cache.
                (Err(e), Some(used)) if !locked => {
                    note(&format!("{e}. {} is used meanwhile", used.version));
                    return Ok(Some((used, How::Cached)));
                }
                (Err(e), _) => return Err(e),
                (Ok(None), _) => {}
            }
            let name = format!("{} {}", entry.name, build.version);
            if locked {
                let reason = "the archive does not have the packages of kernels.lock any more";
                let remedy = "`weir-vm update` takes the newest build; `fetch` without --locked does so once";
                return Err(Error::new(format!("the kernel {name}"), reason, remedy));
            }
            note(&format!(
                "{name} of kernels.lock is not in the archive any more: the newest build is taken. \
                 `weir-vm update` makes that lasting"
            ));
        } else if locked {
            let (name, remedy) = (&entry.name, "`weir-vm update` adds it");
            let name = format!("the kernel {name}");
            return Err(Error::new(name, "kernels.lock does not have it", remedy));
        }
        let Some(found) = self.newest(archive, &entry)? else {
            return Ok(None);
        };
        let Some(how) = self.make(archive, &found)? else {
            let name = format!("the kernel {} {}", entry.name, found.version);
            let reason = "the archive lists packages that it does not have";
            return Err(Error::new(name, reason, UPDATING));
        };
        self.remember(found.clone())?;
        Ok(Some((found, how)))
    }

    /// Enters the newest build of each named kernel into the lock, which the caller writes. Returns the changes.
    pub(crate) fn update(
        &mut self,
        archive: &LazyArchive,
        names: &[String],
    ) -> Result<Vec<Update>> {
        let mut updates = Vec::new();
        for name in names {
            let entry = self.find(name)?.0.clone();
            let before = self.lock.find(&entry.name).cloned();
            let after = self.newest(archive, &entry)?;
            if let Some(after) = &after {
                self.lock.set(after.clone());
            }
            updates.push((entry.name, before, after));
        }
        let order = |name: &str| self.catalogue.kernels.iter().position(|k| k.name == name);
        self.lock.kernels.sort_by_key(|k| order(&k.name));
        Ok(updates)
    }

    /// The newest build in the archive; `None` if there is none and the kernel is not required.
    fn newest(&self, archive: &LazyArchive, entry: &Entry) -> Result<Option<Locked>> {
        match opened(archive)?.newest(&self.cache, entry)? {
            None if entry.required => {
                let remedy = "Use another mirror with --archive URL, or correct kernels.toml";
                let (suite, flavour) = (&entry.suite, &entry.flavour);
                let reason = format!("the archive has no build of it in {suite} ({flavour})");
                let name = format!("the kernel {}", entry.name);
                Err(Error::new(name, reason, remedy))
            }
            found => Ok(found),
        }
    }

    /// The build that was used instead of the locked one, if it is ready to boot.
    fn fallback(&self, name: &str) -> Option<Locked> {
        let used = self.used.find(name)?;
        let ready = matches!(prepare::open(&self.cache, &self.key(used)), Ok(Some(_)));
        ready.then(|| used.clone())
    }

    /// Records a build that was used instead of the locked one. The file is read again, since another run may have written it.
    fn remember(&mut self, build: Locked) -> Result<()> {
        let _guard = self.cache.lock("used")?;
        let place = self.cache.place(USED)?;
        if place.is_file() {
            self.used = KernelLock::load(Some(&place))?;
        }
        self.used.set(build);
        replace(&place, &self.used.text()?)
    }

    /// Makes a build ready to boot. `None`: the archive does not have its packages.
    fn make(&self, archive: &LazyArchive, build: &Locked) -> Result<Option<How>> {
        let key = self.key(build);
        // A damaged or incomplete entry is made again.
        if let Ok(Some(_)) = prepare::open(&self.cache, &key) {
            return Ok(Some(How::Cached));
        }
        let mut packages = Vec::new();
        let mut how = How::Prepared;
        for part in &build.parts {
            let place = self.cache.debs().join(part.file());
            if !is_whole(&place, part)? {
                let scratch = self.cache.scratch()?;
                let got = opened(archive)?.download(&scratch, &build.suite, part)?;
                if got.is_none() {
                    return Ok(None);
                }
                scratch.publish(part.file(), &place)?;
                how = How::Downloaded;
            }
            packages.push(place);
        }
        let scratch = self.cache.scratch()?;
        let name = build.environment();
        let material = prepare::unpack(&scratch, &name, &build.version, &packages)?;
        prepare::build(&self.cache, &key, material, &self.catalogue.modules.wanted)?;
        Ok(Some(how))
    }
}

/// The result of `update` for one kernel: its name, the locked build, the newest build. A newest build of `None` means that
/// the archive has none; the lock then keeps the old entry.
pub(crate) type Update = (String, Option<Locked>, Option<Locked>);

/// The work that was necessary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Cached,
    Prepared,
    Downloaded,
}

/// An archive that is located on first use, so that a filled cache works on a system without apt sources.
pub(crate) type LazyArchive = LazyCell<Result<Archive>, Box<dyn FnOnce() -> Result<Archive>>>;

/// Locates the archive, or returns the earlier result.
pub(crate) fn opened(archive: &LazyArchive) -> Result<&Archive> {
    archive.as_ref().map_err(Clone::clone)
}

/// Whether the package is in the cache with the right hash. A file with another hash is replaced.
fn is_whole(place: &Path, part: &Part) -> Result<bool> {
    let Some(file) = File::open(place).if_there(place)? else {
        return Ok(false);
    };
    let whole = digest::sha256_of(file).at(place)? == part.sha256;
    if !whole {
        let place = place.display();
        note(&format!("{place} is damaged: it is fetched again"));
    }
    Ok(whole)
}
