//! The plugin in Multus' own directory, as a network that the pod selects.

use super::cluster::{Cluster, cluster};
use serde_json::json;
use weir_runner::{Attachment, Error, PodNetworks};

const MAIN: [&str; 2] = ["10.244.0.5", "10.244.0.1"];
const LAN: [&str; 2] = ["192.168.7.5", "192.168.7.1"];

/// A pod that selects these networks, with the plugin's file in OpenShift's directory.
fn pod(annotation: &str) -> Option<(Cluster, PodNetworks)> {
    pod_of_version(annotation, None)
}

/// Like [`pod`], with another version in the plugin's file.
fn pod_of_version(annotation: &str, version: Option<&str>) -> Option<(Cluster, PodNetworks)> {
    let cluster = cluster(json!({}), MAIN, LAN)?;
    let mut entry = cluster.entry();
    if let Some(version) = version {
        entry["cniVersion"] = version.into();
    }
    cluster.write_conf("istio-cni.conf", &entry);
    let networks = cluster.networks(json!([{"type": "main"}]), Some(annotation));
    Some((cluster, networks))
}

#[test]
fn made_once_for_all_interfaces_and_gone_with_the_pod() {
    let Some((cluster, networks)) = pod("lan,default/istio-cni") else {
        return;
    };
    let (runner, attachment) = (cluster.runner(), cluster.attachment());
    let result = runner.add_pod(&networks, &attachment).unwrap();
    assert_eq!(result["ips"][0]["address"], "10.244.0.5/24");
    let calls = ["ADD main eth0", "ADD lan net1", "ADD istio-cni net2"];
    assert_eq!(cluster.calls(), calls);
    assert_eq!(
        cluster.interfaces(),
        ["lo", "eth0", "net1"],
        "the plugin makes no interface"
    );
    assert!(cluster.captures(&cluster.main) && cluster.captures(&cluster.lan));

    runner.del_pod(&networks, &attachment).unwrap();
    let calls = ["DEL istio-cni net2", "DEL lan net1", "DEL main eth0"];
    assert_eq!(cluster.calls(), calls);
    assert_eq!(cluster.kept_results(), 0);
    cluster.end();
}

/// The plugin may be called before an interface exists.
#[test]
fn an_interface_that_comes_later_is_covered() {
    let Some((cluster, networks)) = pod("istio-cni,lan") else {
        return;
    };
    let attachment = cluster.attachment();
    cluster.runner().add_pod(&networks, &attachment).unwrap();
    assert!(cluster.captures(&cluster.main) && cluster.captures(&cluster.lan));
}

/// There is no `prevResult`, so the result is empty as well.
#[test]
fn the_result_is_bare() {
    let Some((cluster, networks)) = pod("istio-cni") else {
        return;
    };
    let (runner, attachment) = (cluster.runner(), cluster.attachment());
    let default = PodNetworks::from(networks.default.clone());
    runner.add_pod(&default, &attachment).unwrap();
    let second = Attachment {
        ifname: "net1".into(),
        ..attachment
    };
    let result = runner.add(&networks.selected[0].0, &second).unwrap();
    assert_eq!(result, json!({"cniVersion": "0.3.1", "dns": {}}));
    assert!(cluster.captures(&cluster.main));
}

#[test]
fn stays_when_an_attachment_goes() {
    let Some((cluster, networks)) = pod("lan,istio-cni") else {
        return;
    };
    let (runner, attachment) = (cluster.runner(), cluster.attachment());
    runner.add_pod(&networks, &attachment).unwrap();
    let rules = || cluster.nft("--stateless list ruleset");
    let before = rules();
    for (number, interface) in [(1, "net2"), (0, "net1")] {
        let (list, _) = &networks.selected[number];
        let gone = Attachment {
            ifname: interface.into(),
            ..cluster.attachment()
        };
        runner.del(list, &gone).unwrap();
        runner.del(list, &gone).unwrap();
        assert_eq!(rules(), before, "after DEL of {interface}");
        assert!(cluster.captures(&cluster.main), "after DEL of {interface}");
    }
    assert_eq!(cluster.interfaces(), ["lo", "eth0"]);
}

