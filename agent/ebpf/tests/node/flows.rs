//! Connections to excluded ports.

use crate::scene::{OUTSIDE, PATIENCE, POD, PROXY, Scene, address};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use weir_ebpf::node::{Exclusions, Wanted};
use weir_netlink::route::Routing;

const PORT: u16 = 5432;

/// Linux uses one source port for connections with different destinations.
// matrix: every
#[test]
fn connections_from_one_port_to_two_servers_are_both_excluded() {
    for scene in Scene::builds() {
        let exclude = Exclusions {
            outbound_ports: [PORT].into(),
            ..Exclusions::default()
        };
        scene.apply(&Wanted {
            exclude,
            ..scene.wanted(&[POD], PROXY)
        });
        let outside = &scene.inside[&OUTSIDE];
        let routing = Routing::open_in(outside).unwrap();
        let other = IpAddr::from([10, 1, OUTSIDE, 11]);
        let index = routing.link("eth0").unwrap().index;
        let net = ipnet::IpNet::new(other, 24).unwrap();
        routing.add_address(index, net).unwrap();
        let listen = || TcpListener::bind(("0.0.0.0", PORT)).unwrap();
        let listener = outside.run(listen).unwrap();
        let connect = |to: IpAddr| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let from = SocketAddr::new(address(POD), 40_000);
            socket.bind(&from.into()).unwrap();
            let to = SocketAddr::new(to, PORT);
            socket.connect_timeout(&to.into(), PATIENCE).unwrap();
            TcpStream::from(socket)
        };
        let pairs = [address(OUTSIDE), other].map(|to| {
            let client = scene.inside[&POD].run(|| connect(to)).unwrap();
            (client, listener.accept().unwrap().0)
        });
        // The first server answers after the second connection has been made.
        for (mut client, mut server) in pairs {
            server.write_all(b"late").unwrap();
            let mut buffer = [0; 4];
            client.read_exact(&mut buffer).unwrap();
            assert_eq!(&buffer, b"late");
        }
    }
}
