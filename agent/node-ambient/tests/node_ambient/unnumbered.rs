//! The proxy's link has no IPv4 address at the node, as with Calico and others.

use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::scene::{OUTSIDE, POD, PROXY, Scene, Servers, address, inside, set, sysctl};
use ipnet::IpNet;
use weir_netlink::route::{Route, Routing};
use weir_node_ambient::ebpf::{apply, remove};

/// Moves the address by which the proxy reaches the node to `lo`; the kernel still answers ARP requests for it.
fn without_an_address(scene: &Scene) {
    let node = Routing::open_in(&scene.node).unwrap();
    let [lo, link] = ["lo", "v2"].map(|name| node.link(name).unwrap().index);
    let own = address(PROXY, false, 1);
    let net = IpNet::new(own, 24).unwrap();
    assert!(node.del_address(link, net).unwrap());
    assert!(node.add_address(lo, own.into()).unwrap());
    let to = inside(PROXY, false).into();
    node.add_route(&Route::unicast(to, None, Some(link)))
        .unwrap();
}

/// Packets of the proxy with the address of a pod reach the server, whatever the value of `rp_filter`.
// matrix: every
#[test]
fn check_2_programs_capture_where_the_proxys_link_has_no_address() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        without_an_address(&scene);
        let config = scene.config(&[(PROXY, 1)], "");
        let node = Routing::open_in(&scene.node).unwrap();
        let state = || {
            let all = node.addresses().unwrap().into_iter();
            let all: Vec<_> = all.filter(|a| a.net.addr().is_ipv4()).collect();
            let names = ["v3", "v4", "all", "default", "v1", "v2"];
            let keys = names.map(|name| format!("ipv4/conf/{name}/rp_filter"));
            (all, keys.map(|key| sysctl(&scene.node, &key)))
        };
        for [all, link] in [["0", "0"], ["1", "0"], ["2", "0"], ["0", "2"]] {
            set(&scene.node, "ipv4/conf/all/rp_filter", all);
            set(&scene.node, "ipv4/conf/v2/rp_filter", link);
            let before = state();
            applied(&scene, &mounted, &config);
            for (name, kept) in ["v3", "v4"].into_iter().zip(&before.1) {
                // The kernel uses the larger of the two values.
                let now = [name, "all"].map(|name| format!("ipv4/conf/{name}/rp_filter"));
                let now = now.map(|key| sysctl(&scene.node, &key)).into_iter().max();
                assert_eq!(now.as_deref(), Some(kept.as_str().max(all)), "{name}");
            }
            let again = apply(&config, &scene.node, &bpffs(&mounted)).unwrap();
            assert!(again.is_empty(), "{again:?}");
            for v6 in [false, true] {
                let text = answer(&scene.pod, web(OUTSIDE, v6));
                assert_eq!(text, "outbound|outside|x", "all {all}, v2 {link}");
                let text = answer(&scene.outside, web(POD, v6));
                assert_eq!(text, "inbound|pod|x", "all {all}, v2 {link}");
            }
            remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
            assert_eq!(state(), before);
        }
    }
}
