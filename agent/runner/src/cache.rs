//! Results of ADD, stored for CHECK, DEL and GC.

use std::fs::{DirBuilder, File, Metadata, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attachment::Attachment;
use super::error::{Error, Result};
use weir_cni::json;

/// One cached ADD.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) network: String,
    #[serde(deserialize_with = "json::object")]
    pub(crate) attachment: Attachment,
    pub(crate) result: Value,
    /// Whether the pod selected the network; false for the default network.
    #[serde(default)]
    pub(crate) selected: bool,
}

/// A directory with one file per attachment: `NETWORK%CONTAINER%IFNAME.json`.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    dir: PathBuf,
}

/// The lock of an attachment, which excludes other ADDs of it.
#[derive(Debug)]
pub(crate) struct Reserved {
    path: PathBuf,
    /// Closing the file releases the lock.
    _file: File,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // Removed while it is still locked; a file that remains is not locked.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Cache {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Excludes other ADDs of this attachment until it is dropped; a killed
    /// process releases it.
    pub(crate) fn reserve(&self, network: &str, attachment: &Attachment) -> Result<Reserved> {
        self.make_dir()?;
        let path = self.path(network, attachment).with_extension("lock");
        loop {
            let file = File::create(&path).map_err(|e| bad(&path, &e))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::NotPossible(format!(
                        "another ADD of container {:?} to network {network:?} is in progress; wait until it ends",
                        attachment.container_id
                    )));
                }
                Err(TryLockError::Error(e)) => return Err(bad(&path, &e)),
            }
            let identity = |m: std::io::Result<Metadata>| m.ok().map(|m| (m.dev(), m.ino()));
            let locked = identity(file.metadata());
            // The previous holder may have removed the file between the two calls.
            if locked.is_some() && locked == identity(std::fs::metadata(&path)) {
                return Ok(Reserved { path, _file: file });
            }
        }
    }

    fn make_dir(&self) -> Result<()> {
        let mut dir = DirBuilder::new();
        dir.recursive(true).mode(0o700);
        dir.create(&self.dir).map_err(|e| bad(&self.dir, &e))
    }

    fn path(&self, network: &str, attachment: &Attachment) -> PathBuf {
        // Neither network names nor container ids contain '%'.
        let Attachment {
            container_id,
            ifname,
            ..
        } = attachment;
        self.dir
            .join(format!("{network}%{container_id}%{ifname}.json"))
    }

    pub(crate) fn store(&self, entry: &Entry) -> Result<()> {
        let path = self.path(&entry.network, &entry.attachment);
        let text = serde_json::to_string(entry).map_err(|e| bad(&path, &e))?;
        self.make_dir()?;
        // Written to a temporary file and renamed: a reader never sees a partial file.
        let temporary = path.with_extension("tmp");
        std::fs::write(&temporary, text).map_err(|e| bad(&temporary, &e))?;
        std::fs::rename(&temporary, &path).map_err(|e| bad(&path, &e))
    }

    /// The stored result; `None` when there was no ADD.
    pub(crate) fn load(&self, network: &str, attachment: &Attachment) -> Result<Option<Entry>> {
        read(&self.path(network, attachment))
    }

    /// Deletes a stored result; success if it is absent.
    pub(crate) fn remove(&self, network: &str, attachment: &Attachment) -> Result<()> {
        let path = self.path(network, attachment);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(bad(&path, &error)),
            _ => Ok(()),
        }
    }

    /// All attachments of a network, by file name.
    pub(crate) fn of_network(&self, network: &str) -> Result<Vec<Entry>> {
        let files = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(bad(&self.dir, &error)),
            Ok(files) => files,
        };
        let mut paths = Vec::new();
        for file in files {
            let path = file.map_err(|e| bad(&self.dir, &e))?.path();
            if path.extension().is_some_and(|e| e == "json") {
                paths.push(path);
            }
        }
        paths.sort();
        let mut entries = Vec::new();
        for path in paths {
            entries.extend(read(&path)?.filter(|entry| entry.network == network));
        }
        Ok(entries)
    }
}

fn read(path: &Path) -> Result<Option<Entry>> {
    let text = match weir_cni::files::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(bad(path, &error)),
        Ok(text) => text,
    };
    json::from_slice(&text)
        .map(Some)
        .map_err(|error| bad(path, &error))
}

fn bad(path: &Path, error: &dyn std::fmt::Display) -> Error {
    let reason = format!("{error}; remove the file or make the directory writable");
    Error::Cache {
        path: path.into(),
        reason,
    }
}
