//! Privileges of this process: capabilities, security modules, container.

use std::fs;
use weir_netfilter::probe::{Answer, Finding, finding};
use weir_netlink::route::Routing;

/// The name of the area in findings.
pub const AREA: &str = "process";

/// Names of capabilities by number, without `CAP_` (`linux/capability.h`).
pub const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Capabilities that weir uses, and their purpose.
#[rustfmt::skip]
pub const ROWS: &[(&str, &str)] = &[
    ("NET_ADMIN", "rules, routes, links"),
    ("NET_RAW", "legacy tables, also to read the rules of a namespace"),
    ("SYS_ADMIN", "entering a pod's namespace"),
    ("SYS_PTRACE", "opening namespaces of other users' processes"),
    ("BPF", "eBPF, without CAP_SYS_ADMIN"),
    ("SYS_MODULE", "not needed: the kernel loads modules itself"),
    ("DAC_OVERRIDE", "writing into directories of other users"),
];

/// Returns the names of the effective capabilities in the text of `/proc/PID/status`.
#[must_use]
pub fn effective(status: &str) -> Option<Vec<&'static str>> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    let bits = u64::from_str_radix(line.trim(), 16).ok()?;
    let names = CAPABILITIES.iter().enumerate();
    Some(
        names
            .filter(|(n, _)| bits >> n & 1 == 1)
            .map(|(_, name)| *name)
            .collect(),
    )
}

/// Reports for each capability that weir uses whether this thread has it.
#[must_use]
pub fn findings() -> Vec<Finding> {
    let status = fs::read_to_string("/proc/thread-self/status");
    let has = status.as_deref().ok().and_then(effective);
    let one = |(name, purpose): &(&'static str, &'static str)| {
        let answer = match &has {
            Some(has) if has.contains(name) => Answer::Have(String::new()),
            Some(_) => Answer::Lack("not in effect for this thread".to_owned()),
            None => Answer::Unknown("/proc/thread-self/status cannot be read".to_owned()),
        };
        finding(AREA, format!("CAP_{name}"), answer, "", ("", purpose))
    };
    let has_net_admin = has.as_ref().is_some_and(|has| has.contains(&"NET_ADMIN"));
    let mut findings: Vec<Finding> = ROWS.iter().map(one).collect();
    let answer = over_this_namespace(has_net_admin);
    let instead = (
        "",
        "run this as root of the user namespace that owns the node's network namespace",
    );
    findings.push(finding(
        AREA,
        OVER_NAMESPACE.to_owned(),
        answer,
        "",
        instead,
    ));
    findings
}

/// Whether CAP_NET_ADMIN is effective over the network namespace: not if the process has it only in its own user namespace.
const OVER_NAMESPACE: &str = "rights over this network namespace";

/// A process without the capability is reported by the row of CAP_NET_ADMIN, not here.
fn over_this_namespace(has_net_admin: bool) -> Answer {
    // This has no effect: no link has this index, so the error is either "not permitted" or "not found".
    let asked = || Routing::open()?.delete_link(i32::MAX.unsigned_abs());
    match asked() {
        Err(e) if has_net_admin && e.is_permission() => Answer::Unknown(
            "this process is root only in its own user namespace, in which the probes ran"
                .to_owned(),
        ),
        Err(e) if !e.is_permission() && !e.is_not_found() => Answer::Unknown(e.to_string()),
        _ => Answer::Have(String::new()),
    }
}

/// Facts about the process and its environment, as name and value.
#[must_use]
pub fn facts() -> Vec<(&'static str, String)> {
    let first = |path: &str| {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().next()?.trim_end_matches('\0').trim();
        (!line.is_empty()).then(|| line.to_owned())
    };
    let unknown = || "unknown".to_owned();
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|l| l.strip_prefix(name))
            .map(str::trim)
    };
    let uid = field("Uid:").and_then(|l| l.split_whitespace().next());
    let capabilities = match effective(&status) {
        None => unknown(),
        Some(list) if list.is_empty() => "none".to_owned(),
        Some(list) if list.len() >= CAPABILITIES.len() - 1 => {
            format!("{} of {}", list.len(), CAPABILITIES.len())
        }
        Some(list) => list.join(" "),
    };
    vec![
        ("user", uid.map_or_else(unknown, |n| format!("uid {n}"))),
        ("capabilities", capabilities),
        ("seccomp", field("Seccomp:").map_or_else(unknown, seccomp)),
        ("user namespace", user_namespace()),
        (
            "security modules",
            first("/sys/kernel/security/lsm").unwrap_or_else(unknown),
        ),
        (
            "security label",
            first("/proc/self/attr/current").unwrap_or_else(|| "none".to_owned()),
        ),
        (
            "SELinux",
            selinux(first("/sys/fs/selinux/enforce").as_deref()),
        ),
        ("container", container()),
    ]
}

fn seccomp(mode: &str) -> String {
    match mode {
        "0" => "off",
        "1" => "strict",
        "2" => "filter: it may refuse bpf(2), unshare(2) or setns(2)",
        other => other,
    }
    .to_owned()
}

/// The initial user namespace has an identity map of all IDs.
fn user_namespace() -> String {
    let Ok(map) = fs::read_to_string("/proc/self/uid_map") else {
        return "unknown".to_owned();
    };
    match map.split_whitespace().collect::<Vec<_>>()[..] {
        ["0", "0", "4294967295"] => "the first one",
        _ => "not the first one, which eBPF and larger socket buffers need",
    }
    .to_owned()
}

fn selinux(enforce: Option<&str>) -> String {
    match enforce {
        Some("1") => "enforcing",
        Some("0") => "permissive",
        Some(other) => other,
        None => "off or not visible",
    }
    .to_owned()
}

/// Heuristic: each hint may be wrong.
fn container() -> String {
    let file = |path: &str| std::path::Path::new(path).exists();
    let set = |name: &str| std::env::var_os(name).is_some();
    let hints: Vec<&str> = [
        (file("/.dockerenv"), "/.dockerenv"),
        (file("/run/.containerenv"), "/run/.containerenv"),
        (file("/run/systemd/container"), "/run/systemd/container"),
        (set("KUBERNETES_SERVICE_HOST"), "$KUBERNETES_SERVICE_HOST"),
        (set("container"), "$container"),
    ]
    .into_iter()
    .filter_map(|(is, hint)| is.then_some(hint))
    .collect();
    match hints.is_empty() {
        true => "no hint of one".to_owned(),
        false => format!("yes ({})", hints.join(", ")),
    }
}
