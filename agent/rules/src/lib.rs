//! Rules, sets and sysctls of network namespaces: what the agent and the commands need and the CNI plugin does not.
//!
//! - [`SidecarConfig`]: the configuration of a redirection as text, as upstream's installer has it, and its conversion to an
//!   [`Intent`](weir_cni::config::Intent).
//! - [`strays()`]: owned objects in the network namespace of a pod without a redirection, and whether this program wrote them.
//! - [`show`]: all rules and sets of a network namespace.
//! - [`of_node`], [`sysctl`]: the tables, the lock file and the sysctls of the node, from inside a container.
//!
//! ```
//! use weir_cni::compile::{Engine, compile};
//! use weir_cni::config::NameFiles;
//! use weir_rules::SidecarConfig;
//!
//! let text = r#"{"proxy_port": "15001", "proxy_uid": "1337", "inbound_ports_include": "*"}"#;
//! let config = SidecarConfig::from_json(text, "an example")?;
//! config.validate()?;
//! let desired = compile(&config.intent(&NameFiles::default())?, Engine::Nft);
//! assert!(desired.to_string().contains("redirect to :15006"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod authorship;
mod config;
mod duration;
mod intent;
pub mod of_node;
pub mod show;
mod strays;
mod switches;
pub mod sysctl;
mod validate;

pub use config::SidecarConfig;
pub use strays::{Strays, strays};
