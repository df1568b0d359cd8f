//! Saved states of booted machines: `state/KEY/` with `memory`, `devices` and `state.json`.
//!
//! The memory is a plain image. A restored machine maps it privately and reads only the pages that it uses, so a state
//! with 100 MiB of test programs in its page cache is restored as fast as an empty one.
//!
//! A state is never repaired: a doubtful one is deleted and made again, which takes seconds.
use crate::cache::Scratch;
use crate::digest::sha256;
use crate::memory::BootMemory;
use crate::qemu::accel::boot_id;
use crate::{At, Cache, Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The format version, part of every key; increment it when the meaning of a file changes.
const FORMAT: u32 = 2;
/// The disk space for all states together, in MiB, unless VMTESTS_STATES_MIB overrides it. It suffices for all kernels and
/// variants: a state takes 150 to 400 MiB.
const LIMIT_MIB: u64 = 8 << 10;

const MEMORY: &str = "memory";
const DEVICES: &str = "devices";
const RECORD: &str = "state.json";
/// The directory's name in the scratch directory, until it is complete.
pub(crate) const NEW: &str = "state";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The boot of the host. After a crash of the host, the memory file may lack pages that had not been written to disk.
    boot_id: String,
    qemu: String,
    memory_bytes: u64,
    devices_sha256: String,
}

/// A state whose files have passed the checks.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) memory: PathBuf,
    pub(crate) devices: Vec<u8>,
    pub(crate) qemu: String,
}

/// The key of a state: a hash of everything that it depends on.
pub(crate) fn key(parts: &[&str]) -> String {
    let mut text = format!("{FORMAT} {}\n", crate::proto::VERSION);
    for part in parts {
        // The length prefix ensures that different lists of parts give different texts.
        text += &format!("{}:{part}\n", part.len());
    }
    sha256(text.as_bytes()).chars().take(32).collect()
}

fn folder(cache: &Cache, key: &str) -> PathBuf {
    cache.states().join(key)
}

/// Opens the state of that key. `Ok(None)`: there is none.
/// The error states what is wrong with an existing one.
pub(crate) fn open(cache: &Cache, key: &str) -> std::result::Result<Option<Saved>, String> {
    let folder = folder(cache, key);
    let record = match File::open(folder.join(RECORD)) {
        Err(_) if !folder.exists() => return Ok(None),
        other => other.map_err(|e| format!("{RECORD}: {e}"))?,
    };
    // Marks the state as used: the least recently used states are deleted first.
    let _ = record.set_modified(SystemTime::now());
    let record: Record = serde_json::from_reader(record).map_err(|e| format!("{RECORD}: {e}"))?;
    if record.boot_id != boot_id() {
        return Err("it was saved before this machine was last booted".into());
    }
    let devices = fs::read(folder.join(DEVICES)).map_err(|e| format!("{DEVICES}: {e}"))?;
    if sha256(&devices) != record.devices_sha256 {
        return Err(format!("{DEVICES} is not what was saved"));
    }
    let memory = folder.join(MEMORY);
    let about = memory.metadata().map_err(|e| format!("{MEMORY}: {e}"))?;
    let (size, saved) = (about.len(), record.memory_bytes);
    if size != saved {
        return Err(format!("{MEMORY} has {size} bytes, not {saved}"));
    }
    Ok(Some(Saved {
        memory,
        devices,
        qemu: record.qemu,
    }))
}

/// Writes a state to `scratch` and renames it to its key when it is complete.
pub(crate) fn publish(
    cache: &Cache,
    scratch: &Scratch,
    key: &str,
    memory: &BootMemory,
    devices: &[u8],
    qemu: &str,
) -> Result<()> {
    let new = scratch.path().join(NEW);
    fs::create_dir_all(&new).at(&new)?;
    let remedy = "Make room, or set VMTESTS_SNAPSHOT=0 to save nothing";
    let failed = |e: std::io::Error| Error::new(new.display().to_string(), e, remedy);
    memory.write(&new.join(MEMORY)).map_err(failed)?;
    let record = Record {
        boot_id: boot_id(),
        qemu: qemu.to_owned(),
        memory_bytes: new.join(MEMORY).metadata().map_err(failed)?.len(),
        devices_sha256: sha256(devices),
    };
    let record = serde_json::to_vec_pretty(&record).map_err(|e| failed(e.into()))?;
    fs::write(new.join(DEVICES), devices).map_err(failed)?;
    fs::write(new.join(RECORD), record).map_err(failed)?;
    scratch.publish(NEW, &folder(cache, key))?;
    trim(cache, key, limit());
    Ok(())
}

/// Deletes an unusable state. A machine that runs from it is not affected: it has the file open.
pub(crate) fn remove(cache: &Cache, key: &str) {
    let _ = fs::remove_dir_all(folder(cache, key));
}

