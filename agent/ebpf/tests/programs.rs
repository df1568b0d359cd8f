//! Acceptance check 1 of eBPF mode on every kernel: the kernel loads weir's programs with a license other than the GPL, or lacks a feature
//! that older kernels may lack.
//!
//! Unit tests load all combinations, on one kernel.
// matrix: every
#![allow(missing_docs, clippy::panic, clippy::print_stdout)]

use weir_ebpf::{try_node_programs, try_programs};
use weir_netlink::Result;
use weir_testing::lacks;

fn loads(what: &str, since: &str, tried: Result<()>) {
    match tried {
        Err(e) if e.is_permission() => println!("skipped: {e}"),
        Err(e) if e.is_unsupported() => lacks::skip(what, since, e),
        Err(e) => panic!("{what}: {e}"),
        Ok(()) => {}
    }
}

#[test]
fn check_1_every_program_of_a_pod_loads() {
    // tcx links are the newest requirement.
    loads("load the programs of a pod", "6.6", try_programs());
}

#[test]
fn check_1_every_program_of_a_node_loads() {
    // `bpf_redirect_peer` is the newest of the helpers.
    loads("load the programs of a node", "5.10", try_node_programs());
}
