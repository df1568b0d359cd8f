//! What captures now, for pods whose link is not found: an agent that has just started knows nothing else of them.

use crate::captured::by_rules;
use crate::config::Pod;
use crate::discover::{By, device_of};
use crate::rules::captured_at;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use weir_ebpf::Bpffs;
use weir_ebpf::node::Node as Programs;
use weir_netlink::route::{Link, Routing};
use weir_netlink::{Netns, Result};

/// The host ends of links by the address of the pod.
pub(crate) type Ends = BTreeMap<IpAddr, String>;

/// What captures in a node's namespace.
#[derive(Debug, Default)]
pub(crate) struct Before {
    /// The addresses of pods. Programs also tell the link.
    addresses: BTreeMap<IpAddr, Option<String>>,
    /// The links of pods that rules capture.
    links: BTreeSet<String>,
}

impl Before {
    /// Reads the rules in the network namespace of this thread.
    pub(crate) fn by_rules(routing: &Routing, links: &[Link]) -> Result<Self> {
        let addresses = by_rules(&routing.routes_by(crate::objects::WEIR)?);
        if addresses.is_empty() {
            return Ok(Self::default());
        }
        Ok(Self {
            addresses: addresses.into_iter().map(|a| (a, None)).collect(),
            links: captured_at(links)?,
        })
    }

    /// Reads the pinned programs, and the rules that they replace.
    pub(crate) fn by_programs(
        (host, bpffs): (&Netns, &Bpffs),
        routing: &Routing,
        links: &[Link],
    ) -> Result<Self> {
        let mut before = Self::by_rules(routing, links)?;
        for (address, index) in Programs::of(host, bpffs).links()? {
            let link = links.iter().find(|link| link.index == index);
            before
                .addresses
                .insert(address, link.map(|link| link.name.clone()));
        }
        Ok(before)
    }

    /// Returns those addresses of a pod that stay captured, with their links if these are known, and the links to capture. An address
    /// whose link is known to be gone does not stay captured. While a link is unknown, each captured one that is not `taken` may be it;
    /// programs cannot be attached to an unknown link.
    pub(crate) fn kept(
        &self,
        (routing, links): (&Routing, &[Link]),
        (pod, by): (&Pod, By),
        taken: &BTreeSet<String>,
    ) -> (BTreeMap<IpAddr, Option<String>>, Vec<String>) {
        let captured = pod.addresses.iter();
        let captured = captured.filter_map(|a| Some((*a, self.addresses.get(a)?)));
        let kept = captured.filter_map(|(address, before)| {
            match device_of(routing, links, pod, address) {
                Ok(name) => Some((address, Some(name))),
                Err(unfound) => unfound.is_unknown.then(|| (address, before.clone())),
            }
        });
        let is_possible = |(_, link): &(_, Option<String>)| by != By::Programs || link.is_some();
        let kept: BTreeMap<_, _> = kept.filter(is_possible).collect();
        let has_unknown = kept.values().any(Option::is_none);
        let unknown = self.links.difference(taken).filter(|_| has_unknown);
        let names: BTreeSet<&String> = kept.values().flatten().chain(unknown).collect();
        let names = names.into_iter().cloned().collect();
        (kept, names)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Node, ebpf};
    use std::net::IpAddr;
    use weir_cni::compile::Engine;
    use weir_ebpf::Bpffs;
    use weir_netlink::Netns;
    use weir_netlink::route::Routing;
    use weir_testing::BpfFs;

