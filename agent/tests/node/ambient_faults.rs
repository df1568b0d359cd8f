//! Ambient mode by eBPF where it cannot work: the status names what is missing, captured pods stay captured, and a pod that cannot be
//! captured does not start.

use crate::ambient::{Scene, hand_over, why};
use crate::ambient_killed::{Uplink, by_programs};
use crate::ambient_node::{Pod, programs_or_skip, with_ztunnel};
use crate::repair::Sandbox;
use crate::support::Agent;
use serde_json::Value;
use std::process::Command;
use weir_testing::{BpfFs, TempDir};

/// bpf(2) fails as it does under a seccomp filter. The agent is the started process itself, and its tracer is its child.
fn without_bpf() -> Command {
    let mut strace = Command::new("strace");
    strace.env_clear();
    strace.args(["-D", "-f", "-qq", "-e", "trace=bpf"]);
    strace.args(["-e", "inject=bpf:error=EPERM", "-o", "/dev/null"]);
    strace.arg(env!("CARGO_BIN_EXE_weir"));
    strace
}

/// At the node: pods that an earlier agent captured stay captured while the next agent cannot work and reports the reason.
///
/// A pod that starts meanwhile is neither captured nor reported as captured.
fn at_node(names: [&str; 3], mounted: &BpfFs, start: impl Fn(&Scene) -> Agent, reason: &str) {
    // The pod names become names of control groups, which parallel tests share.
    let [web_name, proxy_name, next_name] = names;
    let pods = with_ztunnel((web_name, 1), (proxy_name, 2));
    let Some((scene, web, _proxy, listener)) = pods else {
        return;
    };
    let Some(next) = Pod::new(next_name, 3, &scene.host) else {
        return;
    };
    let uplink = Uplink::of(&scene.host);
    scene.server.put(web.object("shop", web_name));
    let settings = by_programs(mounted);
    let agent = scene.start(&settings);
    agent.until("enrolled", || scene.annotation(web_name) == "enabled");
    drop(agent);
    scene.server.put(next.object("shop", next_name));
    let agent = start(&scene);
    for name in [web_name, next_name] {
        agent.until("told", || why(&agent, name).contains(reason));
    }
    assert!(listener.gets(&web), "{}", agent.log());
    assert!(!uplink.gets(&web), "{}", agent.log());
    assert_ne!(scene.annotation(next_name), "enabled", "{}", agent.log());
    // The requirement is met now.
    drop(agent);
    let agent = scene.start(&settings);
    agent.until("both", || listener.gets(&web) && listener.gets(&next));
    assert!(!uplink.gets(&next));
}

#[test]
fn without_bpf_what_is_captured_at_the_node_stays_captured() {
    let Some(mounted) = programs_or_skip() else {
        return;
    };
    let settings = by_programs(&mounted);
    let start = |scene: &Scene| scene.start_by(without_bpf(), &settings);
    let names = ["forbidden-web", "forbidden-proxy", "forbidden-next"];
    at_node(names, &mounted, start, "bpf(2) is not permitted");
}

#[test]
fn without_a_bpf_file_system_what_is_captured_at_the_node_stays_captured() {
    let (Some(mounted), folder) = (programs_or_skip(), TempDir::new()) else {
        return;
    };
    let place = folder.path().to_str().unwrap();
    let mut settings = by_programs(&mounted);
    settings[2] = ("WEIR_BPFFS", place);
    let reason = format!("mount -t bpf bpf {place}");
    let names = ["unmounted-web", "unmounted-proxy", "unmounted-next"];
    at_node(names, &mounted, |scene| scene.start(&settings), &reason);
}

/// In pods: a captured pod stays captured, and the plugin receives the reason why the next one cannot start.
#[test]
fn without_bpf_no_pod_starts_uncaptured() {
    let Some(mounted) = programs_or_skip() else {
        return;
    };
    let (Some(web), Some(next)) = (Sandbox::of("web"), Sandbox::of("next")) else {
        return;
    };
    let scene = Scene::new();
    scene.put("web", &web);
    let root = mounted.path().to_str().unwrap();
    let settings = [("WEIR_AMBIENT_ENGINE", "ebpf"), ("WEIR_BPFFS", root)];
    let bpffs = weir_ebpf::Bpffs::at(mounted.path()).unwrap();
    let shown = |sandbox: &Sandbox| weir_ebpf::show::read(sandbox.netns(), Some(&bpffs)).unwrap();
    let agent = scene.start(&settings);
    let _ztunnel = scene.ztunnel();
    agent.until("enrolled", || scene.annotation("web") == "enabled");
    let before = shown(&web).programs;
    assert!(!before.is_empty());
    drop(agent);
    let agent = scene.start_by(without_bpf(), &settings);
    agent.until("told", || {
        why(&agent, "web").contains("bpf(2) is not permitted")
    });
    assert_eq!(shown(&web).programs, before);
    scene.put("next", &next);
    let (status, text) = hand_over(&scene.node, "next", &next);
    assert_ne!(status, 200, "{text}");
    assert!(text.contains("bpf(2) is not permitted"), "{text}");
    assert_eq!(scene.annotation("next"), Value::Null, "{}", agent.log());
}

/// An agent that could not capture any pod exits, and its last message names the missing mount.
#[test]
fn without_a_bpf_file_system_an_agent_for_pods_says_what_to_mount() {
    let (scene, folder) = (Scene::new(), TempDir::new());
    let place = folder.path().to_str().unwrap();
    let settings = [("WEIR_AMBIENT_ENGINE", "ebpf"), ("WEIR_BPFFS", place)];
    let given = scene.settings();
    let mut env: Vec<(&str, &str)> = given
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    env.extend(settings);
    let mut agent = scene.node.start(&env, &[]);
    assert!(!agent.ended().success());
    let reason = format!("mount -t bpf bpf {place}");
    assert!(agent.log().contains(&reason), "{}", agent.log());
}

#[test]
fn preflight_names_what_forbids_bpf() {
    let Some(mounted) = BpfFs::mount() else {
        return;
    };
    let mut command = without_bpf();
    command.args(["preflight", "--job", "ebpf"]);
    command.env("WEIR_BPFFS", mounted.path());
    let run = command.output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(!run.status.success(), "{text}");
    assert!(text.contains("ebpf            unknown"), "{text}");
    assert!(text.contains("no seccomp filter against it"), "{text}");
}
