//! The real plugin after a primary plugin, in a real namespace, called as a
//! container runtime calls it. `nft` and `nsenter` are oracles here.
// matrix: smoke; variants no-xtables no-tproxy no-ipset 6.12-rt

use weir_testing::{lacks, sockets};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::api_server::ApiServer;
use crate::common::call::FakeProcess;
use crate::common::{TempDir, pods};
use serde_json::{Value, json};
use weir_cni::log::Logger;
use weir_cni::plugin::{KernelBackend, Limits, Plugin};
use weir_netlink::Netns;
use weir_netlink::route::{
    AddressFamily, LOOPBACK_IFINDEX, Route, RouteProtocol, RouteScope, RouteType, Routing,
};
use weir_runner::{Attachment, Error, NetworkList, Runner};

/// A node with one network, and a pod's namespace.
struct Bench {
    dir: TempDir,
    netns: Netns,
    /// The namespace of the other end of the pod's link.
    _peer: Netns,
    list: NetworkList,
    _server: ApiServer,
}

/// `None`, with the reason printed, where this user may not create a namespace.
fn bench(pod: Value) -> Option<Bench> {
    let netns = weir_testing::namespace()?;
    let peer = Netns::create().unwrap();
    give_addresses(&netns, &peer);
    let dir = TempDir::new();
    let server = ApiServer::with_pod(pod, Value::Null);
    server.write_kubeconfig(&dir);
    let result = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/ns"}],
        "ips": [{"address": "10.244.0.5/24", "gateway": "10.244.0.1", "interface": 0}],
        "routes": [{"dst": "0.0.0.0/0"}],
        "example.org/extra": [1, 2]
    });
    let versions = json!({"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]});
    let script = format!(
        "cat > /dev/null\ncase $CNI_COMMAND in\nADD) echo '{result}' ;;\nVERSION) echo '{versions}' ;;\nesac"
    );
    dir.script("primary", &script);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir-cni"), dir.file("weir-cni")).unwrap();
    let conflist = json!({
        "cniVersion": "1.1.0",
        "name": "k8s-pod-network",
        "plugins": [
            {"type": "primary"},
            {"type": "weir-cni", "cni_agent_run_dir": dir.path(), "native_nftables": true,
             "pod_namespace": "istio-system", "exclude_namespaces": ["kube-system"]}
        ]
    });
    let list = NetworkList::load(&dir.write("10-net.conflist", &conflist.to_string())).unwrap();
    Some(Bench {
        dir,
        netns,
        _peer: peer,
        list,
        _server: server,
    })
}

/// Does the work of a primary plugin: `lo` up, a link with an address and a route.
fn give_addresses(netns: &Netns, peer: &Netns) {
    let routing = Routing::open_in(netns).unwrap();
    routing.set_up(routing.link("lo").unwrap().index).unwrap();
    routing.add_veth("eth0", "peer", peer).unwrap();
    let eth0 = routing.link("eth0").unwrap().index;
    routing
        .add_address(eth0, "10.244.0.5/24".parse().unwrap())
        .unwrap();
    routing.set_up(eth0).unwrap();
}

impl Bench {
    fn runner(&self) -> Runner {
        Runner::new(vec![self.dir.path().to_owned()], self.dir.file("cache"))
    }

    /// ADD by a runtime without a record of an earlier ADD, as after the loss of its cache.
    fn add_again(&self) {
        let dir = self.dir.file("no-memory");
        let runner = Runner::new(vec![self.dir.path().to_owned()], &dir);
        runner.add(&self.list, &self.attachment()).unwrap();
        std::fs::remove_dir_all(dir).unwrap();
    }

    fn attachment(&self) -> Attachment {
        Attachment {
            container_id: "c1".into(),
            netns: self.netns.path().display().to_string(),
            ifname: "eth0".into(),
            args: Attachment::pod_args("shop", "web-0", "c1"),
            ..Attachment::default()
        }
    }

    /// `nsenter --net=NETNS nft ARGS`
    fn nft(&self, arguments: &str) -> String {
        weir_testing::tool::output(&self.netns, &format!("nft {arguments}"))
    }

    /// A connection from the pod to another address ends at this port of the pod.
    fn is_captured_to(&self, port: u16) -> bool {
        let captured = self.netns.run(|| {
            let bind = || TcpListener::bind(("127.0.0.1", port));
            let listener = sockets::bound(bind).unwrap();
            // No host has this address: without the redirection this cannot succeed.
            let away = "10.244.0.99:80".parse().unwrap();
            let connected = TcpStream::connect_timeout(&away, Duration::from_secs(2));
            // The listener has the connection after the last segment of the handshake, which on a busy machine may be later.
            let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            connected.is_ok() && poll(&mut fds, PollTimeout::from(30_000_u16)).unwrap() == 1
        });
        captured.unwrap()
    }
}

#[test]
fn a_sidecar_pod_from_add_to_del() {
    let Some(bench) = bench(pods::sidecar("shop", "web-0")) else {
        return;
    };
    let (runner, attachment) = (bench.runner(), bench.attachment());
    runner.validate(&bench.list).unwrap();
    runner.status(&bench.list).unwrap();
    assert!(!bench.is_captured_to(15001));

    let result = runner.add(&bench.list, &attachment).unwrap();
    assert_eq!(result["ips"][0]["address"], "10.244.0.5/24");
    assert_eq!(
        result["example.org/extra"],
        json!([1, 2]),
        "unknown fields are handed on"
    );
    assert!(bench.nft("list ruleset").contains("redirect to :15001"));
    assert!(bench.is_captured_to(15001));
    let listing = bench.nft("list ruleset");
    runner.check(&bench.list, &attachment).unwrap();

    // The second ADD changes nothing, not even the counters.
    bench.add_again();
    assert_eq!(bench.nft("list ruleset"), listing);

    runner.del(&bench.list, &attachment).unwrap();
    runner.del(&bench.list, &attachment).unwrap();
    runner.gc(&bench.list, &[]).unwrap();
    let gone = Attachment {
        netns: "/run/netns/gone".into(),
        ..bench.attachment()
    };
    runner.del(&bench.list, &gone).unwrap();
    runner
        .del(
            &bench.list,
            &Attachment {
                netns: String::new(),
                ..gone
            },
        )
        .unwrap();
}

#[test]
fn check_finds_what_somebody_removed_and_add_heals_it() {
    let Some(bench) = bench(pods::sidecar("shop", "web-0")) else {
        return;
    };
    let (runner, attachment) = (bench.runner(), bench.attachment());
    runner.add(&bench.list, &attachment).unwrap();
    let listing = bench.nft("list ruleset");
    let table = "inet istio-proxy-nat";
    assert!(listing.contains(&format!("table {table}")), "{listing}");
    for damage in [
        format!("flush table {table}"),
        format!("delete table {table}"),
    ] {
        bench.nft(&damage);
        let error = runner.check(&bench.list, &attachment).unwrap_err();
        assert_eq!(error.code(), Some(100), "{error}");
        let Error::Plugin { error, .. } = &error else {
            panic!("{error}")
        };
        assert!(error.details.contains("istio-proxy-nat"), "{error}");
        bench.add_again();
        assert_eq!(bench.nft("list ruleset"), listing);
        runner.check(&bench.list, &attachment).unwrap();
    }
}

/// A foreign rule takes packets before weir's rules: the pod would appear to be captured.
#[test]
fn check_fails_on_what_keeps_packets_from_the_redirection() {
    let Some(bench) = bench(pods::sidecar("shop", "web-0")) else {
        return;
    };
    let (runner, attachment) = (bench.runner(), bench.attachment());
    runner.add(&bench.list, &attachment).unwrap();
    assert!(bench.is_captured_to(15001));
    let script = bench.dir.write(
        "foreign",
        "table inet t { chain c { type nat hook output priority -150; tcp dport 80 redirect to :9999; }; }",
    );
    bench.nft(&format!("-f {}", script.display()));
    assert!(!bench.is_captured_to(15001));
    let error = runner.check(&bench.list, &attachment).unwrap_err();
    assert_eq!(error.code(), Some(100), "{error}");
    let words = "a foreign rule takes packets before ours: table inet t chain c";
    assert!(error.to_string().contains(words), "{error}");
    // ADD succeeds because the rules are in force, and logs the warning.
    let written = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Logger::new(Box::new(Shared(std::sync::Arc::clone(&written))));
    let config = json!({"cniVersion": "1.0.0", "name": "n", "cni_agent_run_dir": bench.dir.path(),
        "native_nftables": true, "log_level": "info"});
    let process = FakeProcess::new("ADD", &config.to_string())
        .pod("shop", "web-0")
        .set("CNI_NETNS", &bench.netns.path().display().to_string());
    let lookup = |name: &str| process.env.get(name).cloned();
    let mut plugin = Plugin {
        backend: &KernelBackend,
        log: &log,
        lookup: &lookup,
        limits: Limits::default(),
    };
    process.run(&mut plugin).result();
    log.flush();
    let said = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    assert!(
        said.contains(words) && said.contains("CHECK reports it"),
        "{said}"
    );
    bench.nft("delete table inet t");
    runner.check(&bench.list, &attachment).unwrap();
}

/// `CNI_NETNS_OVERRIDE` permits a call for the plugin's own namespace, but no rules there.
#[test]
fn the_plugins_own_namespace_gets_no_rules() {
    let Some(bench) = bench(pods::sidecar("shop", "web-0")) else {
        return;
    };
    let config = json!({"cniVersion": "1.0.0", "name": "n", "cni_agent_run_dir": bench.dir.path()});
    let process = FakeProcess::new("ADD", &config.to_string())
        .pod("shop", "web-0")
        .set("CNI_NETNS", "/proc/thread-self/ns/net");
    let run = |process: &FakeProcess| {
        let log = Logger::silent();
        let lookup = |name: &str| process.env.get(name).cloned();
        let mut plugin = Plugin {
            backend: &KernelBackend,
            log: &log,
            lookup: &lookup,
            limits: Limits::default(),
        };
        process.run(&mut plugin).error()
    };
    let refused = run(&process);
    assert_eq!(refused.code, 8, "{refused}");
    let words = "only a pod that asks for no redirection";
    assert!(refused.to_string().contains(words), "{refused}");
    let permitted = run(&process.set("CNI_NETNS_OVERRIDE", "1"));
    assert_eq!(permitted.code, 999, "{permitted}");
    let words = "rules there would take the traffic of the whole node";
    assert!(permitted.to_string().contains(words), "{permitted}");
}

/// A log in memory.
struct Shared(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn transparent_mode_has_its_routes() {
    let mut pod = pods::sidecar("shop", "web-0");
    pod["metadata"]["annotations"]["sidecar.istio.io/interceptionMode"] = "TPROXY".into();
    let Some(bench) = bench(pod) else { return };
    let (runner, attachment) = (bench.runner(), bench.attachment());
    match runner.add(&bench.list, &attachment) {
        Err(e) if e.to_string().contains("CONFIG_NFT_TPROXY") => {
            return lacks::skip("expression tproxy", "4.19", e);
        }
        added => added.map(|_| ()).unwrap(),
    }
    runner.check(&bench.list, &attachment).unwrap();
    let routing = Routing::open_in(&bench.netns).unwrap();
    let rules = routing.rules().unwrap();
    let rule = rules
        .iter()
        .find(|rule| rule.fwmark == Some(1337))
        .expect("a policy rule");
    assert_eq!(rule.table, 133);
    assert_eq!(routing.routes(133).unwrap().len(), 1);
    bench.add_again();
    assert_eq!(
        routing.rules().unwrap(),
        rules,
        "the policy rule was added twice"
    );
    assert!(routing.del_rule(rule).unwrap());
    let error = runner.check(&bench.list, &attachment).unwrap_err();
    assert!(error.to_string().contains("fwmark 0x539"), "{error}");
}

/// A foreign route takes the place of the desired one: weir removes what it added before it found that.
#[test]
fn a_failed_add_leaves_the_namespace_as_it_was() {
    let mut pod = pods::sidecar("shop", "web-0");
    pod["metadata"]["annotations"]["sidecar.istio.io/interceptionMode"] = "TPROXY".into();
    let Some(bench) = bench(pod) else { return };
    let routing = Routing::open_in(&bench.netns).unwrap();
    let foreign = Route {
        kind: RouteType::BlackHole,
        protocol: RouteProtocol::Static,
        oif: None,
        scope: RouteScope::Universe,
        ..Route::local_default(AddressFamily::V4, LOOPBACK_IFINDEX, 133)
    };
    assert!(routing.add_route(&foreign).unwrap());
    let held = || {
        let addresses = routing.addresses().unwrap();
        format!(
            "{:?} {:?} {addresses:?}",
            routing.rules().unwrap(),
            routing.routes(133).unwrap()
        )
    };
    let before = held();
    let add = || bench.runner().add(&bench.list, &bench.attachment());
    let error = add().unwrap_err();
    assert_eq!(error.code(), Some(999), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("blackhole") && text.contains("nothing is changed"),
        "{text}"
    );
    assert_eq!(held(), before);
    assert_eq!(bench.nft("list ruleset"), "");
    assert!(routing.del_route(&foreign).unwrap());
    match add() {
        Err(e) if e.to_string().contains("CONFIG_NFT_TPROXY") => {
            lacks::skip("expression tproxy", "4.19", e);
        }
        added => drop(added.unwrap()),
    }
}

#[test]
fn a_pod_that_wants_nothing_gets_nothing() {
    let Some(bench) = bench(pods::plain("shop", "web-0", json!({}))) else {
        return;
    };
    let (runner, attachment) = (bench.runner(), bench.attachment());
    runner.add(&bench.list, &attachment).unwrap();
    runner.check(&bench.list, &attachment).unwrap();
    assert_eq!(bench.nft("list ruleset"), "");
}

#[test]
fn a_namespace_without_addresses_or_none_at_all() {
    let Some(bench) = bench(pods::sidecar("shop", "web-0")) else {
        return;
    };
    let empty = Netns::create().unwrap();
    let path = |text: String| Attachment {
        netns: text,
        ..bench.attachment()
    };
    for (attachment, word) in [
        (path(empty.path().display().to_string()), "address"),
        (path("/run/netns/no-such".into()), "/run/netns/no-such"),
        (path("/etc/hostname".into()), "/etc/hostname"),
    ] {
        let error = bench.runner().add(&bench.list, &attachment).unwrap_err();
        assert_eq!(error.code(), Some(999), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(bench.nft("list ruleset"), "");
}

#[test]
fn a_dry_run_writes_a_plan_and_no_rules() {
    let Some(bench) = bench(pods::sidecar("shop", "web-0")) else {
        return;
    };
    let plan = bench.dir.file("plan");
    let config = json!({"cniVersion": "1.0.0", "name": "n", "cni_agent_run_dir": bench.dir.path()});
    let process = FakeProcess::new("ADD", &config.to_string())
        .pod("shop", "web-0")
        .set("CNI_NETNS", &bench.netns.path().display().to_string())
        .set("DRY_RUN_FILE_PATH", &plan.display().to_string())
        .set("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "4242");
    let lookup = |name: &str| process.env.get(name).cloned();
    let log = Logger::silent();
    let limits = Limits::default();
    let mut plugin = Plugin {
        backend: &KernelBackend,
        log: &log,
        lookup: &lookup,
        limits,
    };
    process.run(&mut plugin).result();
    let plan = std::fs::read_to_string(plan).unwrap();
    // The text is input for iptables-restore, whatever engine the kernel has.
    for line in ["*nat\n", "-j REDIRECT --to-ports 15001\n", "COMMIT\n"] {
        assert!(plan.contains(line), "{line}{plan}");
    }
    let tool = |l: &str| l.is_empty() || l.starts_with(['*', ':', '-', '#']) || l == "COMMIT";
    assert!(plan.lines().all(tool), "{plan}");
    assert!(
        plan.contains("--gid-owner 4242"),
        "the plugin's own environment was not read: {plan}"
    );
    assert_eq!(bench.nft("list ruleset"), "");
}
