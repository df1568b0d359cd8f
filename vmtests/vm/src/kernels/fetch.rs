//! Getting kernels: from the cache, else from the archive; and looking for newer ones.
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

/// What helps against an archive that does not have all that it lists.
pub(crate) const UPDATING: &str = "Try again later: the mirror may be in the middle of an update";

impl Kernels {
    /// Makes a kernel ready to boot: from the cache, else from the archive. `None` if the archive does not have
    /// it and it may be missing.
    /// With `locked`, another build than that of `kernels.lock` is an error.
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
                // Offline, and the build that was taken the last time is there.
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

    /// The newest build of every named kernel goes into the lock that will be written. Gives what changed.
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

    /// The newest build in the archive; `None`: there is none, and it may be missing.
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

    /// The build that was taken in the place of the locked one, if it is ready to boot.
    fn fallback(&self, name: &str) -> Option<Locked> {
        let used = self.used.find(name)?;
        let ready = matches!(prepare::open(&self.cache, &self.key(used)), Ok(Some(_)));
        ready.then(|| used.clone())
    }

    /// Another run may have written the file since it was read.
    fn remember(&mut self, build: Locked) -> Result<()> {
        let _guard = self.cache.lock("used")?;
        let place = self.cache.place(USED)?;
        if place.is_file() {
            self.used = KernelLock::load(Some(&place))?;
        }
        self.used.set(build);
        replace(&place, &self.used.text()?)
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

/// What `update` found about one kernel: its name, the build of the lock, and the newest one. `None`: the archive does not have it
/// any more, and the old entry stays.
pub(crate) type Update = (String, Option<Locked>, Option<Locked>);

/// What had to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Cached,
    Prepared,
    Downloaded,
}

/// An archive that is looked for when it is needed: a warm cache works on a system without one.
pub(crate) type LazyArchive = LazyCell<Result<Archive>, Box<dyn FnOnce() -> Result<Archive>>>;

/// The archive, looked for.
pub(crate) fn opened(archive: &LazyArchive) -> Result<&Archive> {
    archive.as_ref().map_err(Clone::clone)
}

/// Is the package there with the right bytes? One with others is as good as none.
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
