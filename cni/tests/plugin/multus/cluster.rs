//! A node with Multus' directory, two networks that create real links, and a pod.

use crate::common::api_server::ApiServer;
use crate::common::{TempDir, pods};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;
use weir_netlink::Netns;
use weir_runner::{Attachment, NetworkList, PodNetworks, Runner};
use weir_testing::sockets;

/// A network: the addresses of its links in the pod, and the host at their other end.
pub(crate) struct Net {
    name: &'static str,
    in_pod: IpAddr,
    at_peer: IpAddr,
    peer: Netns,
}

pub(crate) struct Cluster {
    dir: TempDir,
    pod: Netns,
    pub(crate) main: Net,
    pub(crate) lan: Net,
    _api: ApiServer,
}

/// A cluster whose pod has these annotations and addresses of both links; `None`, with the reason printed, where this
/// user may not create a namespace.
pub(crate) fn cluster(annotations: Value, main: [&str; 2], lan: [&str; 2]) -> Option<Cluster> {
    let pod = weir_testing::namespace()?;
    let mut object = pods::sidecar("shop", "web-0");
    for (key, value) in annotations.as_object().unwrap() {
        object["metadata"]["annotations"][key] = value.clone();
    }
    let api = ApiServer::with_pod(object, Value::Null);
    let dir = TempDir::new();
    api.write_kubeconfig(&dir);
    std::fs::create_dir(dir.file("net.d")).unwrap();
    let net = |name, [in_pod, at_peer]: [&str; 2]| Net {
        name,
        in_pod: in_pod.parse().unwrap(),
        at_peer: at_peer.parse().unwrap(),
        peer: Netns::create().unwrap(),
    };
    let cluster = Cluster {
        main: net("main", main),
        lan: net("lan", lan),
        dir,
        pod,
        _api: api,
    };
    cluster.ip(&cluster.pod, "link set lo up");
    for net in [&cluster.main, &cluster.lan] {
        cluster.write_plugin(net, "");
    }
    let conf = json!({"cniVersion": "1.0.0", "name": "lan", "type": "lan"});
    cluster.write_conf("lan.conf", &conf);
    // The call is recorded before the plugin runs.
    let (plugin, calls) = (env!("CARGO_BIN_EXE_weir-cni"), cluster.dir.file("calls"));
    let text = format!(
        "echo $CNI_COMMAND istio-cni $CNI_IFNAME >> {}\nexec {plugin}\n",
        calls.display()
    );
    cluster.dir.script("istio-cni", &text);
    Some(cluster)
}

impl Cluster {
    /// The configuration that the agent writes for the plugin, for both kinds of installation.
    pub(crate) fn entry(&self) -> Value {
        json!({
            "cniVersion": "0.3.1", "name": "istio-cni", "type": "istio-cni", "ipam": {}, "dns": {},
            "plugin_log_level": "info", "cni_agent_run_dir": self.dir.path(), "ambient_enabled": false,
            "enablement_selectors": [], "exclude_namespaces": ["kube-system"],
            "pod_namespace": "istio-system", "native_nftables": true,
            "enable_ambient_detection_retry": false,
        })
    }

    pub(crate) fn write_conf(&self, name: &str, conf: &Value) {
        self.dir.write(&format!("net.d/{name}"), &conf.to_string());
    }

    /// The link of the default network has a higher index than the other one, as if it were created on the node.
    pub(crate) fn create_main_on_the_node(&self) {
        self.write_plugin(&self.main, "index 1120");
    }

