//! The node agent: its installer against golden data, and the whole process on directories that stand for a node.
// matrix: newest

// Helpers are part of the tests: clippy.toml grants them the same exceptions.
#![cfg(test)]

mod adds;
mod ambient;
mod ambient_beside;
mod ambient_doubt;
mod ambient_ebpf;
mod ambient_ebpf_traffic;
mod ambient_entry;
mod ambient_faults;
mod ambient_flushed;
mod ambient_host;
mod ambient_hostile;
mod ambient_killed;
mod ambient_moved;
mod ambient_namespaces;
mod ambient_node;
mod ambient_pods;
mod ambient_programs;
mod ambient_proved;
mod ambient_proxies;
mod attacks;
mod blind;
mod bundle;
mod bundle_rules;
mod burst;

use weir_testing::{api_server, chromium};
mod commands;
mod cri;
mod drift;
mod faults;
mod full_pipe;
mod golden;
use weir_testing::groups;
mod heal;
mod lifecycle;
mod metrics;
mod multus;
mod owned;
mod passing;
mod pods;
mod privilege;
mod repair;
use weir_testing::rights;
mod scenarios;
mod servers;
mod status;
mod support;
mod unasked;
mod upgrade;
mod validity;
