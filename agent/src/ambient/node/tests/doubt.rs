//! Pods of which something is not known: what is captured stays so.

use super::*;
use weir_ebpf::Bpffs;
use weir_node_ambient::captured;

/// Once with rules, and once with programs where they can be attached.
fn by_each(check: impl Fn(&mut Scene, &std::path::Path)) {
    let mut scene = scene!();
    check(&mut scene, "/nonexistent".as_ref());
    let links = || weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok();
    if let (Some(mounted), Some(mut scene)) = (BpfFs::each(links).next(), Scene::build()) {
        scene.settings = settings_of("node-ebpf", "closed");
        check(&mut scene, mounted.path());
    }
}

impl Scene {
    /// The pods whose address is captured.
    fn kept(&self, bpffs: &std::path::Path) -> BTreeSet<usize> {
        let bpffs = Bpffs::at(bpffs).ok();
        let captured = captured(&self.node, bpffs.as_ref()).unwrap();
        let is_captured = |number: &usize| captured.contains(&address(*number, 10));
        (0..2).filter(is_captured).collect()
    }

    /// The address of one pod is that of a new sandbox of another one.
    fn give(&self, from: usize, to: usize) {
        let net = ipnet::IpNet::new(address(from, 10), 24).unwrap();
        let of = |number: usize| {
            let routing = Routing::open_in(&self.inside[number]).unwrap();
            let index = routing.link("eth0").unwrap().index;
            (routing, index)
        };
        let (old, index) = of(from);
        assert!(old.del_address(index, net).unwrap());
        let (new, index) = of(to);
        assert!(new.add_address(index, net).unwrap());
        let path = self.inside[to].path();
        self.sandboxes.announce_path(NAMES[to], &path).unwrap();
    }

    /// The path of the pod's network namespace leads to itself, and only a route leads to the pod's link.
    fn hide(&self, number: usize, dir: &weir_testing::TempDir) {
        let node = Routing::open_in(&self.node).unwrap();
        let link = node.link(&format!("v{number}")).unwrap().index;
        let route = Route::unicast(address(number, 10).into(), None, Some(link));
        node.add_route(&route).unwrap();
        let named = dir.file("netns");
        std::os::unix::fs::symlink(self.inside[number].path(), &named).unwrap();
        self.sandboxes.forget(NAMES[number]);
        self.sandboxes.announce_path(NAMES[number], &named).unwrap();
        std::fs::remove_file(&named).unwrap();
        std::os::unix::fs::symlink(&named, &named).unwrap();
    }

    /// As the plugin hands it over with this address; the API server has another one yet.
    fn told(&self, number: usize, told: IpAddr) -> Asked {
        let view = self.pods.get("shop", NAMES[number]).unwrap();
        let by = ByPlugin::new(vec![told], view.addresses(), &view);
        let mut asked = self.asked(number);
        asked.identity = asked.identity.with_addresses(vec![told]);
        asked.by_plugin = Some(by);
        asked
    }
}

fn uids(agent: &AtNode) -> Vec<(String, Vec<IpAddr>)> {
    let desired = agent.desired(&mut agent.state(), Instant::now());
    let pods = desired.unwrap().config.pods.into_iter();
    pods.map(|pod| (pod.uid, pod.addresses)).collect()
}

#[test]
fn an_address_that_another_pod_claims_stays_captured() {
    by_each(|scene, bpffs| {
        let (none, first) = (BTreeSet::new(), BTreeSet::from([0]));
        let shared = [address(0, 10)];
        scene.put(2, true, Value::Null);
        scene.put(0, true, Value::Null);
        let agent = scene.agent_with(bpffs.to_owned());
        capture(&agent, &scene.asked(0));
        assert_eq!(scene.kept(bpffs), first);
        // What the API server knows of the other one is out of date, whether it is a member or not.
        for labels in [Value::Null, json!({"m": "none"})] {
            scene.put_with(&shared, 1, true, labels);
            agent.heal().unwrap();
            assert_eq!(scene.kept(bpffs), first);
            // An agent that begins knows only what it finds.
            let next = scene.agent_with(bpffs.to_owned());
            for _ in 0..2 {
                next.heal().unwrap();
                assert_eq!(scene.kept(bpffs), first);
            }
        }
        // It was right: the address is in its namespace alone, and it is no member.
        scene.give(0, 1);
        agent.heal().unwrap();
        assert_eq!(scene.kept(bpffs), none);
        // Nothing is captured that was not.
        scene.put_with(&shared, 1, true, Value::Null);
        agent.heal().unwrap();
        assert_eq!(scene.kept(bpffs), none);
        scene.delete(0);
        agent.heal().unwrap();
        assert_eq!(scene.kept(bpffs), first, "only one claims it");
    });
}

