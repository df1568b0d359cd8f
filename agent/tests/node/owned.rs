//! A list of the agent's own beside the primary configuration (`ISTIO_OWNED_CNI_CONFIG`).
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::ambient::Scene;
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
    assert_eq!(installer.changed_config().unwrap(), None);
    node.write(
        "net.d/10-a.conflist",
        &BRIDGE.replace("portmap", "bandwidth"),
    );
    assert!(
        installer
            .changed_config()
            .unwrap()
            .unwrap()
            .contains("bandwidth")
    );
    installer.remove().unwrap();
    assert_eq!(node.names("net.d"), ["10-a.conflist"]);
    // No runtime reads a list from a .conf file.
    env.insert(
        "ISTIO_OWNED_CNI_CONFIG_FILENAME".into(),
        "00-own.conf".into(),
    );
    let mut installer = Installer::new(desired(&env, "info"));
    assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
    assert_eq!(node.names("net.d"), ["00-own.conflist", "10-a.conflist"]);
    assert_eq!(installer.changed_config().unwrap(), None);
    installer.remove().unwrap();
    assert_eq!(node.names("net.d"), ["10-a.conflist"]);
    // Without ambient mode the flag has no effect, neither when installing nor when removing.
    env.insert("AMBIENT_ENABLED".into(), "false".into());
    let mut installer = Installer::new(desired(&env, "info"));
    assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
    installer.remove().unwrap();
    assert_eq!(node.names("net.d"), ["10-a.conflist"]);
    assert!(!node.read("net.d/10-a.conflist").contains("istio"));
}

