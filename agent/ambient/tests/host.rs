//! The host's part of ambient mode on the running kernel, as Istio's agent writes it, with the real tools as oracles.
// Helpers are part of the tests: clippy.toml grants them the same exceptions.
#![cfg(test)]

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use weir_ambient::host::{
    EVERY_USER, Host, addresses, apply, choose, remove, remove_of_iptables_nft,
};
use weir_ambient::{Config, Request};
use weir_cni::compile::Engine;
use weir_netlink::Netns;
use weir_netlink::route::Routing;
use weir_testing::{container, lacks, namespace_or_skip};

const LONG: Duration = Duration::from_secs(10);

/// Runs a tool in the namespace with this stdin.
fn fed(netns: &Netns, tool: &str, arguments: &str, stdin: &str) -> String {
    let mut child = Command::new("nsenter")
        .arg(format!("--net={}", netns.path().display()))
        .arg(tool)
        .args(arguments.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("nsenter of util-linux");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(stdin.as_bytes()).expect("written");
    drop(input);
    let run = child.wait_with_output().expect("output");
    let complaint = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{tool} {arguments}: {complaint}");
    String::from_utf8(run.stdout).expect("text")
}

fn tool(netns: &Netns, tool: &str, arguments: &str) -> String {
    fed(netns, tool, arguments, "")
}

/// The lines without counters, comments and surrounding blanks.
fn plain(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let mut n = 0;
        while n < words.len() {
            let is_count = n > 0 && matches!(words.get(n - 1), Some(&"packets" | &"bytes"));
            match words.get_mut(n) {
                Some(word) if is_count => *word = "0",
                Some(word) if word.starts_with('[') => *word = "[0:0]",
                _ => {}
            }
            n += 1;
        }
        words.join(" ")
    };
    let lines = text.lines().map(line);
    lines
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .collect()
}

fn host(pods: &[(&str, &str)]) -> Host {
    let pair = |(address, uid): &(&str, &str)| (address.parse().unwrap(), Arc::from(*uid));
    Host {
        config: Config {
            enable_ipv6: true,
            ..Config::default()
        },
        addresses: pods.iter().map(pair).collect::<BTreeMap<IpAddr, _>>(),
        // The user of the tests, who is root in the namespace.
        users: Some(0..=0),
    }
}

/// The changes. Prints a skip and returns `None` if the kernel has no legacy tables or no sets.
fn applied(netns: &Netns, host: &Host, engine: Engine) -> Option<Vec<String>> {
    match netns.run(|| apply(host, engine)).unwrap() {
        Err(e) if e.is_unsupported() && engine == Engine::Xtables => {
            lacks::skip("legacy tables and ipset", "never required", e);
            None
        }
        changes => Some(changes.unwrap()),
    }
}

/// Writes rules as Istio's agent does if it finds `iptables-nft`, beside rules of another program. Prints a skip and returns `None` if the
/// tools fail.
fn by_iptables_nft(netns: &Netns, address: &str) -> Option<()> {
    for words in [
        "ipset create istio-inpod-probes-v4 hash:ip comment",
        "iptables-nft -t nat -A OUTPUT -m set --match-set istio-inpod-probes-v4 dst -m owner --socket-exists",
        "iptables-nft -t nat -F OUTPUT",
    ] {
        let run = Command::new("nsenter")
            .arg(format!("--net={}", netns.path().display()))
            .args(words.split(' '))
            .output()
            .expect("nsenter of util-linux");
        if !run.status.success() {
            let why = String::from_utf8_lossy(&run.stderr);
            lacks::skip("iptables-nft with sets of ipset", "never required", why);
            return None;
        }
    }
    let entry = format!("add istio-inpod-probes-v4 {address} comment uid-a");
    tool(netns, "ipset", &entry);
    for rule in [
        "-A POSTROUTING -s 10.1.0.0/16 -j MASQUERADE",
        "-N ISTIO_POSTRT",
        "-A ISTIO_POSTRT -p tcp -m owner --socket-exists -m set --match-set istio-inpod-probes-v4 dst \
         -j SNAT --to-source 169.254.7.127",
        "-I POSTROUTING 1 -j ISTIO_POSTRT",
    ] {
        tool(netns, "iptables-nft", &format!("-t nat {rule}"));
    }
    Some(())
}

/// Whether rules of the agent are left in the form of `iptables-nft`, and the number of rules of the other program.
fn of_iptables_nft(netns: &Netns) -> (bool, usize) {
    let listed = tool(netns, "iptables-nft", "-t nat -S");
    let others = listed.lines().filter(|l| l.contains("10.1.0.0/16"));
    (listed.contains("ISTIO_POSTRT"), others.count())
}

