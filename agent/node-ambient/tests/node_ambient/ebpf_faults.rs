//! Programs at the node: versions, other writers, and interrupted replacements.

use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::scene::{LONG, OUTSIDE, POD, PROXY, SECOND, Servers, connects, inside};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use weir_bpf::{Anchor, BPF_TCX_INGRESS, Link};
use weir_ebpf::asm::{Assembler, Code, Reg};
use weir_ebpf::node::{Node, Proxy, Wanted};
use weir_netlink::Netns;
use weir_netlink::route::{Filter, FilterKind, Qdisc, Routing, TcHandle};
use weir_node_ambient::ebpf::{apply, compare, remove};
use weir_testing::{BpfFs, Ends};

pub(crate) fn folder(mounted: &BpfFs, netns: &Netns) -> PathBuf {
    let name = netns.id().ino.to_string();
    mounted.path().join("weir/v2").join(name)
}

/// Pins of another layout are replaced while connections are made: all of them are captured.
// matrix: every
#[test]
fn check_5_another_layout_is_replaced_without_a_gap() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], "");
        applied(&scene, &mounted, &config);
        let old = mounted.path().join("weir/v1");
        std::fs::create_dir(&old).unwrap();
        for netns in [&scene.node, &scene.proxy] {
            let new = folder(&mounted, netns);
            std::fs::rename(&new, old.join(new.file_name().unwrap())).unwrap();
        }
        let end = AtomicBool::new(false);
        let asked = std::thread::scope(|scope| {
            let ends = Ends(&end);
            let asks = scope.spawn(|| {
                let mut asked = 0;
                while !end.load(Ordering::Relaxed) || asked < 4 {
                    for v6 in [false, true] {
                        let text = answer(&scene.pod, web(OUTSIDE, v6));
                        assert_eq!(text, "outbound|outside|x");
                        let text = answer(&scene.outside, web(POD, v6));
                        assert_eq!(text, "inbound|pod|x");
                    }
                    asked += 1;
                }
                asked
            });
            let applied = apply(&config, &scene.node, &bpffs(&mounted));
            drop(ends);
            applied.unwrap();
            asks.join().unwrap()
        });
        println!("{asked} rounds");
        assert!(
            compare(&config, &scene.node, &bpffs(&mounted))
                .unwrap()
                .is_empty()
        );
        assert_eq!(std::fs::read_dir(&old).unwrap().count(), 0);
        let shown = weir_ebpf::show::read(&scene.node, Some(&bpffs(&mounted))).unwrap();
        let at_pod = shown.programs.iter().filter(|p| p.interface == "v1");
        assert_eq!(at_pod.count(), 2, "{shown}");
        remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
        let rp_filter = crate::sysctl(&scene.node, "ipv4/conf/v2/rp_filter");
        assert_eq!(
            rp_filter, "0",
            "as it was before the older version changed it"
        );
        assert_eq!(answer(&scene.pod, web(OUTSIDE, false)), "outside|x");
    }
}

/// `r0 = -1; exit`
fn pass() -> Code {
    let mut asm = Assembler::new();
    asm.mov(Reg::R0, -1);
    asm.exit();
    asm.finish().unwrap()
}

fn wanted(scene: &crate::Scene, has_ipv6: bool) -> Wanted {
    let own = [inside(POD, false), inside(POD, true)];
    Wanted {
        pods: own.map(|a| (a, "v1".to_owned())).into(),
        addresses: Default::default(),
        proxy: Some(Proxy {
            netns: scene.proxy.path(),
            interface: "eth0".to_owned(),
            device: "v2".to_owned(),
            ..Proxy::default()
        }),
        has_ipv6,
        ..Wanted::default()
    }
}

/// The process was killed after the filter got its new program and before that was pinned under its name: the running program is recognized
/// and removed.
// matrix: every
#[test]
fn an_interrupted_replacement_is_known() {
    for (scene, mounted) in builds().filter(|(_, mounted)| mounted.by_filters()) {
        let _servers = Servers::start(&scene);
        let bpffs = bpffs(&mounted);
        let node = Node::of(&scene.node, &bpffs);
        let [old, new] = [false, true].map(|has_ipv6| wanted(&scene, has_ipv6));
        node.apply(&old).unwrap();
        let pin = |path: &Path| match weir_bpf::open_pin(path).unwrap() {
            weir_bpf::Pinned::Program(program) => program,
            other => panic!("{other:?}"),
        };
        let folder = folder(&mounted, &scene.node);
        let names: Vec<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("ingress_") || name.starts_with("egress_"))
            .collect();
        assert_eq!(names.len(), 3, "{names:?}");
        let programs: Vec<_> = names.iter().map(|name| pin(&folder.join(name))).collect();
        node.apply(&new).unwrap();
        for (name, program) in names.iter().zip(&programs) {
            let path = folder.join(name);
            std::fs::rename(&path, folder.join(format!("next_{name}"))).unwrap();
            weir_bpf::pin(program.as_fd(), &path).unwrap();
        }
        let left = node.compare(&new).unwrap();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outbound|outside|x");
        node.apply(&old).unwrap();
        assert!(node.compare(&old).unwrap().is_empty());
        for (name, program) in names.iter().zip(&programs) {
            let path = folder.join(name);
            assert_ne!(pin(&path).info().unwrap().id, program.info().unwrap().id);
            assert!(!folder.join(format!("next_{name}")).exists());
            // The same state again, followed by a removal.
            std::fs::rename(&path, folder.join(format!("next_{name}"))).unwrap();
            weir_bpf::pin(program.as_fd(), &path).unwrap();
        }
        node.remove(&[scene.proxy.try_clone().unwrap()]).unwrap();
        let shown = weir_ebpf::show::read(&scene.node, Some(&bpffs)).unwrap();
        assert_eq!(shown.programs, [], "{shown}");
        assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outside|x");
    }
}

