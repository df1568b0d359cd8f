//! A temporary node: its own namespace, an enrolled pod, proxies, and an external server, with a stand-in for ztunnel.

use socket2::{Domain, Protocol, Socket, Type};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use weir_netlink::Netns;
use weir_netlink::route::{Link, LinkKind, Netkit, RT_TABLE_LOCAL, Route, Routing};
pub(crate) use weir_testing::sysctl::{set, sysctl};

/// The deadline for results that are expected: a SYN is retransmitted after 1 s, and again after 3 s.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// The deadline for work of kernel threads, such as the deletion of a namespace: parallel tests keep them busy.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Namespaces by number: `10.1.N.0/24` and `fd00:1:N::/64`, with `.1` on the node and `.10` inside.
pub(crate) struct Scene {
    pub(crate) node: Netns,
    pub(crate) pod: Netns,
    pub(crate) proxy: Netns,
    pub(crate) second: Netns,
    pub(crate) outside: Netns,
}

pub(crate) const POD: u8 = 1;
pub(crate) const PROXY: u8 = 2;
pub(crate) const SECOND: u8 = 3;
pub(crate) const OUTSIDE: u8 = 4;

pub(crate) fn address(number: u8, v6: bool, last: u8) -> IpAddr {
    match v6 {
        false => IpAddr::from([10, 1, number, last]),
        true => IpAddr::from([0xfd00, 1, number.into(), 0, 0, 0, 0, last.into()]),
    }
}

pub(crate) fn inside(number: u8, v6: bool) -> IpAddr {
    address(number, v6, 10)
}

/// Runs a tool of this machine in the namespace of this thread. Prints the reason and returns `None` without the tool.
pub(crate) fn tool(name: &str, args: &[&str]) -> Option<Output> {
    match Command::new(name).args(args).output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            assert!(
                std::env::var_os("WEIR_REQUIRE_TOOLS").is_none(),
                "{name}: {e}"
            );
            println!("skipped: no {name}");
            None
        }
        run => Some(run.unwrap()),
    }
}

/// The index of the bridge, which is created if it is absent.
pub(crate) fn bridge(node: &Routing) -> u32 {
    if let Ok(link) = node.link("br0") {
        return link.index;
    }
    // The bridge keeps its address when ports are added and removed.
    let link = Link {
        mac: Some([2, 0, 0, 0, 0, 1]),
        ..Link::new("br0", LinkKind::plain("bridge"))
    };
    node.add_link(&link, None).unwrap();
    let index = node.link("br0").unwrap().index;
    node.set_up(index).unwrap();
    index
}