fn has_sets(netns: &Netns) -> bool {
    tool(netns, "ipset", "list -n").contains("istio-inpod-probes")
}

/// The sets alone do not show which form is in use: this namespace uses no legacy tables, and a kernel may lack them.
#[test]
fn rules_that_upstream_wrote_through_iptables_nft_are_replaced() {
    let netns = namespace_or_skip!();
    if by_iptables_nft(&netns, "10.0.0.2").is_none() {
        return;
    }
    let engine = netns.run(|| choose(false)).unwrap().unwrap();
    assert_eq!(engine, Engine::Nft);
    // The sets contain the pods of the previous agent.
    let known = netns.run(|| addresses(engine)).unwrap().unwrap();
    let uid = known.get(&IpAddr::from([10, 0, 0, 2])).map(|uid| &**uid);
    assert_eq!(uid, Some("uid-a"));
    let host = host(&[("10.0.0.2", "uid-a")]);
    applied(&netns, &host, engine).unwrap();
    assert_eq!(of_iptables_nft(&netns), (false, 1));
    assert!(!has_sets(&netns));
    let removed = netns.run(remove_of_iptables_nft).unwrap().unwrap();
    assert_eq!(removed, Vec::<String>::new());
    let again = applied(&netns, &host, engine).unwrap();
    assert_eq!(again, Vec::<String>::new());
    assert_eq!(netns.run(|| choose(false)).unwrap().unwrap(), engine);
}

#[test]
fn beside_legacy_tables_of_others_rules_of_iptables_nft_are_replaced_by_legacy_ones() {
    let netns = namespace_or_skip!();
    if by_iptables_nft(&netns, "10.0.0.2").is_none() {
        return;
    }
    // A rule of another program in legacy tables determines the engine.
    if let Err(e) = netns.run(weir_netfilter::xtables::XtEngine::open).unwrap() {
        return lacks::skip("legacy tables", "never required", e);
    }
    let rule = "-w -t nat -A POSTROUTING -s 10.2.0.0/16 -j MASQUERADE";
    tool(&netns, "iptables-legacy", rule);
    let engine = netns.run(|| choose(true)).unwrap().unwrap();
    assert_eq!(engine, Engine::Xtables);
    applied(&netns, &host(&[("10.0.0.2", "uid-a")]), engine).unwrap();
    netns.run(remove_of_iptables_nft).unwrap().unwrap();
    assert_eq!(of_iptables_nft(&netns), (false, 1));
    assert!(has_sets(&netns));
    let legacy = tool(&netns, "iptables-legacy", "-w -t nat -S");
    assert!(
        legacy.contains("-A POSTROUTING -j ISTIO_POSTRT") && legacy.contains("10.2.0.0/16"),
        "{legacy}"
    );
}

/// An agent that ends for good leaves no rules of either writer.
#[test]
fn what_upstream_wrote_through_iptables_nft_is_removed() {
    let netns = namespace_or_skip!();
    if by_iptables_nft(&netns, "10.0.0.2").is_none() {
        return;
    }
    netns.run(remove).unwrap().unwrap();
    assert_eq!(of_iptables_nft(&netns), (false, 1));
    assert!(!has_sets(&netns));
}

/// One golden case as a host, with the file beside it. Prints a skip and returns `None` without the golden cases.
fn golden(backend: &str, extension: &str) -> Option<(Host, String)> {
    let Some(root) = std::env::var_os("WEIR_GOLDEN").map(PathBuf::from) else {
        println!("skipped: WEIR_GOLDEN does not name the directory of the golden cases");
        return None;
    };
    let read = |extension: &str| {
        let file = root.join(format!("ambient/{backend}-hostprobe.{extension}"));
        std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
    };
    let text = read("json");
    let about: Value = serde_json::from_str(&text).unwrap();
    let mut host = host(&[]);
    host.config = Request::from_json(&text, backend).unwrap().config;
    let uid = about["assumptions"]["kubelet_uid"].as_str();
    host.users = uid
        .map(|uid| uid.parse().unwrap())
        .map(|uid: u32| uid..=uid);
    Some((host, read(extension)))
}

