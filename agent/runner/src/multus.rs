//! Several networks for one pod, in the order of Multus.
//!
//! Multus is the only plugin that the container runtime calls. It calls the default network for the interface that
//! the runtime names, then each network that the pod selects, as a separate call without the result of another:
//!
//! ```text
//! ADD, CHECK   default (eth0), first selected (net1), second selected (net2), ...
//! DEL          in reverse order, all of them, also after a failure
//! GC           not passed on to selected networks
//! STATUS       the default network's
//! ```
//! References: Kubernetes Network Custom Resource Definition De-facto Standard 1.3, sections 4 (selection) and 7
//! (attachment); multus-cni 4, `pkg/multus/multus.go`.

use std::path::Path;

use serde_json::Value;

use super::attachment::Attachment;
use super::error::{Error, Result};
use super::list::NetworkList;
use super::runner::Runner;
use super::selection::{self, Selection};

/// The networks of one pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodNetworks {
    /// The cluster's default network, which assigns the pod's address.
    pub default: NetworkList,
    /// The networks that the pod selects, in its order.
    pub selected: Vec<(NetworkList, Selection)>,
}

impl From<NetworkList> for PodNetworks {
    /// The default network alone.
    fn from(default: NetworkList) -> Self {
        Self {
            default,
            selected: Vec::new(),
        }
    }
}

impl PodNetworks {
    /// The default network and those that the annotation `k8s.v1.cni.cncf.io/networks` selects. A selected network is
    /// the configuration in `dir` with its name, as Multus finds the network of a NetworkAttachmentDefinition without
    /// `spec.config`. The namespace of a selection is part of that object's name only.
    ///
    /// # Errors
    /// [`Error::Config`]: the annotation cannot be read, or a network is not in `dir`.
    pub fn select(default: NetworkList, annotation: &str, dir: &Path) -> Result<Self> {
        let load = |selection: Selection| {
            let list = NetworkList::load_named(dir, &selection.name)?;
            Ok((list, selection))
        };
        let selected = selection::parse(annotation)?.into_iter().map(load);
        Ok(Self {
            default,
            selected: selected.collect::<Result<_>>()?,
        })
    }

    /// Every network with its attachment. Where the pod names no interface, it is `net1` for the first selected
    /// network, and so on. Values for capabilities apply to the default network only.
    fn attachments(&self, pod: &Attachment) -> Result<Vec<(&NetworkList, Attachment)>> {
        let mut all = vec![(&self.default, pod.clone())];
        for (number, (list, selection)) in (1..).zip(&self.selected) {
            let ifname = selection.interface.clone();
            let ifname = ifname.unwrap_or_else(|| format!("net{number}"));
            if let Some((other, _)) = all.iter().find(|(_, a)| a.ifname == ifname) {
                let reason = format!(
                    "networks {:?} and {:?} would both use interface {ifname:?}; name another one: NETWORK@INTERFACE",
                    other.name, list.name
                );
                return Err(Error::config(selection::SOURCE, reason));
            }
            let attachment = Attachment {
                ifname,
                capability_args: serde_json::Map::new(),
                ..pod.clone()
            };
            all.push((list, attachment));
        }
        Ok(all)
    }
}

impl Runner {
    /// ADD of the default network, then of the selected ones. Returns the result of the default network, as Multus
    /// does.
    ///
    /// # Errors
    /// The error of the first network that fails, see [`Runner::add`]. DEL is then called for the networks before it,
    /// the last one first; errors of DEL follow in [`Error::Chain`].
    pub fn add_pod(&self, networks: &PodNetworks, pod: &Attachment) -> Result<Value> {
        let all = networks.attachments(pod)?;
        for (list, _) in &all {
            self.find_all(list)?;
        }
        let mut of_default = None;
        for (done, (list, attachment)) in all.iter().enumerate() {
            match self.add_as(done > 0, list, attachment) {
                Ok(result) => _ = of_default.get_or_insert(result),
                Err(error) => {
                    return Err(error.and(self.del_each(all.iter().take(done).rev())));
                }
            }
        }
        of_default.ok_or_else(|| Error::NotPossible("there is no network".into()))
    }

    /// CHECK of all, in the order of ADD.
    ///
    /// # Errors
    /// The error of the first network that fails, see [`Runner::check`].
    pub fn check_pod(&self, networks: &PodNetworks, pod: &Attachment) -> Result<()> {
        let all = networks.attachments(pod)?;
        all.iter()
            .try_for_each(|(list, attachment)| self.check(list, attachment))
    }

    /// DEL of all, the last one first; continues after a failure.
    ///
    /// # Errors
    /// The errors of all plugins that failed.
    pub fn del_pod(&self, networks: &PodNetworks, pod: &Attachment) -> Result<()> {
        let all = networks.attachments(pod)?;
        Error::all(self.del_each(all.iter().rev()))
    }

    /// GC of the default network alone, see [`Runner::gc`]. The selected attachments of every pod are valid, also those of this
    /// network.
    ///
    /// # Errors
    /// All errors.
    pub fn gc_pods(&self, networks: &PodNetworks, valid: &[Attachment]) -> Result<()> {
        let stored = self.cache.of_network(&networks.default.name)?.into_iter();
        let selected = stored.filter(|entry| entry.selected);
        let selected = selected.map(|entry| entry.attachment);
        let valid: Vec<_> = valid.iter().cloned().chain(selected).collect();
        self.gc(&networks.default, &valid)
    }

    fn del_each<'a>(
        &self,
        attachments: impl Iterator<Item = &'a (&'a NetworkList, Attachment)>,
    ) -> Vec<Error> {
        let del = |(list, attachment): &(&NetworkList, Attachment)| self.del(list, attachment);
        attachments.filter_map(|a| del(a).err()).collect()
    }
}
