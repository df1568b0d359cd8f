//! Pods of ambient mode that the plugin hands over.

use crate::ambient::{
    ANNOTATION, MODE, Scene, event, hand_over, id, is_captured, post, post_to, running, states,
    until_it_listens, why as why_of,
};
use crate::ambient_node::{NODE, address, set, with_ztunnel};
use crate::api_server::namespace;
use crate::groups::Group;
use crate::repair::Sandbox;
use crate::servers::ask_as;
use crate::support::exchange;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_netlink::Netns;
use weir_testing::TempDir;

// matrix: every; variants no-xtables no-ipset no-ipv6
#[test]
fn a_pod_that_the_plugin_hands_over_is_captured_before_the_answer() {
    let Some(sandbox) = Sandbox::of("new") else {
        return;
    };
    let scene = Scene::new();
    let agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    ztunnel.snapshots(1);
    // The API server does not have the pod's address yet.
    let mut starting = running("new", &sandbox.address);
    starting["status"] = json!({"phase": "Pending"});
    scene.server.put(starting);
    // On a busy machine the agent may refuse a pod that takes too long.
    let handed_over = |sandbox: &Sandbox| {
        agent.until("handed over", || {
            hand_over(&scene.node, "new", sandbox) == (200, String::new())
        });
    };
    handed_over(&sandbox);
    assert!(is_captured(&sandbox));
    assert_eq!(ztunnel.pods()["uid-new"].netns, id(&sandbox));
    assert!(scene.probed().contains(&sandbox.address));
    agent.until("annotated", || scene.annotation("new") == "enabled");
    // The same sandbox again, and another one with the same UID, as after a reboot.
    handed_over(&sandbox);
    let Some(other) = Sandbox::within(Group::of_pod("uid-new-2").unwrap()) else {
        return;
    };
    let mut moved = running("new", &other.address);
    moved["metadata"]["annotations"][ANNOTATION] = "enabled".into();
    scene.server.put(moved);
    handed_over(&other);
    assert!(is_captured(&other));
    ztunnel.carries("uid-new", Some(id(&other)));
    assert_eq!(
        agent.metric("istio_cni_plugin_requests_total{response_code=\"200\"}"),
        3
    );
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

#[test]
fn what_the_plugin_may_not_hand_over() {
    let (Some(sandbox), Some(healthy)) = (Sandbox::of("odd"), Sandbox::of("healthy")) else {
        return;
    };
    let scene = Scene::new();
    scene.put("healthy", &healthy);
    let mut out = running("odd", &sandbox.address);
    out["metadata"]["labels"][MODE] = "none".into();
    scene.server.put(out);
    let agent = scene.start(&[]);
    agent.until("ready", || agent.is_ready());
    let refused = |answer: (u16, String), code: u16, part: &str| {
        assert!(answer.0 == code && answer.1.contains(part), "{answer:?}");
    };
    refused(
        hand_over(&scene.node, "odd", &sandbox),
        500,
        "not a pod of ambient mode",
    );
    refused(
        hand_over(&scene.node, "nobody", &sandbox),
        500,
        "no such pod",
    );
    refused(post(&scene.node, "{"), 400, "cannot be read");
    refused(post(&scene.node, "[]"), 400, "cannot be read");
    let ask = |head: &str| {
        let stream = UnixStream::connect(scene.node.path("run/pluginevent.sock")).unwrap();
        let text = format!("{head} HTTP/1.1\r\nHost: unix\r\nContent-Length: 1\r\n\r\n{{");
        exchange(stream, &text).expect("an answer")
    };
    refused(ask("POST /cmdadd?a=/b"), 400, "cannot be read");
    refused(ask("PUT /cmdadd"), 400, "cannot be read");
    refused(ask("GET /cmdadd?a"), 400, "cannot be read");
    refused(ask("POST /cmdadd/"), 404, "post a pod");
    refused(
        post_to(&scene.node, "/cmdcheck", "{"),
        400,
        "cannot be read",
    );
    let malformed = "istio_cni_plugin_requests_total{response_code=\"400\"}";
    assert_eq!(agent.metric(malformed), 5, "a question hands nothing over");
    // The plugin has already excluded the namespace, unless its configuration differs from the agent's: the pod starts, and the log has the
    // reason.
    let mut excluded = running("excluded", "10.99.0.9");
    excluded["metadata"]["namespace"] = "kube-system".into();
    excluded["metadata"]["uid"] = "uid-excluded".into();
    scene.server.put(namespace("kube-system"));
    scene.server.put(excluded);
    let body = json!({"Netns": sandbox.netns().path(), "PodName": "excluded", "PodNamespace": "kube-system",
        "IPs": null});
    let why = "its namespace is excluded (EXCLUDE_NAMESPACES)";
    agent.until("taken", || {
        post(&scene.node, &body.to_string()) == (200, String::new())
    });
    agent.until("told", || {
        let log = agent.log();
        log.lines()
            .any(|line| line.contains("kube-system/excluded") && line.contains(why))
    });
    scene.put("odd", &sandbox);
    // Without a proxy the pod is captured, but does not start.
    agent.until("its new label is seen", || {
        let (_, why) = hand_over(&scene.node, "odd", &sandbox);
        why.contains("no ztunnel is connected")
    });
    let dir = TempDir::new();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (fifo, file, host, of_users) = (path("fifo"), path("file"), path("host"), path("users"));
    nix::unistd::mkfifo(fifo.as_str(), nix::sys::stat::Mode::S_IRUSR).unwrap();
    std::fs::write(&file, "").unwrap();
    // The agent's own namespaces stand for those of the node here.
    std::os::unix::fs::symlink("/proc/self/ns/net", &host).unwrap();
    std::os::unix::fs::symlink("/proc/self/ns/user", &of_users).unwrap();
    for (netns, part) in [
        ("/proc/self/ns/net", "the traffic of the whole node"),
        (&host, "the traffic of the whole node"),
        ("/nowhere", "not seen"),
        ("nowhere", "it is not an absolute path"),
        (&fifo, "it is not a namespace"),
        (&file, "it is not a namespace"),
        (&format!("{file}/below"), "not seen"),
        (&dir.path().display().to_string(), "it is not a namespace"),
        (&of_users, "it is a namespace of kind user"),
    ] {
        agent.until(netns, || {
            let (status, text) = post(&scene.node, &event("odd", netns, &Value::Null));
            assert_eq!(status, 500, "{netns}: {text}");
            text.contains(netns) && text.contains(part)
        });
        agent.until("shown", || {
            let shown = why_of(&agent, "odd");
            shown.contains(netns) && shown.contains(part)
        });
    }
    agent.until("ready", || agent.is_ready());
    // Another pod loses nothing by all that.
    assert!(is_captured(&healthy), "{}", agent.log());
    let ztunnel = scene.ztunnel();
    agent.until("handed over", || {
        hand_over(&scene.node, "healthy", &healthy) == (200, String::new())
    });
    ztunnel.carries("uid-healthy", Some(id(&healthy)));
    agent.until("enrolled", || {
        scene.annotation("healthy") == "enabled" && why_of(&agent, "healthy") == "null"
    });
}

/// A previous plugin may report no addresses, while the API server has those of the previous sandbox until the kubelet updates the status.
#[test]
fn a_sandbox_without_addresses_is_not_refused_for_those_of_the_one_before() {
    let Some(sandbox) = Sandbox::of("again") else {
        return;
    };
    let scene = Scene::new();
    scene.server.put(running("again", "10.255.255.1"));
    let agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    until_it_listens(&agent, &scene.node);
    agent.until("it is known", || !why_of(&agent, "again").is_empty());
    let body = event("again", sandbox.netns().path(), &Value::Null);
    agent.until("handed over", || post(&scene.node, &body).0 == 200);
    ztunnel.carries("uid-again", Some(id(&sandbox)));
    assert!(is_captured(&sandbox));
    scene.put("again", &sandbox);
    agent.until("probes", || scene.probed().contains("uid-again"));
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
}

/// Multus calls the plugin for each network of a pod, without addresses or with those of that network.
#[test]
fn another_attachment_takes_no_addresses_away() {
    let Some((sandbox, scene)) = Scene::of("multi") else {
        return;
    };
    let agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    ztunnel.snapshots(1);
    agent.until("handed over", || {
        hand_over(&scene.node, "multi", &sandbox).0 == 200
    });
    assert!(scene.probed().contains(&sandbox.address));
    let net1 = json!([{"Address": {"IP": "10.99.99.5", "Mask": "/////w=="}}]);
    for ips in [json!(null), net1] {
        let body = event("multi", sandbox.netns().path(), &ips);
        agent.until("handed over again", || {
            post(&scene.node, &body) == (200, String::new())
        });
        let probed = scene.probed();
        assert!(probed.contains(&sandbox.address), "{probed}");
        assert!(!probed.contains("10.99.99.5"), "{probed}");
        assert!(is_captured(&sandbox));
    }
}

/// If the addresses of a pod that is captured by address were lost, it would send in plain text.
#[test]
fn another_attachment_of_a_pod_that_is_captured_at_the_node() {
    let pods = with_ztunnel(("attached", 41), ("attached-proxy", 42));
    let Some((scene, web, _proxy, listener)) = pods else {
        return;
    };
    set(&scene.host, "ipv4/conf/all/rp_filter", "1");
    scene.server.put(web.object("shop", "attached"));
    let agent = scene.start(&NODE);
    agent.until("enrolled", || scene.annotation("attached") == "enabled");
    let of = |address: String| json!([{"Address": {"IP": address}}]);
    let own = of(address(41, 10).to_string());
    for ips in [own, json!(null), of("10.99.99.5".to_owned())] {
        let body = event("attached", web.sandbox.netns().path(), &ips);
        agent.until("handed over", || {
            post(&scene.node, &body) == (200, String::new())
        });
        assert!(listener.gets(&web), "{ips}: {}", agent.log());
    }
}

/// A CNI result also lists addresses of the host's end of a link.
#[test]
fn addresses_that_are_not_in_the_namespace_that_the_plugin_names_are_left_out() {
    let Some(sandbox) = Sandbox::of("ends") else {
        return;
    };
    let scene = Scene::new();
    let mut starting = running("ends", &sandbox.address);
    starting["status"] = json!({"phase": "Pending"});
    scene.server.put(starting);
    let agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    ztunnel.snapshots(1);
    let of = |ips: &[&str]| {
        let ips: Vec<_> = ips
            .iter()
            .map(|ip| json!({"Address": {"IP": ip}}))
            .collect();
        let body = event("ends", sandbox.netns().path(), &ips.into());
        post(&scene.node, &body)
    };
    until_it_listens(&agent, &scene.node);
    // None of the addresses is in the namespace: it belongs to another pod, or the addresses are added later.
    agent.until("refused", || {
        let (status, why) = of(&["10.99.99.1"]);
        let words = ["is not taken: ", "does not have the addresses 10.99.99.1"];
        status == 500 && words.iter().all(|word| why.contains(word))
    });
    let all = [&sandbox.address, "10.99.99.1", "127.0.0.1", "169.254.1.1"];
    agent.until("handed over", || of(&all) == (200, String::new()));
    let probed = scene.probed();
    assert!(probed.contains(&sandbox.address), "{probed}");
    for absent in ["10.99.99.1", "127.0.0.1", "169.254.1.1"] {
        assert!(!probed.contains(absent), "{absent}: {probed}");
    }
    agent.says("10.99.99.1, 169.254.1.1");
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
}

#[test]
fn the_plugin_is_told_at_check_whether_a_pod_is_enrolled() {
    let Some((sandbox, scene)) = Scene::of("checked") else {
        return;
    };
    let agent = scene.start(&[]);
    let check = || {
        let body = event("checked", sandbox.netns().path(), &Value::Null);
        post_to(&scene.node, "/cmdcheck", &body)
    };
    until_it_listens(&agent, &scene.node);
    agent.until("pending", || {
        let (status, why) = check();
        status == 500 && why.contains("no ztunnel is connected")
    });
    let _ztunnel = scene.ztunnel();
    agent.until("enrolled", || check() == (200, String::new()));
    // A foreign rule takes packets first, as in a pod with a sidecar.
    let chain = "{ type filter hook output priority -310 ; }";
    sandbox.tool("nft", &["add", "table", "inet", "t"]);
    sandbox.tool("nft", &["add", "chain", "inet", "t", "c", chain]);
    sandbox.tool("nft", &["add", "rule", "inet", "t", "c", "notrack"]);
    agent.until("in conflict", || {
        let (status, why) = check();
        status == 500 && why.contains("it is in conflict") && why.contains("notrack")
    });
    sandbox.tool("nft", &["delete", "table", "inet", "t"]);
    agent.until("enrolled again", || check() == (200, String::new()));
    let mut out = running("checked", &sandbox.address);
    out["metadata"]["labels"][MODE] = "none".into();
    scene.server.put(out);
    agent.until("left", || check().1.contains("not a pod of ambient mode"));
    // Of a pod that is not known nothing can be said.
    let nobody = event("nobody", sandbox.netns().path(), &Value::Null);
    let (status, why) = post_to(&scene.node, "/cmdcheck", &nobody);
    assert!(
        status == 503 && why.contains("no such pod"),
        "{status} {why}"
    );
    let mut going = running("checked", &sandbox.address);
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    scene.server.put(going);
    agent.until("going", || check().0 == 503);
    // A check hands no pod over.
    assert_eq!(
        agent.metric("istio_cni_plugin_requests_total{response_code=\"200\"}"),
        0
    );
}

/// A namespace that is mounted where a runtime mounts it, until this value is dropped.
struct Mounted(TempDir);

impl Mounted {
    /// Returns `None` if mounting is not permitted.
    fn of(netns: &Netns) -> Option<Self> {
        let mounted = Self(TempDir::new());
        std::fs::write(mounted.path(), "").unwrap();
        let mut mount = Command::new("mount");
        let mount = mount.arg("--bind").args([netns.path(), mounted.path()]);
        mount.status().ok()?.success().then_some(mounted)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("netns")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        _ = Command::new("umount").arg(self.path()).status();
    }
}

#[test]
fn check_for_another_namespace_than_that_of_the_pod_fails() {
    let (Some(sandbox), Some(other)) = (Sandbox::of("elsewhere"), weir_testing::namespace()) else {
        return;
    };
    let (Some(own), Some(other)) = (Mounted::of(sandbox.netns()), Mounted::of(&other)) else {
        return println!("skip: nothing can be mounted");
    };
    let scene = Scene::new();
    scene.put("elsewhere", &sandbox);
    let (agent, _ztunnel) = scene.enrolled(1, &[]);
    let check = |netns: &Path| {
        let body =
            json!({"Netns": netns, "PodName": "elsewhere", "PodNamespace": "shop", "IPs": null});
        post_to(&scene.node, "/cmdcheck", &body.to_string())
    };
    agent.until("its own", || check(&own.path()) == (200, String::new()));
    let (status, why) = check(&other.path());
    assert!(status == 500 && why.contains("is another one"), "{why}");
    // A path that the agent cannot see cannot be checked.
    assert_eq!(check(Path::new("/nowhere")).0, 200);
}

/// `install-cni` uses the same mode for the socket. A user who may name the namespace of a pod could have any namespace captured.
// matrix: host: needs perl, and a guest has only the programs of this project
#[test]
fn a_user_who_is_not_root_hands_no_pod_over() {
    use std::os::unix::fs::PermissionsExt;
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    let scene = Scene::new();
    let agent = scene.start(&[]);
    let socket = scene.node.path("run/pluginevent.sock");
    until_it_listens(&agent, &scene.node);
    assert_eq!(scene.node.mode("run/pluginevent.sock"), 0o666);
    for dir in [scene.node.root.clone(), scene.node.path("run")] {
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let request = "POST /cmdadd HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
    let Some(answer) = ask_as("0", &socket, request) else {
        return;
    };
    assert_ne!(answer, "403\n");
    assert_eq!(ask_as("65534", &socket, request).unwrap(), "403\n");
    agent.until("told", || {
        let log = agent.log();
        log.contains("a user who is not root hands pods over")
    });
}

/// A node may have a thousand finished pods of a job.
#[test]
fn the_namespace_of_a_pod_that_has_ended_is_let_go() {
    let Some((sandbox, scene)) = Scene::of("job") else {
        return;
    };
    let (agent, ztunnel) = scene.enrolled(1, &[]);
    let (_, inode) = id(&sandbox);
    let held = || {
        let all = std::fs::read_dir(format!("/proc/{}/fd", agent.pid())).unwrap();
        let inodes = all
            .flatten()
            .filter_map(|fd| std::fs::metadata(fd.path()).ok());
        inodes.filter(|of| of.ino() == inode).count()
    };
    assert!(held() > 0);
    let mut ended = running("job", &sandbox.address);
    ended["status"] = json!({"phase": "Succeeded"});
    scene.server.put(ended);
    ztunnel.carries("uid-job", None);
    agent.until("let go", || held() == 0);
}
