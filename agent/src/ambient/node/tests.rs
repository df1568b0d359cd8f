//! [`AtNode`] in a throwaway node with two pods and two proxies.

/// A node, or the end of a test that may make none, which is printed.
macro_rules! scene {
    () => {
        match Scene::build() {
            Some(scene) => scene,
            None => return,
        }
    };
}

mod doubt;

use super::{AtNode, Places, State};
use crate::ambient::EXCLUDE;
use crate::ambient::by_plugin::ByPlugin;
use crate::ambient::decision::{Decision, decide};
use crate::ambient::hands::{Asked, NotReleased, Outcome, Probes, Proxy, Rules};
use crate::ambient::keep::{
    self,
    tests::{NEVER, Told, ip},
};
use crate::ambient::settings::AmbientSettings;
use crate::dataplane::Spent;
use crate::dataplane::ambient::Ambient;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;
use weir_ambient::PodOverrides;
use weir_core::journal::Journal;
use weir_core::pods::{NamespaceView, PodView, Pods, Writer};
use weir_core::sandboxes::Sandboxes;
use weir_core::sandboxes::place::Identity;
use weir_core::settings::resolve;
use weir_core::thread::task::Tasks;
use weir_drift::listener::{Listener, Of};
use weir_netlink::Netns;
use weir_netlink::route::{AddressFamily, PolicyRule, Route, RouteType, Routing};
use weir_testing::BpfFs;

const NAMES: [&str; 4] = ["a", "b", "old", "new"];

struct Scene {
    node: Netns,
    /// By number in [`NAMES`]; `10.1.N.10` inside, `.1` at the node.
    inside: Vec<Netns>,
    pods: Pods,
    writer: Writer,
    settings: Arc<AmbientSettings>,
    sandboxes: Sandboxes,
}

fn address(number: usize, last: u8) -> IpAddr {
    IpAddr::from([10, 1, u8::try_from(number).unwrap(), last])
}

fn settings_of(engine: &str, without_proxy: &str) -> Arc<AmbientSettings> {
    settings_with(engine, without_proxy, "")
}

fn settings_with(engine: &str, without_proxy: &str, ipv6: &str) -> Arc<AmbientSettings> {
    let lookup = |name: &str| {
        let value = match name {
            "AMBIENT_ENABLED" => "true",
            "WEIR_AMBIENT_ENGINE" => engine,
            "WEIR_AMBIENT_WITHOUT_PROXY" => without_proxy,
            "AMBIENT_IPV6" if !ipv6.is_empty() => ipv6,
            "SYSTEM_NAMESPACE" => "istio-system",
            "AMBIENT_ENABLEMENT_SELECTOR" => {
                "[{podSelector: {matchLabels: {m: ambient}}, \
                  namespaceSelector: {matchExpressions: [{key: m, operator: DoesNotExist}]}}]"
            }
            _ => return None,
        };
        Some(OsString::from(value))
    };
    let resolved = resolve(&BTreeMap::new(), &lookup);
    Arc::new(AmbientSettings::of(&resolved).unwrap().unwrap())
}

impl Scene {
    fn build() -> Option<Self> {
        let node = weir_testing::granted(Netns::create())?;
        // The kernel would give links addresses of their own at any time, and each is a change.
        let alone = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        let _ = node.run(alone).unwrap();
        let routing = Routing::open_in(&node).unwrap();
        routing.set_up(routing.link("lo").unwrap().index).unwrap();
        let (pods, mut writer) = Pods::new();
        writer.begin();
        writer.complete();
        writer.begin_namespaces();
        for name in ["shop", "istio-system"] {
            let namespace = NamespaceView {
                name: name.into(),
                ..NamespaceView::default()
            };
            writer.apply_namespace(namespace).unwrap();
        }
        writer.complete_namespaces();
        let sandboxes = Sandboxes::of_node();
        let mut inside = Vec::new();
        for (number, name) in NAMES.iter().enumerate() {
            let netns = Netns::create().unwrap();
            let pod = Routing::open_in(&netns).unwrap();
            pod.set_up(pod.link("lo").unwrap().index).unwrap();
            let outer = format!("v{number}");
            routing.add_veth(&outer, "eth0", &netns).unwrap();
            for (of, link, last) in [(&routing, outer.as_str(), 1), (&pod, "eth0", 10)] {
                let index = of.link(link).unwrap().index;
                let net = ipnet::IpNet::new(address(number, last), 24).unwrap();
                of.add_address(index, net).unwrap();
                of.set_up(index).unwrap();
            }
            let gateway = Some(address(number, 1));
            let route = Route::unicast("0.0.0.0/0".parse().unwrap(), gateway, None);
            pod.add_route(&route).unwrap();
            sandboxes.announce_path(name, &netns.path()).unwrap();
            inside.push(netns);
        }
        Some(Self {
            node,
            inside,
            pods,
            writer,
            settings: settings_of("node", "closed"),
            sandboxes,
        })
    }

