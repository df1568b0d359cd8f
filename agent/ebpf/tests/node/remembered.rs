//! The record of links and namespaces that are deleted.

use crate::scene::{POD, PROXY, Scene, device, set};
use std::path::PathBuf;
use weir_ebpf::node::Node;
use weir_ebpf::show;
use weir_netlink::route::Routing;
use weir_testing::container;

/// Each proxy has another link, whose sysctl is changed and recorded.
#[test]
fn many_proxies_follow_each_other() {
    for scene in Scene::builds() {
        set(&scene.node, "ipv4/conf/all/rp_filter", "1");
        let rp_filter = |device: &str| {
            let key = format!("/proc/sys/net/ipv4/conf/{device}/rp_filter");
            let read = || std::fs::read_to_string(key).unwrap();
            scene.node.run(read).unwrap().trim().to_owned()
        };
        let before = rp_filter(&device(PROXY));
        let routing = scene.routing();
        for _ in 0..70 {
            let link = routing.link(&device(PROXY)).unwrap();
            routing.delete_link(link.index).unwrap();
            scene.join(PROXY);
            scene.apply(&scene.wanted(&[POD], PROXY));
            assert_eq!(rp_filter(&device(PROXY)), "2");
        }
        scene.serve();
        assert_eq!(scene.asked_by(POD), "first");
        let bpffs = scene.bpffs();
        let proxy = scene.inside[&PROXY].try_clone().unwrap();
        Node::of(&scene.node, &bpffs).remove(&[proxy]).unwrap();
        assert_eq!(rp_filter(&device(PROXY)), before);
    }
}

/// After a failed removal the pins of hooks are gone, but the record still names the interface that was changed.
#[test]
fn the_interface_of_the_proxy_is_known_after_a_failure() {
    for scene in Scene::builds() {
        let proxy = &scene.inside[&PROXY];
        let rename = || {
            let args = "link set eth0 down name net0";
            let mut ip = std::process::Command::new("ip");
            ip.args(args.split(' ')).status().expect("ip")
        };
        assert!(proxy.run(rename).unwrap().success());
        let routing = Routing::open_in(proxy).unwrap();
        routing.set_up(routing.link("net0").unwrap().index).unwrap();
        let keys = ["forwarding", "src_valid_mark"].map(|key| format!("ipv4/conf/net0/{key}"));
        for key in &keys {
            set(proxy, key, "1");
        }
        let state = || {
            let read = |key| std::fs::read_to_string(format!("/proc/sys/net/{key}")).unwrap();
            proxy.run(|| keys.each_ref().map(read)).unwrap()
        };
        let before = state();
        let mut wanted = scene.wanted(&[POD], PROXY);
        wanted.proxy.as_mut().unwrap().interface = "net0".to_owned();
        scene.apply(&wanted);
        assert_ne!(state(), before);
        let bpffs = scene.bpffs();
        let remove = || Node::of(&scene.node, &bpffs).remove(&[proxy.try_clone().unwrap()]);
        let without_sysctls = || {
            let hidden = container::read_only("/proc/sys".as_ref());
            let hidden = hidden.and_then(|()| container::empty("/proc/1".as_ref()));
            hidden.map(|()| remove())
        };
        let failed = std::thread::scope(|scope| scope.spawn(without_sysctls).join().unwrap());
        match failed {
            Ok(failed) => drop(failed.unwrap_err()),
            Err(e) => return println!("skipped: no mounts of its own: {e}"),
        }
        assert_ne!(state(), before);
        remove().unwrap();
        assert_eq!(state(), before);
    }
}

/// Pins in the folder of this namespace's inode number that belong to a deleted namespace are not shown.
#[test]
fn what_is_shown_is_of_this_namespace() {
    for scene in Scene::builds() {
        let Some(cookie) = scene.node.cookie().unwrap() else {
            return weir_testing::lacks::skip("SO_NETNS_COOKIE", "5.14", "no cookies");
        };
        scene.apply(&scene.wanted(&[POD], PROXY));
        let bpffs = scene.bpffs();
        let seen = || {
            let shown = show::read(&scene.node, Some(&bpffs)).unwrap();
            let own = shown.programs.iter().filter(|p| p.pin.is_some()).count();
            let counters = Node::of(&scene.node, &bpffs).counters();
            (own, shown.counters.is_empty(), counters.is_none())
        };
        assert_eq!(seen(), (3, false, false));
        let layout = |name: &str| -> PathBuf {
            let folder = scene.mounted.path().join("weir").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            folder.join(scene.node.id().ino.to_string())
        };
        let mark = |cookie: u64| layout("v2").join(format!("netns_{cookie}"));
        std::fs::remove_dir(mark(cookie)).unwrap();
        std::fs::create_dir(mark(1)).unwrap();
        assert_eq!(seen(), (0, true, true));
        std::fs::remove_dir(mark(1)).unwrap();
        std::fs::create_dir(mark(cookie)).unwrap();
        // Pins of a version with another layout.
        std::fs::rename(layout("v2"), layout("v1")).unwrap();
        assert_eq!(seen(), (3, false, true));
    }
}