#[test]
fn what_the_plugin_told_goes_before_what_another_pod_claims() {
    by_each(|scene, bpffs| {
        let first = BTreeSet::from([0]);
        let (old, new) = (IpAddr::from([10, 1, 9, 10]), address(0, 10));
        scene.put(2, true, Value::Null);
        scene.put_with(&[old], 0, true, Value::Null);
        let agent = scene.agent_with(bpffs.to_owned());
        capture(&agent, &scene.told(0, new));
        assert_eq!(scene.kept(bpffs), first);
        // The API server has it now, and the other pod's state is out of date.
        scene.put_with(&[new], 0, true, Value::Null);
        scene.put_with(&[new], 1, true, Value::Null);
        agent.heal().unwrap();
        assert_eq!(scene.kept(bpffs), first);
        assert_eq!(uids(&agent), [("a".to_owned(), vec![new])]);
        // The sandbox ends, and its address is given to one of the other pod.
        scene.give(0, 1);
        scene.put_with(&[old], 1, true, Value::Null);
        capture(&agent, &scene.told(1, new));
        assert_eq!(uids(&agent), [("b".to_owned(), vec![new])]);
        assert_eq!(scene.kept(bpffs), first);
    });
}

#[test]
fn a_pod_whose_namespace_is_not_known_yet_stays_captured() {
    by_each(|scene, bpffs| {
        let first = BTreeSet::from([0]);
        scene.put(2, true, Value::Null);
        scene.put(0, true, Value::Null);
        capture(&scene.agent_with(bpffs.to_owned()), &scene.asked(0));
        // Nothing says it but what is in force: the annotation was not written.
        scene.writer.begin_namespaces();
        scene.writer.complete_namespaces();
        scene.put(1, true, Value::Null);
        let agent = scene.agent_with(bpffs.to_owned());
        for _ in 0..2 {
            agent.heal().unwrap();
            assert_eq!(scene.kept(bpffs), first);
        }
        let shop = NamespaceView {
            name: "shop".into(),
            ..NamespaceView::default()
        };
        scene.writer.apply_namespace(shop).unwrap();
        agent.heal().unwrap();
        assert_eq!(scene.kept(bpffs), BTreeSet::from([0, 1]));
    });
}

/// None of these pods has a route of its own, so that the main table does not say which link is whose.
#[test]
fn a_pod_whose_namespace_is_not_found_any_more_stays_captured() {
    by_each(|scene, bpffs| {
        let first = BTreeSet::from([0]);
        scene.put(2, true, Value::Null);
        scene.put(0, true, Value::Null);
        let agent = scene.agent_with(bpffs.to_owned());
        capture(&agent, &scene.asked(0));
        let named = scene.inside[1].path();
        for _ in 0..2 {
            // Its own is forgotten, and this one does not have its address.
            scene.sandboxes.announce_path("a", &named).unwrap();
            assert!(agent.heal().is_ok());
            assert_eq!(scene.kept(bpffs), first);
        }
    });
}

/// The API server does not know its address yet, and the next agent knows only what is captured.
#[test]
fn a_pod_whose_namespace_cannot_be_read_stays_captured() {
    by_each(|scene, bpffs| {
        let first = BTreeSet::from([0]);
        let old = IpAddr::from([10, 1, 9, 10]);
        scene.put(2, true, Value::Null);
        scene.put_with(&[old], 0, true, Value::Null);
        let agent = scene.agent_with(bpffs.to_owned());
        capture(&agent, &scene.told(0, address(0, 10)));
        assert_eq!(scene.kept(bpffs), first);
        let dir = weir_testing::TempDir::new();
        scene.hide(0, &dir);
        let next = scene.agent_with(bpffs.to_owned());
        for _ in 0..2 {
            next.heal().unwrap();
            assert_eq!(scene.kept(bpffs), first);
        }
    });
}

/// Its address has a route. The one that no pod claims, which was taken for that of the pod, has none.
#[test]
fn a_pod_whose_namespace_cannot_be_read_keeps_its_known_address() {
    by_each(|scene, bpffs| {
        let first = BTreeSet::from([0]);
        scene.put(2, true, Value::Null);
        let agent = scene.agent_with(bpffs.to_owned());
        for number in 0..2 {
            scene.put(number, true, Value::Null);
            capture(&agent, &scene.asked(number));
        }
        scene.delete(1);
        let dir = weir_testing::TempDir::new();
        scene.hide(0, &dir);
        let next = scene.agent_with(bpffs.to_owned());
        for _ in 0..2 {
            next.heal().unwrap();
            assert_eq!(scene.kept(bpffs), first);
        }
    });
}
