//! The records of a namespace in the pins of its programs: the namespace they belong to, its previous state, and the qdiscs that weir
//! created.

use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::ebpf_faults::folder;
use crate::scene::{OUTSIDE, POD, PROXY, Servers};
use std::os::fd::AsFd;
use weir_netlink::Netns;
use weir_netlink::route::{Qdisc, Routing, TcHandle};
use weir_node_ambient::ebpf::{compare, remove};
use weir_testing::BpfFs;

/// The cookie in the folder shows that it belongs to another namespace, which is deleted.
#[test]
fn pins_with_the_cookie_of_another_namespace_are_replaced() {
    for (scene, mounted) in builds() {
        if scene.node.cookie().unwrap().is_none() {
            return weir_testing::lacks::skip("SO_NETNS_COOKIE", "5.14", "no cookies");
        }
        let _servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], r#", "dns_capture": true"#);
        let pin = folder(&mounted, &scene.node);
        let stale = || {
            std::fs::create_dir_all(pin.join("netns_1")).unwrap();
            let map = weir_bpf::Map::create(weir_bpf::BPF_MAP_TYPE_ARRAY, 4, 4, 1, 0).unwrap();
            weir_bpf::pin(map.as_fd(), &pin.join("weir_queries")).unwrap();
        };
        stale();
        applied(&scene, &mounted, &config);
        assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outbound|outside|x");
        remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
        stale();
        remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
        assert!(!pin.exists());
    }
}

/// A map that an earlier version pinned, and that no program uses any more.
#[test]
fn maps_of_an_earlier_version_are_unpinned() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], "");
        applied(&scene, &mounted, &config);
        let old = folder(&mounted, &scene.node).join("weir_asked");
        let map = weir_bpf::Map::create(weir_bpf::BPF_MAP_TYPE_LRU_HASH, 20, 16, 9, 0).unwrap();
        weir_bpf::pin(map.as_fd(), &old).unwrap();
        let left = compare(&config, &scene.node, &bpffs(&mounted)).unwrap();
        let left: Vec<String> = left.steps.host.iter().map(ToString::to_string).collect();
        assert_eq!(left, ["unpin map weir_asked of an earlier version"]);
        applied(&scene, &mounted, &config);
        assert!(!old.exists());
        assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outbound|outside|x");
    }
}

/// Detaches everything that is pinned in a folder, as `bpftool link detach` and `tc filter del` do. Returns the number of programs.
fn detach_all(mounted: &BpfFs, netns: &Netns) -> usize {
    let mut detached = 0;
    for entry in std::fs::read_dir(folder(mounted, netns)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some((direction @ ("ingress" | "egress"), index)) = name.split_once('_') else {
            continue;
        };
        detached += 1;
        if let weir_bpf::Pinned::Link(link) = weir_bpf::open_pin(&path).unwrap() {
            link.detach().unwrap();
            continue;
        }
        let parent = match direction {
            "ingress" => TcHandle::INGRESS,
            _ => TcHandle::EGRESS,
        };
        let routing = Routing::open_in(netns).unwrap();
        let index = index.parse().unwrap();
        for filter in routing.filters(index, parent).unwrap() {
            routing.delete_filter(&filter).unwrap();
        }
    }
    detached
}

