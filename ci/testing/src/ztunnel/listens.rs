//! The listeners of ztunnel in the network namespace of a pod: opens them, and finds those of a process.

use socket2::{Domain, Socket, Type};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::Path;
use weir_netlink::Netns;

/// Outbound, inbound, HBONE, and DNS.
const TCP: [u16; 4] = [15001, 15006, 15008, 15053];
/// DNS
const UDP: [u16; 1] = [15053];
/// `TCP_LISTEN` of `net/tcp_states.h`, and what a UDP socket without a peer has.
const LISTENS: [&str; 2] = ["0A", "07"];

/// The open listeners of one pod.
pub(super) struct Listeners(#[allow(dead_code, reason = "held open")] Vec<Socket>);

fn inside<T>(netns: &File, work: impl FnOnce() -> T + Send) -> T
where
    T: Send,
{
    let path = format!("/proc/self/fd/{}", netns.as_raw_fd());
    Netns::open(Path::new(&path)).unwrap().run(work).unwrap()
}

impl Listeners {
    /// Opens all of them.
    pub(super) fn open(netns: &File) -> io::Result<Self> {
        let open = || {
            let tcp = TCP.iter().map(|port| listen(Type::STREAM, *port));
            let udp = UDP.iter().map(|port| listen(Type::DGRAM, *port));
            tcp.chain(udp).collect::<io::Result<_>>().map(Self)
        };
        inside(netns, open)
    }
}

/// Two ztunnels listen at once while one replaces the other (`SO_REUSEPORT`).
fn listen(kind: Type, port: u16) -> io::Result<Socket> {
    let ip: IpAddr = match port {
        15053 => Ipv4Addr::LOCALHOST.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    };
    let at = SocketAddr::new(ip, port);
    let socket = Socket::new(Domain::for_address(at), kind.cloexec(), None)?;
    socket.set_reuse_port(true)?;
    socket.bind(&at.into())?;
    if kind == Type::STREAM {
        socket.listen(16)?;
    }
    Ok(socket)
}

/// The ports on which a process listens in a namespace, as `tcp 15001`.
pub(super) fn of_process(pid: u32, netns: &File) -> BTreeSet<String> {
    let sockets = std::fs::read_dir(format!("/proc/{pid}/fd"));
    // The process may end at any time.
    let links = sockets.into_iter().flatten().flatten();
    let own: BTreeSet<String> = links
        .filter_map(|fd| Some(std::fs::read_link(fd.path()).ok()?.display().to_string()))
        .collect();
    let read = || {
        ["tcp", "tcp6", "udp", "udp6"].map(|file| {
            let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
            // Without IPv6 there are two files less.
            (file, text.unwrap_or_default())
        })
    };
    let mut found = BTreeSet::new();
    for (file, text) in inside(netns, read) {
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_own = own.contains(&format!("socket:[{}]", words[9]));
            if is_own && LISTENS.contains(&words[3]) {
                let (_, port) = words[1].rsplit_once(':').unwrap();
                let port = u16::from_str_radix(port, 16).unwrap();
                found.insert(format!("{} {port}", file.trim_end_matches('6')));
            }
        }
    }
    found
}

/// The ports of a ztunnel that carries a pod.
pub(super) fn all() -> BTreeSet<String> {
    let tcp = TCP.iter().map(|port| format!("tcp {port}"));
    let udp = UDP.iter().map(|port| format!("udp {port}"));
    tcp.chain(udp).collect()
}