    /// A plugin that creates a link on ADD and deletes it on DEL.
    fn write_plugin(&self, net: &Net, index: &str) {
        let Net { name, peer, .. } = net;
        let length = if net.in_pod.is_ipv6() { 64 } else { 24 };
        let (address, other) = (
            format!("{}/{length}", net.in_pod),
            format!("{}/{length}", net.at_peer),
        );
        let nodad = if net.in_pod.is_ipv6() { "nodad" } else { "" };
        let result =
            json!({"cniVersion": "1.0.0", "interfaces": [], "ips": [{"address": address}]});
        let (calls, peer) = (self.dir.file("calls"), peer.path());
        let (calls, peer) = (calls.display(), peer.display());
        let text = format!(
            "cat > /dev/null\necho $CNI_COMMAND {name} $CNI_IFNAME >> {calls}\n\
             pod() {{ nsenter --net=$CNI_NETNS ip \"$@\"; }}\n\
             peer() {{ nsenter --net={peer} ip \"$@\"; }}\n\
             case $CNI_COMMAND in\n\
             ADD) set -e\n\
             pod link add $CNI_IFNAME {index} type veth peer name of-{name} netns {peer}\n\
             pod address add {address} dev $CNI_IFNAME {nodad}; pod link set $CNI_IFNAME up\n\
             peer address add {other} dev of-{name} {nodad}; peer link set of-{name} up\n\
             echo '{result}' ;;\n\
             DEL) [ -z \"$CNI_NETNS\" ] || pod link delete $CNI_IFNAME || true ;;\n\
             esac 2>> {calls}\n"
        );
        self.dir.script(name, &text);
    }

    fn ip(&self, netns: &Netns, arguments: &str) -> String {
        self.inside(netns, "ip", arguments)
    }

    /// `nft -a ARGUMENTS` in the pod: handles and counters show whether rules were written again.
    pub(crate) fn nft(&self, arguments: &str) -> String {
        self.inside(&self.pod, "nft", &format!("-a {arguments}"))
    }

    fn inside(&self, netns: &Netns, program: &str, arguments: &str) -> String {
        weir_testing::tool::output(netns, &format!("{program} {arguments}"))
    }

    pub(crate) fn runner(&self) -> Runner {
        Runner::new(vec![self.dir.path().to_owned()], self.dir.file("cache"))
    }

    /// The default network of these plugins, and the networks that the pod selects.
    pub(crate) fn networks(&self, plugins: Value, annotation: Option<&str>) -> PodNetworks {
        let conf = json!({"cniVersion": "1.0.0", "name": "cluster", "plugins": plugins});
        let default = NetworkList::from_list(&conf.to_string(), "(test)").unwrap();
        match annotation {
            None => PodNetworks::from(default),
            Some(text) => PodNetworks::select(default, text, &self.dir.file("net.d")).unwrap(),
        }
    }

    pub(crate) fn attachment(&self) -> Attachment {
        Attachment {
            container_id: "c1".into(),
            netns: self.pod.path().display().to_string(),
            ifname: "eth0".into(),
            args: Attachment::pod_args("shop", "web-0", "c1"),
            ..Attachment::default()
        }
    }

