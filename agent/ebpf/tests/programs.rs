//! Acceptance check 1 of eBPF mode on every kernel: what weir attaches is loaded with a license that is not the GPL, or the kernel lacks
//! what older ones need not have. All combinations are in the unit tests, which run on one kernel.
// matrix: every
#![allow(missing_docs, clippy::panic, clippy::print_stdout)]

use weir_ebpf::{try_node_programs, try_programs};
use weir_netlink::Result;
use weir_testing::lacks;

/// The helpers of both are there since then: `bpf_redirect_peer` is the youngest.
const SINCE: &str = "5.10";

fn loads(what: &str, tried: Result<()>) {
    match tried {
        Err(e) if e.is_permission() => println!("skipped: {e}"),
        Err(e) if e.is_unsupported() => lacks::skip(what, SINCE, e),
        Err(e) => panic!("{what}: {e}"),
        Ok(()) => {}
    }
}

#[test]
fn check_1_every_program_of_a_pod_loads() {
    loads("load the programs of a pod", try_programs());
}

#[test]
fn check_1_every_program_of_a_node_loads() {
    loads("load the programs of a node", try_node_programs());
}