    /// An agent that has just begun.
    fn agent(&self) -> AtNode {
        self.agent_with("/nonexistent".into())
    }

    fn agent_with(&self, bpffs: PathBuf) -> AtNode {
        self.agent_that_tells(bpffs, Journal::default())
    }

    fn agent_that_tells(&self, bpffs: PathBuf, journal: Journal) -> AtNode {
        let plane = Ambient {
            config: self.settings.rules.clone(),
            native_nftables: false,
            unwatched: false,
        };
        AtNode::new(
            Arc::clone(&self.settings),
            plane,
            (self.pods.clone(), self.sandboxes.clone()),
            Places {
                netns: Some(self.node.path()),
                bpffs,
            },
            journal,
        )
    }

    fn put(&mut self, number: usize, is_ready: bool, change: Value) {
        self.put_with(&[address(number, 10)], number, is_ready, change);
    }

    /// A pod that says what is not to be captured of it.
    fn put_excluding(&mut self, number: usize, text: &str) {
        let mut object = Self::object(&[address(number, 10)], number, true);
        object["metadata"]["annotations"] = json!({EXCLUDE: text});
        let view = PodView::from_value(&object).unwrap();
        self.writer.apply(view).unwrap();
    }

    fn put_with(&mut self, addresses: &[IpAddr], number: usize, is_ready: bool, change: Value) {
        let mut object = Self::object(addresses, number, is_ready);
        if !change.is_null() {
            object["metadata"]["labels"] = change;
        }
        self.writer
            .apply(PodView::from_value(&object).unwrap())
            .unwrap();
    }

    fn object(addresses: &[IpAddr], number: usize, is_ready: bool) -> Value {
        let ips: Vec<_> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        let name = NAMES[number];
        let is_proxy = number >= 2;
        json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": format!("2026-01-01T00:00:0{number}Z"),
                "namespace": if is_proxy { "istio-system" } else { "shop" },
                "labels": if is_proxy { json!({"app": "ztunnel"}) } else { json!({"m": "ambient"}) }},
            "spec": {},
            "status": {"phase": "Running", "podIP": addresses[0], "podIPs": ips,
                "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}]}})
    }

    fn delete(&mut self, number: usize) {
        let namespace = if number >= 2 { "istio-system" } else { "shop" };
        self.writer.delete(namespace, NAMES[number], None);
    }

    fn asked(&self, number: usize) -> Asked {
        let view = self.pods.get("shop", NAMES[number]).unwrap();
        Asked {
            identity: Identity::of(&view),
            overrides: PodOverrides::default(),
            by_plugin: None,
        }
    }

    /// Pods with a route to the carrier, and those with a guard; the device of the active proxy.
    fn captured(&self) -> (BTreeSet<usize>, BTreeSet<usize>, Option<String>) {
        let routing = Routing::open_in(&self.node).unwrap();
        let of = |is_guard: bool| {
            let routes = routing.routes(100).unwrap();
            let has = |number: &usize| {
                let is_it = |r: &Route| {
                    r.dst == address(*number, 10).into()
                        && (r.kind == RouteType::Unreachable) == is_guard
                };
                routes.iter().any(is_it)
            };
            (0..2).filter(has).collect()
        };
        // The route of the tunnel's outer packets.
        let way = routing.routes(101).unwrap();
        let is_it = |r: &&Route| r.kind == RouteType::Unicast && r.gateway.is_none();
        let way = way.iter().find(is_it).and_then(|r| r.oif);
        let way = way.map(|index| routing.link_by_index(index).unwrap().name);
        (of(false), of(true), way)
    }
}

