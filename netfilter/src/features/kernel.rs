//! Facts about the running kernel that need no request that could load a module: its release and its modules.

use super::{Answer, modules};
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// Whether the kernel can load modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loading {
    /// No trial can load a module, for this reason.
    Never(String),
    /// A trial could load a module.
    Possible,
}

/// Release and modules of the running kernel, read from files.
#[derive(Clone, Debug)]
pub struct RunningKernel {
    /// `uname -r`
    pub release: String,
    /// The first two numbers of the release; 0.0 if it has none.
    pub version: (u32, u32),
    /// Whether trials could load modules.
    pub loading: Loading,
    /// Modules that are loaded or built in.
    present: HashSet<String>,
    /// Modules installed in the module directory; `None` if their list is missing or cannot be read.
    on_disk: Option<HashSet<String>>,
}

impl RunningKernel {
    /// Reads the release and modules from `/proc`, `/sys/module` and `/lib/modules/RELEASE`.
    ///
    /// It never fails: without one of these files, fewer trials are known to be safe.
    #[must_use]
    pub fn read() -> Self {
        Self::read_from(Path::new("/"))
    }

    /// As [`RunningKernel::read`], with another root directory.
    #[must_use]
    pub fn read_from(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path));
        let release = text("proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned();
        let directory = format!("lib/modules/{release}");
        let builtin = text(&format!("{directory}/modules.builtin")).unwrap_or_default();
        let dep = text(&format!("{directory}/modules.dep")).ok();
        let mut present: HashSet<String> = builtin.lines().filter_map(file_name).collect();
        let loaded = text("proc/modules").unwrap_or_default();
        present.extend(
            loaded
                .lines()
                .filter_map(|l| l.split(' ').next())
                .map(str::to_owned),
        );
        // Every loaded module has a directory there, and every built-in module that has parameters.
        if let Ok(entries) = fs::read_dir(root.join("sys/module")) {
            let names = entries
                .flatten()
                .filter_map(|e| e.file_name().into_string().ok());
            present.extend(names.map(|n| n.replace('-', "_")));
        }
        // A module that is built in without parameters may be missing in all of these files (Linux 7.2 of Debian),
        // but the kernel's own netlink sockets are listed.
        let sockets = text("proc/thread-self/net/netlink").unwrap_or_default();
        if sockets.lines().any(|l| is_kernel_end(l, NETLINK_NETFILTER)) {
            present.insert("nfnetlink".to_owned());
        }
        Self {
            version: version(&release),
            loading: loading(root),
            // An empty list counts as none: depmod has not run.
            on_disk: dep.filter(|d| !d.trim().is_empty()).map(|d| {
                d.lines()
                    .filter_map(|l| l.split(':').next())
                    .filter_map(file_name)
                    .collect()
            }),
            present,
            release,
        }
    }

    /// Whether the module is loaded or built in, or this kernel has no module of that name, because it was merged into
    /// another one or added later.
    #[must_use]
    pub fn has_module(&self, name: &str) -> bool {
        // If the release cannot be read, the kernel may have the module.
        let is_known = self.version > (0, 0);
        let is_none = modules::exception(name).is_some_and(|m| {
            self.version < m.since || m.merged > (0, 0) && self.version >= m.merged
        });
        is_known && is_none || self.present.contains(name)
    }

    /// The answer instead of a trial that could load one of these modules (names separated by spaces); `None` if the trial is
    /// safe.
    #[must_use]
    pub fn guard(&self, needs: &str) -> Option<Answer> {
        if matches!(self.loading, Loading::Never(_)) {
            return None;
        }
        let mut missing: Vec<&str> = needs
            .split_whitespace()
            .filter(|m| !self.has_module(m))
            .collect();
        let release = &self.release;
        let reason = match &self.on_disk {
            Some(files) => {
                // A module that is not installed cannot be loaded, so the trial is safe.
                missing.retain(|m| files.contains(*m));
                "it is installed, so the kernel loads it at first use".to_owned()
            }
            None => format!(
                "and no list in /lib/modules/{release} can be read here that says whether it is built in"
            ),
        };
        if missing.is_empty() {
            return None;
        }
        let names = missing.join(" ");
        Some(Answer::Unknown(format!(
            "trying could load {names}, which is not seen loaded or built in; {reason}: \
             `modprobe -a {names}`, then ask again"
        )))
    }
}

/// `NETLINK_NETFILTER` (`linux/netlink.h`)
const NETLINK_NETFILTER: &str = "12";

/// Whether a line of `/proc/net/netlink` is the kernel's own socket of a protocol: columns `Eth` and `Pid`.
fn is_kernel_end(line: &str, protocol: &str) -> bool {
    let mut columns = line.split_whitespace().skip(1);
    (columns.next(), columns.next()) == (Some(protocol), Some("0"))
}

fn loading(root: &Path) -> Loading {
    let text = |path: &str| fs::read_to_string(root.join(path)).map(|t| t.trim().to_owned());
    let proc_is_there = root.join("proc/sys/kernel/osrelease").exists();
    // A file that cannot be looked at is not absent.
    let absent = |path: &str| matches!(root.join(path).try_exists(), Ok(false));
    if proc_is_there && absent("proc/sys/kernel/modprobe") && absent("proc/modules") {
        // Both files depend on CONFIG_MODULES.
        return Loading::Never("the kernel has no loadable modules".to_owned());
    }
    if text("proc/sys/kernel/modules_disabled").is_ok_and(|t| t == "1") {
        return Loading::Never("loading is switched off (kernel.modules_disabled = 1)".to_owned());
    }
    if text("proc/sys/kernel/modprobe").is_ok_and(|t| t.is_empty()) {
        return Loading::Never(
            "the kernel has no path to modprobe (kernel.modprobe is empty)".to_owned(),
        );
    }
    Loading::Possible
}

/// `kernel/net/netfilter/nft-ct.ko.xz` is the module `nft_ct`.
fn file_name(path: &str) -> Option<String> {
    let file = path.trim().rsplit('/').next()?;
    let (name, _) = file.split_once(".ko")?;
    Some(name.replace('-', "_"))
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