/// Waits for link-local addresses and for the routes to all IPv6 addresses.
///
/// The kernel adds link-local addresses some time after a link is up, which a comparison would take for a change. Packets that are sent
/// before the routes exist are lost.
pub(crate) fn wait_for_own_addresses(routing: &Routing) {
    let is_own = |net: &ipnet::IpNet| matches!(net, ipnet::IpNet::V6(v6) if v6.addr().is_unicast_link_local());
    let end = Instant::now() + LONG;
    loop {
        let addresses = routing.addresses().unwrap();
        let own = addresses.iter().filter(|a| is_own(&a.net));
        let own: Vec<u32> = own.map(|a| a.index).collect();
        let links = routing.links().unwrap().into_iter();
        let mut links = links.filter(|l| matches!(l.kind, Some(LinkKind::Veth(_))));
        let without = links.find(|l| !own.contains(&l.index));
        let local = routing.routes(RT_TABLE_LOCAL).unwrap();
        let is_reached =
            |address: IpAddr| local.iter().any(|r| r.dst == ipnet::IpNet::from(address));
        let mut v6 = addresses.iter().map(|a| a.net.addr());
        let unreached = v6.find(|address| address.is_ipv6() && !is_reached(*address));
        if without.is_none() && unreached.is_none() {
            return;
        }
        let is_late = Instant::now() > end;
        assert!(!is_late, "no address: {without:?}, no route: {unreached:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Differences from a scene with veth pairs that the node routes between.
#[derive(Default)]
struct Shape {
    /// The links of these namespaces are ports of a bridge.
    ports: &'static [u8],
    /// The mode of the pod's netkit pair.
    netkit: Option<u32>,
    /// The MTU of the node's link to the outside.
    mtu: Option<u32>,
}

fn add_netkit(node: &Routing, name: &str, mode: u32, netns: &Netns) -> weir_netlink::Result<()> {
    let peer = Link {
        name: "eth0".to_owned(),
        ..Link::default()
    };
    let LinkKind::Netkit(pair) = LinkKind::netkit(&peer, Some(netns.into()))? else {
        panic!("no netkit pair")
    };
    let mode = Some(mode);
    node.add_link(
        &Link::new(name, LinkKind::Netkit(Netkit { mode, ..pair })),
        None,
    )
}

/// Makes the peers of a narrow path offer segments for an MTU of 1500 bytes, like hosts that do not know the path.
///
/// Their own segments are as long as their links permit.
fn offer_long_segments() {
    for (family, segment) in [("-4", "1460"), ("-6", "1440")] {
        let router = address(OUTSIDE, family == "-6", 1).to_string();
        let mut ip = Command::new("ip");
        ip.args([family, "route", "replace", "default", "via", &router]);
        let run = ip.args(["advmss", segment]).output().unwrap();
        assert!(run.status.success(), "{run:?}");
    }
}

impl Scene {
    /// Prints the reason and returns `None` if this user may not build a scene.
    pub(crate) fn build() -> Option<Self> {
        Self::build_with(&Shape::default())
    }

    /// The pod and the proxies are ports of the bridge `br0`, which has the node's address in their common network.
    pub(crate) fn bridged() -> Option<Self> {
        Self::build_with(&Shape {
            ports: &[POD, PROXY, SECOND],
            ..Shape::default()
        })
    }

    /// The pod has a netkit pair of this mode (`NETKIT_L2` 0, `NETKIT_L3` 1).
    pub(crate) fn with_netkit(mode: u32) -> Option<Self> {
        Self::build_with(&Shape {
            netkit: Some(mode),
            ..Shape::default()
        })
    }

    /// The MTU of the node's link to the outside is smaller than the two ends expect.
    pub(crate) fn narrow() -> Option<Self> {
        Self::build_with(&Shape {
            mtu: Some(1300),
            ..Shape::default()
        })
    }

    fn build_with(shape: &Shape) -> Option<Self> {
        let node = weir_testing::granted(Netns::create())?;
        if !std::path::Path::new("/proc/sys/net/ipv6").exists() {
            println!("skipped: this kernel has no IPv6");
            return None;
        }
        let create = || Netns::create().unwrap();
        let scene = Self {
            node,
            pod: create(),
            proxy: create(),
            second: create(),
            outside: create(),
        };
        set(&scene.node, "ipv4/ip_forward", "1");
        set(&scene.node, "ipv6/conf/all/forwarding", "1");
        set(&scene.node, "ipv4/conf/all/rp_filter", "1");
        // Both proxies connect with the addresses of other hosts. Disjoint port ranges prevent equal ports, which only `use_a_port_twice`
        // tests.
        let ports = ["20000 29999", "30000 39999", "40000 49999", "50000 59999"];
        let apart = [&scene.pod, &scene.outside, &scene.proxy, &scene.second];
        for (netns, range) in apart.into_iter().zip(ports) {
            set(netns, "ipv4/ip_local_port_range", range);
        }
        for netns in scene.all() {
            set(netns, "ipv6/conf/default/accept_dad", "0");
            let routing = Routing::open_in(netns).unwrap();
            routing.set_up(routing.link("lo").unwrap().index).unwrap();
        }
        let node = Routing::open_in(&scene.node).unwrap();
        for (number, netns) in [
            (POD, &scene.pod),
            (PROXY, &scene.proxy),
            (SECOND, &scene.second),
            (OUTSIDE, &scene.outside),
        ] {
            let name = format!("v{number}");
            match shape.netkit.filter(|_| number == POD) {
                Some(mode) => match add_netkit(&node, &name, mode, netns) {
                    Err(e) if e.is_unsupported() || e.errno() == Some(95) => {
                        println!("skipped: link netkit (since 6.7): {e}");
                        return None;
                    }
                    added => added.unwrap(),
                },
                None => {
                    let mtu = shape.mtu.filter(|_| number == OUTSIDE);
                    let peer = Link {
                        name: "eth0".to_owned(),
                        mtu,
                        ..Link::default()
                    };
                    let pair = Link {
                        mtu,
                        ..Link::new(&name, LinkKind::veth(&peer, Some(netns.into())).unwrap())
                    };
                    node.add_link(&pair, None).unwrap();
                }
            }
            let inner = Routing::open_in(netns).unwrap();
            let (host, pod) = (
                node.link(&name).unwrap().index,
                inner.link("eth0").unwrap().index,
            );
            node.set_up(host).unwrap();
            inner.set_up(pod).unwrap();
            let is_port = shape.ports.contains(&number);
            if is_port {
                node.set_master(host, bridge(&node)).unwrap();
            }
            for v6 in [false, true] {
                // On the bridge, the prefix covers all its ports.
                let len = match (is_port, v6) {
                    (false, false) => 24,
                    (false, true) => 64,
                    (true, false) => 22,
                    (true, true) => 46,
                };
                let net = |number, last| ipnet::IpNet::new(address(number, v6, last), len).unwrap();
                let (router, link) = match is_port {
                    true => (POD, bridge(&node)),
                    false => (number, host),
                };
                node.add_address(link, net(router, 1)).unwrap();
                inner.add_address(pod, net(number, 10)).unwrap();
                let all: ipnet::IpNet = if v6 { "::/0" } else { "0.0.0.0/0" }.parse().unwrap();
                inner
                    .add_route(&Route::unicast(all, Some(address(router, v6, 1)), None))
                    .unwrap();
            }
        }
        for netns in scene.all() {
            wait_for_own_addresses(&Routing::open_in(netns).unwrap());
        }
        if shape.mtu.is_some() {
            scene.outside.run(offer_long_segments).unwrap();
        }
        Some(scene)
    }

    pub(crate) fn all(&self) -> [&Netns; 5] {
        [
            &self.node,
            &self.pod,
            &self.proxy,
            &self.second,
            &self.outside,
        ]
    }

    /// A configuration with the pod, these proxies by number and creation, and more keys.
    pub(crate) fn config(&self, proxies: &[(u8, u64)], more: &str) -> weir_node_ambient::Config {
        let proxy = |(number, created): &(u8, u64)| {
            let netns = if *number == PROXY {
                &self.proxy
            } else {
                &self.second
            };
            format!(
                r#"{{"uid": "zt-{number}", "netns": "{}", "addresses": ["{}", "{}"], "created": {created}}}"#,
                netns.path().display(),
                inside(*number, false),
                inside(*number, true)
            )
        };
        let proxies: Vec<String> = proxies.iter().map(proxy).collect();
        let text = format!(
            r#"{{"proxies": [{}], "pods": [{{"uid": "pod-a", "addresses": ["{}", "{}"], "netns": "{}"}}],
            "host_addresses": ["{}", "{}"]{more}}}"#,
            proxies.join(","),
            inside(POD, false),
            inside(POD, true),
            self.pod.path().display(),
            address(POD, false, 1),
            address(POD, true, 1)
        );
        weir_node_ambient::Config::from_json(&text, "test").unwrap()
    }
}

/// A connection as a listener received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) who: &'static str,
    pub(crate) from: IpAddr,
    pub(crate) to: SocketAddr,
}

