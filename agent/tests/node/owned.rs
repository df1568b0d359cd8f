//! A list of our own beside the primary configuration (`ISTIO_OWNED_CNI_CONFIG`).
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::support::{BRIDGE, Node, desired};
use std::collections::BTreeMap;
use weir_core::settings::resolve;
use weir_install::{Desired, Installer, Pass, remove_everything};

#[test]
fn owned_mode_extends_a_copy_and_wants_every_plugin_of_the_primary() {
    let node = Node::new();
    node.write("net.d/10-a.conflist", BRIDGE);
    let mut env = node.env();
    env.insert("ISTIO_OWNED_CNI_CONFIG".into(), "true".into());
    env.insert("AMBIENT_ENABLED".into(), "true".into());
    let mut installer = Installer::new(desired(&env, "info"));
    assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
    assert_eq!(node.read("net.d/10-a.conflist"), BRIDGE);
    assert_eq!(installer.config_trouble().unwrap(), None);
    node.write(
        "net.d/10-a.conflist",
        &BRIDGE.replace("portmap", "bandwidth"),
    );
    assert!(
        installer
            .config_trouble()
            .unwrap()
            .unwrap()
            .contains("bandwidth")
    );
    installer.remove().unwrap();
    assert_eq!(node.names("net.d"), ["10-a.conflist"]);
    // No runtime takes a list from a .conf.
    env.insert(
        "ISTIO_OWNED_CNI_CONFIG_FILENAME".into(),
        "00-own.conf".into(),
    );
    let mut installer = Installer::new(desired(&env, "info"));
    assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
    assert_eq!(node.names("net.d"), ["00-own.conflist", "10-a.conflist"]);
    assert_eq!(installer.config_trouble().unwrap(), None);
    installer.remove().unwrap();
    assert_eq!(node.names("net.d"), ["10-a.conflist"]);
    // Without ambient mode the flag means nothing, when installing and when removing.
    env.insert("AMBIENT_ENABLED".into(), "false".into());
    let mut installer = Installer::new(desired(&env, "info"));
    assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
    installer.remove().unwrap();
    assert_eq!(node.names("net.d"), ["10-a.conflist"]);
    assert!(!node.read("net.d/10-a.conflist").contains("istio"));
}

/// A list under another name would never come into force, and one under the name of the primary one would replace it.
#[test]
fn a_list_of_our_own_has_a_name_that_runtimes_read_and_that_is_free() {
    let node = Node::new();
    let mut env = node.env();
    env.insert("ISTIO_OWNED_CNI_CONFIG".into(), "true".into());
    env.insert("AMBIENT_ENABLED".into(), "true".into());
    for (owned, primary, refused) in [
        ("02-own.json", "", "end in .conflist"),
        ("02-own", "", "end in .conflist"),
        ("10-a.conf", "10-a.conflist", "CNI_CONF_NAME"),
        ("", "02-istio-cni.conflist", "CNI_CONF_NAME"),
        ("02-own.conf", "10-a.json", ""),
    ] {
        env.insert("ISTIO_OWNED_CNI_CONFIG_FILENAME".into(), owned.into());
        env.insert("CNI_CONF_NAME".into(), primary.into());
        let lookup = |name: &str| env.get(name).map(std::ffi::OsString::from);
        let found = Desired::of(&resolve(&BTreeMap::new(), &lookup), "info");
        match found {
            Ok(_) => assert_eq!(refused, "", "{owned} {primary}"),
            Err(e) => {
                let text = e.to_string();
                assert!(!refused.is_empty() && text.contains(refused), "{text}");
                assert!(text.contains("ISTIO_OWNED_CNI_CONFIG_FILENAME"), "{text}");
            }
        }
    }
}

