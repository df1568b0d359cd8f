//! The agent restores everything that it installed when another program changes it.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::support::{BRIDGE, Node};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const LIST: &str = "net.d/10-pods.conflist";

fn has_plugin(node: &Node, path: &str) -> bool {
    std::fs::read_to_string(node.path(path)).is_ok_and(|t| t.contains("\"type\": \"istio-cni\""))
}

#[test]
fn each_file_that_is_tampered_with() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let agent = node.ready(&[]);
    let installed = node.read(LIST);
    let program = node.read("source/istio-cni");
    let kubeconfig = node.read("run/istio-cni-kubeconfig");
    let remove = |name: &str| std::fs::remove_file(node.path(name)).unwrap();
    let intact = || {
        let same = |name: &str, text: &str| {
            std::fs::read_to_string(node.path(name)).is_ok_and(|t| t == text)
        };
        same(LIST, &installed)
            && same("bin/istio-cni", &program)
            && same("run/istio-cni-kubeconfig", &kubeconfig)
            && node.mode("bin/istio-cni") == 0o755
            && node.mode("run/istio-cni-kubeconfig") == 0o600
    };
    let chmod = |name: &str, mode| {
        std::fs::set_permissions(node.path(name), PermissionsExt::from_mode(mode)).unwrap()
    };
    let tampering: [(&str, &dyn Fn()); 9] = [
        ("configuration overwritten", &|| node.write(LIST, BRIDGE)),
        ("configuration replaced", &|| {
            node.write("net.d/tmp", BRIDGE);
            std::fs::rename(node.path("net.d/tmp"), node.path(LIST)).unwrap();
        }),
        ("entry changed", &|| {
            node.write(LIST, &installed.replace("istio-system", "other"))
        }),
        ("program overwritten", &|| {
            node.write("bin/istio-cni", "#!/bin/false")
        }),
        ("program removed", &|| remove("bin/istio-cni")),
        ("program not executable", &|| chmod("bin/istio-cni", 0o600)),
        ("program moved away", &|| {
            std::fs::rename(node.path("bin/istio-cni"), node.path("bin/old")).unwrap()
        }),
        ("kubeconfig removed", &|| remove("run/istio-cni-kubeconfig")),
        ("kubeconfig overwritten", &|| {
            node.write("run/istio-cni-kubeconfig", "garbage: [")
        }),
    ];
    for (what, tamper) in tampering {
        agent.until("ready", || agent.is_ready());
        tamper();
        let took = agent.until(what, intact);
        println!("{what}: healed after {took:?}");
    }
}

#[test]
fn a_change_after_a_while_is_not_damped() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let agent = node.ready(&[]);
    // The rate limiter must have its token back after the first pass, which only time can show.
    let first = Instant::now();
    agent.until("a token", || first.elapsed() > Duration::from_secs(6));
    node.replace(LIST, BRIDGE);
    agent.until("healed", || has_plugin(&node, LIST));
    assert_eq!(agent.metric("weir_install_damped_total"), 0);
}

/// The minimum distance between passes counts from the previous pass, not from the change.
#[test]
fn a_second_change_within_a_second_is_healed_within_a_second() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let agent = node.ready(&[]);
    let second = Duration::from_secs(1);
    // Counted from the change it would always take a second or more, even on a busy machine.
    let is_shorter = [(); 12].iter().any(|()| {
        node.write(LIST, BRIDGE);
        let first = Instant::now();
        agent.until("healed", || has_plugin(&node, LIST));
        agent.until("ready", || agent.is_ready());
        // Most of the distance has passed when the next change comes.
        agent.until("half a second", || {
            first.elapsed() > Duration::from_millis(500)
        });
        node.write(LIST, BRIDGE);
        agent.until("healed again", || has_plugin(&node, LIST)) < second
    });
    assert!(is_shorter, "{}", agent.log());
    assert!(agent.metric("weir_install_damped_total") >= 1);
}

