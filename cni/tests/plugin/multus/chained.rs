//! The plugin in the chain of the default network, with further interfaces beside it.

use super::cluster::{Cluster, cluster};
use serde_json::{Value, json};
use weir_runner::{Attachment, PodNetworks};

const V4: [&str; 2] = ["10.244.0.5", "10.244.0.1"];
const V6: [&str; 2] = ["fd00:244::5", "fd00:244::1"];
const LAN: [&str; 2] = ["192.168.7.5", "192.168.7.1"];

fn pod(annotations: Value, main: [&str; 2]) -> Option<(Cluster, PodNetworks)> {
    let cluster = cluster(annotations, main, LAN)?;
    let mut entry = cluster.entry();
    // As the agent inserts the plugin into a list.
    for key in ["cniVersion", "name"] {
        entry.as_object_mut().unwrap().remove(key);
    }
    let plugins = json!([{"type": "main"}, entry]);
    let networks = cluster.networks(plugins, Some("lan"));
    Some((cluster, networks))
}

#[test]
fn made_once_for_all_interfaces_and_gone_with_the_pod() {
    let Some((cluster, networks)) = pod(json!({}), V4) else {
        return;
    };
    let (runner, attachment) = (cluster.runner(), cluster.attachment());
    let result = runner.add_pod(&networks, &attachment).unwrap();
    assert_eq!(result["ips"][0]["address"], "10.244.0.5/24");
    let calls = ["ADD main eth0", "ADD istio-cni eth0", "ADD lan net1"];
    assert_eq!(cluster.calls(), calls);
    assert!(cluster.captures(&cluster.main) && cluster.captures(&cluster.lan));
    runner.check_pod(&networks, &attachment).unwrap();
    cluster.calls();

    let rules = || cluster.nft("--stateless list ruleset");
    let before = rules();
    let (lan, _) = &networks.selected[0];
    let second = Attachment {
        ifname: "net1".into(),
        ..cluster.attachment()
    };
    runner.del(lan, &second).unwrap();
    assert_eq!(cluster.interfaces(), ["lo", "eth0"]);
    assert_eq!(rules(), before);
    assert!(cluster.captures(&cluster.main));

    runner.del_pod(&networks, &attachment).unwrap();
    let calls = cluster.calls();
    assert_eq!(calls[0], "DEL lan net1");
    let last = calls.len() - 2;
    assert_eq!(calls[last..], ["DEL istio-cni eth0", "DEL main eth0"]);
    assert_eq!(cluster.kept_results(), 0);
    cluster.end();
}

#[test]
fn an_excluded_interface_is_left_alone() {
    let excluded = json!({"traffic.sidecar.istio.io/excludeInterfaces": "net1"});
    let Some((cluster, networks)) = pod(excluded, V4) else {
        return;
    };
    let attachment = cluster.attachment();
    cluster.runner().add_pod(&networks, &attachment).unwrap();
    assert!(cluster.captures(&cluster.main));
    assert!(!cluster.captures(&cluster.lan));
}

/// The default network determines the families: a further interface with IPv4 does not make an IPv6 pod an IPv4 pod.
#[test]
fn an_ipv6_pod_stays_one_beside_an_ipv4_interface() {
    let Some((cluster, networks)) = pod(json!({}), V6) else {
        return;
    };
    let (runner, attachment) = (cluster.runner(), cluster.attachment());
    runner.add_pod(&networks, &attachment).unwrap();
    assert!(cluster.captures(&cluster.main) && cluster.captures(&cluster.lan));
    runner.check_pod(&networks, &attachment).unwrap();
}

/// The interface that is attached after ADD has the lowest index.
#[test]
fn an_ipv6_pod_stays_one_beside_an_ipv4_interface_of_lower_index() {
    let Some((cluster, networks)) = pod(json!({}), V6) else {
        return;
    };
    cluster.create_main_on_the_node();
    let (runner, attachment) = (cluster.runner(), cluster.attachment());
    runner.add_pod(&networks, &attachment).unwrap();
    runner.check_pod(&networks, &attachment).unwrap();
    let rules = cluster.nft("--stateless list ruleset");
    assert!(rules.contains("ip6 saddr ::6"), "{rules}");
    // A repeated ADD keeps them.
    let list = json!([cluster.entry()]);
    let again = cluster.networks(list, None);
    let second = Attachment {
        container_id: "c2".into(),
        ..attachment
    };
    runner.add(&again.default, &second).unwrap();
    assert_eq!(cluster.nft("--stateless list ruleset"), rules);
    assert!(cluster.captures(&cluster.main) && cluster.captures(&cluster.lan));
}

/// While a cluster changes from one installation to the other, pods have both.
#[test]
fn chained_and_selected_is_once() {
    let Some((cluster, chained)) = pod(json!({}), V4) else {
        return;
    };
    cluster.write_conf("istio-cni.conf", &cluster.entry());
    let both = PodNetworks {
        selected: cluster
            .networks(json!([{"type": "main"}]), Some("lan,istio-cni"))
            .selected,
        ..chained
    };
    let (runner, attachment) = (cluster.runner(), cluster.attachment());
    runner.add_pod(&both, &attachment).unwrap();
    let added = cluster.calls();
    assert_eq!(added.iter().filter(|c| c.contains("istio-cni")).count(), 2);
    assert!(cluster.is_logged("was in place"), "the second one wrote");
    assert!(cluster.captures(&cluster.main) && cluster.captures(&cluster.lan));
}

#[test]
fn the_namespace_is_entered_once() {
    // The address for IPv6 is read back after it is added.
    for (main, dumps) in [(V4, 1), (V6, 2)] {
        let Some((cluster, networks)) = pod(json!({}), main) else {
            return;
        };
        cluster.visits_once(&networks, dumps);
    }
}
