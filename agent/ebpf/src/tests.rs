//! Namespaces without IPv6, and changes while nobody watches.

use super::*;
use crate::node::{Node, Proxy, Wanted};
use std::collections::BTreeSet;
use weir_ambient::{Config, PodOverrides, Redirect};
use weir_netlink::route::{AddressFamily, Routing};
use weir_testing::BpfFs;

/// A namespace with `eth0`, the host of the other end `v2`, and a directory of pins.
fn scene() -> Option<(Netns, Netns, BpfFs)> {
    let mounted = BpfFs::mount()?;
    if weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_err() {
        println!("skipped: this kernel has no tcx links");
        return None;
    }
    let (inside, host) = (weir_testing::namespace()?, weir_testing::namespace()?);
    let routing = Routing::open_in(&inside).unwrap();
    routing.add_veth("eth0", "v2", &host).unwrap();
    let lo = routing.link("lo").unwrap().index;
    routing.set_up(lo).unwrap();
    weir_cni::redirection::has_ipv6().then_some((inside, host, mounted))
}

fn disable_ipv6(netns: &Netns, value: &str) {
    let write = || {
        for name in ["all", "lo"] {
            std::fs::write(
                format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"),
                value,
            )
            .unwrap();
        }
    };
    netns.run(write).unwrap();
}

/// The policy rules of weir and the routes of its table, of IPv6.
fn counts_of_ipv6(netns: &Netns) -> (usize, usize) {
    let routing = Routing::open_in(netns).unwrap();
    let rules = routing.rules().unwrap().into_iter();
    let rules = rules.filter(|r| r.family == AddressFamily::V6 && r.fwmark.is_some());
    let routes = routing.routes(100).unwrap().into_iter();
    let routes = routes.filter(|r| r.family() == AddressFamily::V6);
    (rules.count(), routes.count())
}

fn lines<T: ToString>(changes: &[T]) -> Vec<String> {
    changes.iter().map(ToString::to_string).collect()
}

const ROUTE: &str = "add route local ::/0";

/// As with rules: only the route is left out, and it is missing as soon as `lo` has IPv6 again.
#[test]
fn a_pod_may_disable_ipv6_before_and_after_it_is_redirected() {
    let Some((netns, _host, mounted)) = scene() else {
        return;
    };
    let config = Config {
        enable_ipv6: true,
        ..Config::default()
    };
    let wanted = Redirect::new(config, &PodOverrides::default()).unwrap();
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let pod = Pod::of(&netns, &bpffs).unwrap();
    disable_ipv6(&netns, "1");
    let planned = pod.plan(&wanted).unwrap();
    assert_eq!(pod.apply(&wanted).unwrap(), planned);
    assert_eq!(pod.verify(&wanted).unwrap(), []);
    assert_eq!(counts_of_ipv6(&netns), (1, 0));
    disable_ipv6(&netns, "0");
    let missing = lines(&pod.verify(&wanted).unwrap());
    assert!(
        missing.len() == 1 && missing[0].starts_with(ROUTE),
        "{missing:?}"
    );
    pod.apply(&wanted).unwrap();
    assert_eq!(counts_of_ipv6(&netns), (1, 1));
    disable_ipv6(&netns, "1");
    assert_eq!(pod.verify(&wanted).unwrap(), []);
    let planned = pod.plan_removal().unwrap();
    assert_eq!(pod.remove().unwrap(), planned);
    assert_eq!(counts_of_ipv6(&netns), (0, 0));
}

/// With an address of IPv6 it needs the route.
#[test]
fn a_proxy_with_addresses_of_ipv4_alone_may_disable_ipv6() {
    let Some((netns, host, mounted)) = scene() else {
        return;
    };
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let node = Node::of(&host, &bpffs);
    let with = |address: &str| Wanted {
        proxy: Some(Proxy {
            netns: netns.path(),
            interface: "eth0".to_owned(),
            device: "v2".to_owned(),
            addresses: BTreeSet::from([address.parse().unwrap()]),
        }),
        has_ipv6: true,
        ..Wanted::default()
    };
    let v4 = with("10.0.0.2");
    disable_ipv6(&netns, "1");
    node.apply(&v4).unwrap();
    assert!(node.compare(&v4).unwrap().is_empty());
    let error = node.apply(&with("fd00::2")).unwrap_err().to_string();
    assert!(error.contains("::/0"), "{error}");
    disable_ipv6(&netns, "0");
    let missing = lines(&node.compare(&v4).unwrap().proxy);
    assert!(
        missing.len() == 1 && missing[0].starts_with(ROUTE),
        "{missing:?}"
    );
    node.apply(&v4).unwrap();
    assert_eq!(counts_of_ipv6(&netns), (1, 1));
    disable_ipv6(&netns, "1");
    assert!(node.compare(&v4).unwrap().is_empty());
    node.remove(std::slice::from_ref(&netns)).unwrap();
    assert_eq!(counts_of_ipv6(&netns), (0, 0));
}

