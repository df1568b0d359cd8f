//! How the pod is redirected: to a sidecar by the CNI plugin, in ambient mode as the node agent does it.

use super::ambient::{ambient_scenes, probe};
use super::node::Node;
use super::{Lab, Mode, Place, Scene, Stage, scenes};
use std::path::PathBuf;
use weir_ambient::{Config, PodOverrides, Redirect};
use weir_cni::compile::Engine;
use weir_cni::redirection::{Desired, Sandbox, Visit};
use weir_netlink::Netns;
use weir_netlink::route::AddressFamily;

/// One of the two ways.
#[derive(Debug)]
pub(super) enum Redirection {
    /// To a sidecar.
    Sidecar(Node),
    /// To ztunnel.
    Ambient(Redirect),
}

impl Redirection {
    /// A throwaway node with the plugin.
    ///
    /// # Errors
    /// What could not be made.
    pub(super) fn sidecar(lab: &Lab) -> Result<Self, String> {
        Node::create(lab).map(Self::Sidecar)
    }

    /// The rules with DNS for the families of this kernel; the client stands in for the kubelet, too.
    ///
    /// # Errors
    /// The client could not get the address of probes.
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

    /// Puts the rules into the pod, and proves that they are there.
    ///
    /// # Errors
    /// Why not.
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

    /// All listeners, as this proxy opens them.
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

    /// What is sent.
    pub(super) fn scenes(&self, lab: &Lab, family: AddressFamily) -> Vec<Scene> {
        match self {
            Self::Sidecar(_) => scenes(lab, family),
            Self::Ambient(_) => ambient_scenes(lab, family),
        }
    }

    /// Takes the rules away; returns the directory that must be gone now, if there was one.
    ///
    /// # Errors
    /// What could not be removed.
    pub(super) fn remove(self, sandbox: &Sandbox) -> Result<Option<PathBuf>, String> {
        match self {
            Self::Sidecar(node) => {
                step("run the CNI plugin again: DEL; take the rules away, then the namespaces");
                // The second one finds nothing to do.
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

/// Progress goes to stderr, apart from the result.
pub(super) fn step(what: &str) {
    eprintln!("weir demo: {what}");
}

pub(super) fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}
