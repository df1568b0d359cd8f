//! Objects that the agent leaves on the node when it ends: at an upgrade everything that lets pods start within the mesh, at an
//! uninstallation nothing.

use crate::ambient::Scene;
use crate::api_server::{Answer, ApiServer, pod};
use crate::support::{Agent, BRIDGE, Node, PATIENCE};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;

const LIST: &str = "net.d/10-pods.conflist";
const KUBECONFIG: &str = "run/istio-cni-kubeconfig";

/// The pod of the agent, which belongs to a DaemonSet.
pub(crate) fn own_pod() -> Value {
    let mut own = pod("istio-system", "istio-cni-node-abcde", "uid-agent");
    own["metadata"]["ownerReferences"] =
        json!([{"kind": "DaemonSet", "name": "istio-cni-node", "uid": "uid-set"}]);
    own["spec"]["serviceAccountName"] = "istio-cni".into();
    own
}

pub(crate) fn daemon_set() -> Value {
    json!({"kind": "DaemonSet", "apiVersion": "apps/v1",
           "metadata": {"namespace": "istio-system", "name": "istio-cni-node", "uid": "uid-set"},
           "spec": {"template": {"spec": {}}}})
}

/// Starts an agent in that pod and waits until it is ready.
fn agent(node: &Node, server: &ApiServer) -> Agent {
    node.write(LIST, BRIDGE);
    let mut env: Vec<(String, String)> = server.env().into();
    env.push(("POD_NAME".into(), "istio-cni-node-abcde".into()));
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    node.ready(&env)
}

fn has_entry(node: &Node) -> bool {
    node.read(LIST).contains("\"type\": \"istio-cni\"")
}

/// A node, and an API server with the pod of the agent and its DaemonSet.
fn deployed() -> (Node, ApiServer) {
    let (node, server) = (Node::new(), ApiServer::start());
    server.put(own_pod());
    server.put(daemon_set());
    (node, server)
}

fn assert_stays(node: &Node, agent: &Agent) {
    assert!(has_entry(node), "{}", agent.log());
    assert!(node.exists(KUBECONFIG) && node.exists("bin/istio-cni"));
}

fn assert_gone(node: &Node, agent: &Agent) {
    assert!(!has_entry(node), "{}", agent.log());
    assert!(!node.exists(KUBECONFIG));
}

#[test]
fn an_upgrade_leaves_a_plugin_that_works_by_itself() {
    let (node, server) = deployed();
    server.put(pod("shop", "web", "uid-web"));
    server.grant("token-of-its-own");
    let mut first = agent(&node, &server);
    let entry = node.read(LIST);
    assert!(first.terminate().success(), "{}", first.log());
    assert_stays(&node, &first);
    assert_eq!(node.read(LIST), entry);
    assert_eq!(node.mode(KUBECONFIG), 0o600);
    let asked = server.asked();
    let request = asked.iter().find(|a| a.path.ends_with("/token")).unwrap();
    assert_eq!(
        request.path,
        "/api/v1/namespaces/istio-system/serviceaccounts/istio-cni/token"
    );
    assert_eq!(request.body["kind"], "TokenRequest");
    assert!(request.body["spec"]["boundObjectRef"].is_null());
    // The token becomes invalid when the pod is deleted.
    server.accept("token-of-its-own");
    let client = weir_cni::api::Client::new(&node.path(KUBECONFIG)).unwrap();
    let web: Value = client.pod("shop", "web", PATIENCE).unwrap();
    assert_eq!(web["metadata"]["uid"], "uid-web");
    // The next agent takes over, and does not write the entry again.
    server.accept("token-1");
    let inode = || std::fs::metadata(node.path(LIST)).unwrap().ino();
    let before = inode();
    let mut env: Vec<(String, String)> = server.env().into();
    env.push(("POD_NAME".into(), "istio-cni-node-abcde".into()));
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let mut second = node.ready(&env);
    assert_eq!(inode(), before);
    assert!(node.read(KUBECONFIG).contains("token: token-1"));
    // After the DaemonSet is deleted, the agent removes everything.
    server.remove(&daemon_set());
    assert!(second.terminate().success(), "{}", second.log());
    assert_gone(&node, &second);
}

/// Starts an agent that waits for a configuration file that does not exist.
fn waiting(node: &Node, server: &ApiServer) -> Agent {
    let mut env: Vec<(String, String)> = server.env().into();
    env.push(("POD_NAME".into(), "istio-cni-node-abcde".into()));
    env.push(("CNI_CONF_NAME".into(), "05-later.conflist".into()));
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let agent = node.start(&env, &[]);
    agent.until("waiting", || agent.log().contains("waiting for"));
    agent
}

