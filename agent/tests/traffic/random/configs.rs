//! Random configurations, from pools of values that the flows of the test match.

use proptest::prelude::*;
use serde_json::{Value, json};
use weir_demo::Mode;

use crate::support::config;

/// Some values of a list, in the notation of the fields.
fn some_of(pool: &'static [&'static str]) -> impl Strategy<Value = String> {
    let some = proptest::sample::subsequence(pool, 0..=pool.len()).prop_shuffle();
    some.prop_map(|some| some.join(","))
}

/// Usually everything, otherwise some values of a list; sometimes none at all.
fn all_or_some(pool: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop_oneof![3 => Just("*".to_owned()), 1 => some_of(pool)]
}

/// None, one or two values of a list: with more exclusions, few flows would be left to compare.
fn few_of(pool: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::sample::subsequence(pool, 0..=2).prop_map(|few| few.join(","))
}

/// Random ports, networks and groups.
fn captured() -> impl Strategy<Value = Value> {
    const INBOUND: &[&str] = &["8080", "9090", "15020", "4321", "4000:9000"];
    const OUTBOUND: &[&str] = &["80", "443", "5432", "53"];
    const CIDRS: &[&str] = &[
        "10.96.0.0/16",
        "192.0.2.10/32",
        "fd00:10:96::/112",
        "2001:db8::/33",
        "0.0.0.0/1",
        "127.0.0.1/32",
    ];
    const GROUPS: &[&str] = &["2000", "1000", "3000"];
    let groups = prop_oneof![
        2 => Just(("*".to_owned(), String::new())),
        1 => few_of(GROUPS).prop_map(|excluded| ("*".to_owned(), excluded)),
        1 => some_of(GROUPS).prop_map(|included| (included, String::new())),
    ];
    let inbound = (all_or_some(INBOUND), few_of(INBOUND));
    let outbound = (few_of(OUTBOUND), few_of(OUTBOUND));
    (inbound, outbound, all_or_some(CIDRS), few_of(CIDRS), groups).prop_map(
        |(inbound, outbound, include, exclude, groups)| {
            json!({
                "inbound_ports_include": inbound.0,
                "inbound_ports_exclude": inbound.1,
                "outbound_ports_include": outbound.0,
                "outbound_ports_exclude": outbound.1,
                "outbound_ip_ranges_include": include,
                "outbound_ip_ranges_exclude": exclude,
                "owner_groups_include": groups.0,
                "owner_groups_exclude": groups.1,
            })
        },
    )
}

/// Random interfaces, name servers and users; the remaining fields of a configuration.
fn special() -> impl Strategy<Value = Value> {
    let interfaces = prop_oneof![
        4 => Just(""),
        4 => Just("net1"),
        1 => Just("eth0"),
        1 => Just("k6t-a,net1"),
        2 => Just("net+"),
        1 => Just("net*,k6t+"),
    ];
    let guests = prop_oneof![3 => Just(""), 1 => Just("k6t-a"), 1 => Just("k6t-a,k6t-b")];
    let proxy = prop_oneof![3 => Just("1337"), 1 => Just("1337,0"), 1 => Just("0,1337")];
    let loopback = prop_oneof![3 => Just("127.0.0.1/32"), 1 => Just("127.0.0.1/8")];
    let tunnel = prop_oneof![3 => Just("15008"), 1 => Just("9090")];
    let servers = (any::<bool>(), any::<bool>()).prop_map(|(v4, v6)| {
        let some = |there: bool, list: [&str; 1]| if there { json!(list) } else { json!([]) };
        (some(v4, ["10.96.0.10"]), some(v6, ["fd00:10:96::10"]))
    });
    let dns = (any::<bool>(), any::<bool>(), servers);
    (
        interfaces,
        guests,
        proxy,
        loopback,
        tunnel,
        dns,
        any::<bool>(),
    )
        .prop_map(
            |(excluded, guests, proxy, loopback, tunnel, (dns, all, servers), drop_invalid)| {
                json!({
                    "exclude_interfaces": excluded,
                    "reroute_virtual_interfaces": guests,
                    "proxy_uid": proxy,
                    "host_ipv4_loopback_cidr": loopback,
                    "inbound_tunnel_port": tunnel,
                    "redirect_dns": dns,
                    "capture_all_dns": dns && all,
                    "dns_servers_v4": servers.0,
                    "dns_servers_v6": servers.1,
                    "drop_invalid": drop_invalid,
                })
            },
        )
}

/// Whether the engine is named, the mode of inbound capture, and a complete configuration. With a named engine the configuration has no
/// field about which the engines differ.
pub(super) fn configs() -> impl Strategy<Value = (bool, Mode, Value)> {
    let mode = prop_oneof![Just(Mode::Redirect), Just(Mode::Tproxy)];
    let is_named = prop_oneof![2 => Just(false), 1 => Just(true)];
    (is_named, any::<bool>(), mode, captured(), special()).prop_map(
        |(is_named, ipv6, mode, mut captured, special)| {
            let fields = captured.as_object_mut().expect("an object");
            fields.extend(special.as_object().expect("an object").clone());
            fields.insert("enable_ipv6".into(), json!(ipv6 || is_named));
            if is_named {
                let names = fields["exclude_interfaces"].as_str().expect("text");
                let names = names.replace("net+", "net1").replace("net*,k6t+", "net1");
                fields.insert("exclude_interfaces".into(), json!(names));
            }
            (is_named, mode, config(mode, captured))
        },
    )
}
