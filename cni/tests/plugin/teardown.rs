//! A removal continues after a failure: everything that can be removed is, and the error names the rest.

use weir_cni::redirection::Sandbox;
use weir_netlink::Netns;
use weir_testing::tool::tool;

/// Runs `nft` in a namespace with this input and returns its output.
fn nft(ns: &Netns, arguments: &[&str], input: &str) -> String {
    tool(ns, "nft", arguments, input).unwrap_or_else(|e| panic!("nft refuses {input}: {e}"))
}

/// Chains that upstream leaves in tables of iptables-nft.
///
/// In both tables `nat` a map of another writer refers to one of them, so that the kernel refuses to delete it.
const LEFT: &str = "\
table ip nat {
    chain ISTIO_A { counter; }
    map theirs { type inet_service : verdict; elements = { 80 : goto ISTIO_A }; }
    chain OUTPUT { type nat hook output priority -100; tcp dport vmap @theirs; }
}
table ip6 nat {
    chain ISTIO_A { counter; }
    map theirs { type inet_service : verdict; elements = { 80 : goto ISTIO_A }; }
    chain OUTPUT { type nat hook output priority -100; tcp dport vmap @theirs; }
}
table ip raw {
    chain ISTIO_B { counter; }
    chain OUTPUT { type filter hook output priority -300; counter; jump ISTIO_B; }
}
table ip6 mangle {
    chain ISTIO_C { counter; }
    chain OUTPUT { type filter hook output priority -150; jump ISTIO_C; }
}
";

#[test]
fn a_table_that_is_in_use_keeps_no_other() {
    let ns = weir_testing::namespace_or_skip!();
    nft(&ns, &["-f", "-"], LEFT);
    let sandbox = Sandbox::open(&ns.path()).unwrap();
    let failure = sandbox.clean(None).unwrap_err();
    assert_eq!(failure.rest.len(), 1, "{failure}");
    let text = failure.to_string();
    for table in ["ip nat ISTIO_A", "ip6 nat ISTIO_A"] {
        assert!(text.contains(table), "{text}");
    }
    let listed = nft(&ns, &["list", "ruleset"], "");
    assert!(
        !listed.contains("ISTIO_B") && !listed.contains("ISTIO_C"),
        "{listed}"
    );
    // Foreign objects are kept, and a table that failed is unchanged.
    assert_eq!(listed.matches("80 : goto ISTIO_A").count(), 2, "{listed}");
    assert_eq!(listed.matches("counter packets").count(), 3, "{listed}");
    // After the last jump to them is removed, the remaining chains are deleted.
    nft(&ns, &["flush", "chain", "ip", "nat", "OUTPUT"], "");
    nft(&ns, &["flush", "map", "ip", "nat", "theirs"], "");
    nft(&ns, &["flush", "map", "ip6", "nat", "theirs"], "");
    sandbox.clean(None).unwrap();
    let listed = nft(&ns, &["list", "ruleset"], "");
    assert!(!listed.contains("ISTIO_"), "{listed}");
}