#[test]
fn a_configuration_that_sorts_first_is_followed_when_none_is_named() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let mut agent = node.ready(&[]);
    node.write(
        "net.d/05-new.conf",
        r#"{"cniVersion": "0.4.0", "name": "new", "type": "ptp"}"#,
    );
    agent.until("followed", || has_plugin(&node, "net.d/05-new.conflist"));
    agent.until("the entry gone from the old one", || {
        !has_plugin(&node, LIST)
    });
    assert!(!node.exists("net.d/05-new.conf"));
    agent.says("is in force now");
    agent.wait_ready();
    // When that file is deleted, the agent extends the previous one again.
    std::fs::remove_file(node.path("net.d/05-new.conflist")).unwrap();
    agent.until("back", || has_plugin(&node, LIST));
    assert!(agent.terminate().success());
    assert!(!node.read(LIST).contains("istio"));
}

#[test]
fn a_configuration_that_sorts_first_is_told_of_when_one_is_named() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let agent = node.ready(&[("CNI_CONF_NAME", "10-pods.conflist")]);
    node.write("net.d/05-new.conflist", BRIDGE);
    agent.until("told", || agent.log().contains("which sorts before"));
    agent.until("ready", || agent.is_ready());
    assert_eq!(node.read("net.d/05-new.conflist"), BRIDGE);
    assert!(has_plugin(&node, LIST));
}

#[test]
fn a_named_file_that_is_written_again_is_extended_again() {
    let node = Node::new();
    let single = r#"{"cniVersion": "0.4.0", "name": "pods", "type": "ptp"}"#;
    node.write("net.d/10-pods.conf", single);
    let agent = node.ready(&[("CNI_CONF_NAME", "10-pods.conf")]);
    assert_eq!(node.names("net.d"), ["10-pods.conflist"]);
    node.write("net.d/10-pods.conf", &single.replace("ptp", "bridge"));
    agent.until("extended", || {
        node.names("net.d") == ["10-pods.conflist"]
            && node.read("net.d/10-pods.conflist").contains("bridge")
    });
    assert!(has_plugin(&node, "net.d/10-pods.conflist"));
}

#[test]
fn a_renewed_token_reaches_the_kubeconfig_and_leaves_the_configuration_alone() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let node = Node::new();
    node.write(LIST, BRIDGE);
    // The kubelet updates a token like this: token -> ..data/token, where ..data is a link to a directory that it replaces.
    for n in ["1", "2"] {
        std::fs::create_dir(node.path(&format!("account/..{n}"))).unwrap();
        node.write(&format!("account/..{n}/token"), &format!("token-{n}"));
    }
    std::fs::remove_file(node.path("account/token")).unwrap();
    symlink("..1", node.path("account/..data")).unwrap();
    symlink("..data/token", node.path("account/token")).unwrap();
    let agent = node.ready(&[]);
    assert!(node.read("run/istio-cni-kubeconfig").contains("token-1"));
    let inode = std::fs::metadata(node.path(LIST)).unwrap().ino();
    symlink("..2", node.path("account/..data_tmp")).unwrap();
    std::fs::rename(node.path("account/..data_tmp"), node.path("account/..data")).unwrap();
    agent.until("renewed", || {
        node.read("run/istio-cni-kubeconfig").contains("token-2")
    });
    agent.until("ready", || agent.is_ready());
    assert_eq!(std::fs::metadata(node.path(LIST)).unwrap().ino(), inode);
    assert!(!agent.log().contains("token-"), "{}", agent.log());
}

#[test]
fn somebody_who_fights_back_is_damped_and_does_not_flood_the_log() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let agent = node.ready(&[]);
    let fought = |n: u64| {
        if has_plugin(&node, LIST) {
            node.replace(LIST, BRIDGE);
        }
        agent.metric("weir_install_damped_total") >= n
    };
    agent.until("damping", || fought(6));
    agent.says("another component keeps changing");
    let (lines, passes) = (
        agent.log().lines().count(),
        agent.metric("weir_install_passes_total"),
    );
    let start = Instant::now();
    agent.until("more damping", || fought(10));
    let more = agent.log().lines().count() - lines;
    assert!(more <= 2, "{more} lines for 4 passes:\n{}", agent.log());
    // At most one pass per second.
    let passes = agent.metric("weir_install_passes_total") - passes;
    assert!(
        Duration::from_secs(passes) <= start.elapsed() + Duration::from_secs(2),
        "{passes}"
    );
    agent.until("healed in the end", || has_plugin(&node, LIST));
}

