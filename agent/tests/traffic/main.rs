//! Real traffic through the rules for sidecars and for ambient mode: who gets each flow, and whether the
//! receiver can tell where it was meant to go.
//!
//! Each test builds a node of its own out of network namespaces; flows run for IPv4 and
//! IPv6, and for both ways of capturing what comes in, where they differ.
// Helpers are tests, too: clippy.toml allows them the same.
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

/// A lab, or the end of the test, which has said why.
#[macro_export]
macro_rules! lab_or_skip {
    () => {
        match $crate::support::lab() {
            Some(lab) => lab,
            None => return,
        }
    };
}
