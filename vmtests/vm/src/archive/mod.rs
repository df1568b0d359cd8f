//! The Debian archive: its URLs, its indexes, and verified downloads of its packages.

mod download;
mod index;
mod packages;
mod release;
mod resolve;
mod sources;
mod version;

pub(crate) use sources::Bases;

pub(crate) use download::Client;

use crate::catalogue::Entry;
use crate::lock::{Locked, Part};
use crate::{Cache, Error, Result, Scratch, note};

/// An archive, with the base URLs to try in order.
#[derive(Debug)]
pub(crate) struct Archive {
    bases: Bases,
    client: Client,
    /// Whether signatures of release files are verified.
    verify: bool,
}

impl Archive {
    pub(crate) fn new(bases: Bases, verify: bool) -> Result<Self> {
        Ok(Self {
            bases,
            client: Client::new()?,
            verify,
        })
    }

    /// The newest build of the kernel for which every package is listed; `None` if the suite has none.
    pub(crate) fn newest(&self, cache: &Cache, entry: &Entry) -> Result<Option<Locked>> {
        let scratch = cache.scratch()?;
        let index = self.index(&scratch, &entry.suite, &index::packages_of(entry.arch))?;
        Ok(index.and_then(|text| {
            let (locked, notes) = resolve::newest(&index::packages(&text), entry)?;
            notes.iter().for_each(|text| note(text));
            Some(locked)
        }))
    }

    /// Downloads an index of a suite; `None` if no base URL has the suite.
    fn index(&self, scratch: &Scratch, suite: &str, name: &str) -> Result<Option<String>> {
        for base in self.bases.of(suite) {
            let release = release::get(&self.client, scratch, base, suite, self.verify)?;
            if let Some(release) = release {
                return index::get(&self.client, scratch, base, suite, &release, name).map(Some);
            }
        }
        Ok(None)
    }

    /// Downloads a package into the scratch directory and verifies it; `None` if no base URL has it.
    pub(crate) fn download(
        &self,
        scratch: &Scratch,
        suite: &str,
        part: &Part,
    ) -> Result<Option<()>> {
        for base in self.bases.of(suite) {
            let to = scratch.path().join(part.file());
            let url = format!("{base}/{}", part.path);
            let Some(got) = self.client.file(&url, &to, Some(part.size))? else {
                continue;
            };
            if got != part.sha256 {
                let reason = format!("its SHA-256 is {got}, not {}", part.sha256);
                let remedy = "The mirror or something on the way changed it. Try again; if it stays, use another \
                     mirror with --archive URL";
                return Err(Error::new(url, reason, remedy));
            }
            return Ok(Some(()));
        }
        Ok(None)
    }
}