/// The agent's own files do not change, and nothing reverts them.
#[test]
fn a_file_of_another_component_that_changes_all_the_time_is_named() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let agent = node.ready(&[]);
    agent.until("told", || {
        node.write("net.d/20-other.conflist", BRIDGE);
        agent.log().contains("as again and again")
    });
    let log = agent.log();
    assert!(
        log.contains("20-other.conflist was") && !log.contains("another component keeps"),
        "{log}"
    );
    agent.until("ready", || agent.is_ready());
}

/// k3s replaces the link `data/current` at an upgrade, which causes no event in the directory behind the old link.
#[test]
fn a_directory_that_a_link_leads_away_from_is_noticed() {
    let node = Node::new();
    let turn = |name: &str, to: &str| {
        let (link, to) = (node.path("link"), node.path(to));
        std::os::unix::fs::symlink(to, &link).unwrap();
        std::fs::rename(&link, node.path(name)).unwrap();
    };
    let dirs = ["net.d", "bin"];
    for dir in dirs {
        let [first, second] = ["1", "2"].map(|n| node.path(&format!("{dir}-{n}")));
        std::fs::create_dir_all(node.path(dir)).unwrap();
        std::fs::rename(node.path(dir), first).unwrap();
        std::fs::create_dir(second).unwrap();
        turn(dir, &format!("{dir}-1"));
    }
    node.write(LIST, BRIDGE);
    node.write("net.d-2/10-pods.conflist", BRIDGE);
    let agent = node.ready(&[]);
    let is_there = || has_plugin(&node, LIST) && node.exists("bin/istio-cni");
    assert!(is_there());
    for dir in dirs {
        turn(dir, &format!("{dir}-2"));
        agent.until("installed there", is_there);
    }
    agent.until("ready", || agent.is_ready());
}

#[test]
fn a_named_file_is_waited_for_and_healed_whatever_sorts_first() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let mut agent = node.start(&[("CNI_CONF_NAME", "20-pods.conflist")], &[]);
    agent.until("waiting", || {
        agent.log().contains("waiting for 20-pods.conflist")
    });
    node.write("net.d/20-pods.conflist", BRIDGE);
    agent.wait_ready();
    assert!(has_plugin(&node, "net.d/20-pods.conflist"));
    node.write("net.d/20-pods.conflist", BRIDGE);
    agent.until("healed", || has_plugin(&node, "net.d/20-pods.conflist"));
    assert_eq!(node.read(LIST), BRIDGE);
}

/// The owner of a program file may write to it, and a symbolic link may be changed.
#[test]
fn a_program_of_somebody_else_is_replaced() {
    use std::os::unix::fs::{MetadataExt, symlink};
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let program = node.path("bin/istio-cni");
    let same = node.read("source/istio-cni");
    node.write("elsewhere", &same);
    std::fs::set_permissions(node.path("elsewhere"), PermissionsExt::from_mode(0o755)).unwrap();
    symlink(node.path("elsewhere"), &program).unwrap();
    let agent = node.ready(&[]);
    let meta = || std::fs::symlink_metadata(&program).unwrap();
    assert!(meta().is_file());
    if let Err(e) = nix::unistd::chown(&program, Some(1234.into()), None) {
        println!("skipped: giving a file away: {e}");
        return;
    }
    let own = nix::unistd::geteuid().as_raw();
    agent.until("ours again", || meta().uid() == own);
    assert_eq!(node.read("elsewhere"), same);
}

/// An agent that wrote a configuration of its own was killed and left it; such a configuration gives pods no network.
#[test]
fn what_is_only_ours_is_not_extended_and_goes() {
    let node = Node::new();
    let own = "net.d/YYY-istio-cni.conf";
    node.write(own, r#"{"name": "istio-cni", "type": "istio-cni"}"#);
    node.write(
        "net.d/00-only.conflist",
        r#"{"name": "n", "plugins": [{"type": "istio-cni"}]}"#,
    );
    let mut agent = node.start(&[], &[]);
    agent.until("waiting", || agent.log().contains("waiting for a valid"));
    assert!(node.exists(own));
    node.write("net.d/calico.conflist", BRIDGE);
    agent.wait_ready();
    assert_eq!(node.names("net.d"), ["calico.conflist"]);
    assert!(has_plugin(&node, "net.d/calico.conflist"));
}
