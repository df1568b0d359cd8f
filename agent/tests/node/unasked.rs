//! Rules of weir in the namespaces of pods that request no redirection.

use crate::api_server::{ApiServer, pod};
use crate::repair::{IN_PLACE, Sandbox, events, sidecar, start};
use crate::support::{Agent, Node};
use serde_json::{Value, json};
use weir_cni::redirection::RTPROT_WEIR;
use weir_netlink::route::{LOOPBACK_IFINDEX, Routing};

pub(crate) const OFTEN: (&str, &str) = ("WEIR_VERIFY_INTERVAL", "1");

/// A running pod without a proxy, at this address.
pub(crate) fn plain(name: &str, address: &str) -> Value {
    let mut pod = pod("shop", name, &format!("uid-{name}"));
    pod["status"] = json!({"phase": "Running", "podIP": address});
    pod
}

/// Redirects a namespace like that of a pod with a sidecar.
fn redirect(node: &Node, sandbox: &Sandbox) {
    redirect_by(node, sandbox, "nft");
    assert!(sandbox.is_redirected());
}

pub(crate) fn redirect_by(node: &Node, sandbox: &Sandbox, engine: &str) {
    node.write(
        "wrong.json",
        &sidecar("wrong", &sandbox.address).to_string(),
    );
    let manifest = node.path("wrong.json").display().to_string();
    let netns = sandbox.netns().path().display().to_string();
    let arguments = [
        "apply", "sidecar", "--engine", engine, "--pod", &manifest, "--netns", &netns,
    ];
    let done = node.run(&arguments, &[]);
    assert!(done.status.success(), "{done:?}");
}

fn unasked(agent: &Agent) -> Vec<Value> {
    let facts = agent.facts();
    facts["unasked"].as_array().unwrap().clone()
}

#[test]
fn what_is_surely_ours_is_removed() {
    let (Some(wrong), Some(right)) = (Sandbox::of("unasked"), Sandbox::of("asks")) else {
        return;
    };
    let node = Node::new();
    redirect(&node, &wrong);
    wrong.tool("nft", &["add", "table", "inet", "other"]);
    let server = ApiServer::start();
    server.put(plain("unasked", &wrong.address));
    server.put(sidecar("asks", &right.address));
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    agent.until("removed", || {
        agent.metric("weir_unasked_removed_total") == 1
    });
    assert_eq!(wrong.rules(), "table inet other {\n}\n");
    agent.until("told", || events(&server, "RedirectionRemoved").len() == 1);
    let event = &events(&server, "RedirectionRemoved")[0];
    assert_eq!(event.body["involvedObject"]["uid"], "uid-unasked");
    agent.says("pod shop/unasked asks for no redirection");
    agent.until("the other one", || agent.metric("weir_pods_verified") == 1);
    assert!(right.is_redirected());
    assert_eq!(agent.metric("weir_pods_unasked"), 0);
    // The agent removes them again if they return, maybe before anybody sees them.
    redirect_by(&node, &wrong, "nft");
    agent.until("again", || agent.metric("weir_unasked_removed_total") == 2);
}

/// An address with weir's protocol number belongs to weir if the kernel stores that number, even without rules beside it.
#[test]
fn an_address_of_ours_that_stays_alone_is_removed() {
    let (Some(ours), Some(other)) = (Sandbox::of("alone"), Sandbox::of("other")) else {
        return;
    };
    let addresses = |sandbox: &Sandbox| {
        let on_lo = ["-6", "-o", "address", "show", "dev", "lo"];
        sandbox.tool("ip", &on_lo).matches("inet6 ::6/128").count()
    };
    let routing = Routing::open_in(ours.netns()).unwrap();
    let net = "::6/128".parse().unwrap();
    let by = Some(RTPROT_WEIR);
    assert!(routing.add_address_by(LOOPBACK_IFINDEX, net, by).unwrap());
    let there = routing.addresses().unwrap();
    if there.iter().all(|a| a.protocol.is_none()) {
        return println!("skipped: this kernel does not keep who added an address (before 5.18)");
    }
    other.tool("ip", &["-6", "address", "add", "::6/128", "dev", "lo"]);
    let server = ApiServer::start();
    server.put(plain("alone", &ours.address));
    server.put(plain("other", &other.address));
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    agent.until("removed", || {
        agent.metric("weir_unasked_removed_total") == 1
    });
    assert_eq!((addresses(&ours), addresses(&other)), (0, 1));
    assert_eq!(
        agent.metric("weir_pods_unasked"),
        0,
        "{:?}",
        unasked(&agent)
    );
}

/// A namespace that cannot be examined does not count as free of rules.
#[test]
fn a_pod_that_cannot_be_looked_at_is_told() {
    let server = ApiServer::start();
    let pod = plain("nowhere", "192.0.2.9");
    server.put(pod.clone());
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    agent.until("told", || agent.metric("weir_pods_unasked_unseen") == 1);
    let page = || agent.page("/").1;
    agent.until("shown", || {
        let unseen = agent.facts()["unaskedUnseen"].clone();
        let first = unseen["first"].as_str().unwrap_or_default();
        unseen["count"] == 1 && first.starts_with("pod shop/nowhere: ")
    });
    let html = page();
    assert!(
        html.contains("shop/nowhere") && !html.contains("all is well"),
        "{html}"
    );
    server.remove(&pod);
    agent.until("gone", || agent.metric("weir_pods_unasked_unseen") == 0);
    agent.until("well", || page().contains("all is well"));
}