// matrix: needs WEIR_GOLDEN
#[test]
fn nf_tables_as_upstream_writes_them() {
    let netns = namespace_or_skip!();
    let Some((host, ruleset)) = golden("nftables", "ruleset") else {
        return;
    };
    applied(&netns, &host, Engine::Nft).unwrap();
    let listed = plain(&tool(&netns, "nft", "list ruleset"));
    assert_eq!(listed, plain(&ruleset));
    // Rules that nft itself has written, as upstream's agent does, are in sync already.
    let other = Netns::create().unwrap();
    fed(&other, "nft", "-f -", &ruleset);
    assert_eq!(
        applied(&other, &host, Engine::Nft).unwrap(),
        Vec::<String>::new()
    );
}

// matrix: needs WEIR_GOLDEN
#[test]
fn legacy_tables_as_upstream_writes_them() {
    let netns = namespace_or_skip!();
    let Some((host, save)) = golden("iptables", "v4.save") else {
        return;
    };
    if applied(&netns, &host, Engine::Xtables).is_none() {
        return;
    }
    let listed = plain(&tool(&netns, "iptables-legacy-save", "-t nat"));
    assert_eq!(listed, plain(&save));
    let set = tool(&netns, "ipset", "list istio-inpod-probes-v4");
    assert!(
        set.contains("Type: hash:ip") && set.contains("family inet") && set.contains(" comment"),
        "{set}"
    );
    // The set of a family that is not captured is not created.
    assert!(!tool(&netns, "ipset", "list -n").contains("v6"));
    let other = Netns::create().unwrap();
    tool(
        &other,
        "ipset",
        "create istio-inpod-probes-v4 hash:ip comment",
    );
    fed(&other, "iptables-legacy-restore", "-w", &save);
    assert_eq!(
        applied(&other, &host, Engine::Xtables).unwrap(),
        Vec::<String>::new()
    );
}

/// The entry of each pod as the engine's tool lists it: address and comment.
fn entries(netns: &Netns, engine: Engine) -> Vec<String> {
    let text = match engine {
        Engine::Nft => tool(netns, "nft", "list ruleset"),
        Engine::Xtables => tool(netns, "ipset", "list"),
    };
    let mut found: Vec<String> = Vec::new();
    for part in text.split([',', '\n', '=']) {
        let words: Vec<&str> = part.split_whitespace().collect();
        let words = words.strip_prefix(&["{"]).unwrap_or(&words);
        let words = words.strip_suffix(&["}"]).unwrap_or(words);
        if let [address, "comment", uid] = words {
            found.push(format!("{address} {}", uid.trim_matches('"')));
        }
    }
    found.sort();
    found
}

#[test]
fn an_address_that_another_pod_has_now_has_its_comment_and_foreign_things_stay() {
    for engine in [Engine::Nft, Engine::Xtables] {
        let netns = namespace_or_skip!();
        let first = host(&[("10.0.0.1", "a"), ("10.0.0.2", "b"), ("fd00::1", "a")]);
        let foreign = |netns: &Netns| match engine {
            Engine::Nft => tool(netns, "nft", "list table ip foreign"),
            Engine::Xtables => {
                let nat = tool(netns, "iptables-legacy-save", "-t nat");
                let nat = nat.lines().filter(|l| !l.contains("ISTIO_POSTRT"));
                let nat = plain(&nat.collect::<Vec<_>>().join("\n")).join("\n");
                nat + &tool(netns, "ipset", "list foreign")
            }
        };
        match engine {
            Engine::Nft => {
                let text = "table ip foreign { set s { type ipv4_addr; elements = { 10.0.0.1 } }
                    chain c { type nat hook postrouting priority 100; ip daddr @s counter masquerade; }; }";
                fed(&netns, "nft", "-f -", text);
            }
            Engine::Xtables => {
                if applied(&Netns::create().unwrap(), &first, engine).is_none() {
                    continue;
                }
                tool(&netns, "ipset", "create foreign hash:ip comment");
                tool(&netns, "ipset", "add foreign 10.0.0.1 comment kept");
                tool(
                    &netns,
                    "iptables-legacy",
                    "-w -t nat -A POSTROUTING -d 10.7.0.0/16 -j ACCEPT",
                );
            }
        }
        let before = foreign(&netns);
        applied(&netns, &first, engine).unwrap();
        assert_eq!(
            entries(&netns, engine),
            foreign_entry(engine, &["10.0.0.1 a", "10.0.0.2 b", "fd00::1 a"])
        );
        if engine == Engine::Xtables {
            // The rules precede the rule that would end the chain.
            let nat = tool(&netns, "iptables-legacy", "-w -t nat -S POSTROUTING");
            let first = nat.lines().find(|l| l.starts_with("-A"));
            assert_eq!(first, Some("-A POSTROUTING -j ISTIO_POSTRT"), "{nat}");
        }
        // Another pod gets the first address, one address is new, and one is removed.
        let second = host(&[("10.0.0.1", "c"), ("10.0.0.3", "d"), ("fd00::1", "c")]);
        applied(&netns, &second, engine).unwrap();
        assert_eq!(
            entries(&netns, engine),
            foreign_entry(engine, &["10.0.0.1 c", "10.0.0.3 d", "fd00::1 c"])
        );
        let read = netns.run(|| addresses(engine)).unwrap().unwrap();
        assert_eq!(read, second.addresses, "{engine}");
        assert_eq!(
            applied(&netns, &second, engine).unwrap(),
            Vec::<String>::new(),
            "{engine}"
        );
        // After a restart the engine in use is kept, whatever the setting.
        for native in [true, false] {
            assert_eq!(netns.run(|| choose(native)).unwrap().unwrap(), engine);
        }
        assert_eq!(foreign(&netns), before, "{engine}");
        netns.run(remove).unwrap().unwrap();
        assert_eq!(foreign(&netns), before, "{engine}");
        assert_eq!(entries(&netns, engine), foreign_entry(engine, &[]));
    }
}

