//! `weir apply|clean node-ambient` over eBPF, with a system call that fails: what stays works, and the error says what may be in force.
// matrix: newest

use crate::at_once::holding;
use crate::node_ambient::with_proxy;
use crate::support::{Run, TempFile, path, weir_with};
use std::process::Command;
use weir_netlink::Netns;
use weir_netlink::route::{Route, Routing};
use weir_testing::BpfFs;

struct Scene {
    node: Netns,
    proxy: Netns,
    _pod: Netns,
    mounted: BpfFs,
    config: TempFile,
}

impl Scene {
    /// A node with a proxy and a pod at a link.
    fn new() -> Option<Self> {
        let node = weir_testing::namespace()?;
        let (proxy, pod) = (weir_testing::namespace()?, weir_testing::namespace()?);
        let mounted = BpfFs::mount()?;
        let config = with_proxy(&node, &proxy);
        let text = std::fs::read_to_string(config.path()).unwrap();
        let pods = r#"{"pods": [{"uid": "a", "addresses": ["10.1.1.10"]}], "#;
        let routing = Routing::open_in(&node).unwrap();
        routing.add_veth("v1", "eth0", &pod).unwrap();
        let index = routing.link("v1").unwrap().index;
        routing.set_up(index).unwrap();
        let to_pod = "10.1.1.10/32".parse().unwrap();
        let route = Route::unicast(to_pod, None, Some(index));
        routing.add_route(&route).unwrap();
        Some(Self {
            node,
            proxy,
            _pod: pod,
            mounted,
            config: TempFile::new(&text.replacen('{', pods, 1)),
        })
    }

    fn bpffs(&self) -> &str {
        self.mounted.path().to_str().unwrap()
    }

    fn args<'a>(&'a self, verb: &'a str, place: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let args = [verb, "node-ambient", "--host-netns", place];
        [&args[..], &["--config", self.config.path()], more].concat()
    }

    fn run(&self, verb: &str, more: &[&str]) -> Run {
        let place = path(&self.node);
        let args = self.args(verb, &place, more);
        weir_with(&args, &[("WEIR_BPFFS", self.bpffs())])
    }

    /// Runs a command in which this system call fails.
    fn failing(&self, call: &str, verb: &str, more: &[&str]) -> Run {
        let place = path(&self.node);
        let mut traced = Command::new("strace");
        traced.args(["-f", "-qq", "-o", "/dev/null", "-e"]);
        traced.arg(format!("inject={call}"));
        traced.arg(env!("CARGO_BIN_EXE_weir"));
        traced.args(self.args(verb, &place, more));
        let run = traced.env("WEIR_BPFFS", self.bpffs()).output();
        let run = run.expect("strace is needed here");
        Run {
            code: run.status.code().unwrap_or(-1),
            stdout: String::from_utf8(run.stdout).unwrap(),
            stderr: String::from_utf8(run.stderr).unwrap(),
        }
    }

    /// The policy rules in the proxy's namespace, which rules and programs need.
    fn routing(&self) -> Vec<String> {
        let rules = Routing::open_in(&self.proxy).unwrap().rules().unwrap();
        rules.iter().map(ToString::to_string).collect()
    }

    fn holding(&self) -> Vec<&'static str> {
        holding(&self.node, self.bpffs())
    }
}

#[test]
fn programs_that_cannot_be_detached_keep_their_routing() {
    let Some(scene) = Scene::new() else { return };
    let mut failed = 0;
    let opened = (2..32).step_by(2);
    let opened = opened.map(|number| format!("openat:error=EMFILE:when={number}"));
    for call in ["flock:error=ENOLCK:when=2".to_owned()]
        .into_iter()
        .chain(opened)
    {
        let applied = scene.run("apply", &["--engine", "ebpf"]);
        assert_eq!(applied.code, 0, "{applied:?}");
        let cleaned = scene.failing(&call, "clean", &[]);
        let verified = scene.run("verify", &["--engine", "ebpf"]);
        if cleaned.code == 0 {
            continue;
        }
        println!("{call}: {cleaned:?}");
        // The configuration or the namespace could not be opened, so nothing was tried: the number of files opened before them
        // depends on the environment.
        let is_begun = !cleaned.stderr.contains("cannot open network namespace");
        if cleaned.code == 2 || !is_begun {
            assert_eq!(verified.code, 0, "{call}: {verified:?} after {cleaned:?}");
            continue;
        }
        failed += 1;
        // Either everything is still there, or no packet of a pod is redirected.
        let shown = ["show", "--netns", &path(&scene.node), "--engine", "bpf"];
        let shown = weir_with(&shown, &[("WEIR_BPFFS", scene.bpffs())]);
        let at_pod = shown.stdout.lines().filter(|l| l.starts_with("v1 "));
        if at_pod.count() > 0 {
            assert_eq!(verified.code, 0, "{call}: {verified:?} after {cleaned:?}");
        }
        if !scene.holding().is_empty() {
            let says = "eBPF programs may be attached";
            assert!(cleaned.stderr.contains(says), "{call}: {cleaned:?}");
        }
    }
    assert!(failed > 1, "{failed}");
    let cleaned = scene.run("clean", &[]);
    assert_eq!((cleaned.code, scene.holding()), (0, vec![]), "{cleaned:?}");
}

#[test]
fn sysctls_whose_previous_values_are_lost_are_named() {
    let Some(scene) = Scene::new() else { return };
    assert_eq!(scene.run("apply", &["--engine", "ebpf"]).code, 0);
    std::fs::remove_dir_all(scene.mounted.path().join("weir/v2")).unwrap();
    let cleaned = scene.run("clean", &[]);
    assert_eq!(cleaned.code, 0, "{cleaned:?}");
    let words = "left as they are, since no pins of programs store the previous values";
    assert!(cleaned.stdout.contains(words), "{cleaned:?}");
    let cleaned = scene.run("clean", &[]);
    assert_eq!(cleaned.stdout, "nothing to remove\n");
}

#[test]
fn a_failed_change_of_the_engine_says_what_is_in_force() {
    let Some(scene) = Scene::new() else { return };
    let says = "rules, eBPF programs or both may be in force";
    for (from, to, call) in [
        ("ebpf", "nft", "unlink:error=EACCES:when=1"),
        ("ebpf", "nft", "flock:error=ENOLCK:when=2"),
        ("nft", "ebpf", "flock:error=ENOLCK:when=4"),
    ] {
        let apply = |engine| scene.run("apply", &["--engine", engine]);
        assert_eq!(apply(to).code, 0);
        let desired = scene.routing();
        let applied = apply(from);
        assert_eq!(applied.code, 0, "{applied:?}");
        let failed = scene.failing(call, "apply", &["--engine", to]);
        assert_eq!(failed.code, 1, "{call}: {failed:?}");
        assert!(failed.stderr.contains(says), "{call}: {failed:?}");
        if to == "nft" {
            assert_eq!(scene.routing(), desired, "{call}");
        }
        let applied = apply(to);
        assert_eq!(applied.code, 0, "{call}: {applied:?}");
        assert_eq!(scene.holding().len(), 1, "{call}");
        let verified = scene.run("verify", &["--engine", to]);
        assert_eq!(verified.code, 0, "{call}: {verified:?}");
    }
    assert_eq!(scene.run("clean", &[]).code, 0);
}
