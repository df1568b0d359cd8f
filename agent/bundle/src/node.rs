//! The node: versions, modules, and the CNI configuration.

use super::files::{entries, head, list, named, target};
use super::running::Running;
use super::{Part, configuration};
use std::fs;
use std::path::{Path, PathBuf};
use weir_cni::plugin::KUBECONFIG;

/// Maximum size of a configuration in bytes.
const CONFIGURATION: u64 = 1 << 20;
/// Maximum size of `/proc/modules` and similar files in bytes.
const PROC: u64 = 4 << 20;
/// Maximum number of configurations.
const FILES: usize = 100;
/// Paths of the node's file, seen from a container, and of this machine's.
const OS_RELEASE: [&str; 3] = [
    "/host/proc/1/root/etc/os-release",
    "/etc/os-release",
    "/usr/lib/os-release",
];

/// Keys of os-release(5) that identify the system.
const OS_KEYS: [&str; 9] = [
    "NAME",
    "PRETTY_NAME",
    "ID",
    "ID_LIKE",
    "VERSION",
    "VERSION_ID",
    "VERSION_CODENAME",
    "VARIANT_ID",
    "BUILD_ID",
];

/// Returns all parts about the node except rules.
pub(super) fn parts(running: &Running) -> Vec<Part> {
    let net_dir = running.dir("MOUNTED_CNI_NET_DIR");
    let mut parts = vec![
        Part::new("node/versions.txt", Ok(versions())),
        Part::new("node/modules.txt", head(Path::new("/proc/modules"), PROC)),
        Part::new("agent/files.txt", Ok(files(running))),
        Part::new("cni/listing.txt", Ok(listing(&net_dir))),
    ];
    parts.extend(configurations(&net_dir));
    parts
}

/// Returns the versions, one per line.
fn versions() -> String {
    let first = |path: &str| match head(Path::new(path), 4 << 10) {
        Ok(text) => text.trim().to_owned(),
        Err(why) => format!("not available: {why}"),
    };
    let os_release = OS_RELEASE.iter().find_map(|path| {
        let text = head(Path::new(path), 4 << 10).ok()?;
        let known = |line: &&str| {
            let key = line.split_once('=').map(|(key, _)| key);
            key.is_some_and(|key| OS_KEYS.contains(&key))
        };
        let lines: Vec<&str> = text.lines().filter(known).collect();
        Some(format!("# {path}\n{}\n", lines.join("\n")))
    });
    let os_release = os_release.unwrap_or_else(|| {
        format!(
            "# os-release is not available: none of these files exists: {}\n",
            OS_RELEASE.join(", ")
        )
    });
    format!(
        "weir: {} ({})\nkernel: {}\nbuild: {}\nmachine: {}\n/proc/version: {}\n{os_release}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        first("/proc/sys/kernel/osrelease"),
        first("/proc/sys/kernel/version"),
        machine(),
        first("/proc/version"),
    )
}

/// Machine of the kernel (`uname -m`), which may differ from the architecture of this program.
fn machine() -> String {
    let name = nix::sys::utsname::uname();
    name.map_or_else(
        |e| format!("not available: {e}"),
        |n| n.machine().to_string_lossy().into_owned(),
    )
}

/// Lists the files of the agent, without their contents.
fn files(running: &Running) -> String {
    let remark = |path: &Path| match path.file_name().is_some_and(|n| n == KUBECONFIG) {
        true => "  (contents are left out: it contains a token)",
        false => "",
    };
    let dirs = [
        "CNI_AGENT_RUN_DIR",
        "WEIR_MOUNTED_CNI_BIN_DIR",
        "WEIR_SERVICE_ACCOUNT_DIR",
    ];
    let one = |name: &str| {
        let dir = running.dir(name);
        format!("# {name}\n{}:\n{}\n", dir.display(), listed(&dir, remark))
    };
    dirs.map(one).concat()
}

/// Lists the CNI directory and its subdirectories.
fn listing(dir: &Path) -> String {
    let remark = |path: &Path| match path.is_dir() || is_configuration(path) {
        true => "",
        false => "  (contents are left out: it is not a CNI configuration)",
    };
    let path = dir.display();
    let mut text = format!("{path}:\n{}", listed(dir, remark));
    for (name, inner) in directories(dir) {
        // The name in the report: that of the file system may contain a secret.
        text += &format!("\n{path}/{name}:\n{}", listed(&inner, remark));
    }
    text
}

/// The entries of a directory, or the reason why they are missing.
fn listed(dir: &Path, remark: impl Fn(&Path) -> &'static str) -> String {
    list(dir, remark).unwrap_or_else(|why| format!("not available: {why}\n"))
}

fn directories(dir: &Path) -> impl Iterator<Item = (String, PathBuf)> {
    let entries = named(dir).unwrap_or_default();
    // Do not follow symbolic links.
    entries
        .into_iter()
        .filter(|(_, p)| fs::symlink_metadata(p).is_ok_and(|m| m.is_dir()))
}

/// True if the name is that of a configuration, unlike a kubeconfig or certificate.
fn is_configuration(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str());
    matches!(extension, Some("conf" | "conflist" | "json"))
}

/// Returns the kubeconfigs of other plugins, which are stored beside their configurations.
pub(super) fn kubeconfigs(dir: &Path) -> Vec<PathBuf> {
    let inner = directories(dir).flat_map(|(_, dir)| entries(&dir).unwrap_or_default());
    let all = entries(dir).unwrap_or_default().into_iter().chain(inner);
    let is_one = |p: &PathBuf| p.to_string_lossy().contains("kubeconfig");
    all.filter(is_one).collect()
}

