//! The source of the node's connections to pods and to the proxy's tunnels.

use crate::scene::{OUTSIDE, POD, PROXY, SECOND, Scene, Servers, address, ask, connect, inside};
use crate::{CARRIERS, carrier, each, lacking};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use weir_cni::compile::Engine;
use weir_netlink::Netns;
use weir_netlink::route::{Route, Routing};
use weir_node_ambient::{Config, apply, compare};
use weir_testing::lacks;

/// As the agent configures it without a setting: no address of the node.
fn config(scene: &Scene, proxies: &[(u8, u64)], carrier: &str) -> Config {
    let mut config = scene.config(proxies, carrier);
    config.host_addresses.clear();
    config
}

/// Applies and verifies. Prints the reason and returns false if this kernel lacks something.
fn applied(scene: &Scene, engine: Engine, config: &Config) -> bool {
    match apply(config, &scene.node, Some(engine), false) {
        Err(e) if e.is_unsupported() && e.to_string().contains("GENEVE") => {
            lacks::skip("link geneve", "4.2", e);
            return false;
        }
        Err(e) if e.is_unsupported() => {
            println!("skipped: {}: {e}", lacking(engine));
            return false;
        }
        made => drop(made.unwrap()),
    }
    let left = compare(config, &scene.node, Some(engine)).unwrap();
    assert!(left.is_empty(), "{:?} {:?}", left.host, left.proxy);
    true
}

/// The source that the node would use.
fn source(node: &Netns, to: IpAddr) -> IpAddr {
    let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let find = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect((to, 8080))?;
        socket.local_addr()
    };
    node.run(find).unwrap().unwrap().ip()
}

const FIRST: &[(u8, u64)] = &[(PROXY, 1)];
const BOTH: &[(u8, u64)] = &[(PROXY, 1), (SECOND, 2)];
const LAST: &[(u8, u64)] = &[(SECOND, 2)];

/// Those of processes in the node's network, such as a monitoring agent. The carriers are deleted with their proxy.
#[test]
fn open_connections_of_the_node_continue_when_a_proxy_takes_over() {
    each(&["vxlan", "veth"], |scene, engine, name| {
        let servers = Servers::start(scene);
        servers.proxy(&scene.second, ["outbound 2", "inbound 2", "hbone 2"]);
        let by = carrier(name);
        if !applied(scene, engine, &config(scene, FIRST, &by)) {
            return;
        }
        let mut open: Vec<TcpStream> = Vec::new();
        let mut answer = |case: &str| {
            for v6 in [false, true] {
                let to = SocketAddr::new(inside(POD, v6), 8080);
                open.push(connect(&scene.node, to).unwrap());
            }
            for stream in &mut open {
                let said = ask(stream, "x").unwrap_or_else(|e| panic!("{case}: {e}"));
                assert_eq!(said, "pod|x", "{case}");
            }
        };
        answer("one proxy");
        for (proxies, case) in [
            (BOTH, "a second one takes over"),
            (LAST, "the first one ends"),
            (&[], "none is ready"),
            (FIRST, "the first one is back"),
        ] {
            assert!(applied(scene, engine, &config(scene, proxies, &by)));
            answer(case);
        }
    });
}

/// Adds a route of the main table to a pod or a proxy alone.
fn add_route(scene: &Scene, number: u8, v6: bool, prefsrc: Option<IpAddr>) {
    let routing = Routing::open_in(&scene.node).unwrap();
    let link = routing.link(&format!("v{number}")).unwrap().index;
    let route = Route {
        prefsrc,
        ..Route::unicast(inside(number, v6).into(), None, Some(link))
    };
    assert!(routing.add_route(&route).unwrap());
}

fn lose_address(scene: &Scene, number: u8, v6: bool) {
    let routing = Routing::open_in(&scene.node).unwrap();
    let link = routing.link(&format!("v{number}")).unwrap().index;
    let len = if v6 { 64 } else { 24 };
    let net = ipnet::IpNet::new(address(number, v6, 1), len).unwrap();
    assert!(routing.del_address(link, net).unwrap());
}

/// The link of the pod has no address, as with Calico.
fn without_address(scene: &Scene, v6: bool) {
    lose_address(scene, POD, v6);
    add_route(scene, POD, v6, None);
}

fn with_source(scene: &Scene, v6: bool) {
    add_route(scene, POD, v6, Some(address(OUTSIDE, v6, 1)));
}

/// Changes the links and routes of one family.
type Shape = fn(&Scene, bool);

#[test]
fn pods_see_the_same_address_of_the_node_as_without_weir() {
    let shapes: [(&str, Shape); 3] = [
        ("one network per link", |_, _| ()),
        ("a link without address", without_address),
        ("a route with a source", with_source),
    ];
    for (case, shape) in shapes {
        each(&["veth"], |scene, engine, name| {
            let families = [false, true];
            families.into_iter().for_each(|v6| shape(scene, v6));
            let sources = || families.map(|v6| source(&scene.node, inside(POD, v6)));
            let before = sources();
            for proxies in [FIRST, BOTH] {
                if !applied(scene, engine, &config(scene, proxies, &carrier(name))) {
                    return;
                }
                assert_eq!(sources(), before, "{case}");
            }
        });
    }
}

/// The node loses the address that its routes to this peer state.
fn a_lost_address_is_replaced(peer: u8) {
    each(&["veth"], |scene, engine, name| {
        let config = config(scene, FIRST, &carrier(name));
        let families = [false, true];
        for v6 in families {
            add_route(scene, peer, v6, Some(address(OUTSIDE, v6, 1)));
        }
        if !applied(scene, engine, &config) {
            return;
        }
        for v6 in families {
            lose_address(scene, OUTSIDE, v6);
        }
        assert!(applied(scene, engine, &config));
        for v6 in families {
            assert_eq!(source(&scene.node, inside(peer, v6)), address(peer, v6, 1));
        }
    });
}

/// The kernel deletes an IPv4 route with the address that is its source; an IPv6 route loses the source.
#[test]
fn an_address_that_the_node_loses_is_replaced() {
    a_lost_address_is_replaced(POD);
}

/// The route to the proxy in weir's table keeps the source, and a lookup finds that route.
#[test]
fn an_address_towards_the_proxy_that_the_node_loses_is_replaced() {
    a_lost_address_is_replaced(PROXY);
}

/// GENEVE drops packets from another address than that of the remote end.
#[test]
fn tunnels_have_the_source_that_the_main_route_to_the_proxy_states() {
    each(&CARRIERS, |scene, engine, name| {
        let servers = Servers::start(scene);
        servers.proxy(&scene.second, ["outbound 2", "inbound 2", "hbone 2"]);
        let own = address(OUTSIDE, false, 1);
        for number in [PROXY, SECOND] {
            add_route(scene, number, false, Some(own));
        }
        for (proxies, active, who) in [(FIRST, PROXY, ""), (BOTH, SECOND, " 2"), (FIRST, PROXY, "")]
        {
            if !applied(scene, engine, &config(scene, proxies, &carrier(name))) {
                return;
            }
            assert_eq!(source(&scene.node, inside(active, false)), own);
            for v6 in [false, true] {
                let to = SocketAddr::new(inside(OUTSIDE, v6), 8080);
                let answer = ask(&mut connect(&scene.pod, to).unwrap(), "x").unwrap();
                assert_eq!(answer, format!("outbound{who}|outside|x"));
            }
        }
    });
}
