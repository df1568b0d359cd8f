//! The agent of the container image on a Kubernetes node: kubelet, containerd, API server, controllers.
//!
//! `ci/node test` starts such a node and runs these tests one after the other; without a node each prints a skip.
// matrix: none: runs on a Kubernetes node, which ci/node test starts

// Helpers are part of the tests: clippy.toml grants them the same exceptions.
#![cfg(test)]

mod agent_gone;
mod ambient;
mod ambient_faults;
mod ambient_flushed;
mod ambient_host_flushed;
mod broken_pods;
mod callers;
mod containerd2;
mod lifecycle;
mod many;
mod node;
mod pods;
mod report;
mod ways;
