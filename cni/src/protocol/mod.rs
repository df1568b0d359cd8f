//! The plugin's edge: what a container runtime gives a CNI plugin, and what it gets back.
//!
//! Nothing here is global: [`run`] takes the environment, stdin, stdout and
//! stderr as arguments and returns the exit status. It checks everything a
//! runtime can get wrong, calls one method of a [`Handler`], and writes exactly
//! one JSON object to stdout.
//!
//! Start reading at [`dispatch`](run); [`Call`] is what a handler gets,
//! [`CniError`] what it may answer, [`PrevResult`] what a chained plugin
//! was handed and hands on.
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
mod version;

pub use args::{CniArgs, is_kubernetes_name, validate_kubernetes_name};
pub use call::{Call, Command};
pub use dispatch::{About, Edge, Handler, run};
pub use environment::{
    Environment, validate_container_id, validate_interface_name, validate_network_name,
};
pub use error::{CniError, code};
pub use netconf::{NetConf, Selector};
pub use panic::install_panic_hook;
pub use result::{Address, PrevResult, convert, empty, print};
pub use version::{IMPLEMENTED, SUPPORTED, Version, is_supported, same_family};
