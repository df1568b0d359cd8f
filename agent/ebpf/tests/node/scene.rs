//! A temporary node: pods, proxies and servers in namespaces of their own, behind links between which the node routes.

use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;
use weir_ebpf::Bpffs;
use weir_ebpf::node::{Node, Proxy, Wanted};
use weir_netlink::Netns;
use weir_netlink::route::{Link, LinkKind, Route, Routing};
use weir_testing::BpfFs;
pub(crate) use weir_testing::sysctl::set;

/// The deadline for results that are expected.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Namespaces by number: `10.1.N.0/24`, with `.1` on the node's link `vN` and `.10` on `eth0` inside.
pub(crate) struct Scene {
    pub(crate) node: Netns,
    pub(crate) mounted: BpfFs,
    pub(crate) inside: BTreeMap<u8, Netns>,
}

/// Two pods, two proxies, and a server.
pub(crate) const POD: u8 = 1;
pub(crate) const NEIGHBOUR: u8 = 2;
pub(crate) const PROXY: u8 = 3;
pub(crate) const SECOND: u8 = 4;
pub(crate) const OUTSIDE: u8 = 5;

pub(crate) fn address(number: u8) -> IpAddr {
    IpAddr::from([10, 1, number, 10])
}

pub(crate) fn device(number: u8) -> String {
    format!("v{number}")
}

impl Scene {
    /// One scene for each method of attaching programs.
    pub(crate) fn builds() -> impl Iterator<Item = Self> {
        let has_links = || weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok();
        BpfFs::each(has_links).filter_map(Self::build)
    }

    fn build(mounted: BpfFs) -> Option<Self> {
        let node = weir_testing::namespace()?;
        set(&node, "ipv4/ip_forward", "1");
        let (mut scene, numbers) = (
            Self {
                node,
                mounted,
                inside: BTreeMap::new(),
            },
            [POD, NEIGHBOUR, PROXY, SECOND, OUTSIDE],
        );
        for number in numbers {
            let netns = Netns::create().unwrap();
            let routing = Routing::open_in(&netns).unwrap();
            routing.set_up(routing.link("lo").unwrap().index).unwrap();
            scene.inside.insert(number, netns);
            scene.join(number);
        }
        Some(scene)
    }

    /// Creates the link of a namespace, also after it was deleted.
    pub(crate) fn join(&self, number: u8) {
        let (node, netns) = (self.routing(), &self.inside[&number]);
        let peer = Link {
            name: "eth0".to_owned(),
            ..Link::default()
        };
        let pair = LinkKind::veth(&peer, Some(netns.into())).unwrap();
        node.add_link(&Link::new(&device(number), pair), None)
            .unwrap();
        let inner = Routing::open_in(netns).unwrap();
        let host = node.link(&device(number)).unwrap().index;
        let own = inner.link("eth0").unwrap().index;
        let net = |last| ipnet::IpNet::new([10, 1, number, last].into(), 24).unwrap();
        for (routing, index, last) in [(&node, host, 1), (&inner, own, 10)] {
            routing.set_up(index).unwrap();
            routing.add_address(index, net(last)).unwrap();
        }
        let router = Some(net(1).addr());
        let all = "0.0.0.0/0".parse().unwrap();
        inner.add_route(&Route::unicast(all, router, None)).unwrap();
    }

    pub(crate) fn routing(&self) -> Routing {
        Routing::open_in(&self.node).unwrap()
    }

    pub(crate) fn bpffs(&self) -> Bpffs {
        let bpffs = Bpffs::at(self.mounted.path()).unwrap();
        match self.mounted.by_filters() {
            true => bpffs.by_filters(),
            false => bpffs,
        }
    }

    /// The desired state that captures these pods for this proxy.
    pub(crate) fn wanted(&self, pods: &[u8], proxy: u8) -> Wanted {
        let others = [PROXY, SECOND].into_iter().filter(|n| *n != proxy);
        Wanted {
            pods: pods.iter().map(|n| (address(*n), device(*n))).collect(),
            proxy: Some(Proxy {
                netns: self.inside[&proxy].path(),
                interface: "eth0".to_owned(),
                device: device(proxy),
                addresses: [address(proxy)].into(),
            }),
            others: others.map(device).collect(),
            has_ipv6: std::path::Path::new("/proc/sys/net/ipv6").exists(),
            ..Wanted::default()
        }
    }

    /// Applies the desired state, after which nothing may differ.
    pub(crate) fn apply(&self, wanted: &Wanted) {
        let bpffs = self.bpffs();
        let node = Node::of(&self.node, &bpffs);
        node.apply(wanted).unwrap();
        assert_eq!(node.compare(wanted).unwrap(), Default::default());
    }

    pub(crate) fn refused(&self, wanted: &Wanted) -> String {
        let bpffs = self.bpffs();
        let refused = Node::of(&self.node, &bpffs).apply(wanted).unwrap_err();
        refused.to_string()
    }

    /// The addresses of captured pods.
    pub(crate) fn captured(&self) -> Vec<IpAddr> {
        let bpffs = self.bpffs();
        let pods = Node::of(&self.node, &bpffs).links().unwrap();
        pods.into_keys().collect()
    }

    /// Starts the outbound listeners of the proxies and a server outside. Each answers with its name.
    pub(crate) fn serve(&self) {
        serve(&self.inside[&PROXY], "first", 15001);
        serve(&self.inside[&SECOND], "second", 15001);
        serve(&self.inside[&OUTSIDE], "outside", 80);
    }

    /// The name of the server that answers a pod's connection to the outside.
    pub(crate) fn asked_by(&self, pod: u8) -> String {
        let to = SocketAddr::new(address(OUTSIDE), 80);
        let ask = || {
            let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok::<_, std::io::Error>(text)
        };
        self.inside[&pod].run(ask).unwrap().unwrap()
    }
}

/// Serves on a thread that ends with the process.
fn serve(netns: &Netns, name: &'static str, port: u16) {
    let listen = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        socket.set_ip_transparent_v4(true).unwrap();
        let any = SocketAddr::from(([0, 0, 0, 0], port));
        socket.bind(&any.into()).unwrap();
        socket.listen(64).unwrap();
        socket
    };
    let listener = netns.run(listen).unwrap();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(name.as_bytes());
        }
    });
}