    const ADDRESSES: [IpAddr; 2] = [
        IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 0, 10)),
        IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 1, 10)),
    ];

    enum Way {
        Rules(Engine),
        Programs(BpfFs),
    }

    struct Scene {
        node: Netns,
        pod: Netns,
        way: Way,
    }

    impl Scene {
        /// A pod without a route to it alone, and nothing captures yet.
        fn with(way: Way) -> Option<Self> {
            let node = weir_testing::namespace()?;
            // The kernel would give links addresses of their own at any time, and each is a change.
            let alone = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            let _ = node.run(alone).unwrap();
            let pod = Netns::create().unwrap();
            let routing = Routing::open_in(&node).unwrap();
            routing.set_up(1).unwrap();
            routing.add_veth("v1", "eth0", &pod).unwrap();
            let inside = Routing::open_in(&pod).unwrap();
            for (of, link, last) in [(&routing, "v1", 1), (&inside, "eth0", 10)] {
                let index = of.link(link).unwrap().index;
                of.set_up(index).unwrap();
                let net = format!("10.1.0.{last}/24").parse().unwrap();
                of.add_address(index, net).unwrap();
            }
            let strict = || std::fs::write("/proc/sys/net/ipv4/conf/v1/rp_filter", "1");
            node.run(strict).unwrap().unwrap();
            Some(Self { node, pod, way })
        }

        fn config(&self, addresses: &[IpAddr], is_known: bool) -> Config {
            let mut config = Config::from_json(
                r#"{"pods": [{"uid": "pod-a", "addresses": ["10.1.0.10"]}]}"#,
                "test",
            )
            .unwrap();
            config.leave_out = true;
            config.pods[0].addresses = addresses.to_vec();
            config.pods[0].netns = is_known.then(|| self.pod.path());
            config
        }

        /// Returns false if the kernel lacks what it needs.
        fn apply(&self, config: &Config) -> bool {
            let applied = match &self.way {
                Way::Rules(engine) => {
                    crate::apply(config, &self.node, Some(*engine), false).map(drop)
                }
                Way::Programs(mounted) => {
                    ebpf::apply(config, &self.node, &bpffs(mounted)).map(drop)
                }
            };
            match applied {
                Err(e) if e.is_unsupported() => {
                    println!("skipped: {e}");
                    false
                }
                applied => {
                    applied.unwrap();
                    true
                }
            }
        }

        /// The node as found, and whether nothing would be changed.
        fn compare(&self, config: &Config) -> (Node, bool) {
            match &self.way {
                Way::Rules(engine) => {
                    let change = crate::compare(config, &self.node, Some(*engine)).unwrap();
                    let is_empty = change.is_empty();
                    (change.node, is_empty)
                }
                Way::Programs(mounted) => {
                    let change = ebpf::compare(config, &self.node, &bpffs(mounted)).unwrap();
                    let is_empty = change.is_empty();
                    (change.node, is_empty)
                }
            }
        }
    }

    fn bpffs(mounted: &BpfFs) -> Bpffs {
        let bpffs = Bpffs::at(mounted.path()).unwrap();
        match mounted.by_filters() {
            true => bpffs.by_filters(),
            false => bpffs,
        }
    }

    fn each(check: impl Fn(&Scene)) {
        let links = || weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok();
        let rules = [Engine::Nft, Engine::Xtables].map(Way::Rules).into_iter();
        let ways = rules.chain(BpfFs::each(links).map(Way::Programs));
        ways.filter_map(Scene::with).for_each(|scene| check(&scene));
    }

    #[test]
    fn a_captured_pod_whose_link_is_not_found_any_more_stays_captured() {
        each(|scene| {
            let unknown = scene.config(&ADDRESSES[..1], false);
            let (node, _) = scene.compare(&unknown);
            assert!(node.left_out.contains_key("pod-a"), "it was never captured");
            if !scene.apply(&scene.config(&ADDRESSES[..1], true)) {
                return;
            }
            let (node, is_same) = scene.compare(&unknown);
            assert!(is_same && node.left_out.is_empty(), "{node:?}");
            assert_eq!(node.devices["pod-a"], ["v1"]);
            // It leaves.
            let (node, is_same) = scene.compare(&Config::default());
            assert!(!is_same && node.devices.is_empty(), "{node:?}");
        });
    }

    #[test]
    fn an_address_without_a_link_leaves_the_others_captured() {
        each(|scene| {
            for is_known in [true, false] {
                let both = scene.config(&ADDRESSES, is_known);
                let (node, _) = scene.compare(&both);
                assert!(node.left_out.contains_key("pod-a"), "it was never captured");
                let first = scene.config(&ADDRESSES[..1], true);
                if !scene.apply(&first) {
                    return;
                }
                let (node, is_same) = scene.compare(&both);
                assert!(is_same && node.left_out.is_empty(), "{node:?}");
                assert_eq!(node.config.pods[0].addresses, ADDRESSES[..1]);
                assert!(scene.apply(&Config::default()));
            }
        });
    }
}
