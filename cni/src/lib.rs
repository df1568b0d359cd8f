//! Derives the traffic redirection of a pod and applies it; also the CNI plugin that does so for each new pod.
//!
//! This crate is for programs that redirect the traffic of a pod to a sidecar proxy, as Istio does: the plugin `weir-cni`,
//! the node agent, and other programs. It never executes a program, and never changes the network namespace of the host.
//!
//! The main types, all plain data except the last:
//!
//! - [`pod::PodFacts`]: the relevant properties of a pod; [`pod::redirect_from`] reads its annotations.
//! - [`config::Intent`]: the captured and excluded traffic as typed values.
//! - [`compile::Compiled`]: the rules and the routing that implement an intent, created by [`compile::compile`].
//! - [`redirection::Sandbox`]: the network namespace of the pod, in which a redirection is planned, applied, verified and
//!   removed.
//!
//! ```
//! use weir_cni::compile::{Engine, compile};
//! use weir_cni::pod::{NodeEnvironment, Pod, PodFacts, Skip, redirect_from};
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
//! The CNI plugin consists of [`protocol`], the exchange with the container runtime, and [`plugin`], which connects it to
//! the modules above.
//!
//! Some signatures have types of other crates. CNI is a JSON protocol in which a plugin passes on unknown keys, so its
//! functions use `Value` and `Map` of `serde_json`, and [`json`] reads types that implement `serde`'s traits. Networks are
//! those of `ipnet`. [`api::client_config`] returns a `rustls` configuration, so that other connections to the API server
//! trust the same certificates as the plugin.
#![forbid(unsafe_code)]

pub mod annotation;
pub mod api;
pub mod compile;
pub mod config;
pub mod files;
pub mod http;
pub mod json;
pub mod log;
pub mod plugin;
pub mod pod;
pub mod protocol;
pub mod redirection;
pub mod sysctl;

/// The name of the plugin: upstream's if this program was called by it, as where the node agent installs it.
fn called_as() -> &'static str {
    let called = std::env::args_os().next().unwrap_or_default();
    match std::path::Path::new(&called).ends_with("istio-cni") {
        true => "istio-cni",
        false => "weir-cni",
    }
}

/// Compiles the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
