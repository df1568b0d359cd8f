//! Redirection of the pod: to a sidecar by the CNI plugin, or in ambient mode as the node agent does it.

use super::ambient::{ambient_scenes, probe};
use super::node::Node;
use super::{Lab, Mode, Place, Scene, Stage, scenes};
use std::path::PathBuf;
use weir_ambient::{Config, PodOverrides, Redirect};
use weir_cni::compile::Engine;
use weir_cni::redirection::{Desired, Sandbox, Visit};
use weir_netlink::Netns;
use weir_netlink::route::AddressFamily;

/// The redirection of the demonstration.
#[derive(Debug)]
pub(super) enum Redirection {
    /// To a sidecar, by the CNI plugin.
    Sidecar(Node),
    /// To ztunnel, with the rules of ambient mode.
    Ambient(Redirect),
}

impl Redirection {
    /// Creates a throwaway node with the plugin.
    ///
    /// # Errors
    /// A description of what could not be created.
    pub(super) fn sidecar(lab: &Lab) -> Result<Self, String> {
        Node::create(lab).map(Self::Sidecar)
    }

    /// Builds the redirection with DNS capture for the families of this kernel; the client also acts as the kubelet.
    ///
    /// # Errors
    /// The source address of probes cannot be added to the client.
    pub(super) fn ambient(lab: &Lab) -> Result<Self, String> {
        for &family in lab.families() {
            lab.add_address(Place::Client, probe(family))
                .map_err(text)?;
        }
        let config = Config {
            enable_ipv6: lab.families().contains(&AddressFamily::V6),
            redirect_dns: true,
            ..Config::default()
        };
        let redirect = Redirect::new(config, &PodOverrides::default()).map_err(text)?;
        Ok(Self::Ambient(redirect))
    }

    /// Writes the rules to the pod and verifies them.
    ///
    /// # Errors
    /// A description of the failure.
    pub(super) fn add(&self, pod: &Netns) -> Result<(), String> {
        match self {
            Self::Sidecar(node) => {
                step("run the CNI plugin for the pod: ADD, then CHECK");
                node.add(pod)?;
                node.check(pod)
            }
            Self::Ambient(redirect) => {
                step("redirect the pod to ztunnel");
                let apply = |visit: &Visit<'_>| visit.apply_intent(redirect, None).map(drop);
                let sandbox = Sandbox::of(pod.try_clone().map_err(text)?).map_err(text)?;
                let applied = sandbox.visit_for(Redirect::SCHEME, apply);
                applied.map_err(text)?.map_err(text)
            }
        }
    }

    /// Opens all listeners, as this proxy does.
    ///
    /// # Errors
    /// As [`Stage::open`].
    pub(super) fn stage<'a>(&self, lab: &'a Lab) -> Result<Stage<'a>, String> {
        match self {
            Self::Sidecar(_) => Stage::open(lab, Mode::Redirect),
            Self::Ambient(_) => Stage::ambient(lab),
        }
        .map_err(text)
    }

    /// The flows to send.
    pub(super) fn scenes(&self, lab: &Lab, family: AddressFamily) -> Vec<Scene> {
        match self {
            Self::Sidecar(_) => scenes(lab, family),
            Self::Ambient(_) => ambient_scenes(lab, family),
        }
    }

    /// Removes the rules; returns the directory that must have been deleted after dropping `self`, if there was one.
    ///
    /// # Errors
    /// A description of what could not be removed.
    pub(super) fn remove(self, sandbox: &Sandbox) -> Result<Option<PathBuf>, String> {
        match self {
            Self::Sidecar(node) => {
                step("run the CNI plugin again: DEL; take the rules away, then the namespaces");
                // The second DEL finds nothing to do.
                node.del(sandbox.netns())?;
                node.del(sandbox.netns())?;
                sandbox.clean(None).map_err(text)?;
                Ok(Some(node.dir().to_path_buf()))
            }
            Self::Ambient(redirect) => {
                step("take the rules away, then the namespaces");
                let of = redirect.compile(Engine::Xtables);
                let clean = |visit: &Visit<'_>| visit.clean(Some(&of)).map(drop);
                let cleaned = sandbox.visit_for(Redirect::SCHEME, clean);
                cleaned.map_err(text)?.map_err(text)?;
                Ok(None)
            }
        }
    }
}

/// Prints progress to stderr, separate from the result.
pub(super) fn step(what: &str) {
    eprintln!("weir demo: {what}");
}

pub(super) fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}