fn limit() -> u64 {
    let mib = std::env::var("VMTESTS_STATES_MIB").ok();
    mib.and_then(|v| v.parse().ok()).unwrap_or(LIMIT_MIB) << 20
}

/// Deletes the least recently used states until the others take at most `limit` bytes of disk; `keep` is kept.
fn trim(cache: &Cache, keep: &str, limit: u64) {
    let entries = fs::read_dir(cache.states()).into_iter().flatten().flatten();
    let states = entries.map(|entry| entry.path()).filter_map(|path| {
        let used = path.join(RECORD).metadata().ok()?.modified().ok()?;
        Some((used, on_disk(&path.join(MEMORY)), path))
    });
    let mut states: Vec<(SystemTime, u64, PathBuf)> = states.collect();
    states.sort();
    let mut total: u64 = states.iter().map(|s| s.1).sum();
    for (_, size, path) in states {
        if total <= limit {
            return;
        }
        if path != folder(cache, keep) {
            let _ = fs::remove_dir_all(&path);
            total -= size;
        }
    }
}

/// The allocated size: a memory file has holes where the guest never wrote.
fn on_disk(file: &Path) -> u64 {
    file.metadata().map_or(0, |m| m.blocks() * 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(Cache);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("weir-vm-{name}-{}", std::process::id());
            Self(Cache::open(Some(std::env::temp_dir().join(name))).unwrap())
        }

        fn save(&self, key: &str, memory: &[u8]) {
            let scratch = self.0.scratch().unwrap();
            let booted = BootMemory::new().unwrap();
            fs::write(booted.path(), memory).unwrap();
            publish(&self.0, &scratch, key, &booted, b"devices", "7.2").unwrap();
        }

        fn file(&self, key: &str, name: &str) -> PathBuf {
            folder(&self.0, key).join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.root());
        }
    }

    #[test]
    fn what_was_saved_is_found() {
        let f = Folder::new("found");
        assert!(open(&f.0, "k").unwrap().is_none());
        f.save("k", b"memory");
        let saved = open(&f.0, "k").unwrap().unwrap();
        assert_eq!(
            (saved.devices.as_slice(), saved.qemu.as_str()),
            (&b"devices"[..], "7.2")
        );
        assert_eq!(fs::read(saved.memory).unwrap(), b"memory");
        // A second save replaces the first.
        f.save("k", b"other");
        assert_eq!(fs::read(f.file("k", MEMORY)).unwrap(), b"other");
        remove(&f.0, "k");
        assert!(open(&f.0, "k").unwrap().is_none());
    }

    #[test]
    fn a_damaged_state_says_what_is_wrong() {
        let f = Folder::new("damaged");
        type Harm<'a> = (&'a str, &'a dyn Fn(&Path));
        let damage: [Harm<'_>; 6] = [
            (MEMORY, &|p| fs::write(p, b"mem").unwrap()),
            (MEMORY, &|p| fs::remove_file(p).unwrap()),
            (DEVICES, &|p| fs::write(p, b"device").unwrap()),
            (RECORD, &|p| fs::write(p, b"{").unwrap()),
            (RECORD, &|p| fs::remove_file(p).unwrap()),
            (RECORD, &|p| {
                let text = fs::read_to_string(p)
                    .unwrap()
                    .replace(&boot_id(), "another");
                fs::write(p, text).unwrap();
            }),
        ];
        for (name, harm) in damage {
            f.save("k", b"memory");
            assert!(open(&f.0, "k").unwrap().is_some());
            harm(&f.file("k", name));
            let reason = open(&f.0, "k").unwrap_err();
            assert!(
                reason.contains(name) || reason.contains("booted"),
                "{name}: {reason}"
            );
        }
    }

    #[test]
    fn the_least_recently_used_state_goes_first() {
        let f = Folder::new("trim");
        for key in ["a", "b", "c"] {
            f.save(key, &[1; 4096]);
            let record = File::options()
                .write(true)
                .open(f.file(key, RECORD))
                .unwrap();
            let age = std::time::Duration::from_secs(if key == "a" { 10 } else { 20 });
            record.set_modified(SystemTime::now() - age).unwrap();
        }
        let size = on_disk(&f.file("a", MEMORY));
        trim(&f.0, "c", 2 * size);
        assert!(open(&f.0, "b").unwrap().is_none());
        assert!(open(&f.0, "a").unwrap().is_some());
        trim(&f.0, "c", 0);
        assert!(open(&f.0, "a").unwrap().is_none());
        assert!(open(&f.0, "c").unwrap().is_some());
    }

    #[test]
    fn a_key_depends_on_every_part() {
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
        assert_ne!(key(&["ab", ""]), key(&["a", "b"]));
        assert_ne!(key(&["a\n1:b"]), key(&["a", "b"]));
    }
}
