//! Control groups with the names that a kubelet gives to those of pods.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A control group of a pod, below one of this test's own; both go away with this value.
pub struct Group {
    top: PathBuf,
    leaf: PathBuf,
}

impl Group {
    /// As the kubelet with the driver `cgroupfs` makes it. `None`, with the reason in a line, where this process may not make
    /// any.
    pub fn of_pod(uid: &str) -> Option<Self> {
        Self::at(&format!("kubepods/burstable/pod{uid}/container"))
    }

    /// At a path of one's own below that of the test.
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

    /// Moves a process into it.
    pub fn take(&self, pid: u32) {
        std::fs::write(self.leaf.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that was killed is in its group for a moment longer.
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

/// Where this process is in the hierarchies that are mounted and need no controllers to be set up: version 2, and
/// systemd's and the freezer's of version 1.
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
