//! Finds the network namespace of a pod of this node by the pod's name, without an API server.
//!
//! The kubelet keeps a log directory for each pod, `/var/log/pods/NAMESPACE_NAME_UID`. The UID is part of the name of the
//! pod's control group, by which its processes are found, as the node agent finds them; the container runtime knows it, too.

use super::Sandboxes;
use super::cri::sandbox::Runtime;
use super::place::{Identity, Processes, Scan, list};
use std::fs::DirEntry;
use std::path::Path;
use weir_netlink::Netns;

/// Where the kubelet keeps logs of pods (`podLogsDir`).
const LOGS: &str = "var/log/pods";
/// Maximum number of pods of one name: the running one, and earlier ones whose logs are not removed yet.
const SAME_NAME: usize = 64;

/// Finds the namespace of the pod with a UID.
type ByUid = Box<dyn Fn(&Identity) -> Result<Netns, String>>;

/// Finds the namespace of the pod that runs now. With `runtime`, that container runtime is queried instead of the pod's
/// processes.
///
/// # Errors
/// The kubelet knows no pod of this name on this node, or none of its processes runs, or access to them is denied. With
/// `runtime`: it knows no ready sandbox of the pod, or cannot be queried.
pub fn find(namespace: &str, name: &str, runtime: Option<Runtime>) -> Result<Netns, String> {
    let remedy = "name its network namespace: weir verify netns /proc/PID/ns/net --live";
    let processes = Processes::of_node();
    let uids = uids(&processes.root_of_node().join(LOGS), namespace, name)
        .map_err(|why| format!("{why}; {remedy}"))?;
    let told: ByUid = match runtime {
        Some(runtime) => {
            let sandboxes = Sandboxes::asking(Some(runtime));
            Box::new(move |pod| by_runtime(&sandboxes, pod))
        }
        None => {
            let scan = processes.scan()?;
            Box::new(move |pod| called(&processes, &scan, pod))
        }
    };
    let mut why = format!("the kubelet has no pod {namespace}/{name} on this node");
    for uid in uids {
        match by_uid(&told, &uid) {
            Ok(netns) => return Ok(netns),
            Err(e) => why = format!("pod {namespace}/{name} ({uid}): {e}"),
        }
    }
    Err(format!("{why}; {remedy}"))
}

/// Finds the namespace by UID. The name does not tell if the pod has its own user namespace (`hostUsers: false`), so both
/// are tried. A pod without one keeps a namespace of the node's user namespace as long as it lives, so a namespace created
/// inside it is never taken for its own.
fn by_uid(find: impl Fn(&Identity) -> Result<Netns, String>, uid: &str) -> Result<Netns, String> {
    let called = Identity::called(uid);
    find(&called).or_else(|why| find(&called.with_own_users()).map_err(|_| why))
}

/// Returns the namespace if all processes of the pod live in the same one.
fn called(processes: &Processes, scan: &Scan, pod: &Identity) -> Result<Netns, String> {
    let place = processes.find(scan, pod)?;
    let sandbox = processes.open(&place, pod)?;
    sandbox.netns().try_clone().map_err(|e| e.to_string())
}

fn by_runtime(sandboxes: &Sandboxes, pod: &Identity) -> Result<Netns, String> {
    let held = sandboxes.by_runtime(pod)?;
    let held = held.ok_or("the container runtime knows no ready sandbox of it")?;
    held.sandbox.netns().try_clone().map_err(|e| e.to_string())
}

fn uids(logs: &Path, namespace: &str, name: &str) -> Result<Vec<String>, String> {
    let entries = list(logs)?;
    let prefix = format!("{namespace}_{name}_");
    let names = entries.iter().map(DirEntry::file_name);
    let uids = names.filter_map(|n| Some(n.to_str()?.strip_prefix(&prefix)?.to_owned()));
    Ok(uids.take(SAME_NAME).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::process::Stdio;

    #[test]
    fn the_control_group_names_the_namespace() {
        let Some(group) = weir_testing::groups::Group::of_pod("uid-of-named") else {
            return;
        };
        let [pods, other] = [(); 2].map(|()| weir_testing::namespace());
        let (Some(pods), Some(other)) = (pods, other) else {
            return;
        };
        let sleeps = |netns: &Netns| {
            let spawn = || std::process::Command::new("sleep").arg("600").spawn();
            weir_testing::Process(netns.run(spawn).unwrap().unwrap())
        };
        let processes = Processes::of_node();
        let found_now = || {
            let scan = processes.scan().unwrap();
            by_uid(|pod| called(&processes, &scan, pod), "uid-of-named")
        };
        let missing = found_now().unwrap_err();
        assert!(missing.contains("has a process of this pod: "), "{missing}");
        // Of users of its own; beside a namespace of the node's users it was made inside of the pod.
        let mut unshare = std::process::Command::new("unshare");
        unshare.args(["--user", "--net", "sh", "-c", "echo && exec cat"]);
        unshare.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut inner = weir_testing::Process(unshare.spawn().unwrap());
        let is_made = inner.0.stdout.as_mut().unwrap().read_exact(&mut [0]);
        is_made.expect("the namespaces");
        group.take(inner.0.id());
        let own = Netns::of_pid(inner.0.id()).unwrap();
        assert_eq!(found_now().unwrap().id(), own.id());
        let first = sleeps(&pods);
        group.take(first.0.id());
        let found = found_now().unwrap();
        assert_eq!(found.id(), pods.id());
        let second = sleeps(&other);
        group.take(second.0.id());
        let both = found_now().unwrap_err();
        assert!(both.contains("cannot be told"), "{both}");
    }

    #[test]
    fn the_directory_of_logs_names_the_uid() {
        let dir = weir_testing::TempDir::new();
        for name in ["shop_web_1", "shop_web-2_2", "other_web_3", "shop_web_4"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut found = uids(dir.path(), "shop", "web").unwrap();
        found.sort();
        assert_eq!(found, ["1", "4"]);
        let missing = uids(&dir.path().join("none"), "shop", "web").unwrap_err();
        assert!(missing.starts_with("cannot list"), "{missing}");
    }
}
