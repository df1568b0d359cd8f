//! Facts read from files: sysctls, mounts, BTF.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use weir_core::sandboxes::host;
use weir_ebpf::{BPFFS, Bpffs};
use weir_netfilter::probe::{Answer, Finding, finding};
use weir_rules::sysctl;

/// The name of the area in findings.
pub const AREA: &str = "system";

/// How a feature is determined.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// The first line of a file below `/proc/sys`, dots for slashes.
    Sysctl(&'static str),
    /// Whether the file exists.
    File(&'static str),
    /// Whether a file system of this type is mounted in the mount namespace of this process.
    Mounted(&'static str),
    /// The bpf file system is mounted where programs are pinned.
    Pins,
    /// The kernel has a file system of this kind.
    FileSystem(&'static str),
}

/// One row: name, source, the module or option that provides it, why it matters.
pub type SystemRow = (&'static str, Source, &'static str, &'static str);

/// All rows.
#[rustfmt::skip]
pub const ROWS: &[SystemRow] = &[
    ("IPv6", Source::File("/proc/net/if_inet6"), "ipv6", "IPv4 only"),
    ("BTF of the kernel", Source::File("/sys/kernel/btf/vmlinux"), "bpf_btf", "programs that need no BTF"),
    ("bpffs", Source::Pins, "", "mount -t bpf bpf /sys/fs/bpf, or name another mount point in WEIR_BPFFS"),
    ("bpffs can be mounted", Source::FileSystem("bpf"), "bpf_syscall", "netfilter rules"),
    ("cgroup v2", Source::Mounted("cgroup2"), "", "no eBPF on cgroups; nothing else needs it"),
    ("net.core.rmem_max", Source::Sysctl("net.core.rmem_max"), "", "receive buffer, in bytes, for root of another user namespace"),
    ("net.core.wmem_max", Source::Sysctl("net.core.wmem_max"), "", "send buffer, in bytes, without CAP_NET_ADMIN in the first user namespace"),
    ("net.ipv4.ip_forward", Source::Sysctl("net.ipv4.ip_forward"), "", "node-level ambient needs 1, as CNI plugins set it"),
    ("net.ipv4.conf.all.rp_filter", Source::Sysctl("net.ipv4.conf.all.rp_filter"), "", "1 drops replies of node-level ambient that take another route"),
    ("net.ipv4.conf.all.route_localnet", Source::Sysctl("net.ipv4.conf.all.route_localnet"), "", "not needed: REDIRECT takes the interface's address"),
    ("net.ipv4.ip_local_port_range", Source::Sysctl("net.ipv4.ip_local_port_range"), "", "should be above the proxy's ports"),
    ("net.ipv6.conf.all.disable_ipv6", Source::Sysctl("net.ipv6.conf.all.disable_ipv6"), "ipv6", "1 is IPv4 only"),
    ("net.ipv6.conf.all.forwarding", Source::Sysctl("net.ipv6.conf.all.forwarding"), "ipv6", "node-level ambient needs 1 for IPv6"),
    ("net.bridge.bridge-nf-call-iptables", Source::Sysctl("net.bridge.bridge-nf-call-iptables"), "", "1 shows bridged packets to the host's rules"),
    ("kernel.unprivileged_bpf_disabled", Source::Sysctl("kernel.unprivileged_bpf_disabled"), "bpf_syscall", "above 0 eBPF needs CAP_BPF"),
    ("kernel.unprivileged_userns_clone", Source::Sysctl("kernel.unprivileged_userns_clone"), "", "only some distributions have it"),
    ("user.max_user_namespaces", Source::Sysctl("user.max_user_namespaces"), "", "0 forbids user namespaces"),
    ("user.max_net_namespaces", Source::Sysctl("user.max_net_namespaces"), "", "0 forbids network namespaces"),
];

/// The bpf file system with the pins: that of `WEIR_BPFFS`, otherwise the usual mount point, in a container possibly the node's.
#[must_use]
pub fn bpffs() -> PathBuf {
    let said = std::env::var_os("WEIR_BPFFS").filter(|path| !path.is_empty());
    let said = said.map(PathBuf::from);
    said.unwrap_or_else(|| host::seen(Path::new(BPFFS), Bpffs::may_be_at))
}

/// `uname -r`; empty where it cannot be read.
#[must_use]
pub fn kernel_release() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease");
    text.unwrap_or_default().trim().to_owned()
}

/// Tries to write a sysctl in the throwaway namespace of the calling thread.
#[must_use]
pub fn writable() -> Finding {
    of_sysctls(match sysctl::write("ipv4/conf/lo/accept_local", "1") {
        Ok(()) => Answer::Have(String::new()),
        Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => Answer::Lack(sysctl::describe(&e)),
        Err(e) => Answer::Unknown(format!("cannot write a sysctl of lo: {e}")),
    })
}

/// The finding for sysctls if nothing was tried.
#[must_use]
pub fn untried(why: &str) -> Finding {
    of_sysctls(Answer::Unknown(why.to_owned()))
}

fn of_sysctls(answer: Answer) -> Finding {
    let remedy = "mount the node's /proc at /host/proc, or give the container a writable one";
    finding(
        AREA,
        "writable sysctls".to_owned(),
        answer,
        "",
        ("", remedy),
    )
}

/// Reads every row.
#[must_use]
pub fn findings() -> Vec<Finding> {
    findings_in(Path::new("/"))
}

/// Reads every row below `root` instead of `/`.
#[must_use]
pub fn findings_in(root: &Path) -> Vec<Finding> {
    ROWS.iter()
        .map(|(name, source, gives, why)| {
            let answer = read(root, source);
            finding(AREA, (*name).to_owned(), answer, gives, ("", why))
        })
        .collect()
}

fn read(root: &Path, source: &Source) -> Answer {
    let at = |path: &str| root.join(path.trim_start_matches('/'));
    match *source {
        Source::Sysctl(name) => {
            let path = format!("/proc/sys/{}", name.replace('.', "/"));
            match fs::read_to_string(at(&path)) {
                Ok(text) => Answer::Have(text.split_whitespace().collect::<Vec<_>>().join(" ")),
                Err(e) if e.kind() == ErrorKind::NotFound => missing(root, &path),
                Err(e) => Answer::Unknown(format!("cannot read {path}: {e}")),
            }
        }
        Source::File(path) => match at(path).try_exists() {
            Ok(true) => Answer::Have(String::new()),
            Ok(false) => missing(root, path),
            Err(e) => Answer::Unknown(format!("cannot look for {path}: {e}")),
        },
        Source::Mounted(kind) => match fs::read_to_string(at("/proc/self/mountinfo")) {
            Ok(text) => match text.lines().find_map(|line| mount_point(line, kind)) {
                Some(path) => Answer::Have(path.to_owned()),
                None => Answer::Lack(format!("no file system of kind {kind} is mounted")),
            },
            Err(e) => Answer::Unknown(format!("cannot read /proc/self/mountinfo: {e}")),
        },
        Source::Pins => {
            let place = bpffs();
            let path = place.to_string_lossy();
            match Bpffs::if_mounted(&at(&path)) {
                Ok(Some(_)) => Answer::Have(path.into_owned()),
                Ok(None) => match missing(root, &path) {
                    Answer::Lack(_) => {
                        Answer::Lack(format!("no bpf file system is mounted at {path}"))
                    }
                    unknown => unknown,
                },
                Err(e) => Answer::Unknown(e.to_string()),
            }
        }
        Source::FileSystem(kind) => match fs::read_to_string(at("/proc/filesystems")) {
            Ok(text) if text.split_whitespace().any(|word| word == kind) => {
                Answer::Have(String::new())
            }
            Ok(_) => Answer::Lack(format!("/proc/filesystems does not name {kind}")),
            Err(e) => Answer::Unknown(format!("cannot read /proc/filesystems: {e}")),
        },
    }
}

/// The answer for a file that does not exist: lacking, or unknown if its file system is not mounted.
fn missing(root: &Path, path: &str) -> Answer {
    let tree = if path.starts_with("/sys/") {
        "sys/kernel"
    } else {
        "proc/sys"
    };
    match root.join(tree).is_dir() {
        true => Answer::Lack(format!("{path} is not there")),
        false => Answer::Unknown(format!("/{tree} is missing; mount it to probe this")),
    }
}

/// Returns the mount point of a `mountinfo` line, if the file system is of this type (`proc_pid_mountinfo(5)`).
fn mount_point<'a>(line: &'a str, kind: &str) -> Option<&'a str> {
    let (place, what) = line.split_once(" - ")?;
    let of_kind = what.split(' ').next() == Some(kind);
    place.split(' ').nth(4).filter(|_| of_kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_its_file_system_nothing_is_known_to_be_lacking() {
        let root = std::env::temp_dir().join(format!("weir-no-proc-{}", std::process::id()));
        let count = |findings: &[Finding], lacks: bool| {
            let is_it = |f: &&Finding| match f.answer {
                Answer::Lack(_) => lacks,
                Answer::Unknown(_) => !lacks,
                Answer::Have(_) => false,
            };
            findings.iter().filter(is_it).count()
        };
        let bare = findings_in(&root);
        assert_eq!(count(&bare, true), 0, "{bare:?}");
        assert_eq!(count(&bare, false), bare.len(), "{bare:?}");
        for tree in ["proc/sys", "sys/kernel"] {
            fs::create_dir_all(root.join(tree)).unwrap();
        }
        let mounted = findings_in(&root);
        fs::remove_dir_all(&root).unwrap();
        assert!(count(&mounted, true) > 2, "{mounted:?}");
    }
}
