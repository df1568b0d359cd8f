//! Determines the pod of a process by the control group that the kubelet made for the pod.
//!
//! The name of the group contains the UID of the pod. Its format depends on the kubelet's cgroup driver and on the pod's
//! QoS class:
//!
//! ```text
//! cgroupfs  /kubepods/burstable/pod<UID>/<container>              /kubepods/pod<UID>/<container>
//! systemd   /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID, _ for ->.slice/cri-....scope
//! ```
//! A reader in its own cgroup namespace, such as a container, sees paths relative to its root: `/../../pod<UID>/...`.
//!
//! A pod may be allowed to create groups below its own under any name, so only the outermost pod group of a path counts.
//! If the hierarchies disagree, no pod is named.

/// Returns the UID of the pod in the text of `/proc/PID/cgroup` (`cgroups(7)`), with `-` where systemd has `_`. `None` if
/// there is no pod, or more than one.
pub(crate) fn pod(text: &str) -> Option<String> {
    // hierarchy-ID:controllers:path
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut uids: Vec<String> = paths.filter_map(of_path).collect();
    uids.dedup();
    match &mut uids[..] {
        [uid] => Some(std::mem::take(uid)),
        _ => None,
    }
}

/// Returns true if the text of `/proc/PID/cgroup` has a group of a pod in any hierarchy.
pub fn is_of_pod(text: &str) -> bool {
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.filter_map(of_path).next().is_some()
}

fn of_path(path: &str) -> Option<String> {
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    // Groups above the reader's own root have no names in the path; pods of one QoS class are siblings.
    let mut above_is_kubepods = false;
    while parts.next_if_eq(&"..").is_some() {
        above_is_kubepods = true;
    }
    for part in parts {
        if above_is_kubepods && let Some(uid) = of_name(part) {
            return Some(uid);
        }
        above_is_kubepods = match part {
            "burstable" | "besteffort" => above_is_kubepods,
            _ => part == "kubepods" || is_slice_of_kubepods(part),
        };
    }
    None
}

/// Matches `kubepods.slice`, `kubepods-burstable.slice`, and these below another slice of the kubelet: `kubelet-kubepods.slice`.
fn is_slice_of_kubepods(name: &str) -> bool {
    let slice = name.strip_suffix(".slice");
    slice.is_some_and(|slice| slice.split('-').any(|word| word == "kubepods"))
}

/// Returns the UID in the name of a pod's own group.
fn of_name(name: &str) -> Option<String> {
    let uid = match name.strip_suffix(".slice") {
        Some(slice) if is_slice_of_kubepods(name) => slice.rsplit_once("-pod")?.1,
        Some(_) => return None,
        None => name.strip_prefix("pod")?,
    };
    (!uid.is_empty()).then(|| uid.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::{is_of_pod, pod};

    const UID: &str = "1b4e28ba-2fa1-11d2-883f-0016d3cca427";
    const SYSTEMD: &str = "1b4e28ba_2fa1_11d2_883f_0016d3cca427";

    #[test]
    fn as_kubelets_name_them() {
        for path in [
            "/kubepods/burstable/podUID/c",
            "/kubepods/besteffort/podUID",
            "/kubepods/podUID/c/nested",
            "/some/root/kubepods/podUID/c",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podSYS.slice/cri-containerd-c.scope",
            "/kubepods.slice/kubepods-podSYS.slice/crio-c.scope/container",
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/\
             kubelet-kubepods-besteffort-podSYS.slice/cri-containerd-c.scope",
            // Seen from a container of another pod: of the same class, of another one, of none.
            "/../../podUID/c",
            "/../../../burstable/podUID/c",
            "/../../../../kubepods/burstable/podUID/c",
            "/../../kubepods-burstable-podSYS.slice/cri-containerd-c.scope",
            "/../../../kubepods-burstable.slice/kubepods-burstable-podSYS.slice/cri-containerd-c.scope",
        ] {
            let path = path.replace("UID", UID).replace("SYS", SYSTEMD);
            assert_eq!(pod(&format!("0::{path}\n")).as_deref(), Some(UID), "{path}");
        }
        // A static pod has a hash for a UID; a container's name may hold a colon.
        let text =
            "12:pids:/kubepods/pod0123abcd/c:d\n1:name=systemd:/kubepods/pod0123abcd/c:d\n0::/\n";
        assert_eq!(pod(text).as_deref(), Some("0123abcd"));
    }

    #[test]
    fn who_is_of_no_pod() {
        for path in [
            "/",
            "",
            "/system.slice/containerd.service",
            "/user.slice/user-1000.slice/podUID",
            "/podruntime/runtime",
            "/podUID/c",
            "/burstable/podUID",
            "/kubepods",
            "/kubepods/burstable/pod",
            "/kubepods.slice/kubepods-pod.slice",
            "/kubepods/x/podUID",
            "/..",
            "/../../",
        ] {
            let path = path.replace("UID", UID);
            assert_eq!(pod(&format!("0::{path}\n")), None, "{path}");
        }
        assert_eq!(pod(""), None);
        assert_eq!(pod("garbage\n"), None);
    }

    /// A pod that may make groups below its own names them after another pod.
    #[test]
    fn the_outermost_pod_counts() {
        for path in [
            "/kubepods/podmine/c/kubepods/podUID/c",
            "/kubepods/burstable/podmine/podUID",
            "/../../podmine/c/kubepods/podUID/c",
            "/kubepods.slice/kubepods-podmine.slice/c.scope/kubepods-podSYS.slice",
        ] {
            let path = path.replace("UID", UID).replace("SYS", SYSTEMD);
            assert_eq!(
                pod(&format!("0::{path}\n")).as_deref(),
                Some("mine"),
                "{path}"
            );
        }
        // It moved in one hierarchy.
        let text = "2:freezer:/kubepods/podother/c\n1:memory:/kubepods/podmine/c\n";
        assert_eq!(pod(text), None);
        assert!(is_of_pod(text) && !is_of_pod("0::/system.slice/kubelet.service\n"));
    }
}
