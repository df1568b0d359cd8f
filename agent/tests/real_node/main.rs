//! The agent of our image on a Kubernetes node: kubelet, containerd, API server, controllers.
//!
//! `ci/node test` starts such a node and runs these, one after the other; without it each says that it is skipped.
// matrix: none: runs on a Kubernetes node, which ci/node test starts

// Helpers are tests, too: clippy.toml allows them the same.
#![cfg(test)]

mod agent_gone;
mod ambient;
mod ambient_faults;
mod broken_pods;
mod callers;
mod containerd2;
mod lifecycle;
mod many;
mod node;
mod pods;
mod report;
mod ways;
