//! The content of a guest's file system, besides the agent and the modules.
#[cfg(test)]
mod tests;

use crate::cache::target_directory_of;
use crate::closure::closure;
use crate::elf::cut_at;
use crate::{At, Error, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

/// Files that C libraries read. Users and groups: root and nobody.
#[rustfmt::skip]
const ETC: [(&str, &str); 6] = [
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"),
    ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nprotocols: files\nservices: files\n"),
    ("/etc/protocols", "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\nipv6-icmp 58 IPv6-ICMP\nsctp 132 SCTP\nudplite 136 UDPLite\n"),
    ("/etc/services", "domain 53/tcp\ndomain 53/udp\nhttp 80/tcp\nhttps 443/tcp\nssh 22/tcp\n"),
];

/// The object at one path of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Directory { mode: u32 },
    File { host: PathBuf, mode: u32 },
    Text(String),
    Link { target: String },
}

/// Files for a guest. They are part of the saved state, so they do not slow the start of a restored machine.
///
/// The default payload is empty, for a program that needs no files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payload {
    pub(crate) is_stripped: bool,
    pub(crate) entries: BTreeMap<String, Entry>,
}

impl Payload {
    /// Creates a payload with the few files under `/etc` that C libraries read.
    pub fn new() -> Self {
        let entry = |(path, text): (&str, &str)| (path.to_owned(), Entry::Text(text.to_owned()));
        Self {
            is_stripped: false,
            entries: ETC.map(entry).into(),
        }
    }

    /// Omits debug information and symbols from all programs, which is nine tenths of a test binary. Saved states shrink by
    /// twice that; backtraces of failed tests then have no names.
    #[must_use]
    pub fn stripped(mut self) -> Self {
        self.is_stripped = true;
        self
    }

    /// Adds a program of the host, at the same path, with its loader and libraries.
    pub fn program(&mut self, host: impl AsRef<Path>) -> Result<&mut Self> {
        let host = absolute(host.as_ref())?;
        self.program_at(&host, &host)
    }

    /// Adds a program of the host at another path, with its loader and libraries.
    pub fn program_at(&mut self, host: &Path, guest: &Path) -> Result<&mut Self> {
        for library in closure(&[host.to_owned()])? {
            self.file(&library, &library)?;
        }
        let cache = Path::new("/etc/ld.so.cache");
        if cache.is_file() {
            self.file(cache, cache)?;
        }
        self.file(host, guest)
    }

    /// Adds a file of the host; a symbolic link is followed.
    pub fn file(&mut self, host: &Path, guest: &Path) -> Result<&mut Self> {
        let host = absolute(host)?;
        let metadata = metadata(&host)?;
        if !metadata.is_file() {
            let host = host.display().to_string();
            return Err(Error::new(host, "not a file", "Name a file"));
        }
        let mode = metadata.permissions().mode() & 0o7777;
        self.put(guest, Entry::File { host, mode })
    }

    /// Appends text to a text file of the payload; a file of another kind is replaced.
    pub fn append(&mut self, guest: &Path, text: &str) -> Result<&mut Self> {
        let text = match guest.to_str().and_then(|path| self.entries.get(path)) {
            Some(Entry::Text(before)) => format!("{before}{text}"),
            _ => text.to_owned(),
        };
        self.put(guest, Entry::Text(text))
    }

    /// Adds an empty directory.
    pub fn directory(&mut self, guest: &Path, mode: u32) -> Result<&mut Self> {
        self.put(guest, Entry::Directory { mode })
    }

    /// Adds the `CARGO_TARGET_TMPDIR` of a test program: the path is compiled into the program, and Cargo creates the
    /// directory before tests run.
    pub fn temporary_of(&mut self, program: &Path) -> Result<()> {
        if let Some(target) = target_directory_of(program) {
            self.directory(&target.join("tmp"), 0o777)?;
        }
        Ok(())
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, guest: &Path, target: &str) -> Result<&mut Self> {
        let target = target.to_owned();
        self.put(guest, Entry::Link { target })
    }