/// A list with another extension would never be in force, and one with the name of the primary configuration would replace it.
#[test]
fn a_list_of_our_own_has_a_name_that_runtimes_read_and_that_is_free() {
    let node = Node::new();
    let mut env = node.env();
    env.insert("ISTIO_OWNED_CNI_CONFIG".into(), "true".into());
    env.insert("AMBIENT_ENABLED".into(), "true".into());
    for (owned, primary, refused) in [
        ("02-own.json", "", "ends in .conflist"),
        ("02-own", "", "ends in .conflist"),
        ("10-a.conf", "10-a.conflist", "CNI_CONF_NAME"),
        ("", "02-istio-cni.conflist", "CNI_CONF_NAME"),
        ("02-own.conf", "10-a.conf", ""),
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

/// The agent records the names of its lists in this file.
const NAMES: &str = "run/owned-names";

/// The agent finds its list by the recorded name, even if the primary configuration has changed.
#[test]
fn a_list_that_an_agent_wrote_under_any_name_goes_and_is_not_copied() {
    let list = "net.d/10-a.conflist";
    for primary in [
        BRIDGE.to_owned(),
        BRIDGE.replace("cni0", "cni1"),
        r#"{"name": "m", "plugins": [{"type": "other"}]}"#.to_owned(),
    ] {
        for now in ["named", "usual", "off", "alone", "uninstall"] {
            let node = Node::new();
            node.write(list, BRIDGE);
            let mut env = node.env();
            let set = |env: &mut BTreeMap<String, String>, name: &str, text: &str| {
                env.insert(name.into(), text.into());
            };
            let (owned, name) = ("ISTIO_OWNED_CNI_CONFIG", "ISTIO_OWNED_CNI_CONFIG_FILENAME");
            set(&mut env, "AMBIENT_ENABLED", "true");
            set(&mut env, owned, "true");
            set(&mut env, name, "01-foo.conflist");
            let mut first = Installer::new(desired(&env, "info"));
            assert!(matches!(first.config(), Ok(Pass::Installed(_))));
            assert_eq!(node.names("net.d"), ["01-foo.conflist", "10-a.conflist"]);
            assert_eq!(node.read(NAMES), "01-foo.conflist\n");
            node.write(list, &primary);
            env.remove(name);
            let own = match now {
                "named" => Some("03-bar.conflist"),
                "usual" => Some("02-istio-cni.conflist"),
                "alone" => Some("YYY-istio-cni.conf"),
                _ => None,
            };
            match now {
                "named" => set(&mut env, name, "03-bar.conflist"),
                "off" | "uninstall" => set(&mut env, owned, "false"),
                "alone" => set(&mut env, "CHAINED_CNI_PLUGIN", "false"),
                _ => {}
            }
            let wanted = desired(&env, "info");
            if now == "uninstall" {
                remove_everything(&wanted).unwrap();
            } else {
                let mut installer = Installer::new(wanted);
                assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
                assert_eq!(installer.changed_config().unwrap(), None, "{now}");
                let mut names: Vec<&str> = own.into_iter().chain(["10-a.conflist"]).collect();
                names.sort_unstable();
                assert_eq!(node.names("net.d"), names, "{now} {primary}");
                assert_eq!(
                    node.exists(NAMES),
                    ["named", "usual"].contains(&now),
                    "{now}"
                );
                installer.remove().unwrap();
            }
            assert_eq!(node.names("net.d"), ["10-a.conflist"], "{now} {primary}");
            assert!(!node.exists(NAMES), "{now}");
            match now {
                "off" => assert!(!node.read(list).contains("istio-cni")),
                _ => assert_eq!(node.read(list), primary, "{now}"),
            }
        }
    }
    // Another component uses the name now.
    let node = Node::new();
    std::fs::create_dir(node.path("run")).unwrap();
    node.write(NAMES, "10-a.conflist\n");
    node.write(list, BRIDGE);
    node.write("net.d/20-b.conflist", &BRIDGE.replace("cni0", "cni1"));
    let mut installer = Installer::new(desired(&node.env(), "info"));
    for _ in 0..2 {
        assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
        assert!(node.read(list).contains("istio-cni") && !node.exists(NAMES));
    }
}

/// The agent wraps a single plugin in a list.
#[test]
fn a_list_that_an_agent_made_of_a_single_plugin_is_found_again() {
    let node = Node::new();
    let single = r#"{"cniVersion": "1.0.0", "name": "n", "type": "ptp"}"#;
    node.write("net.d/10-a.conf", single);
    let mut env = node.env();
    env.insert("AMBIENT_ENABLED".into(), "true".into());
    env.insert("ISTIO_OWNED_CNI_CONFIG".into(), "true".into());
    let name = "ISTIO_OWNED_CNI_CONFIG_FILENAME";
    env.insert(name.into(), "01-foo.conflist".into());
    let mut first = Installer::new(desired(&env, "info"));
    assert!(matches!(first.config(), Ok(Pass::Installed(_))));
    env.remove(name);
    remove_everything(&desired(&env, "info")).unwrap();
    assert_eq!(node.names("net.d"), ["10-a.conf"]);
    assert_eq!(node.read("net.d/10-a.conf"), single);
}

/// The settings cause this; no other component reverts the file.
#[test]
fn an_owned_name_that_does_not_sort_first_is_told_as_the_reason() {
    let scene = Scene::new();
    let node = &scene.node;
    node.write("net.d/00-first.conflist", BRIDGE);
    let agent = scene.start(&[("ISTIO_OWNED_CNI_CONFIG", "true")]);
    let is_told = || {
        let (_, text) = agent.probe("/readyz");
        text.contains("give our own file a name before it")
    };
    agent.until("told", is_told);
    agent.says("a name before it");
    let log = agent.log();
    let warned = log
        .lines()
        .filter(|l| l.contains("warn") && l.contains("a name before it"));
    assert_eq!(warned.count(), 1, "{log}");
    assert!(!log.contains("another component"), "{log}");
    std::fs::rename(
        node.path("net.d/00-first.conflist"),
        node.path("net.d/03-first.conflist"),
    )
    .unwrap();
    agent.until("in force", || {
        agent.log().contains("the plugin is installed and in force")
    });
}

/// The file is valid, but its name is that of the agent's own list.
#[test]
fn a_configuration_under_the_name_of_our_own_list_is_told_of() {
    let node = Node::new();
    node.write("net.d/02-istio-cni.conflist", BRIDGE);
    let mut env = node.env();
    env.insert("ISTIO_OWNED_CNI_CONFIG".into(), "true".into());
    env.insert("AMBIENT_ENABLED".into(), "true".into());
    let mut installer = Installer::new(desired(&env, "info"));
    let Ok(Pass::Waiting(why)) = installer.config() else {
        panic!("there is nothing that could be copied");
    };
    assert!(why.contains("has the name of our own list"), "{why}");
    assert_eq!(node.read("net.d/02-istio-cni.conflist"), BRIDGE);
}

/// The removal of the installation would delete what another component wrote under the name of our own list.
#[test]
fn what_another_component_wrote_under_the_name_of_our_own_list_is_kept() {
    for (foreign, is_kept) in [(BRIDGE, true), ("", false), ("{", false)] {
        let node = Node::new();
        std::fs::create_dir(node.path("run")).unwrap();
        node.write("net.d/10-ok.conflist", foreign);
        node.write("net.d/20-two.conflist", BRIDGE);
        let mut env = node.env();
        for (name, value) in [
            ("ISTIO_OWNED_CNI_CONFIG", "true"),
            ("ISTIO_OWNED_CNI_CONFIG_FILENAME", "10-ok.conflist"),
            ("AMBIENT_ENABLED", "true"),
        ] {
            env.insert(name.into(), value.into());
        }
        let (wanted, kept) = (desired(&env, "info"), "net.d/10-ok.conflist.replaced");
        let planned = weir_install::plan(&wanted);
        let last = planned.last().unwrap();
        assert_eq!((last.action, last.why.contains(kept)), ("write", is_kept));
        let mut installer = Installer::new(wanted.clone());
        installer.files(&|| false).unwrap();
        let Ok(Pass::Installed(done)) = installer.config() else {
            panic!("it is installed");
        };
        assert_eq!(
            done.iter().any(|line| line.contains(kept)),
            is_kept,
            "{done:?}"
        );
        assert!(node.read("net.d/10-ok.conflist").contains("istio-cni"));
        // What this agent wrote is its own.
        node.write("net.d/10-ok.conflist", r#"{"type": "ptp", "name": "n"}"#);
        assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
        installer.remove().unwrap();
        remove_everything(&wanted).unwrap();
        assert!(!node.exists("net.d/10-ok.conflist"));
        assert_eq!(node.exists(kept), is_kept);
        if is_kept {
            assert_eq!(node.read(kept), foreign);
        }
    }
}

/// The source of the copy is deleted, or another configuration would be in force.
#[test]
fn a_copy_whose_primary_configuration_is_gone_is_not_intact() {
    let own = "net.d/02-istio-cni.conflist";
    for named in [None, Some("10-a.conflist")] {
        let node = Node::new();
        let primary = format!("net.d/{}", named.unwrap_or("10-a.conflist"));
        node.write(&primary, BRIDGE);
        let mut env = node.env();
        env.insert("ISTIO_OWNED_CNI_CONFIG".into(), "true".into());
        env.insert("AMBIENT_ENABLED".into(), "true".into());
        env.insert("CNI_CONF_NAME".into(), named.unwrap_or_default().into());
        let mut installer = Installer::new(desired(&env, "info"));
        assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
        assert_eq!(installer.changed_config().unwrap(), None);
        node.write(&primary, &BRIDGE.replace("portmap", "bandwidth"));
        let why = installer.changed_config().unwrap().unwrap();
        assert!(why.contains("bandwidth"), "{named:?}: {why}");
        std::fs::remove_file(node.path(&primary)).unwrap();
        let why = installer.changed_config().unwrap().unwrap();
        assert!(why.contains("10-a") && why.contains("gone"), "{why}");
        let Ok(Pass::Waiting(_)) = installer.config() else {
            panic!("{named:?}: nothing is there to be copied");
        };
        assert!(node.exists(own), "it keeps the plugin in force meanwhile");
        // Another configuration with the same plugins replaces it.
        let other = BRIDGE.replace("cni0", "cni1");
        node.write("net.d/20-b.conflist", &other);
        if named.is_none() {
            let why = installer.changed_config().unwrap().unwrap();
            assert!(why.contains("20-b.conflist is the primary"), "{why}");
            assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
            assert!(node.read(own).contains("cni1"));
            assert_eq!(installer.changed_config().unwrap(), None);
        }
    }
}

/// Owned mode was switched off between two agents.
///
/// The list of the first agent would always sort first, and nothing would copy changes of the primary configuration into it.
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
        assert!(installer.changed_config().unwrap().is_some());
        assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
        assert_eq!(node.names("net.d"), ["10-a.conflist"], "{named}");
        assert!(node.read("net.d/10-a.conflist").contains("istio-cni"));
        assert_eq!(installer.changed_config().unwrap(), None);
    }
    let (node, env) = left();
    remove_everything(&desired(&env, "info")).unwrap();
    assert_eq!(node.names("net.d"), ["10-a.conflist"]);
    assert_eq!(node.read("net.d/10-a.conflist"), BRIDGE);
    // A file that the settings name, or that lacks some of the plugins, belongs to another component.
    let (node, mut env) = left();
    env.insert("CNI_CONF_NAME".into(), "02-istio-cni.conflist".into());
    let mut installer = Installer::new(desired(&env, "info"));
    assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
    assert!(node.exists(own));
    assert_eq!(node.read("net.d/10-a.conflist"), BRIDGE);
    // (The node was rebooted, and the run directory is empty.)
    let (node, env) = left();
    std::fs::remove_file(node.path(NAMES)).unwrap();
    let other = BRIDGE.replace("portmap", "bandwidth");
    node.write("net.d/10-a.conflist", &other);
    let mut installer = Installer::new(desired(&env, "info"));
    assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
    assert!(node.read(own).contains("istio-cni"));
    assert_eq!(node.read("net.d/10-a.conflist"), other);
}

/// The previous agent used another name for its list: Istio's agent does not read the variable that its chart sets.
#[test]
fn a_copy_under_the_name_of_an_earlier_agent_goes_and_is_not_copied() {
    for (before, now, owned) in [
        ("02-istio-cni.conflist", "01-mesh.conflist", true),
        ("02-istio-cni.conflist", "01-mesh.conflist", false),
        ("01-foo.conflist", "02-istio-cni.conflist", true),
        ("01-foo.conflist", "02-istio-cni.conflist", false),
    ] {
        let left = || {
            let node = Node::new();
            node.write("net.d/10-calico.conflist", BRIDGE);
            let mut env = node.env();
            env.insert("ISTIO_OWNED_CNI_CONFIG".into(), "true".into());
            env.insert("AMBIENT_ENABLED".into(), "true".into());
            env.insert("ISTIO_OWNED_CNI_CONFIG_FILENAME".into(), before.into());
            let mut first = Installer::new(desired(&env, "info"));
            assert!(matches!(first.config(), Ok(Pass::Installed(_))));
            assert_eq!(node.names("net.d"), [before, "10-calico.conflist"]);
            // In the meantime the network has another bridge and one more plugin.
            let now_is = BRIDGE.replace("cni0", "cni1").replace(
                "{\"type\": \"portmap\"",
                "{\"type\": \"bandwidth\"}, {\"type\": \"portmap\"",
            );
            assert!(now_is.contains("bandwidth"));
            node.write("net.d/10-calico.conflist", &now_is);
            env.insert("ISTIO_OWNED_CNI_CONFIG_FILENAME".into(), now.into());
            env.insert("ISTIO_OWNED_CNI_CONFIG".into(), owned.to_string());
            (node, env, now_is)
        };
        let (node, env, primary) = left();
        let mut installer = Installer::new(desired(&env, "info"));
        assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
        assert_eq!(installer.changed_config().unwrap(), None, "{before}");
        let in_force = match owned {
            true => {
                assert_eq!(node.names("net.d"), [now, "10-calico.conflist"], "{before}");
                node.read(&format!("net.d/{now}"))
            }
            false => {
                assert_eq!(node.names("net.d"), ["10-calico.conflist"]);
                node.read("net.d/10-calico.conflist")
            }
        };
        for part in ["cni1", "bandwidth", "istio-cni"] {
            assert!(in_force.contains(part), "{before} {part}: {in_force}");
        }
        installer.remove().unwrap();
        assert_eq!(node.names("net.d"), ["10-calico.conflist"], "{before}");
        let text = node.read("net.d/10-calico.conflist");
        assert!(
            !text.contains("istio-cni") && text.contains("bandwidth"),
            "{text}"
        );
        // The same if only the removal finds the list, with and without chaining.
        for chained in ["true", "false"] {
            let (node, mut env, _) = left();
            env.insert("CHAINED_CNI_PLUGIN".into(), chained.into());
            remove_everything(&desired(&env, "info")).unwrap();
            assert_eq!(node.names("net.d"), ["10-calico.conflist"], "{before}");
            assert_eq!(node.read("net.d/10-calico.conflist"), primary);
        }
    }
}

/// A network's own list that an agent extended outside owned mode is no copy, although another list resembles it.
#[test]
fn a_list_that_an_agent_extended_is_no_copy() {
    // Beside it there is the file of another network, an old file of the same network, or a copy that a user made.
    let former = BRIDGE.replace("cni0", "cni1");
    let more = former.replace("\"pods\"", "\"more\"");
    // Lists of the agent have some of these modes, too.
    let others = [more, former, BRIDGE.to_owned()];
    let cases = others
        .iter()
        .flat_map(|other| [0o600, 0o640, 0o644].map(|mode| (other, mode)));
    for (other, mode) in cases {
        let node = Node::new();
        let env = node.env();
        node.write("net.d/10-a.conflist", BRIDGE);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(node.path("net.d/10-a.conflist"), mode).unwrap();
        let mut first = Installer::new(desired(&env, "info"));
        assert!(matches!(first.config(), Ok(Pass::Installed(_))));
        let extended = node.read("net.d/10-a.conflist");
        node.write("net.d/20-b.conflist", other);
        let mut owned = env.clone();
        owned.insert("ISTIO_OWNED_CNI_CONFIG".into(), "true".into());
        owned.insert("AMBIENT_ENABLED".into(), "true".into());
        let mut second = Installer::new(desired(&owned, "info"));
        assert!(matches!(second.config(), Ok(Pass::Installed(_))));
        assert_eq!(node.read("net.d/10-a.conflist"), extended);
        let own = node.read("net.d/02-istio-cni.conflist");
        assert!(own.contains("cni0") && own.contains("portmap"), "{own}");
        second.remove().unwrap();
        assert_eq!(node.names("net.d"), ["10-a.conflist", "20-b.conflist"]);
    }
}

/// `loopback` alone connects no pod: beside such a file the copy is the only network configuration.
#[test]
fn a_file_without_a_network_is_no_reason_to_delete_or_replace_a_copy() {
    let loopback = r#"{"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}"#;
    let list = r#"{"cniVersion": "1.0.0", "name": "lo", "plugins": [{"type": "loopback"}]}"#;
    for (other, text) in [("99-lo.conf", loopback), ("99-lo.conflist", list)] {
        for own in ["01-foo.conflist", "02-istio-cni.conflist"] {
            for now in ["owned", "off", "uninstall"] {
                let node = Node::new();
                node.write("net.d/10-a.conflist", BRIDGE);
                let mut env = node.env();
                env.insert("AMBIENT_ENABLED".into(), "true".into());
                env.insert("ISTIO_OWNED_CNI_CONFIG".into(), "true".into());
                env.insert("ISTIO_OWNED_CNI_CONFIG_FILENAME".into(), own.into());
                let mut first = Installer::new(desired(&env, "info"));
                assert!(matches!(first.config(), Ok(Pass::Installed(_))));
                std::fs::remove_file(node.path("net.d/10-a.conflist")).unwrap();
                node.write(&format!("net.d/{other}"), text);
                if now != "owned" {
                    env.remove("ISTIO_OWNED_CNI_CONFIG_FILENAME");
                    env.insert("ISTIO_OWNED_CNI_CONFIG".into(), "false".into());
                }
                let wanted = desired(&env, "info");
                let pass = match now {
                    "uninstall" => {
                        remove_everything(&wanted).unwrap();
                        None
                    }
                    _ => Some(Installer::new(wanted).config().unwrap()),
                };
                assert_eq!(node.names("net.d"), [own, other], "{own} {now}");
                assert_eq!(node.read(&format!("net.d/{other}")), text);
                let copy = node.read(&format!("net.d/{own}"));
                assert!(copy.contains("cni0"), "{own} {now}: {copy}");
                assert_eq!(copy.contains("istio-cni"), now != "uninstall", "{own}");
                assert_eq!(now == "owned", matches!(pass, Some(Pass::Waiting(_))));
            }
        }
    }
}

/// An agent that wrote a configuration of its own left this file. It gives pods no network and sorts first.
#[test]
fn a_configuration_that_has_our_entry_alone_goes_in_every_mode() {
    let own = "02-istio-cni.conflist";
    for (owned, name) in [
        (true, ""),
        (true, "10-a.conflist"),
        (false, ""),
        (false, "10-a.conflist"),
    ] {
        let node = Node::new();
        node.write("net.d/10-a.conflist", BRIDGE);
        let mut env = node.env();
        env.insert("AMBIENT_ENABLED".into(), "true".into());
        env.insert("CHAINED_CNI_PLUGIN".into(), "false".into());
        env.insert("CNI_CONF_NAME".into(), "00-own.conf".into());
        let mut first = Installer::new(desired(&env, "info"));
        assert!(matches!(first.config(), Ok(Pass::Installed(_))));
        let left = node.read("net.d/00-own.conf");
        env.remove("CHAINED_CNI_PLUGIN");
        env.insert("CNI_CONF_NAME".into(), name.into());
        env.insert("ISTIO_OWNED_CNI_CONFIG".into(), owned.to_string());
        let mut installer = Installer::new(desired(&env, "info"));
        // The second time, the previous agent writes the file before it ends.
        for time in ["first", "again"] {
            let found = installer.changed_config().unwrap();
            assert!(found.is_some(), "{owned} {name} {time}");
            assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
            let expected = match owned {
                true => vec![own, "10-a.conflist"],
                false => vec!["10-a.conflist"],
            };
            assert_eq!(node.names("net.d"), expected, "{owned} {name} {time}");
            assert_eq!(installer.changed_config().unwrap(), None);
            node.write("net.d/00-own.conf", &left);
        }
    }
}

/// The message must not name the run directory instead.
#[test]
fn a_missing_directory_of_configurations_is_told_as_such() {
    let node = Node::new();
    std::fs::remove_dir(node.path("net.d")).unwrap();
    for chained in ["true", "false"] {
        let mut env = node.env();
        env.insert("CHAINED_CNI_PLUGIN".into(), chained.into());
        let mut installer = Installer::new(desired(&env, "info"));
        let why = installer.config().unwrap_err().to_string();
        assert!(why.contains("MOUNTED_CNI_NET_DIR names"), "{why}");
        assert!(!why.contains("owned-names"), "{why}");
    }
}

/// The copy still calls the plugin, which sends requests to the API server.
#[test]
fn while_the_primary_configuration_is_gone_program_and_token_are_kept() {
    let scene = Scene::new();
    let node = &scene.node;
    let agent = scene.start(&[("ISTIO_OWNED_CNI_CONFIG", "true")]);
    let in_force = || agent.log().contains("the plugin is installed and in force");
    agent.until("installed", in_force);
    std::fs::remove_file(node.path("net.d/10-pods.conflist")).unwrap();
    agent.until("waiting", || agent.log().contains("waiting for"));
    std::fs::remove_file(node.path("bin/istio-cni")).unwrap();
    agent.until("the program", || node.exists("bin/istio-cni"));
    node.write("account/token", "token-2");
    let has_token = || {
        node.read("run/istio-cni-kubeconfig")
            .contains("token: token-2")
    };
    agent.until("the token", has_token);
    assert!(node.exists("net.d/02-istio-cni.conflist"));
    let log = agent.log();
    assert_eq!(log.matches("waiting for").count(), 1, "{log}");
    node.write("net.d/10-pods.conflist", BRIDGE);
    agent.until("in force again", || {
        agent
            .log()
            .matches("the plugin is installed and in force")
            .count()
            == 2
    });
}

/// The change is outside the watched directory.
#[test]
fn a_change_behind_a_link_to_the_primary_configuration_is_copied() {
    let scene = Scene::new();
    let node = &scene.node;
    std::fs::create_dir(node.path("elsewhere")).unwrap();
    node.write("elsewhere/pods", BRIDGE);
    let link = node.path("net.d/05-pods.conflist");
    std::os::unix::fs::symlink("../elsewhere/pods", &link).unwrap();
    let agent = scene.start(&[("ISTIO_OWNED_CNI_CONFIG", "true")]);
    let in_force = |n: usize| {
        let log = agent.log();
        log.matches("the plugin is installed and in force").count() >= n
    };
    agent.until("installed", || in_force(1));
    let own = "net.d/02-istio-cni.conflist";
    for (n, plugin) in ["bandwidth", "tuning"].into_iter().enumerate() {
        let more = format!("{{\"type\": \"{plugin}\"}}, {{\"type\": \"portmap\"");
        let now = BRIDGE.replace("{\"type\": \"portmap\"", &more);
        // The first time the file is written in place, the second time it is replaced.
        match n {
            0 => node.write("elsewhere/pods", &now),
            _ => {
                node.write("elsewhere/new", &now);
                std::fs::rename(node.path("elsewhere/new"), node.path("elsewhere/pods")).unwrap();
            }
        }
        agent.until(plugin, || {
            node.read(own).contains(plugin) && in_force(n + 2)
        });
    }
    assert!(link.is_symlink());
}
