//! Control groups with the names that the kubelet gives to those of pods.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A control group of a pod, below one for this test; both are removed on drop.
pub struct Group {
    top: PathBuf,
    leaf: PathBuf,
}

impl Group {
    /// Creates the group as the kubelet with the driver `cgroupfs` does. `None`, with the reason printed, if this process may
    /// not create control groups.
    pub fn of_pod(uid: &str) -> Option<Self> {
        Self::at(&format!("kubepods/burstable/pod{uid}/container"))
    }

    /// Creates a group at a path below that of the test.
    pub fn at(path: &str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-test-{}-{n}", std::process::id());
        let mut why = "no hierarchy of control groups is mounted".to_owned();
        for own in own_groups() {
            let top = own.join(&name);
            let leaf = top.join(path);
            match std::fs::create_dir_all(&leaf) {
                Ok(()) => return Some(Self { top, leaf }),
                Err(e) => why = format!("{}: {e}", leaf.display()),
            }
        }
        println!("skipped: no control group can be made: {why}");
        None
    }

    /// Moves a process into the group.
    pub fn take(&self, pid: u32) {
        std::fs::write(self.leaf.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A killed process remains in its group for a short time, and rmdir(2) then fails with EBUSY.
        let end = Instant::now() + Duration::from_secs(5);
        let mut dir = self.leaf.clone();
        while dir.starts_with(&self.top) {
            match std::fs::remove_dir(&dir) {
                Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy && Instant::now() < end => {
                    std::thread::yield_now();
                }
                _ => _ = dir.pop(),
            }
        }
    }
}

/// The control groups of this process in those mounted hierarchies where a new group needs no controller setup: version 2,
/// and of version 1 systemd's and the freezer's.
fn own_groups() -> Vec<PathBuf> {
    let (mounts, own) = (
        std::fs::read_to_string("/proc/mounts").unwrap_or_default(),
        std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
    );
    let mut found = Vec::new();
    for mount in mounts.lines() {
        let fields: Vec<&str> = mount.split(' ').collect();
        let [_, point, kind, options, ..] = fields[..] else {
            continue;
        };
        let controller = match kind {
            "cgroup2" => "",
            "cgroup" => match options
                .split(',')
                .find(|o| ["name=systemd", "freezer"].contains(o))
            {
                Some(controller) => controller,
                None => continue,
            },
            _ => continue,
        };
        let path = own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next()?;
            let path = fields.next()?;
            controllers
                .split(',')
                .any(|c| c == controller)
                .then_some(path)
        });
        let path = path.unwrap_or("/").trim_start_matches('/');
        found.push(Path::new(point).join(path));
    }
    found
}
