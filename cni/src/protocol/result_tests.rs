use super::*;

fn config(prev: Value) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("prevResult".into(), prev);
    map
}

fn full() -> Value {
    json!({
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "eth0", "sandbox": "/ns", "mtu": 1400, "socketPath": "s",
                        "pciID": "p", "mac": "aa:bb:cc:dd:ee:ff"}],
        "ips": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1", "interface": 0},
                {"address": "fd00::5/64"}],
        "routes": [{"dst": "0.0.0.0/0", "mtu": 1300, "table": 7}],
        "dns": {"nameservers": ["10.0.0.10"]},
        "vendor": {"kept": true}
    })
}

#[test]
fn without_previous_result() {
    for version in ["1.0.0", "1.1.0"] {
        assert_eq!(empty(version).unwrap(), json!({ "cniVersion": version }));
    }
    for version in ["0.3.0", "0.3.1", "0.4.0"] {
        assert_eq!(
            empty(version).unwrap(),
            json!({"cniVersion": version, "dns": {}})
        );
    }
    for version in ["0.1.0", "0.2.0"] {
        let error = empty(version).unwrap_err();
        assert!(
            error.code == 999 && error.msg.contains("no valid IP addresses"),
            "{error}"
        );
    }
}

#[test]
fn same_family_is_handed_on_whole() {
    let prev = PrevResult::read(&config(full()), "1.1.0").unwrap().unwrap();
    let mut expected = full();
    expected["cniVersion"] = "1.1.0".into();
    assert_eq!(prev.into_result("1.1.0").unwrap(), expected);
}

#[test]
fn old_versions_get_what_they_always_have() {
    let prev = json!({"cniVersion": "0.3.0", "ips": [{"address": "10.1.0.5/24"}],
                      "interfaces": [{"name": "eth0", "mtu": 1400}], "vendor": 1});
    let prev = PrevResult::read(&config(prev), "0.4.0").unwrap().unwrap();
    assert_eq!(
        prev.into_result("0.4.0").unwrap(),
        json!({"cniVersion": "0.4.0", "ips": [{"address": "10.1.0.5/24", "version": "4"}],
               "interfaces": [{"name": "eth0"}], "dns": {}, "vendor": 1})
    );
}

/// The reference library prints absent members in the same way.
#[test]
fn old_versions_get_no_null_dns_and_no_empty_gateway() {
    let prev = json!({"cniVersion": "0.4.0", "dns": null,
                      "ips": [{"address": "10.1.0.5/24", "gateway": ""},
                              {"address": "10.1.0.6/24", "gateway": "10.1.0.1"}]});
    let prev = PrevResult::read(&config(prev), "0.4.0").unwrap().unwrap();
    assert_eq!(
        prev.into_result("0.4.0").unwrap(),
        json!({"cniVersion": "0.4.0", "dns": {},
               "ips": [{"address": "10.1.0.5/24", "version": "4"},
                       {"address": "10.1.0.6/24", "version": "4", "gateway": "10.1.0.1"}]})
    );
}

#[test]
fn null_members_are_left_out() {
    let prev = json!({"cniVersion": "1.0.0", "dns": null, "interfaces": null, "vendor": null,
                      "routes": [{"dst": "0.0.0.0/0", "gw": null}],
                      "ips": [{"address": "10.1.0.5/24", "gateway": null, "interface": null}]});
    let prev = PrevResult::read(&config(prev), "1.1.0").unwrap().unwrap();
    assert_eq!(
        prev.into_result("1.1.0").unwrap(),
        json!({"cniVersion": "1.1.0", "routes": [{"dst": "0.0.0.0/0"}],
               "ips": [{"address": "10.1.0.5/24"}]})
    );
    let prev = json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.1.0.5/24"}, "ip6": null});
    let prev = PrevResult::read(&config(prev), "0.2.0").unwrap().unwrap();
    assert_eq!(
        prev.into_result("0.2.0").unwrap(),
        json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.1.0.5/24"}})
    );
}

#[test]
fn down_and_up_between_families() {
    let down = convert(full(), "0.3.1").unwrap();
    assert_eq!(down["ips"][1]["version"], "6");
    assert_eq!(down["interfaces"][0].get("pciID"), None);
    assert_eq!(down["routes"], full()["routes"]);
    let up = convert(down, "1.1.0").unwrap();
    assert_eq!(up["ips"], full()["ips"]);
    assert_eq!(up["vendor"], full()["vendor"]);
}

