//! From a pod to its redirection, and the CNI plugin that puts it in place.
//!
//! What it is for: programs that put the traffic of a pod through a sidecar proxy, as Istio does: the plugin `weir-cni`, the
//! node agent, and other programs. What it refuses: to execute anything, and to touch the network namespace of the host.
//!
//! Four types matter, each plain data but for the last:
//!
//! - [`pod::PodFacts`] is what a pod says that matters here; [`pod::redirect_from`] reads its annotations.
//! - [`config::Intent`] is what is captured and what is not, with every text understood.
//! - [`compile::Compiled`] is the rules and the routing that carry it out, made by [`compile::compile`].
//! - [`redirection::Sandbox`] is the network namespace of the pod: they are planned, applied, verified and removed there.
//!
//! ```
//! use weir_cni::compile::{Engine, compile};
//! use weir_cni::fill::NodeEnvironment;
//! use weir_cni::pod::{Pod, PodFacts, Skip, redirect_from};
//! use weir_cni::redirection::Sandbox;
//! use weir_netlink::Netns;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let manifest = "
//! apiVersion: v1
//! kind: Pod
//! metadata:
//!   name: reviews
//!   namespace: shop
//!   annotations:
//!     sidecar.istio.io/status: '{}'
//!     traffic.sidecar.istio.io/excludeOutboundPorts: '5432'
//! spec:
//!   containers: [{name: reviews}, {name: istio-proxy}]
//! ";
//! let facts = PodFacts::of(&Pod::from_manifest(manifest, "reviews.yaml")?);
//! assert_eq!(Skip::of(&facts), None, "it is redirected");
//! let environment = NodeEnvironment::read(&|_| None, "/etc/group".as_ref())?;
//! let intent = redirect_from(&facts)?.intent(&environment, &["10.0.0.2".parse()?])?;
//! let desired = compile(&intent, Engine::Nft);
//! assert!(desired.to_string().contains("tcp dport 5432"));
//!
//! # if Netns::create().is_err_and(|e| e.is_permission()) { return Ok(()); } // an unprivileged user
//! let sandbox = Sandbox::of(Netns::create()?)?;
//! for change in sandbox.apply(&desired)? {
//!     println!("{change}");
//! }
//! assert!(sandbox.verify(&desired)?.is_empty(), "it is in sync");
//! sandbox.clean(None)?;
//! assert!(!sandbox.verify(&desired)?.is_empty(), "it is gone");
//! # Ok(())
//! # }
//! ```
//!
//! The plugin's own half is [`protocol`], the requests and answers of the runtime, and [`plugin`], which joins both halves.
//!
//! CNI is a protocol of JSON in which a plugin hands on keys that it does not know: there, a signature has `Value` and
//! `Map` of `serde_json`, and [`json`] reads what `serde` describes. Networks are those of `ipnet`. [`api::client_config`]
//! is a `rustls` configuration: what connects to the API server trusts the same certificates as the plugin.
#![forbid(unsafe_code)]

pub mod annotation;
pub mod api;
pub mod compile;
pub mod config;
pub mod files;
pub mod fill;
pub mod http;
pub mod json;
pub mod log;
pub mod of_node;
pub mod plugin;
pub mod pod;
pub mod protocol;
pub mod redirection;
pub mod sysctl;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