fn capture(agent: &AtNode, asked: &Asked) -> Outcome {
    let mut spent = Spent::default();
    agent
        .capture(asked, None, Instant::now(), &mut spent)
        .unwrap()
        .1
}

fn refused(agent: &AtNode, asked: &Asked) -> String {
    let captured = agent.capture(asked, None, Instant::now(), &mut Spent::default());
    captured.map(drop).unwrap_err().why
}

#[test]
fn pods_join_proxies_follow_each_other_and_nothing_is_left() {
    let mut scene = scene!();
    let nothing = (BTreeSet::new(), BTreeSet::new(), None);
    let both = BTreeSet::from([0, 1]);
    let way = |number: usize| Some(format!("v{number}"));
    assert_eq!(scene.captured(), nothing);

    // Enrolment, by the newest ready proxy.
    scene.put(2, true, Value::Null);
    scene.put(3, false, Value::Null);
    scene.put(0, true, Value::Null);
    let agent = scene.agent();
    assert!(matches!(
        capture(&agent, &scene.asked(0)),
        Outcome::Made { .. }
    ));
    let one = BTreeSet::from([0]);
    assert_eq!(scene.captured(), (one.clone(), one.clone(), way(2)));
    scene.put(1, true, Value::Null);
    capture(&agent, &scene.asked(1));
    assert_eq!(scene.captured(), (both.clone(), both.clone(), way(2)));
    let first = agent.newest();

    // The next agent knows nothing, and no pod loses its capture while it looks at one.
    let agent = scene.agent();
    capture(&agent, &scene.asked(1));
    assert_eq!(scene.captured(), (both.clone(), both.clone(), way(2)));

    // What another program removes is written again.
    let routing = Routing::open_in(&scene.node).unwrap();
    let rules = routing.rules().unwrap();
    let ours = rules.iter().find(|r| r.priority == Some(101)).unwrap();
    assert!(routing.del_rule(ours).unwrap());
    agent.heal().unwrap();
    assert_eq!(routing.rules().unwrap().len(), rules.len());

    // The next proxy is ready, and the old one goes.
    scene.put(3, true, Value::Null);
    assert!(agent.newest().is_some() && agent.newest() != first);
    agent.heal().unwrap();
    assert_eq!(scene.captured(), (both.clone(), both.clone(), way(3)));
    scene.delete(2);
    agent.heal().unwrap();
    assert_eq!(scene.captured(), (both.clone(), both.clone(), way(3)));

    // None is left: only guards remain.
    scene.put(3, false, Value::Null);
    agent.heal().unwrap();
    assert_eq!(scene.captured(), (BTreeSet::new(), both.clone(), None));
    assert_eq!(agent.newest(), None);

    // One pod leaves the mesh, the other is deleted.
    scene.put(3, true, Value::Null);
    let asked = scene.asked(0);
    scene.put(0, true, json!({"m": "none"}));
    let view = scene.pods.get("shop", "a").unwrap();
    let decided = decide(&scene.settings, &view, None);
    assert!(matches!(decided, Decision::No(_) | Decision::Unknown));
    agent.release(&asked, None).unwrap();
    let other = BTreeSet::from([1]);
    assert_eq!(scene.captured(), (other.clone(), other, way(3)));
    scene.delete(1);
    Probes::remove(&agent, "b", &[address(1, 10)]).unwrap();
    assert_eq!(scene.captured(), (BTreeSet::new(), BTreeSet::new(), way(3)));

    let removed = weir_node_ambient::remove(&scene.node, None).unwrap();
    assert!(!removed.is_empty());
    assert_eq!(scene.captured(), nothing);
    assert_eq!(scene.inside.len(), NAMES.len());
}

