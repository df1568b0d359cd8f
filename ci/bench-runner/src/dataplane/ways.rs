//! Ways to redirect the traffic of a pod, and the cost of attaching eBPF programs to many pods.

use weir_ambient::{Config, PodOverrides, Redirect};
use weir_cni::compile::Engine;
use weir_cni::redirection::{Desired, Sandbox};
use weir_demo::node_ambient::{Lab, Place};
use weir_ebpf::{Bpffs, Pod};
use weir_netlink::Netns;
use weir_netlink::route::Routing;
use weir_testing::BpfFs;

use super::cpu;
use crate::agent::rss;
use crate::report::{Goal, Report};
use crate::stats::Ratio;

/// The pods that one process redirects sequentially.
const PODS: usize = 1_000;
const POD_US: f64 = 5e3;
const ALL_US: f64 = 5e6;
const RSS_KIB: f64 = 40.0 * 1024.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Direct,
    Nft,
    Xtables,
    Ebpf,
    NodeRules,
    NodePrograms,
}

pub(super) const ALL: [Way; 6] = [
    Way::Direct,
    Way::Nft,
    Way::Xtables,
    Way::Ebpf,
    Way::NodeRules,
    Way::NodePrograms,
];

fn wanted() -> Result<Redirect, String> {
    Redirect::new(Config::default(), &PodOverrides::default()).map_err(|e| e.to_string())
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "no redirection, no proxy",
            Self::Nft => "nft in the pod",
            Self::Xtables => "legacy tables in the pod",
            Self::Ebpf => "eBPF in the pod",
            Self::NodeRules => "rules at the node",
            Self::NodePrograms => "eBPF at the node",
        }
    }

    /// The location of the proxy.
    pub(super) fn proxy(self) -> Option<Place> {
        match self {
            Self::Direct => None,
            Self::Nft | Self::Xtables | Self::Ebpf => Some(Place::Web),
            Self::NodeRules | Self::NodePrograms => Some(Place::Proxy),
        }
    }

    /// Sets up the redirection.
    ///
    /// # Errors
    /// This kernel does not support it, or this user may not set it up.
    pub(super) fn redirect(self, lab: &Lab, mounted: Option<&BpfFs>) -> Result<(), String> {
        let (pod, node) = (lab.netns(Place::Web), lab.netns(Place::Node));
        match self {
            Self::Direct => Ok(()),
            Self::Nft => rules(pod, Engine::Nft),
            Self::Xtables => rules(pod, Engine::Xtables),
            Self::Ebpf => programs(pod, mounted),
            Self::NodeRules => {
                let applied = weir_node_ambient::apply(&lab.config()?, node, None, false);
                applied.map(drop).map_err(|e| e.to_string())
            }
            Self::NodePrograms => {
                let mounted = mounted.ok_or("no bpf file system")?;
                let bpffs = Bpffs::at(mounted.path()).map_err(|e| e.to_string())?;
                let applied = weir_node_ambient::ebpf::apply(&lab.config()?, node, &bpffs);
                applied.map(drop).map_err(|e| e.to_string())
            }
        }
    }
}

fn rules(pod: &Netns, engine: Engine) -> Result<(), String> {
    let wanted = wanted()?;
    let text = |e: weir_netlink::Error| e.to_string();
    let sandbox = Sandbox::of(pod.try_clone().map_err(text)?).map_err(|e| e.to_string())?;
    let done = sandbox.visit_for(Redirect::SCHEME, |visit| {
        visit.apply_intent(&wanted, Some(engine)).map(drop)
    });
    done.map_err(text)?.map_err(|e| e.to_string())
}

fn programs(pod: &Netns, mounted: Option<&BpfFs>) -> Result<(), String> {
    let mounted = mounted.ok_or("no bpf file system")?;
    let bpffs = Bpffs::at(mounted.path()).map_err(|e| e.to_string())?;
    let pod = Pod::of(pod, &bpffs).map_err(|e| e.to_string())?;
    pod.apply(&wanted()?).map(drop).map_err(|e| e.to_string())
}

/// Measures attaching programs to many pods, each with a veth.
pub(super) fn attach(report: &mut Report) -> Result<(), String> {
    let Some(mounted) = BpfFs::mount() else {
        return Ok(());
    };
    let text = |e: weir_netlink::Error| e.to_string();
    let node = Netns::create().map_err(text)?;
    let mut pods = Vec::new();
    for n in 0..PODS {
        let pod = Netns::create().map_err(text)?;
        let routing = Routing::open_in(&pod).map_err(text)?;
        routing
            .add_veth("eth0", &format!("veth{n}"), &node)
            .map_err(text)?;
        pods.push(pod);
    }
    let before = cpu();
    for pod in &pods {
        programs(pod, Some(&mounted))?;
    }
    let spent = cpu() - before;
    Report::heading(&format!("Programs for {PODS} pods, by one process"));
    report.arm("processor time for one pod", "us", &[spent / PODS as f64]);
    report.goal(
        "programs of one pod / 5 ms",
        Ratio::of_one(spent / PODS as f64 / POD_US),
        Goal::AtMost(1.0),
    );
    report.goal(
        "programs of all pods / 5 s",
        Ratio::of_one(spent / ALL_US),
        Goal::AtMost(1.0),
    );
    let rss = rss(std::process::id())?;
    report.arm("memory of this process", "KiB", &[rss]);
    report.goal(
        "memory of that process / 40 MiB",
        Ratio::of_one(rss / RSS_KIB),
        Goal::AtMost(1.0),
    );
    Ok(())
}
