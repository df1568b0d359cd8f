//! What is remembered of links and namespaces that are gone.

use crate::scene::{POD, PROXY, Scene, device, set};
use std::path::PathBuf;
use weir_ebpf::node::Node;
use weir_ebpf::show;

/// Each proxy has another link, whose sysctl is changed and written down.
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

/// Pins under the inode of a namespace that are of another one, which is gone, are not shown as its own.
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
        // Of a version with another layout.
        std::fs::rename(layout("v2"), layout("v1")).unwrap();
        assert_eq!(seen(), (3, false, true));
    }
}
