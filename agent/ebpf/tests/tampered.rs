//! Pins and links of a pod that another writer has changed are found and repaired, although names and interfaces are the same.
// matrix: newest
#![cfg(test)]
#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use weir_ambient::{AMBIENT, Config, PodOverrides, Redirect};
use weir_bpf::{
    BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH, BPF_PROG_TYPE_SCHED_CLS, Map, MapSpec, Pinned, Program,
    ProgramSpec, open_pin, pin,
};
use weir_cni::redirection::Sandbox;
use weir_ebpf::{Bpffs, Pod};
use weir_netlink::Netns;
use weir_netlink::route::{AddressFamily, Routing};
use weir_testing::BpfFs;

/// A pod with `eth0`, the host of the other end, and a directory of pins.
struct Scene {
    pod: Netns,
    _host: Netns,
    mounted: BpfFs,
}

impl Scene {
    fn build() -> Option<Self> {
        let mounted = BpfFs::mount()?;
        if weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_err() {
            println!("skipped: this kernel has no tcx links");
            return None;
        }
        let (pod, host) = (weir_testing::namespace()?, weir_testing::namespace()?);
        let routing = Routing::open_in(&pod).unwrap();
        routing.add_veth("eth0", "v2", &host).unwrap();
        routing.set_up(routing.link("lo").unwrap().index).unwrap();
        Some(Self {
            pod,
            _host: host,
            mounted,
        })
    }

    fn folder(&self) -> PathBuf {
        let layout = self.mounted.path().join("weir/v2");
        layout.join(self.pod.id().ino.to_string())
    }

    fn programs(&self) -> Vec<(PathBuf, Program)> {
        let entries = std::fs::read_dir(self.folder()).unwrap();
        let program = |path: PathBuf| match open_pin(&path) {
            Ok(Pinned::Link(link)) => {
                let id = link.info().unwrap().program;
                Some((path, Program::by_id(id).unwrap().unwrap()))
            }
            _ => None,
        };
        entries.filter_map(|e| program(e.unwrap().path())).collect()
    }

    fn switches(&self) -> [String; 2] {
        let read = || {
            ["accept_local", "route_localnet"].map(|name| {
                let path = format!("/proc/sys/net/ipv4/conf/lo/{name}");
                std::fs::read_to_string(path).unwrap().trim().to_owned()
            })
        };
        self.pod.run(read).unwrap()
    }
}

fn redirect(enable_ipv6: bool) -> Redirect {
    let config = Config {
        enable_ipv6,
        redirect_dns: true,
        ..Config::default()
    };
    Redirect::new(config, &PodOverrides::default()).unwrap()
}

/// A program with this name that lets every packet pass.
fn pass(name: &str) -> Program {
    let spec = ProgramSpec {
        kind: BPF_PROG_TYPE_SCHED_CLS,
        attach_type: 0,
        name,
        license: c"Apache-2.0",
        // r0 = -1; exit
        instructions: &[
            [0xb7, 0, 0, 0, 255, 255, 255, 255],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ],
    };
    Program::load_with_log(&spec).unwrap()
}

#[test]
fn a_program_of_the_same_name_is_replaced() {
    let Some(scene) = Scene::build() else {
        return;
    };
    let bpffs = Bpffs::at(scene.mounted.path()).unwrap();
    let pod = Pod::of(&scene.pod, &bpffs).unwrap();
    let wanted = redirect(false);
    pod.apply(&wanted).unwrap();
    let programs = scene.programs();
    // With the module ip_gre, each network namespace has gretap0 and erspan0 as well.
    let pins: Vec<_> = programs
        .iter()
        .filter_map(|(path, _)| path.file_name())
        .collect();
    let eth0 = Routing::open_in(&scene.pod).unwrap().link("eth0").unwrap();
    let (ingress, egress) = (
        format!("ingress_{}", eth0.index),
        format!("egress_{}", eth0.index),
    );
    for pin in ["ingress_1", &ingress, &egress] {
        assert!(pins.contains(&pin.as_ref()), "{pins:?}");
    }
    for (path, own) in programs {
        let Ok(Pinned::Link(link)) = open_pin(&path) else {
            panic!("{path:?} is no link");
        };
        let own = own.info().unwrap();
        link.replace(&pass(&own.name), None).unwrap();
        let changes = pod.verify(&wanted).unwrap();
        assert!(changes.len() == 1, "{path:?}: {changes:?}");
        assert_eq!(pod.apply(&wanted).unwrap(), changes);
        assert_eq!(pod.verify(&wanted).unwrap(), []);
        let id = link.info().unwrap().program;
        let now = Program::by_id(id).unwrap().unwrap().info().unwrap();
        assert_eq!((now.tag, now.maps), (own.tag, own.maps));
    }
    pod.remove().unwrap();
}

/// Pins below the directory of the pod.
const MAPS: [&str; 8] = [
    "weir_sockets",
    "weir_counts",
    "weir_node_netns",
    "weir_queries",
    "weir_before",
    "weir_pace",
    "../../weir_watch",
    "../../weir_events",
];