/// The entries with that of the foreign set, which `ipset list` shows as well.
fn foreign_entry(engine: Engine, entries: &[&str]) -> Vec<String> {
    let foreign = (engine == Engine::Xtables).then_some("10.0.0.1 kept");
    let mut all: Vec<String> = entries
        .iter()
        .copied()
        .chain(foreign)
        .map(str::to_owned)
        .collect();
    all.sort();
    all
}

/// A node and a pod, joined by a veth pair.
fn node_and_pod() -> (Netns, Netns) {
    let (node, pod) = (Netns::create().unwrap(), Netns::create().unwrap());
    let (n, p) = (
        Routing::open_in(&node).unwrap(),
        Routing::open_in(&pod).unwrap(),
    );
    n.add_veth("pod1", "eth0", &pod).unwrap();
    for (routing, link, own) in [
        (&n, "pod1", ["10.1.0.1/24", "fd01::1/64"]),
        (&p, "eth0", ["10.1.0.2/24", "fd01::2/64"]),
    ] {
        let index = routing.link(link).unwrap().index;
        routing.set_up(index).unwrap();
        for address in own {
            routing
                .add_address(index, address.parse().unwrap())
                .unwrap();
        }
    }
    // No set contains the pod's second addresses.
    let eth0 = p.link("eth0").unwrap().index;
    p.add_address(eth0, "10.1.0.3/24".parse().unwrap()).unwrap();
    p.add_address(eth0, "fd01::3/64".parse().unwrap()).unwrap();
    tool(&pod, "ip", "route add default via 10.1.0.1");
    tool(&pod, "ip", "-6 route add default via fd01::1");
    (node, pod)
}

/// The source address that the pod sees if another user of the node connects to this IPv4 address of the pod.
fn seen_of_another_user(node: &Netns, pod: &Netns, address: &str) -> IpAddr {
    let listener = pod.run(|| TcpListener::bind((address, 0)));
    let listener = listener.unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("exec 3<>/dev/tcp/{address}/{port}");
    let mut nsenter = Command::new("nsenter");
    nsenter.arg(format!("--net={}", node.path().display()));
    nsenter.args(["setpriv", "--reuid=4711", "--clear-groups"]);
    let run = nsenter.args(["bash", "-c", &connect]).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    listener.accept().unwrap().1.ip()
}

/// The source address that the pod sees if the node connects to this address of the pod.
fn seen(node: &Netns, pod: &Netns, address: &str) -> IpAddr {
    let address: IpAddr = address.parse().unwrap();
    let listener = pod
        .run(|| TcpListener::bind((address, 0)))
        .unwrap()
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    let to = SocketAddr::new(address, port);
    let client = node.run(|| TcpStream::connect_timeout(&to, LONG)).unwrap();
    let client = client.unwrap_or_else(|e| panic!("{to}: {e}"));
    let (_, from) = listener.accept().unwrap();
    drop(client);
    from.ip()
}

