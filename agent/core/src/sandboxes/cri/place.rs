//! Locates a directory of the node as this process sees it.

use std::fs;
use std::path::{Path, PathBuf};
use weir_cni::files::exists;

/// Returns the path of the first visible directory of `dirs`: `default` if that is the mount of one of them, else the path
/// below `root`.
///
/// # Errors
/// None is visible, or that cannot be determined; a text.
pub(crate) fn find(root: &Path, default: &Path, dirs: &[String]) -> Result<PathBuf, String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo");
    let mounts = mounts.map_err(|e| format!("/proc/self/mountinfo cannot be read: {e}"))?;
    let below = |dir: &String| root.join(dir.trim_start_matches('/'));
    if dirs
        .iter()
        .any(|dir| below(dir) == default || is_mount_of(&mounts, default, dir))
    {
        return Ok(default.to_owned());
    }
    for path in dirs.iter().map(below) {
        let is_there =
            exists(&path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
        if is_there && is_of_node(&mounts, root, &path) {
            return Ok(path);
        }
    }
    let paths: Vec<String> = dirs
        .iter()
        .map(|d| below(d).display().to_string())
        .collect();
    Err(format!(
        "no directory of the node is mounted at {}",
        paths.join(" or ")
    ))
}

/// Returns the remedy for the operator. `value` is the name of the value in Istio's chart.
pub(crate) fn remedy(why: &str, dirs: &[String], name: &str, value: &str) -> String {
    let dirs = dirs.join(" and ");
    format!(
        "the container runtime looks in {dirs}, but {why}; mount it there, set {name} to where it is mounted, or with \
         Istio's chart set {value} to that directory. The default is used, where the runtime may not look"
    )
}

/// Returns true if `path` is mounted from a directory of this name. The kernel reports the path of a mount within its file
/// system, which may be mounted anywhere on the node; a mount of a whole file system gives no information.
fn is_mount_of(mounts: &str, path: &Path, dir: &str) -> bool {
    let mut found = mounts
        .lines()
        .filter_map(mount)
        .filter(|(_, point)| point == path);
    // The last mount on a path hides the earlier ones.
    let Some((root, _)) = found.next_back() else {
        return false;
    };
    root != Path::new("/") && Path::new(dir).ends_with(root.strip_prefix("/").unwrap_or(&root))
}

/// Returns true if there is a mount at the path, or above it but below `root`: in a container, everything else there belongs
/// to the container itself, where no runtime looks.
fn is_of_node(mounts: &str, root: &Path, path: &Path) -> bool {
    let is_whole_node = root == Path::new("/");
    let mut points = mounts.lines().filter_map(mount).map(|(_, point)| point);
    is_whole_node || points.any(|point| point.starts_with(root) && path.starts_with(&point))
}

/// Returns the path within the file system and the mount point of a line of `mountinfo` (`proc_pid_mountinfo(5)`).
fn mount(line: &str) -> Option<(PathBuf, PathBuf)> {
    let mut fields = line.split(' ').skip(3);
    Some((unescaped(fields.next()?), unescaped(fields.next()?)))
}

/// Decodes the escapes of whitespace and backslashes, written as three octal digits.
fn unescaped(field: &str) -> PathBuf {
    let mut text = field.to_owned();
    for (code, plain) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        text = text.replace(code, plain);
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        21 1 0:30 / / rw - overlay overlay rw\n\
        22 21 8:1 /lib/cni/bin /host/opt/cni/bin rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        23 21 8:2 /etc/cni\\040x /host/etc/cni\\040x rw - ext4 /dev/sda2 rw\n\
        24 21 8:3 / /host/whole rw - ext4 /dev/sda3 rw\n";

    #[test]
    fn a_mount_tells_where_it_is_from() {
        let is = |path: &str, dir: &str| is_mount_of(MOUNTS, Path::new(path), dir);
        // On the node /var is a file system of its own.
        assert!(is("/host/opt/cni/bin", "/var/lib/cni/bin"));
        assert!(is("/host/opt/cni/bin", "/lib/cni/bin"));
        assert!(!is("/host/opt/cni/bin", "/opt/cni/bin"));
        assert!(!is("/host/opt/cni/bin", "/xlib/cni/bin"));
        assert!(is("/host/etc/cni x", "/etc/cni x"));
        assert!(!is("/host/whole", "/whole"));
        assert!(!is("/host/none", "/none"));
    }

    #[test]
    fn a_containers_own_directory_is_not_the_nodes() {
        let is = |path: &str| is_of_node(MOUNTS, Path::new("/host"), Path::new(path));
        assert!(is("/host/opt/cni/bin") && is("/host/opt/cni/bin/below") && is("/host/whole/a"));
        assert!(!is("/host/opt/cni") && !is("/host/etc"));
        assert!(is_of_node(MOUNTS, Path::new("/"), Path::new("/opt")));
    }
}