/// Another program has detached all of weir's programs while the namespaces exist: the record of their previous state is kept.
// matrix: every
#[test]
fn what_was_before_is_known_after_all_programs_were_detached() {
    for (scene, mounted) in builds() {
        if scene.node.cookie().unwrap().is_none() {
            return weir_testing::lacks::skip("SO_NETNS_COOKIE", "5.14", "no cookies");
        }
        let _servers = Servers::start(&scene);
        let keys = ["ipv4/conf/eth0/forwarding", "ipv6/conf/all/forwarding"];
        for key in keys {
            crate::scene::set(&scene.proxy, key, "1");
        }
        let all = || {
            let at_proxy = keys.map(|key| crate::sysctl(&scene.proxy, key));
            let rp_filter = crate::sysctl(&scene.node, "ipv4/conf/v2/rp_filter");
            (crate::state(&scene), at_proxy, rp_filter, qdiscs(&scene))
        };
        let before = all();
        let config = scene.config(&[(PROXY, 1)], "");
        applied(&scene, &mounted, &config);
        let detached = [&scene.node, &scene.proxy].map(|netns| detach_all(&mounted, netns));
        assert_eq!(detached, [3, 1]);
        assert_eq!(answer(&scene.pod, web(OUTSIDE, false)), "outside|x");
        let living = [&scene.node, &scene.proxy].map(|n| n.id().ino);
        let swept = bpffs(&mounted).sweep(|| Some(living.into())).unwrap();
        assert_eq!(swept, 0, "of namespaces that are alive");
        applied(&scene, &mounted, &config);
        for v6 in [false, true] {
            assert_eq!(answer(&scene.pod, web(OUTSIDE, v6)), "outbound|outside|x");
            assert_eq!(answer(&scene.outside, web(POD, v6)), "inbound|pod|x");
        }
        remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
        assert_eq!(all(), before);
        // The same without attaching the programs again.
        applied(&scene, &mounted, &config);
        for netns in [&scene.node, &scene.proxy] {
            detach_all(&mounted, netns);
        }
        remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
        assert_eq!(all(), before);
    }
}

/// Interfaces of the node and of the proxy that have a clsact qdisc.
pub(crate) fn qdiscs(scene: &crate::Scene) -> Vec<String> {
    let mut names = Vec::new();
    for netns in [&scene.node, &scene.proxy] {
        let routing = Routing::open_in(netns).unwrap();
        let links = routing.links().unwrap();
        for qdisc in routing.qdiscs().unwrap() {
            if qdisc.kind == "clsact" {
                let link = links.iter().find(|link| link.index == qdisc.link);
                names.push(link.unwrap().name.clone());
            }
        }
    }
    names.sort();
    names
}

/// The record of the qdiscs that weir created survives a change of the layout: weir deletes these, and keeps that of another writer.
// matrix: every
#[test]
fn qdiscs_of_another_layout_are_deleted_and_foreign_ones_stay() {
    for (scene, mounted) in builds().filter(|(_, mounted)| mounted.by_filters()) {
        let _servers = Servers::start(&scene);
        let routing = Routing::open_in(&scene.node).unwrap();
        // A qdisc of another writer, without a filter.
        let foreign = Qdisc::clsact(routing.link("v1").unwrap().index);
        assert!(routing.add_qdisc(&foreign).unwrap());
        let config = scene.config(&[(PROXY, 1)], "");
        let age = || {
            let old = mounted.path().join("weir/v1");
            std::fs::create_dir_all(&old).unwrap();
            for netns in [&scene.node, &scene.proxy] {
                let new = folder(&mounted, netns);
                std::fs::rename(&new, old.join(new.file_name().unwrap())).unwrap();
            }
        };
        let remove = || remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
        let before = crate::state(&scene);
        for _ in 0..2 {
            applied(&scene, &mounted, &config);
            assert_eq!(qdiscs(&scene), ["eth0", "v1", "v2"]);
            age();
        }
        applied(&scene, &mounted, &config);
        remove();
        assert_eq!(qdiscs(&scene), ["v1"]);
        // A version that has attached nothing removes it.
        applied(&scene, &mounted, &config);
        age();
        remove();
        assert_eq!(qdiscs(&scene), ["v1"]);
        assert_eq!(crate::state(&scene), before);
        // The newer version needs no program at the interface, and was killed before it removed what the older one left.
        assert!(routing.delete_qdisc(&foreign).unwrap());
        applied(&scene, &mounted, &config);
        age();
        let none = weir_node_ambient::Config {
            pods: Vec::new(),
            ..config.clone()
        };
        let pins = folder(&mounted, &scene.node);
        std::fs::create_dir(&pins).unwrap();
        let old = mounted
            .path()
            .join("weir/v1")
            .join(pins.file_name().unwrap());
        let mark = format!("qdisc_{}", foreign.link);
        std::fs::rename(old.join(&mark), pins.join(&mark)).unwrap();
        applied(&scene, &mounted, &none);
        assert_eq!(qdiscs(&scene), ["eth0", "v2"]);
        remove();
        assert_eq!(qdiscs(&scene), [""; 0]);
    }
}
