//! Bounded, non-blocking reads of files of the node.

use super::forms::is_name;
use super::secrets::CUT;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// Mount point of the node's directories in a container.
const HOST: &str = "/host";
/// Maximum number of listed entries per directory.
const ENTRIES: usize = 500;

/// Maps a directory of the settings to this file system: settings name the mount point in the container, but the command may run on
/// the node itself.
pub(super) fn seen(path: &str) -> PathBuf {
    let path = Path::new(path);
    let on_node = path
        .strip_prefix(HOST)
        .map(|rest| Path::new("/").join(rest));
    match on_node {
        Ok(on_node) if matches!(path.try_exists(), Ok(false)) && on_node.exists() => on_node,
        _ => path.to_owned(),
    }
}

/// Reads the first `limit` bytes of a file.
pub(super) fn head(path: &Path, limit: u64) -> Result<String, String> {
    read(path, |_| 0, limit)
}

/// Reads the last `limit` bytes of a file, starting at the beginning of a line.
pub(super) fn tail(path: &Path, limit: u64) -> Result<String, String> {
    let text = read(path, |size| size.saturating_sub(limit), limit)?;
    if (text.len() as u64) < limit {
        return Ok(text);
    }
    let (_, whole) = text.split_once('\n').unwrap_or(("", &text));
    Ok(format!("(earlier lines are left out)\n{whole}"))
}

fn read(path: &Path, from: impl Fn(u64) -> u64, limit: u64) -> Result<String, String> {
    let failed = |e: io::Error| format!("cannot read {}: {e}", path.display());
    let mut file = weir_cni::files::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from(size))).map_err(failed)?;
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Lists the entries of a directory like `ls -l`, sorted by name: type and mode, owner, size, name, and the text of `remark`.
pub(super) fn list(dir: &Path, remark: impl Fn(&Path) -> &'static str) -> Result<String, String> {
    let mut text = String::new();
    let entries = named(dir)?;
    for (name, path) in entries.iter().take(ENTRIES) {
        let meta = match fs::symlink_metadata(path) {
            Ok(meta) => meta,
            Err(e) => {
                text += &format!("? {name}: cannot be read: {e}\n");
                continue;
            }
        };
        let link = fs::read_link(path).map_or(String::new(), |t| format!(" -> {}", target(&t)));
        let kind = match meta.file_type() {
            t if t.is_dir() => 'd',
            t if t.is_symlink() => 'l',
            t if t.is_file() => '-',
            t if t.is_fifo() => 'p',
            t if t.is_socket() => 's',
            t if t.is_block_device() => 'b',
            _ => 'c',
        };
        text += &format!(
            "{kind} {:04o} {}:{} {:>9} {name}{link}{}\n",
            meta.mode() & 0o7777,
            meta.uid(),
            meta.gid(),
            meta.len(),
            remark(path)
        );
    }
    if let Some(more) = entries.len().checked_sub(ENTRIES).filter(|n| *n > 0) {
        text += &format!("({more} more)\n");
    }
    Ok(text)
}

/// Returns the paths in a directory, sorted. The error does not name the directory: its name may be a secret.
pub(super) fn entries(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |e| format!("cannot be listed: {e}");
    let entries = fs::read_dir(dir).map_err(failed)?;
    let paths: io::Result<Vec<PathBuf>> = entries.map(|e| Ok(e?.path())).collect();
    let mut paths = paths.map_err(failed)?;
    paths.sort();
    Ok(paths)
}

/// Returns the sorted paths in a directory, each with its name if that is short, otherwise with its index.
pub(super) fn named(dir: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let called = |(n, path): (usize, PathBuf)| {
        let name = path.file_name().and_then(OsStr::to_str);
        let name = name.filter(|name| is_name(name)).map(str::to_owned);
        let extension = path.extension().and_then(OsStr::to_str);
        let extension = extension.filter(|e| matches!(*e, "conf" | "conflist" | "json"));
        let number = || match extension {
            Some(extension) => format!("file-{n}.{extension}"),
            None => format!("file-{n}"),
        };
        (name.unwrap_or_else(number), path)
    };
    Ok(entries(dir)?.into_iter().enumerate().map(called).collect())
}

/// Returns the target of a symbolic link.
pub(super) fn target(path: &Path) -> String {
    let is_plain = |part: Component<'_>| match part {
        Component::Normal(name) => name.to_str().is_some_and(is_name),
        _ => true,
    };
    match path.components().all(is_plain) {
        true => path.display().to_string(),
        false => CUT.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use nix::sched::{CloneFlags, unshare};
    use nix::unistd::{Uid, chroot, setfsuid};
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::thread::scope;
    use weir_testing::{TempDir, rights};

    /// Another user, who may list a directory, and not look at what is in it.
    const OTHER: u32 = 65_534;

    #[test]
    fn an_entry_that_cannot_be_examined_is_listed() {
        if let Some(reason) = rights::unmapped([OTHER]) {
            println!("skipped: {reason}");
            return;
        }
        let dir = TempDir::new();
        dir.write("10-net.conflist", "{}");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o444)).unwrap();
        let listed = scope(|s| {
            let other = || {
                setfsuid(Uid::from_raw(OTHER));
                list(dir.path(), |_| "")
            };
            s.spawn(other).join().unwrap().unwrap()
        });
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let line = listed.lines().next().unwrap_or_default();
        let wanted = "? 10-net.conflist: cannot be read: Permission denied";
        assert!(line.starts_with(wanted), "{listed}");
    }

    #[test]
    fn a_mount_point_that_cannot_be_examined_is_not_absent() {
        let dir = TempDir::new();
        fs::create_dir(dir.file("net.d")).unwrap();
        // The root directory of a thread of its own.
        let found = || -> nix::Result<PathBuf> {
            let seen = || {
                unshare(CloneFlags::CLONE_FS)?;
                chroot(dir.path())?;
                Ok(seen("/host/net.d"))
            };
            scope(|s| s.spawn(seen).join().unwrap())
        };
        match found() {
            Err(Errno::EPERM) => {
                println!("skipped: no root directory of its own");
                return;
            }
            found => assert_eq!(found, Ok("/net.d".into())),
        }
        symlink("host", dir.file("host")).unwrap();
        assert_eq!(found(), Ok("/host/net.d".into()));
    }
}