pub(crate) fn socket(to: SocketAddr, transparent: bool) -> Socket {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP)).unwrap();
    if to.is_ipv6() {
        socket.set_only_v6(true).unwrap();
    }
    if transparent && to.is_ipv6() {
        socket.set_ip_transparent_v6(true).unwrap();
    } else if transparent {
        socket.set_ip_transparent_v4(true).unwrap();
    }
    socket.set_reuse_address(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn of(address: &socket2::SockAddr) -> SocketAddr {
    address.as_socket().unwrap()
}

fn any(v6: bool, port: u16) -> SocketAddr {
    let ip: IpAddr = if v6 { "::" } else { "0.0.0.0" }.parse().unwrap();
    SocketAddr::new(ip, port)
}

/// The kind of a server's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// At every address of the namespace, like an application's.
    Plain,
    /// Like ztunnel's: they also receive connections to other addresses.
    Transparent,
    /// Transparent, with `SO_REUSEPORT`.
    Shared,
    /// Transparent, at the address of the proxy alone.
    AtOneAddress,
}

impl Sockets {
    fn listen(self, v6: bool, port: u16) -> Socket {
        let at = match self {
            Self::AtOneAddress => SocketAddr::new(inside(PROXY, v6), port),
            _ => any(v6, port),
        };
        let listener = socket(at, self != Self::Plain);
        if self == Self::Shared {
            listener.set_reuse_port(true).unwrap();
        }
        listener.bind(&at.into()).unwrap();
        // More than a test has open at once: a connection beyond the backlog is established for the client alone.
        listener.listen(1024).unwrap();
        listener.set_read_timeout(None).unwrap();
        listener
    }
}