/// The waiting agent has written the kubeconfig with a token of its own pod, although the entry that calls the plugin is from the previous
/// agent.
#[test]
fn an_agent_that_only_waited_hands_the_kubeconfig_over_too() {
    let (node, server) = deployed();
    server.grant("token-of-its-own");
    let mut first = agent(&node, &server);
    assert!(first.terminate().success(), "{}", first.log());
    let mut second = waiting(&node, &server);
    assert!(node.read(KUBECONFIG).contains("token: token-1"));
    assert!(second.terminate().success(), "{}", second.log());
    assert_stays(&node, &second);
    assert!(node.read(KUBECONFIG).contains("token: token-of-its-own"));
}

#[test]
fn without_the_right_to_a_token_the_entry_stays_and_the_log_says_what_is_missing() {
    let (node, server) = deployed();
    server.fault(|asked| {
        asked
            .path
            .ends_with("/token")
            .then_some(Answer::Status(403))
    });
    let mut agent = agent(&node, &server);
    assert!(agent.terminate().success(), "{}", agent.log());
    assert_stays(&node, &agent);
    assert!(node.read(KUBECONFIG).contains("token: token-1"));
    let log = agent.log();
    assert!(log.contains("serviceaccounts/token"), "{log}");
}

/// Whether another agent follows is unknown here, and the installation stays.
#[test]
fn a_token_is_requested_also_where_the_daemon_set_cannot_be_asked_for() {
    for is_known in [true, false] {
        let (node, server) = deployed();
        server.grant("token-of-its-own");
        let refuse = |path: &'static str| {
            server.fault(move |asked| asked.path.contains(path).then_some(Answer::Status(403)));
        };
        if !is_known {
            refuse("-abcde");
        }
        let mut agent = agent(&node, &server);
        if is_known {
            agent.says("belongs to DaemonSet");
            refuse("daemonsets");
        }
        assert!(agent.terminate().success(), "{}", agent.log());
        assert_stays(&node, &agent);
        let token = if is_known {
            "token-of-its-own"
        } else {
            "token-1"
        };
        assert!(node.read(KUBECONFIG).contains(&format!("token: {token}\n")));
        let log = agent.log();
        assert!(
            log.contains("it is unknown whether another agent follows"),
            "{log}"
        );
        let says = "none was requested, because the service account of the next agent is not known";
        assert_eq!(log.contains(says), !is_known, "{log}");
    }
}

#[test]
fn a_right_is_missing_only_where_the_server_says_so() {
    let mut selecting = daemon_set();
    selecting["spec"]["template"]["spec"]["nodeSelector"] = json!({"mesh": "on"});
    for (set, path, status, says) in [
        (daemon_set(), "/token", 503, None),
        (daemon_set(), "/daemonsets/", 503, None),
        (
            daemon_set(),
            "/daemonsets/",
            403,
            Some("needs get on daemonsets in apps"),
        ),
        (selecting, "/nodes/", 403, Some("needs get on nodes")),
    ] {
        let (node, server) = (Node::new(), ApiServer::start());
        server.put(own_pod());
        server.put(set);
        server.fault(move |asked| asked.path.contains(path).then_some(Answer::Status(status)));
        let mut agent = agent(&node, &server);
        assert!(agent.terminate().success(), "{}", agent.log());
        assert_stays(&node, &agent);
        let log = agent.log();
        match says {
            Some(says) => assert!(log.contains(says), "{says}: {log}"),
            None => assert!(!log.contains("service account needs"), "{log}"),
        }
    }
}