    /// Adds a directory of the host and everything below it, except names in `skip`. Symbolic links are not followed.
    pub fn tree(&mut self, host: &Path, guest: &Path, skip: &[&str]) -> Result<&mut Self> {
        let host = absolute(host)?;
        self.put(guest, Entry::Directory { mode: 0o755 })?;
        for entry in fs::read_dir(&host).at(&host)? {
            let entry = entry.at(&host)?;
            let (name, path) = (entry.file_name(), entry.path());
            if name.to_str().is_some_and(|n| skip.contains(&n)) {
                continue;
            }
            let kind = entry.file_type().at(&path)?;
            let inside = guest.join(&name);
            if kind.is_dir() {
                self.tree(&path, &inside, skip)?;
            } else if kind.is_file() {
                self.file(&path, &inside)?;
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).at(&path)?;
                self.link(&inside, &target.to_string_lossy())?;
            }
        }
        Ok(self)
    }

    /// Whether the payload has an entry at this path.
    pub fn has(&self, guest: &Path) -> bool {
        guest.to_str().is_some_and(|g| self.entries.contains_key(g))
    }

    /// The total size of its files in a guest, in bytes.
    pub fn size(&self) -> Result<u64> {
        let size = |entry: &Entry| -> Result<u64> {
            match entry {
                Entry::File { host, .. } if self.is_stripped => {
                    let (file, size) = (File::open(host).at(host)?, metadata(host)?.len());
                    Ok(cut_at(&file, size).unwrap_or(size))
                }
                Entry::File { host, .. } => Ok(metadata(host)?.len()),
                Entry::Text(text) => Ok(text.len() as u64),
                _ => Ok(0),
            }
        };
        self.entries.values().map(size).sum()
    }

    /// A text that changes whenever the content changes.
    pub(crate) fn fingerprint(&self) -> Result<String> {
        let mut text = format!("{}\n", self.is_stripped);
        for (path, entry) in &self.entries {
            let what = match entry {
                Entry::File { host, mode } => format!("{mode:o} {}", fingerprint(host)?),
                other => format!("{other:?}"),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{path} {what}");
        }
        Ok(text)
    }

    fn put(&mut self, guest: &Path, entry: Entry) -> Result<&mut Self> {
        let is_plain = |c| matches!(c, Component::RootDir | Component::Normal(_));
        let is_plain = guest.is_absolute() && guest.components().all(is_plain);
        let Some(path) = guest.to_str().filter(|_| is_plain) else {
            let remedy = "Give an absolute path in UTF-8, without dots";
            let (guest, reason) = (format!("{guest:?}"), "not a path for a file of a guest");
            return Err(Error::new(guest, reason, remedy));
        };
        // A directory does not replace an existing entry.
        let is_directory = matches!(entry, Entry::Directory { .. });
        if !(is_directory && self.entries.contains_key(path)) {
            self.entries.insert(path.to_owned(), entry);
        }
        Ok(self)
    }
}

/// A text that changes when a file is replaced or written, without reading it: like Cargo and make it uses metadata. The
/// inode's change time (ctime) cannot be set back.
pub(crate) fn fingerprint(host: &Path) -> Result<String> {
    let m = metadata(host)?;
    let (ino, len, time, nanos) = (m.ino(), m.len(), m.ctime(), m.ctime_nsec());
    Ok(format!("{} {ino} {len} {time}.{nanos}", host.display()))
}

fn metadata(host: &Path) -> Result<Metadata> {
    let (name, remedy) = (host.display(), "Is the path right, and is it built?");
    host.metadata()
        .map_err(|e| Error::new(name.to_string(), e, remedy))
}

/// An absolute path without `.` and `..`, which an initramfs does not allow; symbolic links are not resolved.
fn absolute(host: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(host).at(host)?;
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}
