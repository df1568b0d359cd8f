//! Changes from one desired state to another.

use crate::scene::{NEIGHBOUR, POD, PROXY, SECOND, Scene, address, device};
use ipnet::{IpNet, Ipv4Net};
use std::collections::BTreeMap;
use std::net::IpAddr;
use weir_bpf::{BPF_PROG_TYPE_SCHED_CLS, Pinned, Program, ProgramSpec, open_pin};
use weir_ebpf::node::{Exclusions, Node, Wanted};

/// DNS is no longer captured with the same proxy; later connections are captured, and later DNS as well.
// matrix: every
#[test]
fn the_capture_of_names_is_switched_off_and_on() {
    for scene in Scene::builds() {
        scene.serve();
        let wanted = |pods: &[u8], proxy, dns| Wanted {
            dns,
            ..scene.wanted(pods, proxy)
        };
        scene.apply(&wanted(&[POD], PROXY, true));
        scene.apply(&wanted(&[POD], PROXY, false));
        scene.apply(&wanted(&[POD, NEIGHBOUR], PROXY, false));
        assert_eq!([POD, NEIGHBOUR].map(|n| scene.asked_by(n)), ["first"; 2]);
        scene.apply(&wanted(&[POD], SECOND, false));
        scene.apply(&wanted(&[POD], SECOND, true));
        assert_eq!(scene.asked_by(POD), "second");
    }
}

/// The longest permitted lists of a configuration replace each other.
// matrix: every
#[test]
fn a_list_of_exclusions_follows_another() {
    for scene in Scene::builds() {
        scene.serve();
        let list = |first: u32| -> Wanted {
            let net = |n: u32| {
                let net = Ipv4Net::new((((20 << 16) | n) << 8).into(), 24);
                // The last network of a list is an exception from another one.
                (IpNet::V4(net.unwrap()), n % 1000 != 999)
            };
            let ports = |first: u32| (first + 1..=first + 1000).map(|n| n.try_into().unwrap());
            let exclude = Exclusions {
                peers: (first..first + 1000).map(net).collect(),
                outbound_ports: ports(first + 1000).collect(),
                inbound_ports: ports(first + 10_000).collect(),
            };
            Wanted {
                exclude,
                ..scene.wanted(&[POD], PROXY)
            }
        };
        for first in [0, 3000, 3500] {
            scene.apply(&list(first));
            assert_eq!(scene.asked_by(POD), "first");
        }
        // Lists of exceptions alone; then other exceptions.
        for first in [0, 5000] {
            let mut wanted = list(first);
            wanted.exclude.peers.values_mut().for_each(|is| *is = false);
            scene.apply(&wanted);
        }
        assert_eq!(scene.asked_by(POD), "first");
    }
}

/// The map is full of addresses; all of them are replaced, and one more is refused.
#[test]
fn a_full_map_of_pods_takes_others_instead() {
    for scene in Scene::builds() {
        scene.serve();
        let wanted = |first: u32, count: u32| {
            let pod = |n: u32| -> (IpAddr, String) {
                (
                    std::net::Ipv4Addr::from((100 << 24) | n).into(),
                    device(NEIGHBOUR),
                )
            };
            let mut wanted = scene.wanted(&[POD], PROXY);
            wanted
                .pods
                .extend((first..first + count).map(pod).collect::<BTreeMap<_, _>>());
            wanted
        };
        scene.apply(&wanted(0, 16_383));
        scene.apply(&wanted(100_000, 16_383));
        assert_eq!(scene.asked_by(POD), "first");
        let why = scene.refused(&wanted(100_000, 16_384));
        assert!(why.contains("room for 16384 addresses"), "{why}");
        assert_eq!(scene.asked_by(POD), "first");
        scene.apply(&wanted(200_000, 2));
        assert_eq!(scene.captured().len(), 3);
        assert!(scene.captured().contains(&address(POD)));
    }
}

/// Another writer gives the link of each program one that has the same name and lets every packet pass.
#[test]
fn a_program_of_the_same_name_is_replaced() {
    for scene in Scene::builds().filter(|scene| !scene.mounted.by_filters()) {
        scene.serve();
        let wanted = scene.wanted(&[POD], PROXY);
        scene.apply(&wanted);
        let bpffs = scene.bpffs();
        let node = Node::of(&scene.node, &bpffs);
        let mut replaced = 0;
        for netns in [&scene.node, &scene.inside[&PROXY]] {
            let layout = scene.mounted.path().join("weir/v2");
            let folder = layout.join(netns.id().ino.to_string());
            for entry in std::fs::read_dir(folder).unwrap() {
                let Ok(Pinned::Link(link)) = open_pin(&entry.unwrap().path()) else {
                    continue;
                };
                let own = || {
                    Program::by_id(link.info().unwrap().program)
                        .unwrap()
                        .unwrap()
                };
                let own = || own().info().unwrap();
                let before = own();
                let spec = ProgramSpec {
                    kind: BPF_PROG_TYPE_SCHED_CLS,
                    attach_type: 0,
                    name: &before.name,
                    license: c"Apache-2.0",
                    // r0 = -1; exit
                    instructions: &[
                        [0xb7, 0, 0, 0, 255, 255, 255, 255],
                        [0x95, 0, 0, 0, 0, 0, 0, 0],
                    ],
                };
                let other = Program::load_with_log(&spec).unwrap();
                link.replace(&other, None).unwrap();
                let changes = node.compare(&wanted).unwrap();
                assert_eq!(changes.host.len() + changes.proxy.len(), 1, "{changes:?}");
                scene.apply(&wanted);
                assert_eq!((own().tag, own().maps), (before.tag, before.maps));
                replaced += 1;
            }
        }
        assert_eq!(replaced, 4);
        assert_eq!(scene.asked_by(POD), "first");
    }
}

/// A map of another form is pinned in place of one that programs use.
#[test]
fn a_map_of_another_form_is_replaced_with_the_programs() {
    for scene in Scene::builds() {
        scene.serve();
        let wanted = scene.wanted(&[POD], PROXY);
        scene.apply(&wanted);
        let layout = scene.mounted.path().join("weir/v2");
        let folder = layout.join(scene.node.id().ino.to_string());
        for name in ["weir_pods", "weir_counters", "weir_owners"] {
            let path = folder.join(name);
            std::fs::remove_file(&path).unwrap();
            let other = weir_bpf::Map::create(weir_bpf::BPF_MAP_TYPE_ARRAY, 4, 8, 3, 0).unwrap();
            weir_bpf::pin(std::os::fd::AsFd::as_fd(&other), &path).unwrap();
            let bpffs = scene.bpffs();
            let found = Node::of(&scene.node, &bpffs).compare(&wanted).unwrap();
            assert!(!found.is_empty(), "{name}");
            scene.apply(&wanted);
            assert_eq!(scene.asked_by(POD), "first", "{name}");
        }
    }
}
