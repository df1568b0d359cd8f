//! A part of a change fails: what worked before continues to work, and failed parts do not count as done.

use crate::scene::{NEIGHBOUR, POD, PROXY, SECOND, Scene, address, device, set};
use std::os::fd::AsFd;
use weir_bpf::{Anchor, BPF_MAP_TYPE_ARRAY, BPF_TCX_INGRESS, Link, Map};
use weir_ebpf::asm::{Assembler, Reg};
use weir_ebpf::node::{Changes, Exclusions, Node, Refusals, Wanted};
use weir_ebpf::{Bpffs, show};
use weir_netlink::route::{Qdisc, Routing};

/// A qdisc of another writer that has no place for programs.
fn occupied(routing: &Routing, number: u8) -> Qdisc {
    let index = routing.link(&device(number)).unwrap().index;
    let qdisc = Qdisc {
        kind: "ingress".to_owned(),
        ..Qdisc::clsact(index)
    };
    assert!(routing.add_qdisc(&qdisc).unwrap());
    qdisc
}

fn programs(scene: &Scene) -> usize {
    let all = [&scene.node, &scene.inside[&PROXY]];
    let count = |netns| {
        show::read(netns, Some(&scene.bpffs()))
            .unwrap()
            .programs
            .len()
    };
    all.map(count).iter().sum()
}

/// While another proxy takes over, the link of a second pod accepts no program.
// matrix: every
#[test]
fn pods_reach_the_new_proxy_although_one_cannot_be_captured() {
    for scene in Scene::builds().filter(|scene| scene.mounted.by_filters()) {
        scene.serve();
        scene.apply(&scene.wanted(&[POD], PROXY));
        assert_eq!(scene.asked_by(POD), "first");
        let routing = scene.routing();
        let qdisc = occupied(&routing, NEIGHBOUR);
        let wanted = scene.wanted(&[POD, NEIGHBOUR], SECOND);
        for _ in 0..2 {
            let why = scene.refused(&wanted);
            assert!(why.contains("qdisc ingress is there"), "{why}");
            assert_eq!(scene.asked_by(POD), "second");
            assert_eq!(scene.asked_by(NEIGHBOUR), "outside");
            assert_eq!(scene.captured(), [address(POD)]);
        }
        assert!(routing.delete_qdisc(&qdisc).unwrap());
        scene.apply(&wanted);
        assert_eq!(scene.asked_by(NEIGHBOUR), "second");
    }
}

/// The link of the new proxy accepts no program: the old proxy stays active.
#[test]
fn pods_reach_the_old_proxy_when_the_new_one_cannot_take_over() {
    for scene in Scene::builds().filter(|scene| scene.mounted.by_filters()) {
        scene.serve();
        scene.apply(&scene.wanted(&[POD], PROXY));
        let routing = scene.routing();
        let qdisc = occupied(&routing, SECOND);
        let wanted = scene.wanted(&[POD, NEIGHBOUR], SECOND);
        scene.refused(&wanted);
        assert_eq!(scene.asked_by(POD), "first");
        assert_eq!(scene.captured(), [address(POD)]);
        assert!(routing.delete_qdisc(&qdisc).unwrap());
        scene.apply(&wanted);
        assert_eq!([POD, NEIGHBOUR].map(|n| scene.asked_by(n)), ["second"; 2]);
    }
}

/// Nothing was captured before, and nothing is captured afterwards.
#[test]
fn a_first_change_that_fails_leaves_no_program() {
    for scene in Scene::builds().filter(|scene| scene.mounted.by_filters()) {
        scene.serve();
        let routing = scene.routing();
        let qdisc = occupied(&routing, NEIGHBOUR);
        let proxy = &scene.inside[&PROXY];
        set(&scene.node, "ipv4/conf/all/rp_filter", "1");
        set(proxy, "ipv4/conf/eth0/forwarding", "1");
        let key = format!("ipv4/conf/{}/rp_filter", device(PROXY));
        let state = || {
            let read = |key| std::fs::read_to_string(format!("/proc/sys/net/{key}")).unwrap();
            let at_proxy = proxy.run(|| {
                let routing = Routing::open().unwrap();
                let routed = (routing.rules().unwrap(), routing.routes(100).unwrap());
                (read("ipv4/conf/eth0/forwarding"), routed)
            });
            let pins = std::fs::read_dir(scene.mounted.path().join("weir/v2"));
            let pins = pins.map_or(0, Iterator::count);
            let at_node = scene.node.run(|| read(&key));
            (at_node.unwrap(), at_proxy.unwrap(), pins)
        };
        let before = state();
        let wanted = scene.wanted(&[POD, NEIGHBOUR], PROXY);
        scene.refused(&wanted);
        assert_eq!((programs(&scene), scene.captured()), (0, vec![]));
        assert_eq!(state(), before);
        assert_eq!([POD, NEIGHBOUR].map(|n| scene.asked_by(n)), ["outside"; 2]);
        assert!(routing.delete_qdisc(&qdisc).unwrap());
        scene.apply(&wanted);
        assert_eq!([POD, NEIGHBOUR].map(|n| scene.asked_by(n)), ["first"; 2]);
    }
}