/// Pins a map of the same form in place of another one, or of another form.
fn pin_other(path: &Path, has_form: bool) {
    let Ok(Pinned::Map(there)) = open_pin(path) else {
        panic!("{path:?} is no map");
    };
    let form = there.info().unwrap();
    std::fs::remove_file(path).unwrap();
    let other = match form.kind {
        BPF_MAP_TYPE_ARRAY => BPF_MAP_TYPE_HASH,
        _ => BPF_MAP_TYPE_ARRAY,
    };
    let spec = match has_form {
        true => MapSpec {
            kind: form.kind,
            key_size: form.key_size,
            value_size: form.value_size,
            max_entries: form.max_entries,
            flags: form.flags,
            name: &form.name,
            describe: form.name == "weir_sockets",
        },
        false => MapSpec {
            kind: other,
            key_size: 4,
            value_size: 8,
            max_entries: 3,
            flags: 0,
            name: &form.name,
            describe: false,
        },
    };
    use std::os::fd::AsFd;
    pin(Map::new(&spec).unwrap().as_fd(), path).unwrap();
}

#[test]
fn maps_that_are_not_the_pinned_ones_are_replaced_with_the_programs() {
    let Some(scene) = Scene::build() else {
        return;
    };
    let bpffs = Bpffs::at(scene.mounted.path()).unwrap();
    let pod = Pod::of(&scene.pod, &bpffs).unwrap();
    let wanted = redirect(false);
    let before = scene.switches();
    for how in ["unpinned", "another one", "another form"] {
        let change = |path: &Path| match how {
            "unpinned" => std::fs::remove_file(path).unwrap(),
            how => pin_other(path, how == "another one"),
        };
        for map in MAPS {
            pod.apply(&wanted).unwrap();
            change(&scene.folder().join(map));
            let changes = pod.verify(&wanted).unwrap();
            assert!(!changes.is_empty(), "{map} {how}");
            assert_eq!(pod.apply(&wanted).unwrap(), changes, "{map} {how}");
            assert_eq!(pod.verify(&wanted).unwrap(), [], "{map} {how}");
            let pins = MAPS.map(|map| match open_pin(&scene.folder().join(map)) {
                Ok(Pinned::Map(map)) => map.info().unwrap().id,
                other => panic!("{map}: {other:?}"),
            });
            for (path, program) in scene.programs() {
                let maps = program.info().unwrap().maps;
                assert!(maps.iter().all(|id| pins.contains(id)), "{path:?}");
            }
            assert_eq!(pod.counters().map(|all| all.len()), Some(9));
            pod.remove().unwrap();
            assert_eq!(scene.switches(), before, "{map} {how}");
        }
    }
}

/// Before they are found, too.
#[test]
fn sysctls_are_restored_without_their_previous_values() {
    let Some(scene) = Scene::build() else {
        return;
    };
    let bpffs = Bpffs::at(scene.mounted.path()).unwrap();
    let pod = Pod::of(&scene.pod, &bpffs).unwrap();
    let before = scene.switches();
    pod.apply(&redirect(false)).unwrap();
    assert_ne!(scene.switches(), before);
    std::fs::remove_file(scene.folder().join("weir_before")).unwrap();
    let planned = pod.plan_removal().unwrap();
    assert_eq!(pod.remove().unwrap(), planned);
    assert_eq!(scene.switches(), before);
    let routing = Routing::open_in(&scene.pod).unwrap();
    assert_eq!(routing.routes(100).unwrap(), []);
}

#[test]
fn routing_of_ipv6_is_deleted_with_the_capture_of_ipv6() {
    let Some(scene) = Scene::build().filter(|_| weir_cni::redirection::has_ipv6()) else {
        return;
    };
    let bpffs = Bpffs::at(scene.mounted.path()).unwrap();
    let pod = Pod::of(&scene.pod, &bpffs).unwrap();
    let routing = Routing::open_in(&scene.pod).unwrap();
    let count = |family| {
        let rules = routing.rules().unwrap().into_iter();
        let rules = rules.filter(|r| r.family == family && r.fwmark.is_some());
        let routes = routing.routes(100).unwrap().into_iter();
        let routes = routes.filter(|r| r.family() == family);
        (rules.count(), routes.count())
    };
    let families = || [AddressFamily::V4, AddressFamily::V6].map(count);
    pod.apply(&redirect(true)).unwrap();
    assert_eq!(families(), [(1, 1), (1, 1)]);
    let planned = pod.verify(&redirect(false)).unwrap();
    assert_eq!(pod.apply(&redirect(false)).unwrap(), planned);
    assert_eq!(families(), [(1, 1), (0, 0)]);
    assert_eq!(pod.verify(&redirect(false)).unwrap(), []);
    pod.remove().unwrap();
    assert_eq!(families(), [(0, 0), (0, 0)]);
}

#[test]
fn lo_that_is_down_is_reported() {
    let Some(scene) = Scene::build() else {
        return;
    };
    let routing = Routing::open_in(&scene.pod).unwrap();
    let eth0 = routing.link("eth0").unwrap().index;
    let address = "10.244.0.5/24".parse().unwrap();
    assert!(routing.add_address(eth0, address).unwrap());
    let sandbox = Sandbox::of(scene.pod.try_clone().unwrap()).unwrap();
    let bpffs = Bpffs::at(scene.mounted.path()).unwrap();
    let pod = Pod::in_sandbox(&sandbox, &bpffs);
    pod.apply(&redirect(false)).unwrap();
    let without = redirect(false).compile_without_rules();
    let find = || sandbox.visit_for(&AMBIENT, |visit| visit.hindrances_of_programs(&without));
    assert_eq!(find().unwrap(), Ok(Vec::new()));
    let down = || {
        let mut ip = std::process::Command::new("ip");
        ip.args(["link", "set", "lo", "down"]).status().expect("ip")
    };
    assert!(scene.pod.run(down).unwrap().success());
    let found = find().unwrap().unwrap();
    assert!(
        found.len() == 1 && found[0].contains("`lo` is down"),
        "{found:?}"
    );
    pod.remove().unwrap();
}
