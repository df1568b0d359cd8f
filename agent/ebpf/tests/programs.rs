//! Acceptance check 1 of eBPF mode on every kernel: what weir attaches is loaded with a license that is not the GPL, or the kernel lacks
//! what older ones need not have. All combinations are in the unit tests, which run on one kernel.
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
    // tcx links.
    loads("load the programs of a pod", "6.6", try_programs());
}

#[test]
fn check_1_every_program_of_a_node_loads() {
    // `bpf_redirect_peer` is the youngest of its helpers.
    loads("load the programs of a node", "5.10", try_node_programs());
}