/// Returns the configurations that runtimes and plugins read, reduced to their known content.
fn configurations(dir: &Path) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut take = |here: &Path, prefix: &str| {
        let paths = named(here).unwrap_or_else(|why| {
            parts.push(Part::new(
                format!("cni/net.d/{prefix}listing.txt"),
                Err(format!("{}/{prefix}: {why}", dir.display())),
            ));
            Vec::new()
        });
        let is_one = |p: &Path| is_configuration(p) && !p.is_dir();
        for (name, path) in paths.iter().filter(|(_, p)| is_one(p)) {
            let name = format!("{prefix}{name}");
            let text = configuration(dir, path).map_err(|why| format!("{name}: {why}"));
            parts.push(Part::configuration(format!("cni/net.d/{name}"), text));
        }
    };
    take(dir, "");
    for (name, inner) in directories(dir) {
        take(&inner, &format!("{name}/"));
    }
    if let Some(more) = parts.len().checked_sub(FILES).filter(|more| *more > 0) {
        parts.truncate(FILES);
        let why =
            format!("the report includes at most {FILES} configurations; {more} more are left out");
        parts.push(Part::new("cni/net.d/more.txt".to_owned(), Err(why)));
    }
    parts
}

/// Reads a configuration. A symbolic link is followed only within the directory.
fn configuration(dir: &Path, path: &Path) -> Result<String, String> {
    let failed = |e: std::io::Error| format!("cannot be read: {e}");
    let (real, dir) = (
        fs::canonicalize(path).map_err(failed)?,
        fs::canonicalize(dir).map_err(failed)?,
    );
    if !real.starts_with(&dir) {
        return Err(format!(
            "it is a link to {}, outside of the directory",
            target(&real)
        ));
    }
    let size = fs::metadata(&real).map_err(failed)?.len();
    if size > CONFIGURATION {
        return Err(format!(
            "it has {size} bytes, more than the limit of {CONFIGURATION}; its contents are left out"
        ));
    }
    let bytes = head(&real, CONFIGURATION).map_err(|why| {
        let path = real.display().to_string();
        why.replace(&path, "it")
    });
    configuration::known(&bytes?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{Uid, setfsuid};
    use std::fs::DirBuilder;
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    use weir_testing::{TempDir, rights};

    #[test]
    fn a_directory_of_configurations_that_cannot_be_listed_is_named() {
        let dir = TempDir::new();
        let parts = configurations(&dir.write("net.d", ""));
        let [part] = parts.as_slice() else {
            panic!("{parts:?}");
        };
        assert_eq!(part.name, "cni/net.d/listing.txt");
        let why = part.text.as_ref().unwrap_err();
        let wanted = format!("{}: cannot be listed: ", dir.file("net.d/").display());
        assert!(why.starts_with(&wanted), "{why}");
    }

    #[test]
    fn directories_are_listed_without_unusual_names() {
        let dir = TempDir::new();
        let unusual = "x".repeat(100);
        fs::create_dir(dir.file(&unusual)).unwrap();
        dir.write(&format!("{unusual}/a.conf"), "{}");
        let text = listing(dir.path());
        let path = dir.path().display();
        assert!(text.starts_with(&format!("{path}:\n")), "{text}");
        let (_, inner) = text.split_once(&format!("\n{path}/file-0:\n")).unwrap();
        assert!(
            inner.ends_with(" a.conf\n") && !text.contains(&unusual),
            "{text}"
        );
        let missing = listed(&dir.file("missing"), |_| "");
        assert!(
            missing.starts_with("not available: cannot be listed: "),
            "{missing}"
        );
    }

    #[test]
    fn an_unusual_name_is_in_no_reason() {
        // Another user, who may list the directory, but not the one in it.
        const OTHER: u32 = 65_534;
        if let Some(reason) = rights::unmapped([OTHER]) {
            println!("skipped: {reason}");
            return;
        }
        let dir = TempDir::new();
        let unusual = "x".repeat(100);
        DirBuilder::new()
            .mode(0o700)
            .create(dir.file(&unusual))
            .unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let collect = || {
            setfsuid(Uid::from_raw(OTHER));
            (listing(dir.path()), configurations(dir.path()))
        };
        let (text, parts) = std::thread::scope(|s| s.spawn(collect).join().unwrap());
        let inner = dir.file("file-0").display().to_string();
        let denied = "cannot be listed: Permission denied";
        let wanted = format!("\n{inner}:\nnot available: {denied}");
        assert!(text.contains(&wanted) && !text.contains(&unusual), "{text}");
        let [part] = parts.as_slice() else {
            panic!("{parts:?}");
        };
        assert_eq!(part.name, "cni/net.d/file-0/listing.txt");
        let why = part.text.as_ref().unwrap_err();
        assert!(why.starts_with(&format!("{inner}/: {denied}")), "{why}");
    }

    #[test]
    fn what_is_left_out_is_told() {
        let dir = TempDir::new();
        for n in 0..FILES + 2 {
            dir.write(&format!("{n:03}.conf"), "{}");
        }
        let large = "x".repeat(usize::try_from(CONFIGURATION).unwrap());
        dir.write("000.conf", &format!("{{\"type\":\"{large}\"}}"));
        let parts = configurations(dir.path());
        assert_eq!(parts.len(), FILES + 1);
        let why = |part: Option<&Part>| part.unwrap().text.clone().unwrap_err();
        assert!(why(parts.first()).contains("more than the limit"));
        assert!(why(parts.last()).ends_with("2 more are left out"));
    }
}
