//! Real traffic through the rules for sidecars and for ambient mode: the receiver of each flow, and whether it can determine the original
//! destination.
//!
//! Each test builds a node out of network namespaces. Flows run over IPv4 and IPv6, and for both modes of inbound capture where they
//! differ.
// Helpers are part of the tests: clippy.toml grants them the same exceptions.
#![cfg(test)]
#![allow(missing_docs, unreachable_pub)]

mod alike;
mod ambient;
mod ambient_again;
mod ambient_pods;
mod ambient_random;
mod ambient_ways;
mod blocked;
mod datagrams;
mod dns;
mod ebpf;
mod ebpf_checks;
mod ebpf_events;
mod ebpf_frames;
mod ebpf_probes;
use weir_testing::effort;
mod hindered;
mod hindered_routing;
mod inbound;
mod invalid;
mod live;
mod outbound;
mod own;
mod random;
mod replaced;
use weir_testing::rights;
mod scenes;
mod support;

/// Creates a lab, or ends the test after the reason has been printed.
#[macro_export]
macro_rules! lab_or_skip {
    () => {
        match $crate::support::lab() {
            Some(lab) => lab,
            None => return,
        }
    };
}
