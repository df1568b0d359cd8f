//! Weir replaces what upstream's installer wrote with the real tools by the nf_tables rules of the same configuration.
//!
//! Upstream's rules in built-in chains are removed with its chains, and foreign rules stay.

use crate::support::{TempFile, inside, path, weir};
use serde_json::Value;
use std::path::PathBuf;
use weir_netlink::Netns;

use super::restore::{load_noflush, rules};
use super::restore_upstream::halves;

/// Configurations with rules in built-in chains that are no jumps.
const CASES: [&str; 5] = [
    "cni-tproxy",
    "inbound-ports-wildcard-tproxy",
    "basic-exclude-nic",
    "ipv6-uid-gid",
    "kube-virt-interfaces",
];
/// Foreign rules that precede upstream's; one of them equals a rule of upstream.
const FOREIGN: &str = "
*mangle
:SOMEBODY - [0:0]
-A PREROUTING -p tcp -m mark --mark 0x539 -j CONNMARK --save-mark
-A OUTPUT -p udp --dport 9 -j SOMEBODY
COMMIT
*nat
-A PREROUTING -i net9 -j RETURN
COMMIT
";

fn listed(pod: &Netns, kind: &str) -> Vec<String> {
    let texts =
        ["iptables", "ip6tables"].map(|family| rules(pod, &format!("{family}-{kind}-save")));
    let lines = texts.iter().flat_map(|text| text.lines());
    lines
        .filter(|l| l.starts_with("-A") || l.contains("ISTIO"))
        .map(str::to_owned)
        .collect()
}

// matrix: needs WEIR_GOLDEN
#[test]
fn upstream_s_rules_of_builtin_chains_go_with_its_chains() {
    let Some(root) = std::env::var_os("WEIR_GOLDEN").map(PathBuf::from) else {
        eprintln!("skipped: WEIR_GOLDEN does not name the directory of the golden cases");
        return;
    };
    for (case, kind) in CASES.iter().flat_map(|c| [(c, "legacy"), (c, "nft")]) {
        let pod = legacy_pod_or_skip!();
        for family in ["iptables", "ip6tables"] {
            load_noflush(&pod, &format!("{family}-{kind}-restore"), FOREIGN);
        }
        let foreign = listed(&pod, kind);
        let file = root.join(format!("sidecar/iptables/{case}.txt"));
        for (text, family) in halves(&file).iter().zip(["iptables", "ip6tables"]) {
            if !text.is_empty() {
                load_noflush(&pod, &format!("{family}-{kind}-restore"), text);
            }
        }
        assert_ne!(listed(&pod, kind), foreign, "{case}, {kind}");
        let about = std::fs::read_to_string(file.with_extension("json")).unwrap();
        let about: Value = serde_json::from_str(&about).unwrap();
        let config = TempFile::new(&about["config"].to_string());
        let on = |verb| {
            let ns = path(&pod);
            let to = ["--netns", &ns, "--engine", "nft"];
            weir(&[&[verb, "sidecar", "--config", config.path()][..], &to[..]].concat())
        };
        let applied = on("apply");
        assert_eq!(applied.code, 0, "{case}, {kind}: {}", applied.stderr);
        assert_eq!(listed(&pod, kind), foreign, "{case}, {kind}");
        let verified = on("verify");
        assert_eq!(verified.code, 0, "{case}, {kind}: {}", verified.stdout);
        let tables = inside(&pod, "nft", &["list", "tables"]);
        assert!(tables.contains("table inet istio-proxy-"), "{tables}");
    }
}