#[test]
fn what_may_be_somebody_elses_is_told_and_stays() {
    let names = ["may-write", "opted-out", "own-init"];
    let sandboxes: Option<Vec<_>> = names.iter().map(|name| Sandbox::of(name)).collect();
    let Some(sandboxes) = sandboxes else { return };
    let [writes, opted_out, init] = &sandboxes[..] else {
        panic!("three names");
    };
    let node = Node::new();
    sandboxes
        .iter()
        .for_each(|sandbox| redirect(&node, sandbox));
    let rules: Vec<String> = sandboxes.iter().map(Sandbox::rules).collect();
    let server = ApiServer::start();
    let mut pod = plain("may-write", &writes.address);
    pod["spec"]["containers"][0]["securityContext"] =
        json!({"capabilities": {"add": ["NET_ADMIN"]}});
    server.put(pod);
    let mut pod = sidecar("opted-out", &opted_out.address);
    pod["metadata"]["labels"]["sidecar.istio.io/inject"] = "false".into();
    server.put(pod);
    let mut pod = plain("own-init", &init.address);
    pod["spec"]["initContainers"] = json!([{"name": "istio-init"}]);
    server.put(pod);
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    agent.until("found", || {
        agent.metric("weir_pods_unasked") == 2 && unasked(&agent).len() == 2
    });
    let told = unasked(&agent);
    let named: Vec<_> = told.iter().map(|found| &found["name"]).collect();
    assert_eq!(named, ["may-write", "opted-out"], "{told:?}");
    let messages: Vec<_> = told
        .iter()
        .map(|f| f["message"].as_str().unwrap())
        .collect();
    assert!(
        messages[0].contains("may write rules itself"),
        "{messages:?}"
    );
    assert!(messages[1].contains("it has a proxy"), "{messages:?}");
    agent.until("told", || events(&server, "RedirectionNotAsked").len() == 2);
    let after: Vec<String> = sandboxes.iter().map(Sandbox::rules).collect();
    assert_eq!(after, rules);
    assert_eq!(agent.metric("weir_unasked_removed_total"), 0);
}

/// Neither a name nor the table in which a rule is proves that weir wrote it.
#[test]
fn what_only_bears_our_names_or_stands_among_ours_stays() {
    let names = ["named", "among", "empty", "legacy", "own-legacy"];
    let sandboxes: Option<Vec<_>> = names.iter().map(|name| Sandbox::of(name)).collect();
    let Some(sandboxes) = sandboxes else { return };
    let [named, among, empty, legacy, own_legacy] = &sandboxes[..] else {
        panic!("five names");
    };
    let node = Node::new();
    let run = |sandbox: &Sandbox, line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        sandbox.tool(words[0], &words[1..])
    };
    for line in [
        "nft add table inet istio-proxy-mangle",
        "nft add chain inet istio-proxy-mangle mine { type filter hook input priority 0; }",
        "nft add rule inet istio-proxy-mangle mine tcp dport 22 counter drop",
    ] {
        run(named, line);
    }
    redirect(&node, among);
    run(
        among,
        "nft add rule inet istio-proxy-nat istio-output tcp dport 7777 counter accept",
    );
    run(empty, "nft add table inet istio-proxy-nat");
    for sandbox in [legacy, own_legacy] {
        redirect_by(&node, sandbox, "xtables");
    }
    run(
        legacy,
        "iptables-legacy -t nat -A ISTIO_OUTPUT -p tcp --dport 7777 -j ACCEPT",
    );
    let all = |sandbox: &Sandbox| sandbox.rules() + &run(sandbox, "iptables-legacy-save -t nat");
    let before: Vec<String> = sandboxes.iter().map(all).collect();
    let server = ApiServer::start();
    for (name, sandbox) in names.iter().zip(&sandboxes) {
        server.put(plain(name, &sandbox.address));
    }
    let agent = start(&node, &server, &[IN_PLACE, OFTEN]);
    agent.until("told", || agent.metric("weir_pods_unasked") == 4);
    agent.until("removed", || {
        agent.metric("weir_unasked_removed_total") == 1
    });
    assert!(!run(own_legacy, "iptables-legacy-save").contains("ISTIO"));
    for (before, sandbox) in before.iter().zip(&sandboxes).take(4) {
        assert_eq!(
            all(sandbox).matches('\n').count(),
            before.matches('\n').count()
        );
        assert!(all(sandbox).contains("istio") || all(sandbox).contains("ISTIO"));
    }
    agent.until("listed", || {
        let told = unasked(&agent);
        let kept = told.iter().filter(|found| found["removed"] == false);
        let said = |found: &&Value| found["message"].as_str().unwrap().contains("another one");
        kept.filter(said).count() == 4
    });
}