/// Makes the kernel refuse programs: a qdisc of another writer, or the maximum number of programs at one hook.
fn refuse(scene: &Scene, number: u8) -> impl FnOnce() {
    let routing = scene.routing();
    let mut links = Vec::new();
    let qdisc = scene
        .mounted
        .by_filters()
        .then(|| occupied(&routing, number));
    if qdisc.is_none() {
        let index = routing.link(&device(number)).unwrap().index;
        let mut pass = Assembler::new();
        pass.mov(Reg::R0, -1);
        pass.exit();
        let code = pass.finish().unwrap();
        // A program cannot be attached twice to one hook.
        let attach = |_: &u8| {
            let program = code.load("another", &[]).unwrap();
            Link::to_interface(&program, index, BPF_TCX_INGRESS, Anchor::First).ok()
        };
        scene
            .node
            .run(|| links.extend([0; 100].iter().map_while(attach)))
            .unwrap();
    }
    move || {
        if let Some(qdisc) = qdisc {
            assert!(routing.delete_qdisc(&qdisc).unwrap());
        }
        for link in links {
            link.detach().unwrap();
        }
    }
}

/// The programs had replaced those of another layout: they stay attached.
// matrix: every
#[test]
fn what_replaced_another_layout_captures_after_a_failure() {
    for scene in Scene::builds() {
        scene.serve();
        scene.apply(&scene.wanted(&[POD], PROXY));
        let weir = scene.mounted.path().join("weir");
        std::fs::create_dir(weir.join("v1")).unwrap();
        for netns in [&scene.node, &scene.inside[&PROXY]] {
            let name = netns.id().ino.to_string();
            let [new, old] = ["v2", "v1"].map(|layout| weir.join(layout).join(&name));
            std::fs::rename(new, old).unwrap();
        }
        let wanted = scene.wanted(&[POD, NEIGHBOUR], PROXY);
        let accept = refuse(&scene, NEIGHBOUR);
        for _ in 0..2 {
            scene.refused(&wanted);
            assert_eq!(scene.asked_by(POD), "first");
            assert_eq!(scene.asked_by(NEIGHBOUR), "outside");
        }
        accept();
        scene.apply(&wanted);
        assert_eq!([POD, NEIGHBOUR].map(|n| scene.asked_by(n)), ["first"; 2]);
        let left = std::fs::read_dir(weir.join("v1")).unwrap().count();
        assert_eq!(left, 0, "of the other layout");
    }
}

/// An object that cannot be read does not count as absent.
#[test]
fn whether_something_is_pinned_is_known_or_an_error() {
    for scene in Scene::builds() {
        let bpffs = scene.bpffs();
        let node = Node::of(&scene.node, &bpffs);
        let proxy = scene.inside[&PROXY].try_clone().unwrap();
        let path = proxy.path();
        let is_present = || node.is_present([path.as_path()]);
        assert!(!is_present().unwrap());
        scene.apply(&scene.wanted(&[POD], PROXY));
        assert!(is_present().unwrap());
        node.remove(&[proxy.try_clone().unwrap()]).unwrap();
        assert!(!is_present().unwrap());
        // It leads to itself.
        scene.apply(&scene.wanted(&[POD], PROXY));
        let name = scene.node.id().ino.to_string();
        let obsolete = scene
            .mounted
            .path()
            .join("weir/v2")
            .join(name)
            .join("weir_asked");
        std::os::unix::fs::symlink(&obsolete, &obsolete).unwrap();
        let error = node.compare(&scene.wanted(&[POD], PROXY)).unwrap_err();
        assert!(error.to_string().contains("weir_asked"), "{error}");
        std::fs::remove_file(&obsolete).unwrap();
        node.remove(&[proxy.try_clone().unwrap()]).unwrap();
        let error = node.is_present([std::path::Path::new("/proc/version/ns")]);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("/proc/version/ns"), "{error}");
        assert!(
            !node
                .is_present([std::path::Path::new("/proc/0/ns/net")])
                .unwrap()
        );
        // Another object has the path of the directory that contains the folders.
        let layout = scene.mounted.path().join("weir/v2");
        std::fs::remove_dir(&layout).unwrap();
        let map = Map::create(BPF_MAP_TYPE_ARRAY, 4, 4, 1, 0).unwrap();
        weir_bpf::pin(map.as_fd(), &layout).unwrap();
        let error = is_present().unwrap_err().to_string();
        assert!(error.contains("weir/v2"), "{error}");
    }
}