/// The process was killed after the link was created and before it was pinned under its name: the link does not count as another writer's,
/// and is removed.
#[test]
fn an_interrupted_attachment_is_known() {
    for (scene, mounted) in builds().filter(|(_, mounted)| !mounted.by_filters()) {
        let _servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], "");
        applied(&scene, &mounted, &config);
        let attach = || {
            let index = Routing::open().unwrap().link("v1").unwrap().index;
            let program = pass().load("weir_old", &[]).unwrap();
            let link = Link::to_interface(&program, index, BPF_TCX_INGRESS, Anchor::First);
            (index, link.unwrap())
        };
        let (index, link) = scene.node.run(attach).unwrap();
        let next = folder(&mounted, &scene.node).join(format!("next_ingress_{index}"));
        weir_bpf::pin(link.as_fd(), &next).unwrap();
        drop(link);
        let left = compare(&config, &scene.node, &bpffs(&mounted)).unwrap();
        let lines: Vec<String> = left.steps.host.iter().map(ToString::to_string).collect();
        let is_known =
            |line: &String| line.contains("not finished") && !line.contains("another writer");
        assert!(lines.len() == 1 && lines.iter().all(is_known), "{lines:?}");
        applied(&scene, &mounted, &config);
        assert!(!next.exists());
        assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outbound|outside|x");
    }
}

/// A filter of another writer with weir's preference, and a qdisc without egress filters, are named and stay.
// matrix: every
#[test]
fn filters_and_qdiscs_of_others_are_named_and_stay() {
    for (scene, mounted) in builds().filter(|(_, mounted)| mounted.by_filters()) {
        let config = scene.config(&[(PROXY, 1)], "");
        let refused = || {
            let refused = apply(&config, &scene.node, &bpffs(&mounted)).unwrap_err();
            assert_eq!(answer(&scene.pod, web(OUTSIDE, false)), "outside|x");
            refused.to_string()
        };
        let _servers = Servers::start(&scene);
        let routing = Routing::open_in(&scene.node).unwrap();
        let index = routing.link("v1").unwrap().index;
        let qdisc = Qdisc::clsact(index);
        assert!(routing.add_qdisc(&qdisc).unwrap());
        let program = pass().load("another", &[]).unwrap();
        let kind = FilterKind::bpf(program.as_fd(), "another");
        let theirs = Filter {
            handle: 0x7765_6972,
            ..Filter::new(index, TcHandle::INGRESS, 1, kind)
        };
        assert!(routing.add_filter(&theirs).unwrap());
        let why = refused();
        assert!(why.contains("preference 1"), "{why}");
        let filters = routing.filters(index, TcHandle::INGRESS).unwrap();
        assert!(
            filters.iter().any(|f| f.handle == theirs.handle),
            "{filters:?}"
        );
        assert!(routing.delete_qdisc(&qdisc).unwrap());
        let ingress = Qdisc {
            kind: "ingress".to_owned(),
            ..qdisc
        };
        assert!(routing.add_qdisc(&ingress).unwrap());
        let why = refused();
        assert!(why.contains("qdisc ingress is there"), "{why}");
        assert!(routing.delete_qdisc(&ingress).unwrap());
        applied(&scene, &mounted, &config);
        assert_eq!(
            answer(&scene.pod, web(OUTSIDE, false)),
            "outbound|outside|x"
        );
    }
}

/// The programs of a proxy's namespace use the maps of the node: if these are replaced, the proxy gets new programs.
#[test]
fn programs_with_other_maps_are_replaced() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], "");
        applied(&scene, &mounted, &config);
        // The proxy is not named without the configuration.
        remove(&scene.node, &bpffs(&mounted), None).unwrap();
        assert_eq!(answer(&scene.pod, web(OUTSIDE, false)), "outside|x");
        applied(&scene, &mounted, &config);
        for v6 in [false, true] {
            assert_eq!(answer(&scene.pod, web(OUTSIDE, v6)), "outbound|outside|x");
            assert_eq!(answer(&scene.outside, web(POD, v6)), "inbound|pod|x");
        }
    }
}

