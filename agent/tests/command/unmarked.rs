//! Policy rules that lead packets without a mark into the table of the redirection, in which every address is local: weir adds none, and
//! names an existing one.

use crate::support::{Run, config, inside, path, tproxy, weir};
use serde_json::json;
use weir_netlink::Netns;

fn ip(pod: &Netns, args: &str) -> String {
    inside(pod, "ip", &args.split_whitespace().collect::<Vec<_>>())
}

fn on(verb: &str, file: &str, pod: &Netns) -> Run {
    weir(&[verb, "sidecar", "--config", file, "--netns", &path(pod)])
}

#[test]
fn a_mark_of_0_is_refused() {
    let pod = pod_or_skip!();
    let before = ip(&pod, "rule");
    let file = config(&json!({
        "inbound_interception_mode": "TPROXY",
        "inbound_ports_include": "*",
        "inbound_tproxy_mark": "0",
    }));
    let applied = on("apply", file.path(), &pod);
    assert_eq!(applied.code, 2, "{}", applied.stderr);
    assert!(applied.stderr.contains("inbound_tproxy_mark"));
    assert_eq!(ip(&pod, "rule"), before);
}

/// An older version of weir, or a modified one, left such rules, which carry weir's protocol number.
#[test]
fn one_with_our_number_is_removed() {
    for rule in [
        "from all lookup 133",
        "from all fwmark 0 lookup 133",
        "from all fwmark 0/0xff lookup 133",
    ] {
        let pod = pod_or_skip!();
        let file = tproxy();
        let before = ip(&pod, "rule");
        let add = || ip(&pod, &format!("rule add {rule} protocol 119"));
        add();
        let path = path(&pod);
        assert_eq!(weir(&["clean", "--netns", &path]).code, 0);
        assert_eq!(ip(&pod, "rule"), before, "{rule}");

        assert_eq!(on("apply", file.path(), &pod).code, 0);
        let sync = ip(&pod, "rule");
        add();
        let verified = on("verify", file.path(), &pod);
        assert_eq!(verified.code, 1, "{rule}: {}", verified.stdout);
        assert_eq!(on("apply", file.path(), &pod).code, 0);
        assert_eq!(ip(&pod, "rule"), sync, "{rule}");
        assert_eq!(on("verify", file.path(), &pod).code, 0, "{rule}");
    }
}

#[test]
fn a_foreign_one_is_named_and_stays() {
    let pod = pod_or_skip!();
    let file = tproxy();
    assert_eq!(on("apply", file.path(), &pod).code, 0);
    for rule in [
        "from all lookup 133 priority 100",
        "fwmark 0/0xff lookup 133 priority 100",
        "not fwmark 0x7 lookup 133 priority 100",
    ] {
        ip(&pod, &format!("rule add {rule}"));
        let verified = on("verify", file.path(), &pod);
        assert_eq!(verified.code, 1, "{rule}: {}", verified.stdout);
        let says = "leads other packets into its table";
        assert!(verified.stdout.contains(says), "{}", verified.stdout);
        let applied = on("apply", file.path(), &pod);
        assert_eq!(applied.code, 1, "{rule}: {}", applied.stdout);
        assert!(applied.stderr.contains(says), "{}", applied.stderr);
        ip(&pod, &format!("rule delete {rule}"));
        assert_eq!(on("verify", file.path(), &pod).code, 0, "{rule}");
    }
    // Rules for other marks, and for packets that the pod itself sends.
    for rule in [
        "fwmark 0x7 lookup 133 priority 100",
        "from 192.0.2.77 lookup 133 priority 100",
    ] {
        ip(&pod, &format!("rule add {rule}"));
        let verified = on("verify", file.path(), &pod);
        assert_eq!(verified.code, 0, "{rule}: {}", verified.stdout);
        ip(&pod, &format!("rule delete {rule}"));
    }
}