/// The proxy before may have connections, which would be dropped if it were taken for ended.
#[test]
fn a_proxy_that_was_found_before_is_not_gone_because_it_cannot_be_found() {
    let mut scene = scene!();
    scene.put(2, true, Value::Null);
    scene.put(3, false, Value::Null);
    scene.put(0, true, Value::Null);
    let agent = scene.agent();
    capture(&agent, &scene.asked(0));
    scene.put(2, false, Value::Null);
    scene.put(3, true, Value::Null);
    agent.heal().unwrap();
    let desired = |agent: &AtNode| {
        let desired = agent.desired(&mut agent.state(), Instant::now());
        desired.map(|desired| desired.config.proxies.len())
    };
    assert_eq!(desired(&agent), Ok(2));
    let inside = Routing::open_in(&scene.inside[2]).unwrap();
    let net = ipnet::IpNet::new(address(2, 10), 24).unwrap();
    let index = inside.link("eth0").unwrap().index;
    assert!(inside.del_address(index, net).unwrap());
    // It has no process here: without the path nothing of it would be there any more.
    let path = scene.inside[2].path();
    scene.sandboxes.announce_path(NAMES[2], &path).unwrap();
    // Also for the next agent, which does not know whether it was found.
    for agent in [&agent, &scene.agent()] {
        let why = desired(agent).unwrap_err();
        assert!(why.contains("proxy istio-system/old"), "{why}");
    }
    assert!(inside.add_address(index, net).unwrap());
    assert_eq!(desired(&agent), Ok(2));
    weir_node_ambient::remove(&scene.node, None).unwrap();
}

/// It would be shown of every pod of the node that is in no mesh.
#[test]
fn a_node_that_cannot_be_compared_says_nothing_of_one_pod() {
    let mut scene = scene!();
    scene.put(0, true, Value::Null);
    let asked = scene.asked(0);
    // Nothing is written before all pods are known.
    scene.pods = Pods::new().0;
    let released = scene.agent().release(&asked, None);
    assert!(
        matches!(&released, Err(NotReleased::Unseen(why)) if why.contains("not known yet")),
        "{released:?}"
    );
}

#[test]
fn without_a_proxy_the_setting_decides() {
    let mut scene = scene!();
    scene.settings = settings_of("node", "open");
    scene.put(0, true, Value::Null);
    let asked = scene.asked(0);
    let mut spent = Spent::default();
    let refused = scene
        .agent()
        .capture(&asked, None, Instant::now(), &mut spent);
    assert!(
        refused
            .unwrap_err()
            .why
            .contains("WEIR_AMBIENT_WITHOUT_PROXY")
    );
    assert_eq!(scene.captured(), (BTreeSet::new(), BTreeSet::new(), None));

    scene.settings = settings_of("node", "closed");
    capture(&scene.agent(), &asked);
    let one = BTreeSet::from([0]);
    assert_eq!(scene.captured(), (BTreeSet::new(), one, None));
}

/// The node of the scene has no IPv6, so that an object of it could not be made.
#[test]
fn without_ipv6_nothing_of_it_is_made() {
    let mut scene = scene!();
    let v6 = |number: usize| IpAddr::from([0xfd00, 1, number as u16, 0, 0, 0, 0, 10]);
    for number in [0, 2] {
        let both = [address(number, 10), v6(number)];
        scene.put_with(&both, number, true, Value::Null);
    }
    scene.put_with(&[v6(1)], 1, true, Value::Null);
    for number in 0..3 {
        let pod = Routing::open_in(&scene.inside[number]).unwrap();
        let net = ipnet::IpNet::new(v6(number), 64).unwrap();
        let index = pod.link("eth0").unwrap().index;
        pod.add_address(index, net).unwrap();
    }
    let routing = Routing::open_in(&scene.node).unwrap();
    let own_rules = || {
        let rules = routing.rules().unwrap().into_iter();
        let own = rules.filter(|rule| rule.priority.is_some_and(|p| (100..=103).contains(&p)));
        let v6 = |rule: &PolicyRule| rule.family == AddressFamily::V6;
        own.map(|rule| v6(&rule)).collect::<Vec<bool>>()
    };
    let try_capture = |scene: &Scene, number| {
        let mut spent = Spent::default();
        let asked = scene.asked(number);
        let captured = scene
            .agent()
            .capture(&asked, None, Instant::now(), &mut spent);
        let made = captured.map(|(_, outcome)| matches!(outcome, Outcome::Made { .. }));
        made.map_err(|refused| refused.why)
    };
    // Off where it is not set.
    for ipv6 in ["", "false"] {
        scene.settings = settings_with("node", "closed", ipv6);
        assert_eq!(try_capture(&scene, 0), Ok(true));
        assert_eq!(own_rules(), [false; 4]);
        let refused = try_capture(&scene, 1).unwrap_err();
        assert!(refused.contains("AMBIENT_IPV6"), "{refused}");
    }
    scene.settings = settings_with("node", "closed", "true");
    let desired = scene.agent().desired(&mut State::default(), Instant::now());
    let config = desired.unwrap().config;
    let pods = config.pods.iter().map(|pod| pod.addresses.clone());
    let expected = [vec![address(0, 10), v6(0)], vec![v6(1)]];
    assert_eq!(pods.collect::<Vec<_>>(), expected);
    assert_eq!(config.proxies[0].addresses, [address(2, 10), v6(2)]);
    assert!(!config.ipv4_only);
    weir_node_ambient::remove(&scene.node, None).unwrap();
}

