//! Two writers at once, and sysctls that cannot be written: the next attempt finds what a failed one left.

use crate::ebpf::{answer, bpffs, builds, web};
use crate::scene::{OUTSIDE, PROXY, Scene, Servers, set, sysctl};
use crate::{carrier, each, state, up};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use weir_cni::compile::Engine;
use weir_node_ambient::{apply, compare, ebpf, remove};
use weir_testing::container;

/// Runs `work` as in an unprivileged container, which cannot write the node's sysctls either. Returns `None` if that cannot be set up here.
fn without_sysctls<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let inside = || {
        let hidden = container::read_only(Path::new("/proc/sys"))
            .and_then(|()| container::empty(Path::new("/proc/1")));
        match hidden {
            Ok(()) => Some(work()),
            Err(e) => {
                println!("skipped: no mounts of its own: {e}");
                None
            }
        }
    };
    thread::scope(|scope| scope.spawn(inside).join().unwrap())
}

/// Nothing captures any more, and the next attempt restores the values that this one could not.
// matrix: every; variants no-nft-tproxy no-nftables no-xtables
#[test]
fn rules_that_go_leave_what_sysctls_were() {
    let key = "ipv4/conf/all/rp_filter";
    for is_known in [true, false] {
        each(&["veth"], |scene, engine, name| {
            let _servers = Servers::start(scene);
            set(&scene.proxy, key, "2");
            let before = state(scene);
            if !up(scene, engine, &carrier(name)) {
                return;
            }
            let config = scene.config(&[(PROXY, 1)], &carrier(name));
            let config = is_known.then_some(&config);
            let Some(failed) = without_sysctls(|| remove(&scene.node, config)) else {
                return;
            };
            let error = failed.unwrap_err().to_string();
            assert!(error.contains("rp_filter"), "{error}");
            assert_eq!(sysctl(&scene.node, key), "0");
            let text = answer(&scene.pod, web(OUTSIDE, false));
            assert_eq!(text, "outside|x", "by {engine}");
            assert!(!remove(&scene.node, config).unwrap().is_empty());
            assert_eq!(state(scene), before, "by {engine}");
            if is_known {
                assert_eq!(sysctl(&scene.proxy, key), "2", "by {engine}");
            }
            let again = remove(&scene.node, config).unwrap();
            assert_eq!(again, Vec::<String>::new());
        });
    }
}

// matrix: every
#[test]
fn programs_that_go_leave_what_sysctls_were() {
    let (at_node, at_proxy) = ("ipv4/conf/v2/rp_filter", "ipv4/conf/eth0/forwarding");
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        set(&scene.proxy, at_proxy, "1");
        let sysctls = || [sysctl(&scene.node, at_node), sysctl(&scene.proxy, at_proxy)];
        let before = sysctls();
        let config = scene.config(&[(PROXY, 1)], "");
        let bpffs = bpffs(&mounted);
        ebpf::apply(&config, &scene.node, &bpffs).unwrap();
        assert_ne!(sysctls(), before);
        let go = || ebpf::remove(&scene.node, &bpffs, Some(&config));
        let Some(failed) = without_sysctls(go) else {
            return;
        };
        let error = failed.unwrap_err().to_string();
        assert!(error.contains("rp_filter"), "{error}");
        assert_eq!(answer(&scene.pod, web(OUTSIDE, false)), "outside|x");
        assert!(!go().unwrap().is_empty());
        assert_eq!(sysctls(), before);
        assert!(go().unwrap().is_empty());
    }
}

/// The state that a writer has read is unchanged when it writes.
#[test]
fn rules_have_one_writer_at_a_time() {
    let Some(scene) = Scene::build() else { return };
    let more = carrier("veth");
    let config = scene.config(&[(PROXY, 1)], &more);
    let before = state(&scene);
    let other = File::open(scene.node.path()).unwrap();
    other.lock().unwrap();
    let refused = thread::scope(|scope| {
        let applied = scope.spawn(|| apply(&config, &scene.node, None, false).map(drop));
        let removed = scope.spawn(|| remove(&scene.node, Some(&config)).map(drop));
        [applied, removed].map(|writer| writer.join().unwrap().unwrap_err().to_string())
    });
    let holder = format!("process {} (", std::process::id());
    for error in refused {
        assert!(error.contains(&holder), "{error}");
    }
    assert_eq!(state(&scene), before);
    // As after a kill.
    drop(other);
    for _ in 0..8 {
        thread::scope(|scope| {
            let removes = scope.spawn(|| remove(&scene.node, Some(&config)).unwrap());
            let applied = apply(&config, &scene.node, Some(Engine::Nft), false);
            applied.unwrap();
            removes.join().unwrap();
        });
        let left = compare(&config, &scene.node, Some(Engine::Nft)).unwrap();
        assert!(left.is_empty() || state(&scene) == before, "{left:?}");
    }
}

/// Any user of the node may lock the file of its namespace, which must not prevent a repair.
// matrix: none: flock(1) is not in a guest
#[test]
fn a_lock_of_a_process_without_rights_is_ignored() {
    let Some(scene) = Scene::build() else { return };
    // The lock is held by the process that took it, and by another one with a copy of its descriptor after the first has ended.
    for script in [
        "exec flock /proc/self/ns/net sh -c 'echo locked; exec cat'",
        "exec 9</proc/self/ns/net; flock 9; echo locked; exec cat",
    ] {
        a_lock_is_ignored(&scene, script);
    }
}

fn a_lock_is_ignored(scene: &Scene, script: &str) {
    let config = scene.config(&[(PROXY, 1)], &carrier("veth"));
    let before = state(scene);
    let hold = || {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        piped.uid(65_534).gid(65_534).spawn()
    };
    let mut holder = scene.node.run(hold).unwrap().unwrap();
    let mut said = String::new();
    let mut output = BufReader::new(holder.stdout.take().unwrap());
    output.read_line(&mut said).unwrap();
    assert_eq!(said, "locked\n");
    let refused = File::open(scene.node.path()).unwrap().try_lock();
    let applied = apply(&config, &scene.node, Some(Engine::Nft), false).map(drop);
    let removed = remove(&scene.node, Some(&config)).map(drop);
    // The process ends with its stdin.
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert!(refused.is_err(), "it is locked");
    applied.unwrap();
    removed.unwrap();
    assert_eq!(state(scene), before);
}
