//! `weir apply node-ambient` and `weir clean node-ambient` are killed between any two steps, or cannot read something.
// matrix: newest

use crate::support::{Run, TempFile, path, weir};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_netlink::Netns;
use weir_netlink::route::{Link, LinkKind, Routing};

const PATIENCE: Duration = Duration::from_secs(30);

/// A node with a pod and a proxy, and their configuration.
struct Scene {
    node: Netns,
    proxy: Netns,
    _pod: Netns,
    config: TempFile,
}

impl Scene {
    fn new() -> Option<Self> {
        let node = weir_testing::granted(Netns::create())?;
        let [pod, proxy] = [1, 2].map(|number| ready(&node, number));
        let text = format!(
            r#"{{"proxies": [{{"uid": "zt", "netns": "{}", "addresses": ["10.1.2.10"]}}], "carrier": "vxlan",
            "pods": [{{"uid": "a", "addresses": ["10.1.1.10"], "netns": "{}"}}], "host_addresses": ["10.1.1.1"]}}"#,
            path(&proxy),
            path(&pod)
        );
        set(&node, "all", "1");
        set(&node, "v1", "1");
        Some(Self {
            node,
            proxy,
            _pod: pod,
            config: TempFile::new(&text),
        })
    }

    fn command(&self, verb: &str) -> Vec<String> {
        let node = path(&self.node);
        let all = [
            verb,
            "node-ambient",
            "--config",
            self.config.path(),
            "--host-netns",
            &node,
        ];
        all.map(str::to_owned).to_vec()
    }

    fn run(&self, verb: &str, more: &[&str]) -> Run {
        let args = self.command(verb);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        weir(&[&args, more].concat())
    }

    /// Starts a command, delays each of its requests to the kernel, and kills it after a time. Returns false if it succeeded before.
    fn killed(&self, verb: &str, more: &[&str], after: Duration) -> bool {
        let started = Command::new("strace")
            .args(["-D", "-f", "-qq", "-e", "trace=sendto", "-e"])
            .args(["inject=sendto:delay_enter=2000", "-o", "/dev/null"])
            .arg(env!("CARGO_BIN_EXE_weir"))
            .args(self.command(verb))
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut child: Child = started.expect("strace is needed here");
        // strace waits forever if the process is killed before strace has attached to it.
        let program = Path::new(env!("CARGO_BIN_EXE_weir"))
            .canonicalize()
            .unwrap();
        let exe = format!("/proc/{}/exe", child.id());
        let begun = Instant::now();
        while !std::fs::read_link(&exe).is_ok_and(|exe| exe == program)
            && child.try_wait().unwrap().is_none()
        {
            assert!(begun.elapsed() < PATIENCE, "weir does not run");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(after);
        let _ = child.kill();
        !child.wait().unwrap().success()
    }

    /// Lets the socket with this number, counted in each thread, fail.
    fn failed(&self, verb: &str, number: usize) -> bool {
        let run = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=socket", "-e"])
            .arg(format!("inject=socket:error=ENFILE:when={number}"))
            .args(["-o", "/dev/null", env!("CARGO_BIN_EXE_weir")])
            .args(self.command(verb))
            .output();
        !run.expect("strace is needed here").status.success()
    }

    /// Everything that the commands change.
    fn state(&self) -> String {
        let of = |netns: &Netns| {
            let routing = Routing::open_in(netns).unwrap();
            let links = routing.links().unwrap().into_iter().map(|link| link.name);
            let rules = routing.rules().unwrap();
            let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
            let shown = weir(&["show", "--netns", &path(netns), "--engine", "all"]);
            // The kernel adds link-local addresses at any time, and never removes empty legacy tables.
            let is_rest = |line: &str| {
                let table = ["*", "COMMIT", "# ip"]
                    .iter()
                    .any(|begin| line.starts_with(begin));
                table || line.ends_with(" ACCEPT [0:0]") || line.contains("fe80:")
            };
            let shown = shown.stdout.lines().filter(|line| !is_rest(line));
            let shown: Vec<&str> = shown.collect();
            format!("{:?} {rules:#?} {shown:#?}", links.collect::<Vec<_>>())
        };
        let read = || {
            let keys = [
                "all/rp_filter",
                "default/rp_filter",
                "v1/rp_filter",
                "v2/accept_local",
            ];
            keys.map(|key| std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{key}")))
                .map(Result::unwrap)
        };
        let sysctls = self.node.run(read).unwrap();
        format!("{} {} {sysctls:?}", of(&self.node), of(&self.proxy))
    }
}

fn set(netns: &Netns, device: &str, value: &str) {
    let file = format!("/proc/sys/net/ipv4/conf/{device}/rp_filter");
    netns.run(|| std::fs::write(file, value)).unwrap().unwrap();
}

fn ready(node: &Netns, number: u8) -> Netns {
    let netns = Netns::create().unwrap();
    let outer = Routing::open_in(node).unwrap();
    let peer = Link {
        name: "eth0".to_owned(),
        ..Link::default()
    };
    let name = format!("v{number}");
    let kind = LinkKind::veth(&peer, Some((&netns).into())).unwrap();
    outer.add_link(&Link::new(&name, kind), None).unwrap();
    let inner = Routing::open_in(&netns).unwrap();
    for (routing, name, last) in [(&outer, name.as_str(), 1), (&inner, "eth0", 10)] {
        let index = routing.link(name).unwrap().index;
        routing.set_up(index).unwrap();
        let address = format!("10.1.{number}.{last}/24").parse().unwrap();
        routing.add_address(index, address).unwrap();
    }
    netns
}

/// Delays after which a command is killed; the test ends with the first command that succeeded before its delay.
fn moments() -> impl Iterator<Item = Duration> {
    (0..40).map(|n| Duration::from_millis(70 * n))
}

#[test]
fn killed_at_any_moment_the_next_apply_completes_it_and_the_next_clean_removes_it() {
    for engine in ["nft", "xtables"] {
        let Some(scene) = Scene::new() else { return };
        let engine = ["--engine", engine];
        let before = scene.state();
        let first = scene.run("apply", &engine);
        if first.stderr.contains("not supported") {
            println!("skipped: {}", first.stderr);
            return;
        }
        assert_eq!(scene.run("clean", &[]).code, 0);
        assert_eq!(scene.state(), before);
        for after in moments() {
            let was_killed = scene.killed("apply", &engine, after);
            if after.as_millis() % 140 == 0 {
                for verb in ["apply", "verify"] {
                    let run = scene.run(verb, &engine);
                    assert_eq!(run.code, 0, "{engine:?} killed after {after:?}: {run:?}");
                }
            }
            let run = scene.run("clean", &[]);
            assert_eq!(run.code, 0, "{engine:?} killed after {after:?}: {run:?}");
            assert_eq!(scene.state(), before, "{engine:?} killed after {after:?}");
            if !was_killed {
                break;
            }
        }
        for after in moments() {
            assert_eq!(scene.run("apply", &engine).code, 0);
            let was_killed = scene.killed("clean", &[], after);
            let run = scene.run("clean", &[]);
            assert_eq!(run.code, 0, "{engine:?} killed after {after:?}: {run:?}");
            assert_eq!(scene.state(), before, "{engine:?} killed after {after:?}");
            if !was_killed {
                break;
            }
        }
    }
}

/// Weir does not take an object that it cannot read for one that is absent.
#[test]
fn where_something_cannot_be_read_nothing_is_forgotten() {
    for engine in ["nft", "xtables"] {
        let Some(scene) = Scene::new() else { return };
        let before = scene.state();
        let apply = || scene.run("apply", &["--engine", engine]);
        if apply().stderr.contains("not supported") {
            return;
        }
        let mut counts = [0, 0];
        for number in 1..=8 {
            assert_eq!(apply().code, 0);
            // Weir must neither choose another engine nor lose the original values of sysctls.
            counts[0] += usize::from(scene.failed("apply", number));
            let has_failed = scene.failed("clean", number);
            counts[1] += usize::from(has_failed);
            let left = scene.state();
            assert!(has_failed || left == before, "{engine} {number}: {left}");
            assert_eq!(scene.run("clean", &[]).code, 0);
            assert_eq!(scene.state(), before, "{engine} {number}");
        }
        assert!(counts.iter().all(|failed| *failed > 0), "{counts:?}");
    }
}