/// The result names the pod, and the maps do not contain its exclusions; everything else is applied.
// matrix: every
#[test]
fn a_pod_that_cannot_be_captured_is_left_out() {
    for scene in Scene::builds() {
        scene.serve();
        let refusals = Refusals::default();
        let bpffs = scene.bpffs().leaving_out(&refusals);
        let node = Node::of(&scene.node, &bpffs);
        let accept = refuse(&scene, NEIGHBOUR);
        let exclude = Exclusions {
            outbound_ports: [81].into(),
            ..Exclusions::default()
        };
        let wanted = |proxy| Wanted {
            exclude_of: [POD, NEIGHBOUR]
                .map(|n| (address(n), exclude.clone()))
                .into(),
            ..scene.wanted(&[POD, NEIGHBOUR], proxy)
        };
        for (proxy, name) in [(PROXY, "first"), (SECOND, "second")] {
            let is_left_out = |changes: &Changes| changes.left_out.keys().eq([&device(NEIGHBOUR)]);
            let all = node.apply(&wanted(proxy)).unwrap();
            assert!(is_left_out(&all) && !all.is_empty(), "{all:?}");
            // The pod is not tried again as long as nothing changes there.
            let [seen, again] = [node.compare(&wanted(proxy)), node.apply(&wanted(proxy))];
            for changes in [seen.unwrap(), again.unwrap()] {
                assert!(is_left_out(&changes) && changes.is_empty(), "{changes:?}");
            }
            assert_eq!(scene.captured(), [address(POD)]);
            assert_eq!(
                [POD, NEIGHBOUR].map(|n| scene.asked_by(n)),
                [name, "outside"]
            );
        }
        let is_tried = |wanted: &Wanted| {
            let changes = node.compare(wanted).unwrap();
            let mut lines = changes.host.iter().map(ToString::to_string);
            lines.any(|line| line.starts_with("attach") && line.contains(&device(NEIGHBOUR)))
        };
        let other_programs = Wanted {
            dns: !wanted(SECOND).dns,
            ..wanted(SECOND)
        };
        assert!(is_tried(&other_programs));
        node.apply(&wanted(SECOND)).unwrap();
        accept();
        assert!(is_tried(&wanted(SECOND)));
        let all = node.apply(&wanted(SECOND)).unwrap();
        assert!(all.left_out.is_empty(), "{all:?}");
        assert_eq!([POD, NEIGHBOUR].map(|n| scene.asked_by(n)), ["second"; 2]);
    }
}

/// `Bpffs::may_be_at` chooses the path where pins are looked for.
#[test]
fn a_bpf_file_system_that_cannot_be_examined_may_be_mounted() {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = weir_testing::TempDir::new();
    let may_be_at = |name: &str| Bpffs::may_be_at(&dir.file(name));
    symlink("loop", dir.file("loop")).unwrap();
    dir.write("file", "");
    for (name, may_be) in [
        ("", false),
        ("none", false),
        ("file", false),
        ("loop", true),
        ("file/below", true),
    ] {
        assert_eq!(may_be_at(name), may_be, "{name}");
    }
    if let Some(mounted) = weir_testing::BpfFs::mount() {
        assert!(Bpffs::may_be_at(mounted.path()));
    }
    // As the root directory of the node, to an agent that may not follow it.
    if let Some(reason) = weir_testing::rights::unmapped([65_534]) {
        println!("skipped: {reason}");
        return;
    }
    set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
    let may_be = std::thread::scope(|s| {
        let other = || {
            nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
            may_be_at("loop")
        };
        s.spawn(other).join().unwrap()
    });
    assert!(!may_be);
}