/// A program that accepts every packet: `r0 = 0; exit`.
fn passes() -> weir_bpf::Program {
    let code = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    weir_bpf::Program::load(weir_bpf::BPF_PROG_TYPE_SCHED_CLS, 0, &code, c"GPL").unwrap()
}

/// An agent that starts reports what another program has changed, and not what it changes itself.
#[test]
fn a_loss_is_what_no_version_setting_or_interface_explains() {
    let Some((netns, host, mounted)) = scene() else {
        return;
    };
    let redirect = |ingress_mode| {
        let overrides = PodOverrides {
            ingress_mode,
            ..PodOverrides::default()
        };
        Redirect::new(Config::default(), &overrides).unwrap()
    };
    let (wanted, bypassing) = (redirect(false), redirect(true));
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let pod = Pod::of(&netns, &bpffs).unwrap();
    let routing = Routing::open_in(&netns).unwrap();
    let index = |name: &str| routing.link(name).unwrap().index;
    // Plans, and applies.
    let lost = |what: &str| {
        let changes = pod.plan(&wanted).unwrap();
        assert!(!changes.is_empty(), "{what}");
        assert_eq!(pod.apply(&wanted).unwrap(), changes, "{what}");
        Change::is_loss(&changes)
    };
    pod.apply(&bypassing).unwrap();
    assert!(!lost("inbound traffic is captured, too"));
    routing.add_veth("net1", "v3", &host).unwrap();
    assert!(!lost("another interface"));
    let folder = bpffs.folder(&netns);
    let weir = mounted.path().join("weir");
    let older = weir.join("v1");
    std::fs::create_dir(&older).unwrap();
    let name = netns.id().ino.to_string();
    std::fs::rename(&folder, older.join(&name)).unwrap();
    // Other routing, too.
    let (route, rule) = switches::routing(AddressFamily::V4);
    assert!(routing.del_rule(&rule).unwrap());
    assert!(!lost("another layout"));
    let link = |name: &str, direction: &str| {
        let path = folder.join(format!("{direction}_{}", index(name)));
        match weir_bpf::open_pin(&path).unwrap() {
            weir_bpf::Pinned::Link(link) => (link, path),
            other => panic!("{other:?}"),
        }
    };
    for (name, direction) in [("eth0", "egress"), ("net1", "ingress"), ("lo", "ingress")] {
        link(name, direction).0.detach().unwrap();
        assert!(lost("a detached program"), "{name} {direction}");
        link(name, direction).0.replace(&passes(), None).unwrap();
        assert!(lost("a replaced program"), "{name} {direction}");
    }
    for (name, direction) in [("eth0", "egress"), ("lo", "ingress")] {
        std::fs::remove_file(link(name, direction).1).unwrap();
        assert!(lost("a removed pin"), "{name} {direction}");
    }
    let (egress, first) = (weir_bpf::BPF_TCX_EGRESS, weir_bpf::Anchor::First);
    let attach = || weir_bpf::Link::to_interface(&passes(), index("eth0"), egress, first);
    let foreign = netns.run(attach).unwrap().unwrap();
    assert!(lost("a program that comes first"));
    drop(foreign);
    routing.delete_link(index("net1")).unwrap();
    routing.add_veth("net2", "v4", &host).unwrap();
    assert!(lost("an interface that was made anew"));
    assert!(routing.del_rule(&rule).unwrap());
    assert!(lost("a deleted policy rule"));
    assert!(routing.del_route(&route).unwrap());
    assert!(lost("a deleted route"));
    assert_eq!(pod.verify(&wanted).unwrap(), []);
    let changes = pod.plan(&bypassing).unwrap();
    assert!(
        !changes.is_empty() && !Change::is_loss(&changes),
        "a setting"
    );
}