    /// The calls of the plugins since the last call of this function, and errors of `ip`.
    pub(crate) fn calls(&self) -> Vec<String> {
        let text = self.dir.read("calls");
        std::fs::remove_file(self.dir.file("calls")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Lets `strace` record how the plugin enters namespaces and dumps addresses. `false`, with the reason printed,
    /// where it cannot be used.
    fn trace_plugin(&self) -> bool {
        let options = "-f -qq -s 64 -e trace=setns,sendto,sendmsg -e signal=none";
        let strace = format!("strace {options} -o {}", self.dir.file("trace").display());
        let works = Command::new("sh")
            .args(["-c", &format!("{strace} true")])
            .output()
            .unwrap();
        if !works.status.success() {
            let required = std::env::var_os("WEIR_REQUIRE_TOOLS").is_some();
            let errors = String::from_utf8_lossy(&works.stderr);
            assert!(!required, "strace cannot be used: {errors}");
            println!("skipped: strace cannot be used: {}", errors.trim());
            return false;
        }
        let plugin = env!("CARGO_BIN_EXE_weir-cni");
        self.dir
            .script("istio-cni", &format!("exec {strace} {plugin}\n"));
        true
    }

    /// Reading, planning, writing and comparing take one visit: one thread enters the namespace, and dumps addresses once;
    /// ADD this often.
    pub(crate) fn visits_once(&self, networks: &PodNetworks, dumps: usize) {
        if !self.trace_plugin() {
            return;
        }
        let (runner, attachment) = (self.runner(), self.attachment());
        for (call, dumps) in [("ADD", dumps), ("CHECK", 1)] {
            match call {
                "ADD" => drop(runner.add_pod(networks, &attachment).unwrap()),
                _ => runner.check_pod(networks, &attachment).unwrap(),
            }
            let calls = self.dir.read("trace");
            let count = |words: &[&str]| {
                let has = |line: &&str| words.iter().any(|word| line.contains(word));
                calls.lines().filter(has).count()
            };
            assert_eq!(count(&["setns("]), 1, "{call}: {calls}");
            // strace prints the number if it cannot determine the protocol of the socket, which is in another namespace.
            let found = count(&["RTM_GETADDR", "nlmsg_type=0x16 "]);
            assert_eq!(found, dumps, "{call}: {calls}");
        }
    }

    /// A line of the plugin's log.
    pub(crate) fn is_logged(&self, text: &str) -> bool {
        self.dir.read(weir_cni::plugin::LOG_FILE).contains(text)
    }

    pub(crate) fn kept_results(&self) -> usize {
        std::fs::read_dir(self.dir.file("cache")).unwrap().count()
    }

    pub(crate) fn interfaces(&self) -> Vec<String> {
        let names = |netns: &Netns| {
            let listing = self.ip(netns, "-oneline link show");
            let name = |line: &str| {
                let name = line.split(": ").nth(1).unwrap();
                name.split('@').next().unwrap().to_owned()
            };
            listing.lines().map(name).collect::<Vec<_>>()
        };
        // A kernel with GRE, SIT or IPIP adds interfaces to every namespace.
        let of_kernel = names(&Netns::create().unwrap());
        let mut names = names(&self.pod);
        names.retain(|name| name == "lo" || !of_kernel.contains(name));
        names
    }

    /// A connection of the pod to the network's other end reaches the proxy; there is no listener at that end.
    pub(crate) fn captures_outbound(&self, net: &Net) -> bool {
        let to = SocketAddr::new(net.at_peer, 80);
        let captured = self.pod.run(|| {
            let _proxy = listen((loopback(net.at_peer), 15001));
            connects(to)
        });
        captured.unwrap()
    }

    /// A connection from the network's other end to the pod reaches the proxy; no application listens.
    pub(crate) fn captures_inbound(&self, net: &Net) -> bool {
        let any = match net.in_pod {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        let _proxy = self.pod.run(|| listen((any, 15006))).unwrap();
        let connected = net.peer.run(|| connects(SocketAddr::new(net.in_pod, 8080)));
        connected.unwrap()
    }

    /// Checks both directions.
    pub(crate) fn captures(&self, net: &Net) -> bool {
        let ways = [self.captures_outbound(net), self.captures_inbound(net)];
        assert_eq!(ways[0], ways[1], "{}: outbound and inbound", net.name);
        ways[0]
    }

    /// Deletes the pod: nothing except its namespace held the redirection.
    pub(crate) fn end(self) {
        let of_host = Command::new("nft")
            .args(["list", "tables"])
            .output()
            .unwrap();
        let tables = String::from_utf8_lossy(&of_host.stdout).into_owned();
        assert!(!tables.contains("istio-proxy"), "on the node: {tables}");
        let (path, id) = (self.pod.path(), self.pod.id());
        drop(self.pod);
        // Another test may have reused the descriptor's number by now.
        let is_it = Netns::open(&path).is_ok_and(|netns| netns.id() == id);
        assert!(!is_it, "the namespace is held");
    }
}

fn listen(at: (IpAddr, u16)) -> TcpListener {
    sockets::bound(|| TcpListener::bind(at)).unwrap()
}

fn loopback(of: IpAddr) -> IpAddr {
    match of {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

fn connects(to: SocketAddr) -> bool {
    // A new link drops packets for a moment; a connection that is not captured is refused at once.
    TcpStream::connect_timeout(&to, Duration::from_secs(20)).is_ok()
}