/// The sockets of a proxy that the test kills.
type Kept = Arc<Mutex<Vec<Socket>>>;

/// Serves a port on threads that end with the process. The first line of an answer contains the name of the listener.
fn serve(
    netns: &Netns,
    who: &'static str,
    port: u16,
    (log, sockets): (&Sender<Seen>, Sockets),
    kept: Option<&Kept>,
) {
    let is_proxy = sockets != Sockets::Plain;
    let keep = |kept: Option<&Kept>, socket: &Socket| {
        if let Some(kept) = kept {
            kept.lock().unwrap().push(socket.try_clone().unwrap());
        }
    };
    for v6 in [false, true] {
        let listener = netns.run(|| sockets.listen(v6, port)).unwrap();
        keep(kept, &listener);
        let (log, netns, kept) = (log.clone(), netns.try_clone().unwrap(), kept.cloned());
        thread::spawn(move || {
            while let Ok((stream, peer)) = listener.accept() {
                keep(kept.as_ref(), &stream);
                let to = of(&stream.local_addr().unwrap());
                let from = of(&peer).ip();
                let _ = log.send(Seen { who, from, to });
                let (log, netns) = (log.clone(), netns.try_clone().unwrap());
                thread::spawn(move || answer(stream, who, (from, to), is_proxy, &netns, &log));
            }
        });
    }
}

