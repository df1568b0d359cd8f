//! The four engines of ambient mode replace each other on a Kubernetes node with a bridge, while a pod sends requests.
//!
//! Two programs stand for ztunnel, which listens in two places: in the pod, and in the namespace of a pod with ztunnel's label. Each sends
//! the name of its place; the server outside reports a request in plain text.

use crate::ambient::{ambient_mode, enabled, found, label, repeating, without_faults};
use crate::node::{Node, node, wait_for};
use crate::pods::Namespace;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_netlink::Netns;
use weir_netlink::route::{Route, Routing};

/// The mark of ztunnel's sockets.
const MARK: u32 = 0x539;
const OUTBOUND: u16 = 15001;
const OUTSIDE: &str = "10.98.0.10/24";
const ROUTER: &str = "10.98.0.1/24";
const LINK: &str = "weir-outside";

/// Sends one word to each client.
struct Listener {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    fn open(netns: &Netns, port: u16, word: &'static str) -> Self {
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let open = || {
            let socket = socket2::Socket::new(
                socket2::Domain::IPV4,
                socket2::Type::STREAM,
                Some(socket2::Protocol::TCP),
            )?;
            socket.set_reuse_address(true)?;
            socket.set_ip_transparent_v4(true)?;
            socket.set_mark(MARK)?;
            socket.bind(&address.into())?;
            socket.listen(128)?;
            // The timeout lets the thread notice when it must end.
            socket.set_read_timeout(Some(Duration::from_millis(200)))?;
            Ok::<_, std::io::Error>(socket)
        };
        let socket = netns.run(open).unwrap().unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            while !of_thread.load(Ordering::Relaxed) {
                if let Ok((stream, _)) = socket.accept() {
                    // The client may have disconnected.
                    let _ = TcpStream::from(stream).write_all(format!("{word}\n").as_bytes());
                }
            }
        });
        Self {
            ends,
            thread: Some(thread),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A network beside the node; it ends with its namespace.
fn outside(node: &Node) -> Netns {
    let init = node.init();
    let host = Netns::open(&PathBuf::from(format!("/proc/{init}/ns/net"))).unwrap();
    let outside = Netns::create().unwrap();
    let (at_node, inside) = (
        Routing::open_in(&host).unwrap(),
        Routing::open_in(&outside).unwrap(),
    );
    at_node.add_veth(LINK, "eth0", &outside).unwrap();
    for (routing, link, net) in [(&at_node, LINK, ROUTER), (&inside, "eth0", OUTSIDE)] {
        let index = routing.link(link).unwrap().index;
        routing.add_address(index, net.parse().unwrap()).unwrap();
        routing.set_up(index).unwrap();
    }
    let router: ipnet::IpNet = ROUTER.parse().unwrap();
    let all = "0.0.0.0/0".parse().unwrap();
    let route = Route::unicast(all, Some(router.addr()), None);
    assert!(inside.add_route(&route).unwrap());
    outside
}

/// The network namespace of a pod, as this machine accesses it.
fn netns(node: &Node, namespace: &str, pod: &str) -> Netns {
    let init = node.init();
    let path = node.netns_of(namespace, pod);
    let name = path.rsplit('/').next().unwrap();
    Netns::open(&PathBuf::from(format!(
        "/proc/{init}/root/run/netns/{name}"
    )))
    .unwrap()
}

/// The pod that the agent takes for the node's ztunnel.
struct Proxy(&'static Node);

impl Proxy {
    fn start(node: &'static Node) -> Self {
        node.apply(
            r"
apiVersion: v1
kind: Pod
metadata: {name: ztunnel, namespace: istio-system, labels: {app: ztunnel}}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
  - {name: istio-proxy, image: localhost/busybox:1, command: [sleep, '3600']}
",
        );
        node.ready("istio-system", &["ztunnel"]);
        Self(node)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let delete = "kubectl -n istio-system delete pod ztunnel --wait=false";
        self.0.run(&delete.split(' ').collect::<Vec<_>>(), "");
    }
}

/// The objects of each engine, as the node's own tools and weir list them.
#[derive(Debug)]
struct Seen {
    rules_in_pod: bool,
    programs_in_pod: bool,
    rules_at_node: bool,
    programs_at_node: bool,
    /// In the namespace of ztunnel's pod.
    rules_at_proxy: bool,
    programs_at_proxy: bool,
}

impl Seen {
    fn look(node: &Node, netns: &str, proxy: &str) -> Self {
        let show = |more: &str| node.sh(&format!("/node/weir/weir show --engine bpf {more}"));
        Self {
            rules_in_pod: node.handles(netns).contains("istio-ambient-nat"),
            programs_in_pod: show(&format!("--netns {netns}")).contains("weir_"),
            rules_at_node: node
                .handles("/proc/1/ns/net")
                .contains("bridge istio-ambient-node"),
            programs_at_node: show("--netns /proc/1/ns/net").contains("weir_o"),
            rules_at_proxy: node.handles(proxy).contains("istio-ambient-proxy"),
            programs_at_proxy: show(&format!("--netns {proxy}")).contains("weir_p"),
        }
    }

    fn only(&self, engine: &str) -> bool {
        let all = [
            ("auto", self.rules_in_pod),
            ("ebpf", self.programs_in_pod),
            ("node", self.rules_at_node),
            ("node-ebpf", self.programs_at_node),
            ("node", self.rules_at_proxy),
            ("node-ebpf", self.programs_at_proxy),
        ];
        all.iter().all(|(name, is)| *is == (*name == engine))
    }
}

#[test]
fn four_ways_follow_each_other_while_a_pod_sends() {
    let Some(node) = node() else { return };
    let beyond = outside(node);
    let _server = Listener::open(&beyond, 80, "plain");
    let mesh = Namespace::new(node, "ways");
    // Prints which server answered.
    let ask = r#"said=$(nc -w 2 10.98.0.10 80 </dev/null 2>/dev/null); echo "${said:-nothing}""#;
    repeating(&mesh, "app", (":", ask));
    mesh.ready(&["app"]);
    wait_for("it is answered", || {
        found(&mesh, "app")
            .contains(&"plain".to_owned())
            .then_some(())
    });
    let proxy = Proxy::start(node);
    let path = node.netns_of(mesh.name, "app");
    let of_proxy = node.netns_of("istio-system", "ztunnel");
    let _in_pod = Listener::open(&netns(node, mesh.name, "app"), OUTBOUND, "pod");
    let at_node = netns(node, "istio-system", "ztunnel");
    let _at_node = Listener::open(&at_node, OUTBOUND, "node");
    let (policy, ztunnel) = ambient_mode(node, "");
    label(&mesh, "ambient");
    enabled(&mesh, "app");
    wait_for("it is captured", || {
        let last = found(&mesh, "app").pop();
        (last.as_deref() == Some("pod")).then_some(())
    });
    let since = found(&mesh, "app").len();
    // Each engine follows one of the other place. Leftovers of the rules at the node would disturb the programs there.
    let ways = ["ebpf", "node-ebpf", "node", "auto", "node-ebpf", "auto"];
    for engine in ways {
        policy.patch(&format!(r#""WEIR_AMBIENT_ENGINE":"{engine}""#));
        wait_for(&format!("{engine} alone"), || {
            Seen::look(node, &path, &of_proxy)
                .only(engine)
                .then_some(())
        });
        let word = if engine.starts_with("node") {
            "node"
        } else {
            "pod"
        };
        let before = found(&mesh, "app").len();
        wait_for("it asks", || {
            (found(&mesh, "app").len() >= before + 4).then_some(())
        });
        let (said, last) = (found(&mesh, "app"), before + 1);
        assert!(
            said.iter().skip(last).all(|line| line == word),
            "{engine}: {:?}",
            &said[last..]
        );
        assert!(
            !said.iter().skip(since).any(|line| line == "plain"),
            "{engine}: {:?}",
            &said[since..]
        );
    }
    without_faults(&ztunnel, policy);
    drop(proxy);
}
