//! Runs a command from start to end, and creates namespaces for it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use weir_netlink::Netns;
use weir_netlink::route::Routing;

/// A program with its arguments, environment and stdin.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    pub(crate) arguments: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) stdin: String,
}

impl Call {
    pub(crate) fn new(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
        Self {
            arguments,
            ..Self::default()
        }
    }

    /// The same call of the plugin for the pod with this UID.
    pub(crate) fn of_pod(mut self, uid: &str) -> Self {
        for (name, value) in &mut self.env {
            if name == "CNI_ARGS" {
                value.push_str(";K8S_POD_UID=");
                value.push_str(uid);
            }
        }
        self
    }

    /// Runs the program. A failure is an error with the output, so that no failed run is measured.
    pub(crate) fn run(&self) -> Result<(), String> {
        self.start(Stdio::null()).map(|_| ())
    }

    /// Runs the program and returns its output.
    pub(crate) fn output(&self) -> Result<String, String> {
        self.start(Stdio::piped())
    }

    fn start(&self, stdout: Stdio) -> Result<String, String> {
        let failed = |what: &dyn std::fmt::Display| format!("{:?}: {what}", self.arguments);
        let (program, arguments) = self.arguments.split_first().expect("a program");
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdout(stdout)
            .stderr(Stdio::piped());
        command.stdin(if self.stdin.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        });
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        let mut child = command.spawn().map_err(|e| failed(&e))?;
        if let Some(mut pipe) = child.stdin.take() {
            pipe.write_all(self.stdin.as_bytes())
                .map_err(|e| failed(&e))?;
        }
        let output = child.wait_with_output().map_err(|e| failed(&e))?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        let said = format!(
            "{}: {}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
        Err(failed(&said))
    }
}

/// The cost of a run, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: f64,
    /// User and system time, including children.
    pub(crate) cpu: f64,
}

/// Runs the calls sequentially. This process must not have other children in the meantime.
pub(crate) fn measure(calls: &[Call]) -> Result<Cost, String> {
    let (cpu, start) = (children_cpu(), Instant::now());
    for call in calls {
        call.run()?;
    }
    let wall = start.elapsed();
    Ok(Cost {
        wall: micros(wall),
        cpu: micros(children_cpu() - cpu),
    })
}

/// The processor time of all children that have been waited for.
pub(crate) fn children_cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("getrusage does not fail");
    let time = |t: nix::sys::time::TimeVal| {
        Duration::from_secs(t.tv_sec().unsigned_abs())
            + Duration::from_micros(t.tv_usec().unsigned_abs())
    };
    time(usage.user_time()) + time(usage.system_time())
}

pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A namespace, and the path by which other processes open it.
pub(crate) struct Place {
    _netns: Netns,
    pub(crate) path: String,
}

/// Creates namespaces, each with a pod's address on `lo`: nothing is sent, and creating a link would
/// take longer than everything that is measured.
///
/// They are created before and deleted after all measurements: the kernel deletes a namespace
/// asynchronously on a kernel thread, which must not coincide with a measurement.
pub(crate) fn places(count: usize) -> Result<Vec<Place>, String> {
    let address = "10.244.0.5/24".parse().expect("an address");
    let make = |_| {
        let netns = Netns::create()?;
        let routing = Routing::open_in(&netns)?;
        let lo = routing.link("lo")?.index;
        routing.add_address(lo, address)?;
        let path = netns.path().display().to_string();
        Ok(Place {
            _netns: netns,
            path,
        })
    };
    let all: weir_netlink::Result<Vec<Place>> = (0..count).map(make).collect();
    all.map_err(|e| format!("{e}; ci/bench runs as root"))
}

/// Raises the limit of open files: each namespace needs a descriptor.
pub(crate) fn allow_many_descriptors() -> Result<(), String> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|e| e.to_string())?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(|e| e.to_string())
}

/// A directory that is deleted on drop.
pub(crate) struct Scratch(std::path::PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<String, String> {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path.display().to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
