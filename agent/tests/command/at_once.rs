//! Two commands that write to one namespace at once, with different engines: the last one captures, alone and completely.
// matrix: newest

use crate::ambient_ebpf::Scene;
use crate::node_ambient::with_proxy;
use crate::support::{Run, path, weir_with};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use weir_netlink::Netns;

/// Runs `apply` with both engines at once.
fn both(pair: [&str; 2], apply: impl Fn(&str) -> Run + Sync) {
    let apply = &apply;
    let runs = thread::scope(|scope| {
        let runs = pair.map(|engine| scope.spawn(move || apply(engine)));
        runs.map(|run| run.join().unwrap())
    });
    assert!(runs.iter().all(|run| run.code == 0), "{pair:?}: {runs:?}");
}

/// Returns the engines that hold objects of weir.
pub(crate) fn holding(netns: &Netns, bpffs: &str) -> Vec<&'static str> {
    let signs = [
        ("bpf", "pinned at"),
        ("nft", "istio-"),
        ("xtables", "ISTIO_"),
    ];
    let holds = |(engine, sign): &(&str, &str)| {
        let args = ["show", "--netns", &path(netns), "--engine", engine];
        let shown = weir_with(&args, &[("WEIR_BPFFS", bpffs)]);
        assert_eq!(shown.code, 0, "{shown:?}");
        shown.stdout.contains(sign)
    };
    let held = signs.into_iter().filter(holds);
    held.map(|(engine, _)| engine).collect()
}

#[test]
fn one_engine_captures_in_a_pod() {
    let Some(scene) = Scene::new() else { return };
    let holding = || holding(&scene.netns, scene.bpffs());
    let netns = path(&scene.netns);
    for pair in [["ebpf", "nft"], ["xtables", "ebpf"], ["nft", "xtables"]] {
        for round in 0..10 {
            // From a pod without a redirection, and from one with it.
            if round % 2 == 0 {
                let cleaned = scene.run(&["clean", "ambient", "--netns", &netns]);
                assert_eq!((cleaned.code, holding()), (0, Vec::new()), "{cleaned:?}");
            }
            both(pair, |engine| scene.ambient("apply", &["--engine", engine]));
            assert_eq!(holding().len(), 1, "{pair:?}: {:?}", holding());
            let verified = scene.ambient("verify", &[]);
            assert_eq!(verified.code, 0, "{pair:?}: {verified:?}");
        }
    }
}

/// Nothing is written while another writer holds the lock, and the error names it. A command that writes nothing does not wait.
#[test]
fn a_pod_has_one_writer_at_a_time() {
    let Some(scene) = Scene::new() else { return };
    let netns = path(&scene.netns);
    let other = File::open(&netns).unwrap();
    other.lock().unwrap();
    let (scene, place) = (&scene, netns.as_str());
    let refused = thread::scope(|scope| {
        let apply = |engine| scope.spawn(move || scene.ambient("apply", &["--engine", engine]));
        let applied = ["nft", "ebpf", "auto"].map(apply);
        let clean = |words: &'static [&str]| {
            scope.spawn(move || scene.run(&[words, &["--netns", place]].concat()))
        };
        let cleaned = [&["clean", "ambient"][..], &["clean"]].map(clean);
        let all = applied.into_iter().chain(cleaned);
        all.map(|run| run.join().unwrap()).collect::<Vec<_>>()
    });
    let holder = format!("process {} (", std::process::id());
    for run in refused {
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stderr.contains(&holder), "{run:?}");
    }
    for engine in ["nft", "ebpf"] {
        let planned = scene.ambient("apply", &["--engine", engine, "--dry-run"]);
        assert_eq!(planned.code, 0, "{planned:?}");
    }
    assert_eq!(holding(&scene.netns, scene.bpffs()), [""; 0]);
    // As after a kill.
    drop(other);
    let applied = scene.ambient("apply", &[]);
    assert_eq!(applied.code, 0, "{applied:?}");
}

/// A process that cannot be a writer holds the lock, which is ignored: the writers exclude each other nevertheless.
#[test]
fn a_lock_of_a_process_without_rights_lets_no_two_write() {
    let Some(scene) = Scene::new() else { return };
    let holding = || holding(&scene.netns, scene.bpffs());
    let netns = path(&scene.netns);
    let hold = || {
        let script = "exec flock /proc/self/ns/net sh -c 'echo locked; exec cat'";
        let mut command = Command::new("sh");
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        piped.args(["-c", script]).uid(65_534).gid(65_534).spawn()
    };
    let mut holder = scene.netns.run(hold).unwrap().unwrap();
    let mut said = String::new();
    let mut output = BufReader::new(holder.stdout.take().unwrap());
    output.read_line(&mut said).unwrap();
    assert_eq!(said, "locked\n");
    for round in 0..10 {
        if round % 2 == 0 {
            let cleaned = scene.run(&["clean", "ambient", "--netns", &netns]);
            assert_eq!((cleaned.code, holding()), (0, Vec::new()), "{cleaned:?}");
        }
        both(["ebpf", "nft"], |engine| {
            scene.ambient("apply", &["--engine", engine])
        });
        assert_eq!(holding().len(), 1, "{round}: {:?}", holding());
        let verified = scene.ambient("verify", &[]);
        assert_eq!(verified.code, 0, "{round}: {verified:?}");
    }
    // The process ends with its stdin.
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
fn one_engine_captures_at_the_node() {
    let (netns, proxy) = (pod_or_skip!(), pod_or_skip!());
    let Some(mounted) = weir_testing::BpfFs::mount() else {
        return;
    };
    let config = with_proxy(&netns, &proxy);
    let (place, bpffs) = (path(&netns), mounted.path().to_str().unwrap());
    let run = |verb: &str, more: &[&str]| {
        let args = [&[verb, "node-ambient", "--host-netns", &place], more].concat();
        weir_with(&args, &[("WEIR_BPFFS", bpffs)])
    };
    let known = ["--config", config.path()];
    for round in 0..10 {
        if round % 2 == 0 {
            let cleaned = run("clean", &[]);
            assert_eq!(cleaned.code, 0, "{cleaned:?}");
            assert_eq!(holding(&netns, bpffs), [""; 0]);
        }
        both(["ebpf", "nft"], |engine| {
            run("apply", &[&known[..], &["--engine", engine]].concat())
        });
        let held = holding(&netns, bpffs);
        assert_eq!(held.len(), 1, "{held:?}");
        let verified = run("verify", &known);
        assert_eq!(verified.code, 0, "{held:?}: {verified:?}");
    }
}