/// The sidecar injector appends to the existing annotation, even if that contains its entry.
#[test]
fn selected_twice_is_once() {
    let Some((cluster, networks)) = pod("istio-cni,lan,default/istio-cni") else {
        return;
    };
    let attachment = cluster.attachment();
    cluster.runner().add_pod(&networks, &attachment).unwrap();
    assert_eq!(cluster.calls().len(), 4);
    assert!(cluster.is_logged("was in place"), "the second one wrote");
    assert!(cluster.captures(&cluster.main) && cluster.captures(&cluster.lan));
}

/// The default network determines the families, even if an interface of another family and a lower index exists
/// before the plugin is called.
#[test]
fn an_ipv6_pod_beside_an_ipv4_interface() {
    let main = ["fd00:244::5", "fd00:244::1"];
    let Some(cluster) = cluster(json!({}), main, LAN) else {
        return;
    };
    cluster.create_main_on_the_node();
    cluster.write_conf("istio-cni.conf", &cluster.entry());
    let networks = cluster.networks(json!([{"type": "main"}]), Some("lan,istio-cni"));
    let attachment = cluster.attachment();
    cluster.runner().add_pod(&networks, &attachment).unwrap();
    assert!(cluster.captures(&cluster.main) && cluster.captures(&cluster.lan));
    let rules = cluster.nft("list ruleset");
    assert!(
        rules.contains("ip6 saddr ::6"),
        "the proxy's connections to the application would be captured again: {rules}"
    );
}

/// The result of ADD, without interfaces and addresses, is the `prevResult` of CHECK.
#[test]
fn check_compares_the_rules() {
    for version in ["0.4.0", "1.0.0", "1.1.0"] {
        let Some((cluster, networks)) = pod_of_version("lan,istio-cni", Some(version)) else {
            return;
        };
        let (runner, attachment) = (cluster.runner(), cluster.attachment());
        runner.add_pod(&networks, &attachment).unwrap();
        cluster.calls();
        runner.check_pod(&networks, &attachment).unwrap();
        let calls = ["CHECK main eth0", "CHECK lan net1", "CHECK istio-cni net2"];
        assert_eq!(cluster.calls(), calls, "{version}");
        cluster.nft("delete table inet istio-proxy-nat");
        let error = runner.check_pod(&networks, &attachment).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("is not in sync"), "{version}: {error}");
        assert!(error.contains("istio-proxy-nat"), "{version}: {error}");
    }
}

/// The agent writes version 0.3.1, as upstream does, and CHECK exists since 0.4.0.
#[test]
fn a_version_without_check_is_told() {
    let Some((cluster, networks)) = pod("istio-cni") else {
        return;
    };
    let (runner, attachment) = (cluster.runner(), cluster.attachment());
    runner.add_pod(&networks, &attachment).unwrap();
    let error = runner.check_pod(&networks, &attachment).unwrap_err();
    assert!(matches!(error, Error::NotPossible(_)), "{error}");
    assert!(error.to_string().contains("0.4.0"), "{error}");
}

/// GC of the runtime reaches the default network only, even if the pod is not among the valid attachments.
#[test]
fn gc_leaves_the_redirection() {
    let Some((cluster, networks)) = pod_of_version("lan,istio-cni", Some("1.1.0")) else {
        return;
    };
    let (runner, attachment) = (cluster.runner(), cluster.attachment());
    runner.add_pod(&networks, &attachment).unwrap();
    let rules = || cluster.nft("--stateless list ruleset");
    let before = rules();
    cluster.calls();
    runner.gc_pods(&networks, &[]).unwrap();
    assert_eq!(cluster.calls(), ["DEL main eth0"]);
    assert_eq!(rules(), before);
    assert!(cluster.captures(&cluster.lan));
}

#[test]
fn the_namespace_is_entered_once() {
    let Some((cluster, networks)) = pod_of_version("istio-cni", Some("1.0.0")) else {
        return;
    };
    cluster.visits_once(&networks, 1);
}