/// The kernel reuses the inode number of a deleted namespace: pins of that namespace are of no use.
#[test]
fn pins_of_an_older_namespace_with_the_same_inode_are_replaced() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], r#", "dns_capture": true"#);
        applied(&scene, &mounted, &config);
        // The folders of this node belong to deleted namespaces, and contain a map of another kind.
        let pins = [&scene.node, &scene.proxy].map(|n| folder(&mounted, n));
        remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
        for pin in pins {
            let other = Netns::create().unwrap();
            std::fs::create_dir(&pin).unwrap();
            let map = weir_bpf::Map::create(weir_bpf::BPF_MAP_TYPE_ARRAY, 4, 4, 1, 0).unwrap();
            weir_bpf::pin(map.as_fd(), &pin.join("weir_queries")).unwrap();
            let attach = || {
                let index = Routing::open().unwrap().link("lo").unwrap().index;
                let program = pass().load("weir_old", &[]).unwrap();
                let path = pin.join(format!("ingress_{index}"));
                match mounted.by_filters() {
                    true => weir_bpf::pin(program.as_fd(), &path).unwrap(),
                    false => {
                        let link =
                            Link::to_interface(&program, index, BPF_TCX_INGRESS, Anchor::First);
                        weir_bpf::pin(link.unwrap().as_fd(), &path).unwrap();
                    }
                }
            };
            other.run(attach).unwrap();
        }
        applied(&scene, &mounted, &config);
        assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outbound|outside|x");
        remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
    }
}

/// A sweep removes the pins of a proxy whose namespace is deleted, also those of another layout; those of the node and of the other proxy
/// stay.
#[test]
fn pins_of_a_proxy_that_is_gone_are_swept() {
    for layout in ["v2", "v1"] {
        for (mut scene, mounted) in builds() {
            applied(&scene, &mounted, &scene.config(&[(SECOND, 1)], ""));
            applied(&scene, &mounted, &scene.config(&[(PROXY, 2)], ""));
            let [pins, stays] = [&scene.second, &scene.proxy].map(|n| folder(&mounted, n));
            let gone = mounted.path().join("weir").join(layout);
            let gone = gone.join(pins.file_name().unwrap());
            std::fs::create_dir_all(gone.parent().unwrap()).unwrap();
            std::fs::rename(&pins, &gone).unwrap();
            assert!(gone.is_dir() && stays.is_dir());
            let living = [&scene.node, &scene.proxy].map(|n| n.id().ino);
            scene.second = Netns::create().unwrap();
            let begun = std::time::Instant::now();
            let sweep = || bpffs(&mounted).sweep(|| Some(living.into())).unwrap();
            while sweep() == 0 {
                assert!(begun.elapsed() < LONG, "not swept");
                std::thread::yield_now();
            }
            assert!(!gone.exists() && stays.is_dir());
            assert!(folder(&mounted, &scene.node).is_dir());
        }
    }
}

/// The namespace of the active proxy ends: nothing leaves in plain text, probes pass, and the error names the missing namespace.
#[test]
fn nothing_leaves_in_plain_text_when_the_namespace_of_the_proxy_ends() {
    for (mut scene, mounted) in builds() {
        let servers = Servers::of_others(&scene);
        let config = scene.config(&[(PROXY, 1)], "");
        applied(&scene, &mounted, &config);
        let gone = folder(&mounted, &scene.proxy);
        let living = [&scene.node, &scene.pod].map(|n| n.id().ino);
        scene.proxy = Netns::create().unwrap();
        let routing = Routing::open_in(&scene.node).unwrap();
        let begun = std::time::Instant::now();
        while routing.link("v2").is_ok() {
            assert!(begun.elapsed() < LONG, "its link is there");
            std::thread::yield_now();
        }
        let closed = || {
            for v6 in [false, true] {
                assert!(!connects(&scene.pod, web(OUTSIDE, v6)));
                assert!(!connects(&scene.outside, web(POD, v6)));
            }
            assert_eq!(servers.drain(), []);
            assert_eq!(answer(&scene.node, web(POD, false)), "pod|x");
            servers.drain();
        };
        closed();
        // Another file may have the number of its descriptor by now.
        let mut config = config;
        config.proxies[0].netns = "/run/netns/gone".into();
        let refused = apply(&config, &scene.node, &bpffs(&mounted)).unwrap_err();
        assert!(refused.to_string().contains("/run/netns/gone"), "{refused}");
        closed();
        applied(&scene, &mounted, &scene.config(&[], ""));
        closed();
        assert_eq!(bpffs(&mounted).sweep(|| Some(living.into())).unwrap(), 1);
        assert!(!gone.exists());
    }
}