/// The proxy connects to the original destination with the client's address and forwards; other servers echo with their name.
fn answer(
    stream: Socket,
    who: &'static str,
    (from, to): (IpAddr, SocketAddr),
    is_proxy: bool,
    netns: &Netns,
    log: &Sender<Seen>,
) {
    let mut stream: TcpStream = stream.into();
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let upstream = is_proxy.then(|| {
        netns
            .run(|| {
                let socket = socket(to, true);
                socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
                socket
                    .connect_timeout(&to.into(), PATIENCE)
                    .map(|()| TcpStream::from(socket))
            })
            .unwrap()
    });
    let mut upstream = match upstream {
        Some(Ok(upstream)) => Some(upstream),
        Some(Err(_)) => {
            let _ = log.send(Seen {
                who: "no upstream",
                from,
                to,
            });
            return;
        }
        None => None,
    };
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        let mut text = format!("{who}|");
        match &mut upstream {
            Some(upstream) => {
                let _ = upstream.write_all(&buffer[..n]);
                let n = upstream.read(&mut buffer).unwrap_or(0);
                text.push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
            None => text.push_str(&String::from_utf8_lossy(&buffer[..n])),
        }
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// A proxy that can be killed.
pub(crate) struct Mortal(Kept);

impl Mortal {
    /// Closes its listeners and connections, as the end of its process would.
    pub(crate) fn kill(self) {
        for socket in self.0.lock().unwrap().drain(..) {
            // This fails for a connection whose other end is closed.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

pub(crate) struct Servers {
    pub(crate) seen: Receiver<Seen>,
    log: Sender<Seen>,
}

impl Servers {
    /// Starts the proxy's listeners, an application in the pod, and one outside, on port 8080.
    pub(crate) fn start(scene: &Scene) -> Self {
        let servers = Self::of_others(scene);
        servers.proxy(&scene.proxy, ["outbound", "inbound", "hbone"]);
        servers
    }

    /// Starts the servers without a proxy, so that nothing keeps its namespace.
    pub(crate) fn of_others(scene: &Scene) -> Self {
        let (log, seen) = channel();
        let servers = Self { seen, log };
        servers.echo(&scene.pod, "pod");
        servers.echo(&scene.outside, "outside");
        servers
    }

    pub(crate) fn proxy(&self, netns: &Netns, names: [&'static str; 3]) {
        self.listen(netns, names, (Sockets::Transparent, None));
    }

    /// Starts a proxy whose sockets may differ from ztunnel's.
    pub(crate) fn proxy_with(&self, netns: &Netns, names: [&'static str; 3], sockets: Sockets) {
        self.listen(netns, names, (sockets, None));
    }

    fn listen(
        &self,
        netns: &Netns,
        names: [&'static str; 3],
        (sockets, kept): (Sockets, Option<&Kept>),
    ) {
        for (who, port) in names.into_iter().zip([15001, 15006, 15008]) {
            serve(netns, who, port, (&self.log, sockets), kept);
        }
    }

    /// Like [`Servers::start`], with a proxy that can be killed.
    pub(crate) fn start_mortal(scene: &Scene) -> (Self, Mortal) {
        let (servers, kept) = (Self::of_others(scene), Kept::default());
        let names = ["outbound", "inbound", "hbone"];
        servers.listen(&scene.proxy, names, (Sockets::Transparent, Some(&kept)));
        (servers, Mortal(kept))
    }

    /// Starts a server with a name, like those in the pod and outside.
    pub(crate) fn echo(&self, netns: &Netns, who: &'static str) {
        serve(netns, who, 8080, (&self.log, Sockets::Plain), None);
    }

    /// The connections that servers have received so far.
    pub(crate) fn drain(&self) -> Vec<Seen> {
        self.seen.try_iter().collect()
    }
}

/// Connects, or returns the error.
pub(crate) fn connect(from: &Netns, to: SocketAddr) -> std::io::Result<TcpStream> {
    let connect = || {
        let socket = socket(to, false);
        socket.connect_timeout(&to.into(), PATIENCE)?;
        Ok(TcpStream::from(socket))
    };
    from.run(connect).unwrap()
}

/// Whether the first SYN is answered, or the second one, which follows after 1 s.
pub(crate) fn connects(from: &Netns, to: SocketAddr) -> bool {
    let connect = || socket(to, false).connect_timeout(&to.into(), Duration::from_millis(1200));
    from.run(connect).unwrap().is_ok()
}

/// Sends a line over a connection and returns the answer.
pub(crate) fn ask(stream: &mut TcpStream, text: &str) -> std::io::Result<String> {
    stream.write_all(text.as_bytes())?;
    let mut buffer = [0; 4096];
    let n = stream.read(&mut buffer)?;
    match n {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        n => Ok(String::from_utf8_lossy(&buffer[..n]).into_owned()),
    }
}
