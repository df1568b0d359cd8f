//! The plugin, redirections and configurations, with real namespaces and with what others wrote; each file says what it
//! shows.
// Clippy grants these to `#[test]` functions only, not to their helpers.
#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod api_tls;
mod binary;
mod chain;
mod common;
mod contention;
mod crash;
mod fingerprint;
mod golden_compile;
mod golden_iptables_nft;
mod headers;
mod http;
mod logs;
mod multus;
mod plugin;
mod plugin_ambient;
mod plugin_api;
mod plugin_look_up;
mod protocol;
mod runtime;
mod runtime_list;
mod support;
mod teardown;