#[test]
fn what_ends_the_mesh_on_this_node_removes_the_installation() {
    let mut deleting = daemon_set();
    deleting["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z".into();
    let mut elsewhere = daemon_set();
    elsewhere["spec"]["template"]["spec"]["nodeSelector"] = json!({"mesh": "on"});
    let mut by_hand = own_pod();
    by_hand["metadata"]["ownerReferences"] = json!([{"kind": "Job", "name": "x", "uid": "y"}]);
    let node1 = json!({"kind": "Node", "metadata": {"name": "node1", "labels": {"mesh": "off"}}});
    for (what, own, set, says) in [
        (
            "deleting",
            Some(own_pod()),
            Some(deleting),
            "is being deleted",
        ),
        ("deleted", Some(own_pod()), None, "is gone"),
        (
            "elsewhere",
            Some(own_pod()),
            Some(elsewhere),
            "no longer selects node",
        ),
        (
            "no owner",
            Some(by_hand),
            Some(daemon_set()),
            "belongs to no DaemonSet",
        ),
        (
            "no pod",
            None,
            Some(daemon_set()),
            "which POD_NAME names, does not exist",
        ),
    ] {
        let (node, server) = (Node::new(), ApiServer::start());
        server.put(node1.clone());
        own.into_iter()
            .chain(set)
            .for_each(|object| server.put(object));
        let mut agent = agent(&node, &server);
        assert!(agent.terminate().success(), "{what}: {}", agent.log());
        assert_gone(&node, &agent);
        assert!(agent.log().contains(says), "{what}: {}", agent.log());
    }
}

/// Without a pod name the agent looks for the DaemonSet of Istio's chart, in ambient mode only: upstream's agent does not look for it
/// otherwise.
#[test]
fn the_daemon_set_of_the_chart_is_asked_for_where_no_pod_says_which_it_is() {
    for (what, pod_name, ambient, set, stays) in [
        ("there", "", "true", true, true),
        ("gone", "", "true", false, false),
        ("no ambient mode", "", "false", true, false),
        ("no such pod", "istio-cni-node-xyz", "true", true, true),
    ] {
        let scene = Scene::new();
        if set {
            scene.server.put(daemon_set());
        }
        scene.server.grant("token-of-its-own");
        let mut agent = scene.start(&[("POD_NAME", pod_name), ("AMBIENT_ENABLED", ambient)]);
        agent.until("installed", || {
            agent.log().contains("the plugin is installed and in force")
        });
        assert!(agent.terminate().success(), "{what}: {}", agent.log());
        match stays {
            true => assert_stays(&scene.node, &agent),
            false => assert_gone(&scene.node, &agent),
        }
        let asked = scene.server.asked();
        let path = "serviceaccounts/istio-cni/token";
        let token = asked.iter().any(|a| a.path.ends_with(path));
        assert_eq!(token, stays, "{what}");
    }
}

/// With `kubectl delete pod --force`, and when pods are garbage-collected, the object is deleted before the signal is sent.
///
/// The server accepts the token for a few seconds more. Its rejection afterwards does not show that the service account is deleted.
#[test]
fn a_pod_whose_object_went_first_leaves_the_installation_to_the_next_pod() {
    for (what, refused) in [("token still good", false), ("token refused", true)] {
        let (node, server) = deployed();
        let mut agent = agent(&node, &server);
        let knows = || agent.log().contains("belongs to DaemonSet");
        agent.until("the owner", knows);
        let watched = || agent.metric("weir_pods_watched");
        agent.until("the pod", || watched() == 1);
        server.remove(&own_pod());
        agent.until("its end", || watched() == 0);
        if refused {
            server.accept("of the next pod");
        }
        assert!(agent.terminate().success(), "{what}: {}", agent.log());
        assert_stays(&node, &agent);
    }
}

/// The cached state of the pod does not hide that its DaemonSet is deleted.
#[test]
fn a_pod_and_a_daemon_set_that_are_both_gone_are_an_uninstallation() {
    let (node, server) = deployed();
    let mut agent = agent(&node, &server);
    let knows = || agent.log().contains("belongs to DaemonSet");
    agent.until("the owner", knows);
    server.remove(&own_pod());
    server.remove(&daemon_set());
    assert!(agent.terminate().success(), "{}", agent.log());
    assert_gone(&node, &agent);
}

/// An answer about another object, or one that cannot be read, does not say that the installation is to be removed.
#[test]
fn an_answer_that_is_not_the_api_servers_removes_nothing() {
    let mut named = daemon_set();
    named["metadata"]["name"] = "another".into();
    named["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z".into();
    let mut of_kind = named.clone();
    of_kind["kind"] = "Deployment".into();
    of_kind["metadata"]["name"] = "istio-cni-node".into();
    for (code, body) in [
        (200, named.to_string()),
        (200, of_kind.to_string()),
        (200, "{".to_owned()),
    ] {
        let (node, server) = deployed();
        let mut agent = agent(&node, &server);
        let answer = body.clone();
        server.fault(move |asked| {
            let asks = asked.path.contains("daemonsets");
            asks.then(|| Answer::Body(code, answer.clone()))
        });
        assert!(agent.terminate().success(), "{body}: {}", agent.log());
        assert_stays(&node, &agent);
    }
}

/// `SKIP_TLS_VERIFY` concerns the plugin.
#[test]
fn a_server_of_another_authority_removes_nothing() {
    let (node, server) = deployed();
    node.write("account/ca.crt", &server.encrypt());
    node.write(LIST, BRIDGE);
    let mut env: Vec<(String, String)> = server.env().into();
    env.push(("POD_NAME".into(), "istio-cni-node-abcde".into()));
    env.push(("SKIP_TLS_VERIFY".into(), "true".into()));
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let mut agent = node.ready(&env);
    assert!(
        node.read(KUBECONFIG)
            .contains("insecure-skip-tls-verify: true")
    );
    agent.until("the owner", || agent.log().contains("belongs to DaemonSet"));
    server.remove(&own_pod());
    server.remove(&daemon_set());
    server.encrypt();
    let before = server.asked().len();
    assert!(agent.terminate().success(), "{}", agent.log());
    assert_stays(&node, &agent);
    let of_owner = |path: &str| path.contains("daemonsets") || path.ends_with("-abcde");
    let asked = server.asked();
    let shown = asked.iter().skip(before).filter(|a| of_owner(&a.path));
    assert_eq!(shown.count(), 0);
}

#[test]
fn an_answer_that_cannot_be_had_removes_nothing() {
    let faults: [(&str, Option<Answer>); 4] = [
        ("refused", Some(Answer::Status(403))),
        ("broken", Some(Answer::Status(500))),
        (
            "no API server",
            Some(Answer::Raw(b"hello\r\n\r\n".to_vec())),
        ),
        ("dead", None),
    ];
    let one = |(what, fault): (&str, Option<Answer>)| {
        let (node, mut server) = (Node::new(), ApiServer::start());
        server.put(own_pod());
        let mut agent = agent(&node, &server);
        match fault {
            Some(fault) => server.fault(move |asked| {
                let asks = asked.path.contains("daemonsets");
                asks.then(|| fault.clone())
            }),
            None => server.stop(),
        }
        assert!(agent.terminate().success(), "{what}: {}", agent.log());
        assert_stays(&node, &agent);
        assert!(
            agent
                .log()
                .contains("it is unknown whether another agent follows"),
            "{what}: {}",
            agent.log()
        );
    };
    std::thread::scope(|scope| {
        for case in faults {
            scope.spawn(move || one(case));
        }
    });
}

#[test]
fn a_service_account_that_is_gone_is_an_uninstallation() {
    let (node, server) = deployed();
    let mut agent = agent(&node, &server);
    server.accept("of another account");
    assert!(agent.terminate().success(), "{}", agent.log());
    assert_gone(&node, &agent);
}

/// An agent that ends right after its start may have no record of what the previous one left.
#[test]
fn what_the_agent_before_left_goes_as_well() {
    let (node, server) = deployed();
    let mut first = agent(&node, &server);
    assert!(first.terminate().success());
    assert_stays(&node, &first);
    server.remove(&daemon_set());
    // The agent waits for the configured file and writes none.
    let mut second = waiting(&node, &server);
    assert!(second.terminate().success());
    assert_gone(&node, &second);
}

/// The same with the DaemonSet of the chart.
#[test]
fn what_the_agent_before_left_goes_in_ambient_mode_without_a_name_of_the_pod() {
    let scene = Scene::new();
    let entry = BRIDGE.replace("\"portmap\"", "\"istio-cni\"");
    scene.node.write("net.d/20-old.conflist", &entry);
    let mut agent = scene.start(&[("CNI_CONF_NAME", "05-later.conflist")]);
    agent.until("waiting", || agent.log().contains("waiting for"));
    assert!(agent.terminate().success(), "{}", agent.log());
    assert!(
        !scene
            .node
            .read("net.d/20-old.conflist")
            .contains("istio-cni")
    );
    assert!(!scene.node.exists(KUBECONFIG));
}

#[test]
fn a_crash_removes_nothing() {
    let (node, server) = (Node::new(), ApiServer::start());
    for signal in [Signal::SIGKILL, Signal::SIGABRT] {
        let mut agent = agent(&node, &server);
        agent.signal(signal);
        assert!(!agent.ended().success());
        assert_stays(&node, &agent);
    }
}

/// Users of Istio's chart apply one of the files, all other users the other one.
#[test]
fn both_manifests_grant_the_same() {
    let rights = include_str!("../../deploy/upgrade-rbac.yaml");
    let manifest = include_str!("../../deploy/weir.yaml");
    let (_, rights) = rights.split_once("#\n# A signal").unwrap();
    assert!(rights.contains("daemonsets") && rights.contains("serviceaccounts/token"));
    assert!(manifest.contains(rights), "{rights}");
}
