//! The execution protocol: what a container runtime passes to a CNI plugin, and what the plugin returns.
//!
//! There is no global state: [`run`] takes the environment, stdin, stdout and stderr as arguments and returns the exit
//! status. It validates all input from the runtime, calls one method of a [`Handler`], and writes exactly one JSON
//! object to stdout.
//!
//! Start reading at [`dispatch`](run); a handler receives a [`Call`] and returns a [`CniError`] on failure.
//! [`PrevResult`] is the result that a chained plugin receives and passes on.
//!
//! References: the CNI specification 1.1.0, sections 2 (execution protocol)
//! and 5 (result types).

mod args;
mod call;
mod dispatch;
mod environment;
mod error;
mod netconf;
mod panic;
mod result;
mod result_form;
mod selector;
mod version;

pub(crate) use args::validate_path_segment;
pub use args::{CniArgs, is_kubernetes_name};
pub use call::{Call, Command};
pub use dispatch::{About, Edge, Handler, run};
pub use environment::{
    Environment, validate_container_id, validate_interface_name, validate_network_name,
};
pub use error::{CniError, code};
pub use netconf::NetConf;
pub use panic::install_panic_hook;
pub use result::{PrevResult, ResultAddress, convert, empty, print};
pub use selector::{LabelSelector, Requirement, Selector};
pub(crate) use version::same_family;
pub use version::{IMPLEMENTED, SUPPORTED, Version, is_supported};
