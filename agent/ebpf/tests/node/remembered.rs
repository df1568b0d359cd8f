//! What is remembered of links and namespaces that are gone.

use crate::scene::{POD, PROXY, Scene, device, set};
use weir_ebpf::node::Node;

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