/// The pod's TCP over that family fails, which is not shown as enrolled.
#[test]
fn a_pod_with_an_address_that_the_proxy_cannot_serve_is_refused() {
    let mut scene = scene!();
    scene.settings = settings_with("node", "closed", "true");
    let v6 = IpAddr::from([0xfd00, 1, 0, 0, 0, 0, 0, 10]);
    let inside = Routing::open_in(&scene.inside[0]).unwrap();
    let index = inside.link("eth0").unwrap().index;
    let net = ipnet::IpNet::new(v6, 64).unwrap();
    inside.add_address(index, net).unwrap();
    scene.put(2, true, Value::Null);
    scene.put(1, true, Value::Null);
    scene.put_with(&[address(0, 10), v6], 0, true, Value::Null);
    let agent = scene.agent();
    let why = refused(&agent, &scene.asked(0));
    assert!(why.contains("no address of this family"), "{why}");
    assert!(why.contains(&v6.to_string()), "{why}");
    // The other pod, and the other address, are captured.
    capture(&agent, &scene.asked(1));
    assert_eq!(scene.captured().0, BTreeSet::from([0, 1]));
    scene.put(0, true, Value::Null);
    capture(&agent, &scene.asked(0));
    weir_node_ambient::remove(&scene.node, None).unwrap();
}

/// After a reboot the API server has the addresses of the sandboxes before, also that of another pod.
#[test]
fn the_plugin_knows_the_addresses_of_a_new_sandbox_better_than_the_api_server() {
    let mut scene = scene!();
    scene.put(2, true, Value::Null);
    let old = IpAddr::from([10, 1, 9, 10]);
    scene.put_with(&[old], 0, true, Value::Null);
    // Of this one nothing is known but by the API server.
    scene.put_with(&[address(0, 10)], 1, true, Value::Null);
    let view = scene.pods.get("shop", "a").unwrap();
    let told = vec![address(0, 10)];
    let mut asked = scene.asked(0);
    asked.identity = asked.identity.with_addresses(told.clone());
    asked.by_plugin = Some(ByPlugin::new(told, vec![old], &view));
    let agent = scene.agent();
    assert!(matches!(capture(&agent, &asked), Outcome::Made { .. }));
    let one = BTreeSet::from([0]);
    assert_eq!(scene.captured().0, one);
    // It stays so between two looks at the pod, and what the API server says later is newer.
    agent.heal().unwrap();
    assert_eq!(scene.captured().0, one);
    scene.delete(1);
    scene.put_with(&[address(1, 10)], 0, true, Value::Null);
    let desired = agent.desired(&mut agent.state(), Instant::now());
    let pods = desired.unwrap().config.pods;
    assert_eq!(pods[0].addresses, [address(1, 10)]);
    weir_node_ambient::remove(&scene.node, None).unwrap();
}