#[test]
fn the_oldest_versions_pass_through() {
    let prev = json!({"cniVersion": "0.2.0", "ip4": {"ip": "10.1.0.5/24"}});
    let prev = PrevResult::read(&config(prev), "0.1.0").unwrap().unwrap();
    assert_eq!(
        prev.addresses().unwrap()[0].address.to_string(),
        "10.1.0.5/24"
    );
    let result = prev.into_result("0.1.0").unwrap();
    assert_eq!(
        result,
        json!({"cniVersion": "0.1.0", "ip4": {"ip": "10.1.0.5/24"}})
    );
}

#[test]
fn version_missing_or_foreign() {
    for (prev, version) in [
        (json!({"ips": []}), "1.0.0"),
        (json!({"cniVersion": "0.4.0"}), "1.0.0"),
        (json!({"cniVersion": "1.0.0"}), "0.4.0"),
        (json!({"cniVersion": "7.0.0"}), "1.0.0"),
        (json!({"cniVersion": 1}), "1.0.0"),
        (json!([]), "1.0.0"),
        (json!("x"), "1.0.0"),
    ] {
        let error = PrevResult::read(&config(prev.clone()), version).unwrap_err();
        assert_eq!(error.code, 999, "{prev}");
        assert!(error.msg.contains("prevResult"), "{error}");
    }
}

#[test]
fn lower_case_version_is_accepted() {
    let prev = PrevResult::read(&config(json!({"cniversion": "0.4.0"})), "0.3.1").unwrap();
    let result = prev.unwrap().into_result("0.3.1").unwrap();
    assert_eq!(result, json!({"cniVersion": "0.3.1", "dns": {}}));
}

#[test]
fn null_is_absent() {
    assert_eq!(
        PrevResult::read(&config(Value::Null), "1.0.0").unwrap(),
        None
    );
    assert_eq!(PrevResult::read(&Map::new(), "1.0.0").unwrap(), None);
}

#[test]
fn addresses_in_order() {
    let prev = PrevResult::read(&config(full()), "1.0.0").unwrap().unwrap();
    let addresses = prev.addresses().unwrap();
    assert_eq!(addresses.len(), 2);
    assert_eq!(addresses[0].gateway, "10.1.0.1");
    assert_eq!(addresses[0].interface, Some(0));
    assert_eq!(addresses[1].interface, None);
}

#[test]
fn a_previous_result_of_another_form_is_refused_by_its_member() {
    let with = |members: Value| {
        let mut result = full();
        let members = members.as_object().unwrap().clone();
        result.as_object_mut().unwrap().extend(members);
        PrevResult::read(&config(result), "1.0.0")
    };
    for (members, words) in [
        (json!({"ips": "10.0.0.1/24"}), "ips must be an array"),
        (json!({"ips": ["10.0.0.1/24"]}), "ips[0] must be an object"),
        (
            json!({"ips": [{"address": "banana"}]}),
            "ips[0].address is \"banana\"",
        ),
        (json!({"ips": [{"address": "10.0.0.1"}]}), "ips[0].address"),
        (
            json!({"ips": [{"address": "010.0.0.1/24"}]}),
            "ips[0].address is \"010.0.0.1/24\"",
        ),
        (json!({"ips": [{}]}), "ips[0].address is null"),
        (
            json!({"ips": [{"address": "10.0.0.1/24", "gateway": "x"}]}),
            "ips[0].gateway",
        ),
        (
            json!({"ips": [{"address": "10.0.0.1/24", "interface": "0"}]}),
            "ips[0].interface must be a whole number",
        ),
        (json!({"interfaces": {}}), "interfaces must be an array"),
        (
            json!({"interfaces": [{"name": 1}]}),
            "interfaces[0].name must be a string",
        ),
        (json!({"routes": [{"dst": "x"}]}), "routes[0].dst"),
        (
            json!({"routes": [{"dst": "::/0", "gw": 1}]}),
            "routes[0].gw",
        ),
        (json!({"dns": []}), "dns must be an object"),
        (json!({"dns": {"search": ["a", 1]}}), "dns.search[1]"),
        (json!({"ip4": {"ip": "1.2.3.4"}}), "ip4.ip"),
    ] {
        let error = with(members).unwrap_err();
        assert_eq!(error.code, 999, "{error}");
        assert!(
            error.msg.starts_with("could not parse prevResult: ") && error.msg.contains(words),
            "{error}"
        );
    }
    let null = json!({"ips": null, "interfaces": null, "routes": null, "dns": null});
    for fine in [
        json!({}),
        null,
        json!({"ips": [{"address": "::1/128", "gateway": ""}]}),
    ] {
        with(fine).unwrap();
    }
}
