//! Sends fragmented datagrams and echo requests, and describes the results in words.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use weir_netlink::Netns;
use weir_testing::sockets;

/// This exceeds the MTU of the links.
const LENGTH: usize = 4000;
/// The deadline for results that are expected.
const PATIENCE: Duration = Duration::from_secs(2);

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8).collect()
}

fn bound(netns: &Netns, at: SocketAddr) -> UdpSocket {
    let bind = || sockets::bound(|| UdpSocket::bind(at));
    let bound = netns.run(bind).expect("entered");
    let socket = bound.unwrap_or_else(|e| panic!("{at}: {e}"));
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    socket
}

/// Sends a datagram in three fragments, whose answer has as many.
pub(super) fn large(from: (&Netns, IpAddr), (netns, to): (&Netns, SocketAddr)) -> String {
    let (client, server) = (bound(from.0, (from.1, 0).into()), bound(netns, to));
    let sent = text(LENGTH);
    client.send_to(&sent, to).expect("sent");
    let mut buffer = vec![0; 2 * LENGTH];
    let Ok((n, peer)) = server.recv_from(&mut buffer) else {
        return "lost".to_owned();
    };
    let is_whole = buffer.get(..n) == Some(&sent[..]);
    server.send_to(&sent, peer).expect("sent");
    let answer = client.recv_from(&mut buffer);
    let is_answered = answer.is_ok_and(|(n, by)| by == to && buffer.get(..n) == Some(&sent[..]));
    let is_same = peer == client.local_addr().expect("an address");
    format!("arrived from the client: {is_same}, whole: {is_whole}, answered: {is_answered}")
}

/// Sends an echo request, in fragments if it is large.
pub(super) fn echo((netns, from): (&Netns, IpAddr), to: IpAddr, is_large: bool) -> String {
    // By default no group may open sockets for echo requests, see `icmp(7)`.
    let allow = || std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0");
    netns.run(allow).expect("entered").expect("written");
    let (domain, protocol, request, reply) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8, 0),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128, 129),
    };
    let open = || Socket::new(domain, Type::DGRAM, Some(protocol));
    let socket = netns.run(open).expect("entered").expect("a socket");
    let bound = socket.bind(&SocketAddr::new(from, 0).into());
    bound.expect("bound");
    // The connected socket ignores packets of other senders.
    let connected = socket.connect(&SocketAddr::new(to, 0).into());
    connected.expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    // Type, code, checksum, identifier (chosen by the kernel), sequence number.
    let mut message = vec![request, 0, 0, 0, 0, 0, 0, 7];
    message.extend(text(if is_large { LENGTH } else { 8 }));
    socket.send(&message).expect("sent");
    let mut buffer = vec![0; 2 * LENGTH];
    let n = (&socket).read(&mut buffer).unwrap_or(0);
    let is_answered = buffer[0] == reply && buffer.get(6..n) == message.get(6..);
    format!("answered: {is_answered}")
}
