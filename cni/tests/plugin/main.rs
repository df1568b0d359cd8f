//! The plugin, redirections and configurations, with real namespaces and with data of other authors. Each file describes what it tests.
// Helpers are part of the tests: clippy.toml grants them the same exceptions.
#![cfg(test)]
#![allow(unreachable_pub)]

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
mod lost_result;
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
