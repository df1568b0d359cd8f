//! Detection of the kubelet's user.

/// Returns the user of the kubelet, by its processes below a mount of `/proc`; `None` if none is found.
///
/// A process can choose its name. One that belongs to a pod, which `is_of_pod` tells from `/proc/PID/cgroup`, is not the kubelet, and one of
/// root comes before those of other users; among those the lowest process ID decides.
#[must_use]
pub fn kubelet(proc: &std::path::Path, is_of_pod: impl Fn(&str) -> bool) -> Option<u32> {
    let mut pids: Vec<u32> = std::fs::read_dir(proc)
        .ok()?
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    let user = |pid: u32| {
        let read = |name: &str| {
            use std::io::Read;
            let mut text = Vec::new();
            let file = std::fs::File::open(proc.join(pid.to_string()).join(name)).ok()?;
            file.take(64 << 10).read_to_end(&mut text).ok()?;
            Some(String::from_utf8_lossy(&text).into_owned())
        };
        let comm = read("comm")?;
        let is_kubelet = match comm.trim_end() {
            "k3s" => true,
            "kubelet" | "kubelite" => read("cmdline")?.to_lowercase().contains("kubelet"),
            _ => false,
        };
        if !is_kubelet || is_of_pod(&read("cgroup")?) {
            return None;
        }
        let status = read("status")?;
        let users = status.lines().find_map(|l| l.strip_prefix("Uid:"))?;
        users.split_whitespace().next()?.parse().ok()
    };
    let mut first = None;
    for user in pids.into_iter().filter_map(user) {
        if user == 0 {
            return Some(0);
        }
        first.get_or_insert(user);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_by_its_processes() {
        let dir = weir_testing::TempDir::new();
        let process = |pid: u32, comm: &str, cmdline: &str, uid: u32, group: &str| {
            let at = dir.path().join(pid.to_string());
            std::fs::create_dir(&at).unwrap();
            std::fs::write(at.join("comm"), format!("{comm}\n")).unwrap();
            std::fs::write(at.join("cmdline"), cmdline).unwrap();
            std::fs::write(at.join("cgroup"), format!("0::{group}\n")).unwrap();
            std::fs::write(
                at.join("status"),
                format!("Name:\t{comm}\nUid:\t{uid}\t0\t0\t0\n"),
            )
            .unwrap();
        };
        let kubelet = || kubelet(dir.path(), |text| text.contains("/pod"));
        process(20, "bash", "bash\0kubelet", 1, "/");
        process(21, "kubelet", "sleep", 2, "/");
        assert_eq!(kubelet(), None);
        process(5, "kubelet", "/kubelet", 3, "/kubepods/pod1/c");
        process(6, "k3s", "k3s\0server", 4, "/kubepods/pod1/c");
        assert_eq!(kubelet(), None);
        process(30, "kubelite", "/snap/Kubelet\0--x", 1000, "/system.slice");
        assert_eq!(kubelet(), Some(1000));
        process(9, "k3s", "k3s\0server", 7, "/");
        assert_eq!(kubelet(), Some(7));
        process(31, "kubelet", "/usr/bin/kubelet", 0, "/system.slice");
        assert_eq!(kubelet(), Some(0));
    }
}
