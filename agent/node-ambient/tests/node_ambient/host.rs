//! Connections of the proxy to the node itself, with the address of a pod: to the API server, for example.

use crate::ebpf::{applied, builds, web};
use crate::scene::{OUTSIDE, PATIENCE, POD, PROXY, Scene, Servers, address, ask, connect, inside};
use crate::{each, up};
use std::net::{SocketAddr, TcpStream};

/// The node answers the proxy, and a pod that connects directly, at each of its addresses.
fn is_answered(scene: &Scene, servers: &Servers) {
    servers.echo(&scene.node, "node");
    for v6 in [false, true] {
        for place in [POD, PROXY, OUTSIDE] {
            let to = SocketAddr::new(address(place, v6, 1), 8080);
            let connect_as_pod = || {
                let socket = crate::scene::socket(to, true);
                socket.bind(&SocketAddr::new(inside(POD, v6), 0).into())?;
                socket.connect_timeout(&to.into(), PATIENCE)?;
                Ok::<_, std::io::Error>(TcpStream::from(socket))
            };
            for _ in 0..2 {
                let mut stream = scene.proxy.run(connect_as_pod).unwrap().unwrap();
                assert_eq!(ask(&mut stream, "x").unwrap(), "node|x", "{to}");
                let mut direct = connect(&scene.pod, to).unwrap();
                assert_eq!(ask(&mut direct, "x").unwrap(), "node|x", "{to}");
                assert_eq!(ask(&mut stream, "y").unwrap(), "node|y", "{to}");
            }
        }
        let mut probe = connect(&scene.node, web(POD, v6)).unwrap();
        assert_eq!(ask(&mut probe, "p").unwrap(), "pod|p");
    }
}

// matrix: every
#[test]
fn programs_let_the_node_answer_the_proxy() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        is_answered(&scene, &servers);
    }
}

// matrix: every; variants no-nft-tproxy no-nftables no-xtables
#[test]
fn rules_let_the_node_answer_the_proxy() {
    each(&crate::CARRIERS, |scene, engine, carrier| {
        let servers = Servers::start(scene);
        if up(scene, engine, &crate::carrier(carrier)) {
            is_answered(scene, &servers);
        }
    });
}