/// What the copy was made from is gone, or is no longer the one that would be in force.
#[test]
fn a_copy_whose_primary_configuration_is_gone_is_not_intact() {
    let own = "net.d/02-istio-cni.conflist";
    for named in [None, Some("10-a.conflist"), Some("10-a.json")] {
        let node = Node::new();
        let primary = format!("net.d/{}", named.unwrap_or("10-a.conflist"));
        node.write(&primary, BRIDGE);
        let mut env = node.env();
        env.insert("ISTIO_OWNED_CNI_CONFIG".into(), "true".into());
        env.insert("AMBIENT_ENABLED".into(), "true".into());
        env.insert("CNI_CONF_NAME".into(), named.unwrap_or_default().into());
        let mut installer = Installer::new(desired(&env, "info"));
        assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
        assert_eq!(installer.config_trouble().unwrap(), None);
        node.write(&primary, &BRIDGE.replace("portmap", "bandwidth"));
        let why = installer.config_trouble().unwrap().unwrap();
        assert!(why.contains("bandwidth"), "{named:?}: {why}");
        std::fs::remove_file(node.path(&primary)).unwrap();
        let why = installer.config_trouble().unwrap().unwrap();
        assert!(why.contains("10-a") && why.contains("gone"), "{why}");
        let Ok(Pass::Waiting(_)) = installer.config() else {
            panic!("{named:?}: nothing is there to be copied");
        };
        assert!(node.exists(own), "it keeps the plugin in force meanwhile");
        // Another one takes its place, with the same plugins.
        let other = BRIDGE.replace("cni0", "cni1");
        node.write("net.d/20-b.conflist", &other);
        if named.is_none() {
            let why = installer.config_trouble().unwrap().unwrap();
            assert!(why.contains("20-b.conflist is the primary"), "{why}");
            assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
            assert!(node.read(own).contains("cni1"));
            assert_eq!(installer.config_trouble().unwrap(), None);
        }
    }
}

/// Owned mode was switched off between two agents: what the first left would come first for ever, and nobody would copy
/// into it what changes in the primary configuration.
#[test]
fn a_copy_of_an_agent_that_was_in_owned_mode_goes() {
    let own = "net.d/02-istio-cni.conflist";
    let left = || {
        let node = Node::new();
        node.write("net.d/10-a.conflist", BRIDGE);
        let mut env = node.env();
        env.insert("ISTIO_OWNED_CNI_CONFIG".into(), "true".into());
        env.insert("AMBIENT_ENABLED".into(), "true".into());
        let mut owning = Installer::new(desired(&env, "info"));
        assert!(matches!(owning.config(), Ok(Pass::Installed(_))));
        env.insert("ISTIO_OWNED_CNI_CONFIG".into(), "false".into());
        (node, env)
    };
    for named in ["", "10-a.conflist"] {
        let (node, mut env) = left();
        env.insert("CNI_CONF_NAME".into(), named.into());
        let mut installer = Installer::new(desired(&env, "info"));
        assert!(installer.config_trouble().unwrap().is_some());
        assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
        assert_eq!(node.names("net.d"), ["10-a.conflist"], "{named}");
        assert!(node.read("net.d/10-a.conflist").contains("istio-cni"));
        assert_eq!(installer.config_trouble().unwrap(), None);
    }
    let (node, env) = left();
    remove_everything(&desired(&env, "info")).unwrap();
    assert_eq!(node.names("net.d"), ["10-a.conflist"]);
    assert_eq!(node.read("net.d/10-a.conflist"), BRIDGE);
    // One that is named, or that has not all of the plugins, is another component's.
    let (node, mut env) = left();
    env.insert("CNI_CONF_NAME".into(), "02-istio-cni.conflist".into());
    let mut installer = Installer::new(desired(&env, "info"));
    assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
    assert!(node.exists(own));
    assert_eq!(node.read("net.d/10-a.conflist"), BRIDGE);
    let (node, env) = left();
    let other = BRIDGE.replace("portmap", "bandwidth");
    node.write("net.d/10-a.conflist", &other);
    let mut installer = Installer::new(desired(&env, "info"));
    assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
    assert!(node.read(own).contains("istio-cni"));
    assert_eq!(node.read("net.d/10-a.conflist"), other);
}