#[test]
fn probes_arrive_from_their_own_address_and_nothing_else_does() {
    for engine in [Engine::Nft, Engine::Xtables] {
        drop(namespace_or_skip!());
        let (node, pod) = node_and_pod();
        let enrolled = host(&[("10.1.0.2", "a"), ("fd01::2", "a")]);
        let cases = [
            ("10.1.0.2", "10.1.0.1", "169.254.7.127"),
            (
                "fd01::2",
                "fd01::1",
                "fd16:9254:7127:1337:ffff:ffff:ffff:ffff",
            ),
        ];
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (to, own, _) in cases {
            assert_eq!(seen(&node, &pod, to), ip(own), "without rules");
        }
        if applied(&node, &enrolled, engine).is_none() {
            continue;
        }
        for (to, _, probe) in cases {
            assert_eq!(seen(&node, &pod, to), ip(probe), "{engine}");
        }
        assert_eq!(
            seen(&node, &pod, "10.1.0.3"),
            ip("10.1.0.1"),
            "{engine}: not enrolled"
        );
        assert_eq!(
            seen(&node, &pod, "fd01::3"),
            ip("fd01::1"),
            "{engine}: not enrolled"
        );
        // As with an automatically chosen engine.
        let mut all = enrolled.clone();
        all.users = Some(EVERY_USER);
        applied(&node, &all, engine).unwrap();
        for (to, _, probe) in cases {
            assert_eq!(seen(&node, &pod, to), ip(probe), "{engine}");
        }
        let by_other = || seen_of_another_user(&node, &pod, "10.1.0.2");
        assert_eq!(by_other(), ip("169.254.7.127"), "{engine}");
        if engine == Engine::Nft {
            applied(&node, &enrolled, engine).unwrap();
            assert_eq!(by_other(), ip("10.1.0.1"));
            // Rules for another user do not match the kubelet.
            let mut other = enrolled.clone();
            other.users = Some(4711..=4711);
            applied(&node, &other, engine).unwrap();
            assert_eq!(seen(&node, &pod, "10.1.0.2"), ip("10.1.0.1"));
        }
        node.run(remove).unwrap().unwrap();
        for (to, own, _) in cases {
            assert_eq!(seen(&node, &pod, to), ip(own), "{engine}: removed");
        }
    }
}

fn lock_of_the_tools() -> std::fs::File {
    let mut options = std::fs::OpenOptions::new();
    let lock = options
        .create(true)
        .truncate(false)
        .write(true)
        .open("/run/xtables.lock")
        .unwrap();
    lock.lock().unwrap();
    lock
}

/// Legacy tables of other writers contain nothing to remove, so weir does not take the lock, for which a container may have no path.
#[test]
fn where_nothing_is_to_be_removed_the_lock_is_not_taken() {
    let netns = namespace_or_skip!();
    let host = host(&[("10.0.0.1", "a")]);
    if applied(&netns, &host, Engine::Xtables).is_none() {
        return;
    }
    netns.run(remove).unwrap().unwrap();
    tool(
        &netns,
        "iptables-legacy",
        "-w -t nat -A POSTROUTING -j ACCEPT",
    );
    let lock = lock_of_the_tools();
    let removed = netns.run(remove).unwrap();
    let written = applied(&netns, &host, Engine::Nft);
    lock.unlock().unwrap();
    assert_eq!(removed.unwrap(), Vec::<String>::new());
    assert!(written.is_none_or(|changes| !changes.is_empty()));
}

/// Other programs hold this lock while they write the tables of the host. A container whose own `/run` cannot hold one takes the node's.
#[test]
fn the_lock_of_the_tools_is_honoured() {
    for in_container in [false, true] {
        let netns = namespace_or_skip!();
        let host = host(&[("10.0.0.1", "a")]);
        if applied(&netns, &host, Engine::Xtables).is_none() {
            return;
        }
        netns.run(remove).unwrap().unwrap();
        let apply = || {
            if in_container {
                if let Err(e) = std::fs::metadata("/proc/1/root/run") {
                    return Err(format!("the first process may not be looked at: {e}"));
                }
                if let Err(e) = container::empty("/run".as_ref()) {
                    return Err(format!("no mount namespace: {e}"));
                }
            }
            Ok(apply(&host, Engine::Xtables))
        };
        let lock = lock_of_the_tools();
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| done.send(netns.run(apply).unwrap()));
            let early = is_done.recv_timeout(Duration::from_millis(300));
            lock.unlock().unwrap();
            if let Ok(Ok(written)) = early {
                panic!("another program had the lock: {written:?}");
            }
            match early.or_else(|_| is_done.recv_timeout(LONG)).unwrap() {
                Err(why) => println!("skipped: {why}"),
                Ok(written) => assert!(!written.unwrap().is_empty()),
            }
        });
    }
}