/// A pod whose annotation cannot be read is captured as if it had none, and says so; others have what they ask for.
#[test]
fn what_a_pod_excludes_is_in_force_or_it_says_why_not() {
    let mut scene = scene!();
    scene.put(2, true, Value::Null);
    scene.put_excluding(0, r#"{"peers": ["10.9.0.0/33"]}"#);
    scene.put_excluding(1, r#"{"outbound_ports": [5432]}"#);
    let agent = scene.agent();
    let both = BTreeSet::from([0, 1]);
    capture(&agent, &scene.asked(1));
    let why = refused(&agent, &scene.asked(0));
    assert!(why.contains(EXCLUDE) && why.contains("peers"), "{why}");
    assert_eq!(scene.captured().0, both);
    let ports = |agent: &AtNode| {
        let desired = agent.desired(&mut State::default(), Instant::now());
        let pods = desired.unwrap().config.pods.into_iter();
        pods.map(|pod| pod.exclude.outbound_ports.len())
            .collect::<Vec<_>>()
    };
    assert_eq!(ports(&agent), [0, 1]);
    // More than one pod may.
    let all: Vec<u16> = (1..=65).collect();
    scene.put_excluding(0, &format!(r#"{{"inbound_ports": {all:?}}}"#));
    let why = refused(&agent, &scene.asked(0));
    assert!(why.contains("at most 64"), "{why}");
    assert_eq!(scene.captured().0, both);
    scene.put_excluding(0, r#"{"outbound_ports": [5432, 3306]}"#);
    capture(&agent, &scene.asked(0));
    assert_eq!(ports(&agent), [2, 1]);
    // The annotation is not read at all where the operator has switched it off.
    let mut off = (*scene.settings).clone();
    off.pod_exclude = false;
    scene.settings = Arc::new(off);
    scene.put_excluding(0, "{");
    let agent = scene.agent();
    capture(&agent, &scene.asked(0));
    assert_eq!(ports(&agent), [0, 0]);
    weir_node_ambient::remove(&scene.node, None).unwrap();
}

/// The kernel reports no detached program: the agent looks.
#[test]
fn a_detached_program_is_noticed_between_two_rounds() {
    let mut scene = scene!();
    let links = || weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok();
    let Some(mounted) = BpfFs::each(links).next() else {
        return;
    };
    scene.settings = settings_of("node-ebpf", "closed");
    scene.put(0, true, Value::Null);
    scene.put(2, true, Value::Null);
    let agent = scene.agent_with(mounted.path().to_owned());
    capture(&agent, &scene.asked(0));
    agent.heal().unwrap();
    assert!(!agent.has_changed());
    let pins = mounted.path().join("weir/v2");
    for netns in [&scene.node, &scene.inside[2]] {
        let folder = pins.join(netns.id().ino.to_string());
        let pin = std::fs::read_dir(folder).unwrap().flatten();
        let pin = pin.map(|entry| entry.path());
        let hook = |path: &PathBuf| path.to_string_lossy().contains("gress_");
        std::fs::remove_file(pin.into_iter().find(hook).unwrap()).unwrap();
        assert!(agent.has_changed());
        agent.heal().unwrap();
        // Once more: what was written is compared with itself.
        agent.heal().unwrap();
        assert!(!agent.has_changed());
    }
    let bpffs = weir_ebpf::Bpffs::at(mounted.path()).unwrap();
    let inside = [scene.inside.remove(2)];
    let node = weir_ebpf::node::Node::of(&scene.node, &bpffs);
    assert!(!node.remove(&inside).unwrap().is_empty());
}

/// Nothing is done by the clock, so that only the kernel's reports can tell.
#[test]
fn what_ip_changes_in_the_nodes_routing_is_healed_because_it_is_reported() {
    let mut scene = scene!();
    scene.put(0, true, Value::Null);
    scene.put(2, true, Value::Null);
    let (journal, told) = Told::journal();
    let tasks = Tasks::new(journal.clone()).unwrap();
    let agent = scene.agent_that_tells("/nonexistent".into(), journal.clone());
    let reports = Listener::new(Some(scene.node.path()), Of::All, journal);
    keep::node(agent, reports, NEVER, &tasks).unwrap();
    assert_eq!(told.next(), None, "in force");
    let whole = scene.captured();
    assert!(whole.2.is_some());
    for change in [
        "rule del priority 101",
        "route flush table 100",
        "route flush table 101",
        "rule del priority 101",
    ] {
        ip(&scene.node, change);
        assert!(told.next().is_some(), "{change}");
        assert_eq!(scene.captured(), whole, "{change}");
    }
    assert!(tasks.ended().is_empty());
    assert_eq!(tasks.stop(Duration::from_secs(30)), Vec::<&str>::new());
}
