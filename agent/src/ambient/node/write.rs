//! Compares the desired state of the node with the actual one and writes it, as rules or as eBPF programs.

use super::{AtNode, State, text};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use weir_cni::compile::Engine;
use weir_core::journal::ambient::By;
use weir_core::sandboxes::place::Processes;
use weir_ebpf::Bpffs;
use weir_ebpf::node::Node as Programs;
use weir_netlink::Netns;
use weir_node_ambient::{Collision, Config, Node, Pod, apply_instead, ebpf as programs};

/// The result of a comparison and write.
pub(super) struct Written {
    pub(super) node: Node,
    pub(super) by: By,
    pub(super) steps: Vec<String>,
    pub(super) collision: Option<Collision>,
    /// The values of sysctls before they were changed.
    pub(super) sysctls: BTreeMap<String, String>,
}

impl Written {
    /// Returns the addresses of captured pods.
    pub(super) fn captured(&self) -> BTreeSet<IpAddr> {
        let pods = self.node.config.pods.iter();
        pods.flat_map(|pod| &pod.addresses).copied().collect()
    }

    fn new(node: Node, by: By, steps: Vec<String>) -> Self {
        Self {
            node,
            by,
            steps,
            collision: None,
            sysctls: BTreeMap::new(),
        }
    }

    /// The result if programs capture.
    fn by_programs(change: programs::Change, steps: Vec<String>) -> Self {
        Self {
            collision: change.collisions.first().cloned(),
            ..Self::new(change.node, By::Ebpf, steps)
        }
    }

    /// The result if rules capture.
    fn by_rules(change: weir_node_ambient::Change, steps: Vec<String>) -> Self {
        let collisions = &change.collisions;
        let worst = collisions.iter().find(|c| c.bypasses);
        Self {
            collision: worst.or(collisions.first()).cloned(),
            sysctls: change.sysctls,
            ..Self::new(change.node, By::Rules(change.engine), steps)
        }
    }
}

/// Leaves out pods whose link refused a program; the others are captured.
fn leave_out(change: &mut programs::Change) {
    let (node, refused) = (&mut change.node, &change.steps.left_out);
    for (uid, names) in &node.devices {
        if let Some(why) = names.iter().find_map(|name| refused.get(name)) {
            node.config.pods.retain(|pod| pod.uid != *uid);
            node.left_out.insert(uid.clone(), why.clone());
        }
    }
}

impl AtNode {
    pub(super) fn compare_and_write(
        &self,
        state: &State,
        config: &Config,
    ) -> Result<Written, String> {
        // A pod whose network namespace is not found now keeps its links while they exist: most have no route of their own.
        let is_asked = |known: &Pod| {
            let mut pods = config.pods.iter();
            pods.any(|pod| {
                let is_same = (&pod.uid, &pod.addresses) == (&known.uid, &known.addresses);
                is_same && (pod.netns.is_none() || pod.netns == known.netns)
            })
        };
        let known = state.devices.iter();
        let known = known.filter(|(_, (pod, _))| is_asked(pod));
        let mut asked = Config {
            devices: known
                .map(|(uid, (_, names))| (uid.clone(), names.clone()))
                .collect(),
            leave_out: true,
            sysctls: state.sysctls.clone(),
            ..config.clone()
        };
        let host = self.host()?;
        if self.by_programs() {
            let bpffs = Bpffs::at(&self.0.places.bpffs).map_err(text)?;
            let bpffs = bpffs.leaving_out(&self.0.refusals);
            let mut change = programs::compare(&asked, &host, &bpffs).map_err(text)?;
            leave_out(&mut change);
            if change.is_empty() {
                return Ok(Written::by_programs(change, Vec::new()));
            }
            // This reads back the result.
            let mut written = programs::apply(&asked, &host, &bpffs).map_err(text)?;
            leave_out(&mut written);
            // Removes pins of deleted proxies.
            let living = || Processes::of_node().namespaces();
            bpffs.sweep(living).map_err(text)?;
            let steps = written.steps.proxy.iter().chain(&written.steps.host);
            let mut steps: Vec<String> = steps.map(text).collect();
            if written.replaces {
                steps.push("remove rules and routing that capture instead".to_owned());
            }
            return Ok(Written::by_programs(written, steps));
        }
        let engine = self.0.settings.native_nftables.then_some(Engine::Nft);
        // Programs of an agent with another setting are removed after the rules capture. A route and a policy rule in the proxy's
        // network namespace, which both need, are removed with them and written again.
        let has_programs = self.has_programs(&host, Some(&asked))?;
        let before = programs::sysctls_before(&host, &self.0.places.bpffs);
        asked.sysctls.extend(before.map_err(text)?);
        let compare = || weir_node_ambient::compare(&asked, &host, engine).map_err(text);
        let mut change = compare()?;
        if change.is_empty() && has_programs {
            self.detach(&host, Some(&asked))?;
            change = compare()?;
        }
        if change.is_empty() {
            return Ok(Written::by_rules(change, Vec::new()));
        }
        if let Some(first) = change.refused(&host).map_err(text)? {
            let count = change.collisions.len();
            return Err(format!(
                "nothing was written: {first} ({count} such in total); WEIR_AMBIENT_NODE_CONFIG chooses other marks, tables and priorities"
            ));
        }
        let root = &self.0.places.bpffs;
        let written = apply_instead(&asked, &host, (engine, false), root);
        let (written, _) = written.map_err(text)?;
        let left = compare()?;
        if let Some(first) = left.host.first().or(left.proxy.first()) {
            return Err(format!("after it was written, weir would still {first}"));
        }
        let steps = written.host.iter().chain(&written.proxy).map(text);
        Ok(Written::by_rules(left, steps.collect()))
    }

    /// Returns true if programs are attached at the node or at a proxy.
    fn has_programs(&self, host: &Netns, config: Option<&Config>) -> Result<bool, String> {
        let proxies = config.into_iter().flat_map(|config| &config.proxies);
        let proxies = proxies.map(|proxy| proxy.netns.as_path());
        match Bpffs::if_mounted(&self.0.places.bpffs).map_err(text)? {
            Some(bpffs) => Programs::of(host, &bpffs).is_present(proxies).map_err(text),
            None => Ok(false),
        }
    }

    pub(super) fn detach(
        &self,
        host: &Netns,
        config: Option<&Config>,
    ) -> Result<Vec<String>, String> {
        let removed = programs::remove_pinned(host, &self.0.places.bpffs, config);
        removed.map(Option::unwrap_or_default).map_err(text)
    }
}
