//! A check of the directory: whether the installed configuration is still in force.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::golden::env;
use crate::support::{BRIDGE, Node, desired, golden};
use serde_json::Value;
use std::collections::BTreeMap;
use weir_core::settings::resolve;
use weir_install::{Desired, Installer, Pass, Remembered, check, list, remove_everything};

#[test]
fn scenarios() {
    let Some(dir) = golden() else { return };
    let text = std::fs::read_to_string(dir.join("scenarios-validity.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let scenarios = file["scenarios"].as_array().unwrap();
    assert!(scenarios.len() >= 6);
    for scenario in scenarios {
        let node = Node::new();
        for (name, input) in scenario["files"].as_object().unwrap() {
            let input = match input.as_str().unwrap() {
                file if dir.join(file).exists() => file,
                words if words.contains("list") => "input-list-with-istio.conflist",
                _ => "create-standalone.golden",
            };
            node.write(
                &format!("net.d/{name}"),
                &std::fs::read_to_string(dir.join(input)).unwrap(),
            );
        }
        let mut config = scenario.clone();
        for key in ["name", "current_config_path", "files", "valid"] {
            config.as_object_mut().unwrap().remove(key);
        }
        let desired = desired(&env(&node, &config), "debug");
        let path = node
            .path("net.d")
            .join(scenario["current_config_path"].as_str().unwrap());
        let remembered = Remembered {
            path,
            entry: None,
            copy_of: None,
        };
        let found = check(&desired, Some(&remembered)).unwrap();
        assert_eq!(
            found.invalid.is_none(),
            scenario["valid"].as_bool().unwrap(),
            "{}: {found:?}",
            scenario["name"]
        );
    }
}

#[test]
fn what_runtimes_load() {
    let node = Node::new();
    let files = [
        (".conf", r#"{"type": "x"}"#, ""),
        (".conflist", "{}", "name"),
        ("a.conf", "{}", "type"),
        ("b.conf", r#"{"type": ""}"#, "type"),
        ("c.conf", r#"{"type": "x"}"#, ""),
        (
            "d.conflist",
            r#"{"name": "n", "plugins": [{"type": "x"}]}"#,
            "",
        ),
        ("e.conflist", r#"{"plugins": [{"type": "x"}]}"#, "name"),
        ("f.conflist", r#"{"name": "n", "plugins": []}"#, "plugins"),
        (
            "g.conflist",
            r#"{"name": "n", "plugins": [{"name": "x"}]}"#,
            "type",
        ),
        ("h.conflist", r#"{"name": "n", "plugins": {}}"#, "array"),
        (
            "i.conflist",
            r#"{"name": "n", "cniVersion": 1, "plugins": [{"type": "x"}]}"#,
            "cniVersion",
        ),
        ("j.conflist", r#"{"name": "sub"}"#, ""),
        (
            "k.conflist",
            r#"{"name": "sub", "loadOnlyInlinedPlugins": true}"#,
            "plugins",
        ),
        ("l.conflist", r#"{"name": "../net.d"}"#, "plugins"),
        (
            "l1.conflist",
            r#"{"name": "n", "plugins": [{"type": "x"}, "portmap"]}"#,
            "plugins[1] that is not an object",
        ),
        (
            "l2.conflist",
            r#"{"name": "n", "plugins": [{"type": "x", "capabilities": ["a"]}]}"#,
            "plugins[0].capabilities",
        ),
        (
            "l3.conflist",
            r#"{"name": 7, "plugins": [{"type": "x"}]}"#,
            "name",
        ),
        (
            "l4.conf",
            r#"{"type": "x", "capabilities": {"a": "yes"}}"#,
            "capabilities.a",
        ),
        ("m.conf", "[]", "object"),
        ("n.conf", "\u{0}\u{1}", "JSON"),
    ];
    for (name, text, _) in files {
        node.write(&format!("net.d/{name}"), text);
    }
    std::fs::write(node.path("net.d/o.conf"), [0xff, 0xfe]).unwrap();
    node.write("net.d/t.CONF", BRIDGE);
    // containerd loads such a file, and Istio's agent does not extend it.
    node.write("net.d/p.json", r#"{"type": "x"}"#);
    // Other names and directories are ignored.
    node.write("net.d/list.json", BRIDGE);
    node.write("net.d/q.conf.bak", BRIDGE);
    std::fs::create_dir_all(node.path("net.d/r.conf")).unwrap();
    std::fs::create_dir_all(node.path("net.d/sub")).unwrap();
    node.write("net.d/sub/1.conf", r#"{"type": "x"}"#);
    // A runtime opens these files: it blocks forever on a FIFO, and fails on a dangling link.
    nix::unistd::mkfifo(&node.path("net.d/s.conf"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (name, target) in [("u.conf", "/nowhere/at-all"), ("v.conf", "sub")] {
        std::os::unix::fs::symlink(target, node.path(&format!("net.d/{name}"))).unwrap();
    }
    let found = list(&node.path("net.d")).unwrap();
    let name = |p: &std::path::Path| p.file_name().unwrap().to_str().unwrap().to_owned();
    let valid: Vec<_> = found.valid.iter().map(|(p, _)| name(p)).collect();
    let wanted: Vec<_> = files
        .iter()
        .filter(|f| f.2.is_empty())
        .map(|f| f.0)
        .collect();
    assert_eq!(valid, wanted);
    for (file, _, why) in files.iter().filter(|f| !f.2.is_empty()) {
        let reason = found.invalid.iter().find(|(p, _)| name(p) == *file);
        assert!(
            reason.is_some_and(|(_, r)| r.contains(why)),
            "{file}: {reason:?}"
        );
    }
    for (file, why) in [
        ("p.json", "ends in .json"),
        ("s.conf", "is not a file"),
        ("u.conf", "cannot be read"),
        ("v.conf", "is not a file"),
    ] {
        let reason = found.invalid.iter().find(|(p, _)| name(p) == file);
        assert!(
            reason.is_some_and(|(_, r)| r.contains(why)),
            "{file}: {reason:?}"
        );
    }
    assert_eq!(found.invalid.len(), files.len() - wanted.len() + 5);
}

#[test]
fn an_entry_that_was_changed_or_doubled_is_not_intact() {
    let node = Node::new();
    node.write("net.d/10-a.conflist", BRIDGE);
    let mut installer = Installer::new(desired(&node.env(), "info"));
    assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
    let installed = node.read("net.d/10-a.conflist");
    // Numbers of the other component stay unchanged, digit by digit.
    assert!(installed.contains("12345678901234567890.10"), "{installed}");
    assert_eq!(installer.changed_config().unwrap(), None);
    let moved = installed.replace("\"type\": \"istio-cni\"", "\"type\": \"istio\"");
    let changed = installed.replace(
        "\"pod_namespace\": \"istio-system\"",
        "\"pod_namespace\": \"\"",
    );
    for tampered in [
        moved,
        changed,
        "{".to_owned(),
        String::new(),
        BRIDGE.to_owned(),
    ] {
        assert_ne!(tampered, installed);
        node.write("net.d/10-a.conflist", &tampered);
        assert!(installer.changed_config().unwrap().is_some(), "{tampered}");
    }
    // The other component may change its own part.
    node.write("net.d/10-a.conflist", &installed.replace("cni0", "cni1"));
    assert_eq!(installer.changed_config().unwrap(), None);
}

/// A runtime would load none of these, so the agent does not extend them either.
#[test]
fn a_configuration_with_members_of_other_types_is_named_and_left_alone() {
    for (text, field) in [
        (
            r#"{"name": "n", "plugins": {"type": "x"}}"#,
            "plugins that are not an array",
        ),
        (
            r#"{"name": "n", "plugins": [{"type": "x"}, []]}"#,
            "plugins[1]",
        ),
        (r#"{"name": ["n"], "plugins": [{"type": "x"}]}"#, "name"),
        (
            r#"{"name": "n", "plugins": [{"type": "x", "capabilities": {"a": 1}}]}"#,
            "plugins[0].capabilities.a",
        ),
    ] {
        for named in [true, false] {
            let node = Node::new();
            node.write("net.d/10-a.conflist", text);
            let mut env = node.env();
            if named {
                env.insert("CNI_CONF_NAME".into(), "10-a.conflist".into());
            }
            let mut installer = Installer::new(desired(&env, "info"));
            let Ok(Pass::Waiting(why)) = installer.config() else {
                panic!("{text}");
            };
            assert!(
                why.contains("10-a.conflist") && why.contains(field),
                "{why}"
            );
            assert_eq!(node.read("net.d/10-a.conflist"), text);
            assert_eq!(node.names("net.d"), ["10-a.conflist"]);
        }
    }
    // Nor can the agent remove its entry from such a file.
    let node = Node::new();
    let text = r#"{"name": "n", "plugins": [7, {"type": "istio-cni"}]}"#;
    node.write("net.d/10-a.conflist", text);
    let why = remove_everything(&desired(&node.env(), "info")).unwrap_err();
    assert!(
        why.contains("10-a.conflist") && why.contains("plugins[0]"),
        "{why}"
    );
    assert_eq!(node.read("net.d/10-a.conflist"), text);
    // Such a file does not keep entries in other files from being removed.
    let entry = BRIDGE.replace("\"portmap\"", "\"istio-cni\"");
    node.write("net.d/20-b.conflist", &entry);
    let why = remove_everything(&desired(&node.env(), "info")).unwrap_err();
    assert!(
        why.contains("10-a.conflist") && why.contains("removed from"),
        "{why}"
    );
    assert!(!node.read("net.d/20-b.conflist").contains("istio-cni"));
}

/// The configured name is kept, except that no runtime would read a list in a `.conf` file.
#[test]
fn a_named_file_keeps_its_name() {
    for (name, becomes) in [
        ("a b.conf.conf", "a b.conf.conflist"),
        ("a.conflist", "a.conflist"),
        (".conf", ".conflist"),
    ] {
        let node = Node::new();
        node.write("net.d/99-other.conflist", BRIDGE);
        node.write(&format!("net.d/{name}"), BRIDGE);
        let mut env = node.env();
        env.insert("CNI_CONF_NAME".into(), name.into());
        let wanted = desired(&env, "info");
        let mut installer = Installer::new(wanted.clone());
        assert!(
            matches!(installer.config(), Ok(Pass::Installed(_))),
            "{name}"
        );
        let mut names = vec!["99-other.conflist", becomes];
        names.sort_unstable();
        assert_eq!(node.names("net.d"), names);
        assert_eq!(installer.changed_config().unwrap(), None, "{name}");
        let path = format!("net.d/{becomes}");
        let installed = node.read(&path);
        node.write(
            &path,
            &installed.replace("\"type\": \"bridge\"", "\"type\": 1"),
        );
        let trouble = installer.changed_config().unwrap();
        assert!(trouble.is_some_and(|t| t.contains("type")), "{name}");
        node.write(&path, &installed);
        let removed = remove_everything(&wanted).unwrap();
        assert!(
            removed.done.iter().any(|r| r.contains(becomes)),
            "{removed:?}"
        );
        assert!(!node.read(&path).contains("istio"), "{name}");
    }
}

/// Every pod would start outside the mesh, without any visible fault.
#[test]
fn a_name_that_no_runtime_reads_is_refused() {
    let node = Node::new();
    let mut env = node.env();
    for (chained, name, refused) in [
        ("true", "87-net.json", true),
        ("true", "net", true),
        ("true", "a.CONFLIST", true),
        ("true", "a.conf.bak", true),
        ("true", "a.conf", false),
        ("true", "a.conflist", false),
        ("true", "", false),
        ("false", "istio-cni.txt", true),
        ("false", "istio-cni.conflist", true),
        ("false", "istio-cni.conf", false),
        ("false", "", false),
    ] {
        env.insert("CHAINED_CNI_PLUGIN".into(), chained.into());
        env.insert("CNI_CONF_NAME".into(), name.into());
        let lookup = |name: &str| env.get(name).map(std::ffi::OsString::from);
        let found = Desired::of(&resolve(&BTreeMap::new(), &lookup), "info");
        assert_eq!(found.is_err(), refused, "{chained} {name}");
        if let Err(e) = found {
            let text = e.to_string();
            assert!(
                text.contains("CNI_CONF_NAME") && text.contains(".conf"),
                "{text}"
            );
        }
    }
}

/// Runtimes replace invalid characters in such strings, so pods would start with this file unextended.
#[test]
fn a_configuration_with_broken_characters_is_extended_as_runtimes_load_it() {
    let odd = |text: &[u8]| {
        let (start, end) = BRIDGE.split_at(BRIDGE.find("\"name\"").unwrap());
        [
            start.as_bytes(),
            b"\"note\": \"caf",
            text,
            b"\",",
            end.as_bytes(),
        ]
        .concat()
    };
    for (text, becomes) in [(&b"\\ud83d"[..], "\\ud83d"), (b"\xe9", "\u{fffd}")] {
        let node = Node::new();
        std::fs::write(node.path("net.d/05-site.conflist"), odd(text)).unwrap();
        node.write("net.d/10-a.conflist", BRIDGE);
        let wanted = desired(&node.env(), "info");
        let mut installer = Installer::new(wanted.clone());
        assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
        assert_eq!(installer.changed_config().unwrap(), None);
        let note = format!("\"note\": \"caf{becomes}\"");
        let installed = node.read("net.d/05-site.conflist");
        assert!(
            installed.contains("istio-cni") && installed.contains(&note),
            "{installed}"
        );
        remove_everything(&wanted).unwrap();
        let left = node.read("net.d/05-site.conflist");
        assert!(
            !left.contains("istio-cni") && left.contains(&note),
            "{left}"
        );
    }
}

/// A runtime may load the file that the agent skips, or fail at it.
#[test]
fn a_file_that_is_skipped_and_sorts_first_is_told_of() {
    let node = Node::new();
    node.write("net.d/05-site.conflist", "{\"name\": \"n\",");
    node.write("net.d/10-a.conflist", BRIDGE);
    node.write("net.d/20-later.conflist", "{");
    std::os::unix::fs::symlink("/nowhere/at-all", node.path("net.d/01-link.conf")).unwrap();
    nix::unistd::mkfifo(
        &node.path("net.d/02-pipe.conf"),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .unwrap();
    let mut installer = Installer::new(desired(&node.env(), "info"));
    assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
    assert_eq!(installer.changed_config().unwrap(), None);
    let warning = installer.inspect().unwrap().warning;
    let warning = warning.unwrap();
    assert!(
        warning.contains("05-site.conflist is not JSON"),
        "{warning}"
    );
    for name in ["01-link.conf", "02-pipe.conf"] {
        assert!(warning.contains(name), "{warning}");
    }
    assert!(!warning.contains("20-later"), "{warning}");
    // A removal does not block on a FIFO either.
    remove_everything(installer.desired()).unwrap();
    assert!(!node.read("net.d/10-a.conflist").contains("istio-cni"));
}

/// The page, its JSON and the metric tell it; the kubelet finds the agent ready, as with Istio's.
#[test]
fn a_configuration_behind_another_one_is_not_in_force() {
    let named = ("CNI_CONF_NAME", "10-a.conflist");
    for (first, text, env) in [
        ("05-first.conflist", BRIDGE, named),
        ("05-first.conflist", BRIDGE, ("CHAINED_CNI_PLUGIN", "false")),
        ("05-broken.conflist", "{", ("CNI_CONF_NAME", "")),
        ("05-x.json", r#"{"type": "x"}"#, ("CNI_CONF_NAME", "")),
    ] {
        let node = Node::new();
        node.write("net.d/10-a.conflist", BRIDGE);
        let agent = node.ready(&[env]);
        let is_in_force = || agent.metric("istio_cni_install_ready");
        if env.0 != "CHAINED_CNI_PLUGIN" {
            agent.until("in force", || is_in_force() == 1);
            assert!(agent.facts()["install"]["preempted"].is_null());
        }
        node.write(&format!("net.d/{first}"), text);
        let preempted = || agent.facts()["install"]["preempted"].clone();
        agent.until("told", || preempted().to_string().contains(first));
        agent.until("ready", || agent.is_ready());
        assert_eq!(
            (is_in_force(), &agent.facts()["install"]["ready"]),
            (0, &false.into())
        );
        let (_, page) = agent.page("/");
        assert!(
            page.contains("installed, not in force") && !page.contains("installed and in force")
        );
        let out = node.run(&["agent", "--dry-run"], &[env]);
        let plan = String::from_utf8(out.stdout).unwrap();
        let line = plan.lines().find(|l| l.contains("runtimes may use"));
        assert!(line.is_some_and(|l| l.contains(first)), "{plan}");
        assert!(!plan.contains("in force"), "{plan}");
        if env.1.is_empty() {
            std::fs::remove_file(node.path(&format!("net.d/{first}"))).unwrap();
            agent.until("in force again", || is_in_force() == 1);
        }
    }
}

/// The plugins of a list without `plugins` are in the directory with its name, which is not watched.
#[test]
fn a_list_that_is_loaded_from_a_directory_is_noticed() {
    let node = Node::new();
    node.write("net.d/05-a.conflist", r#"{"name": "a"}"#);
    node.write("net.d/10-b.conflist", BRIDGE);
    std::fs::create_dir(node.path("net.d/a")).unwrap();
    let agent = node.ready(&[]);
    node.write("net.d/a/1.conf", r#"{"type": "x"}"#);
    agent.says("05-a.conflist cannot take the plugin");
    std::fs::remove_file(node.path("net.d/a/1.conf")).unwrap();
    agent.until("ready", || agent.is_ready());
}

/// Go decodes it, so that runtimes use the file.
#[test]
fn a_configuration_with_deep_values_is_extended() {
    let node = Node::new();
    let deep = format!("{}1{}", "[".repeat(9_000), "]".repeat(9_000));
    let text = BRIDGE.replacen("\"name\"", &format!("\"x\": {deep}, \"name\""), 1);
    node.write("net.d/05-deep.conflist", &text);
    node.write("net.d/10-a.conflist", BRIDGE);
    let mut installer = Installer::new(desired(&node.env(), "info"));
    assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
    assert!(node.read("net.d/05-deep.conflist").contains("istio-cni"));
    assert_eq!(installer.changed_config().unwrap(), None);
    installer.remove().unwrap();
    let after = node.read("net.d/05-deep.conflist").replace([' ', '\n'], "");
    assert!(after.contains(&deep) && !after.contains("istio-cni"));
    assert_eq!(node.read("net.d/10-a.conflist"), BRIDGE);
}

/// A file that a runtime does not load does not count as sorting first.
#[test]
fn a_named_list_that_a_runtime_does_not_load_is_told_of() {
    let node = Node::new();
    let nameless = BRIDGE.replace("  \"name\": \"pods\",\n", "");
    assert_ne!(nameless, BRIDGE);
    node.write("net.d/10-a.conflist", &nameless);
    node.write("net.d/20-b.conflist", BRIDGE);
    let mut env = node.env();
    env.insert("CNI_CONF_NAME".into(), "10-a.conflist".into());
    let mut installer = Installer::new(desired(&env, "info"));
    assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
    let warning = installer.inspect().unwrap().warning;
    let warning = warning.unwrap();
    assert!(warning.contains("does not load"), "{warning}");
    assert!(!warning.contains("sorts before"), "{warning}");
}

/// A component that writes `NAME.conf` writes it again after the agent has converted it to a list, and runtimes read the `.conf` first.
#[test]
fn the_conf_that_is_written_again_beside_the_list_is_extended() {
    let single =
        |bridge: &str| format!(r#"{{"name": "n", "type": "bridge", "bridge": "{bridge}"}}"#);
    for name in ["10-x.conflist", "10-x.conf"] {
        let node = Node::new();
        node.write("net.d/10-x.conf", &single("cni0"));
        let mut env = node.env();
        env.insert("CNI_CONF_NAME".into(), name.into());
        let wanted = desired(&env, "info");
        let mut installer = Installer::new(wanted.clone());
        for restarted in [false, true] {
            assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
            assert_eq!(node.names("net.d"), ["10-x.conflist"], "{name}");
            assert_eq!(installer.changed_config().unwrap(), None, "{name}");
            node.write("net.d/10-x.conf", &single("cni1"));
            let trouble = installer.changed_config().unwrap();
            assert!(trouble.is_some_and(|t| t.contains("10-x.conf ")), "{name}");
            if restarted {
                installer = Installer::new(wanted.clone());
            }
            assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
            assert_eq!(node.names("net.d"), ["10-x.conflist"], "{name}");
            let text = node.read("net.d/10-x.conflist");
            assert!(
                text.contains("cni1") && text.contains("istio-cni"),
                "{text}"
            );
        }
    }
}

/// The contents of a `.conf` with the same stem, which causes a warning, do not overwrite it.
#[test]
fn a_list_that_is_named_is_extended_although_a_conf_sorts_first() {
    let node = Node::new();
    let conf = r#"{"name": "aaa", "type": "bridge"}"#;
    let list = r#"{"cniVersion": "1.0.0", "name": "bbb", "plugins": [{"type": "macvlan"}]}"#;
    node.write("net.d/10-x.conf", conf);
    node.write("net.d/10-x.conflist", list);
    let mut env = node.env();
    env.insert("CNI_CONF_NAME".into(), "10-x.conflist".into());
    for _ in 0..2 {
        let mut installer = Installer::new(desired(&env, "info"));
        assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
        assert_eq!(installer.changed_config().unwrap(), None);
        assert_eq!(node.read("net.d/10-x.conf"), conf);
        let text = node.read("net.d/10-x.conflist");
        assert!(
            text.contains("macvlan") && text.contains("istio-cni") && !text.contains("bridge"),
            "{text}"
        );
        let warning = installer.inspect().unwrap().warning;
        let warning = warning.unwrap();
        assert!(
            warning.contains("10-x.conf, which sorts before"),
            "{warning}"
        );
    }
}

#[test]
fn a_file_of_its_own_may_have_another_name() {
    let node = Node::new();
    node.write("net.d/10-a.conflist", BRIDGE);
    let mut env = node.env();
    env.insert("CHAINED_CNI_PLUGIN".into(), "f".into());
    for name in ["istio-cni.conf", "multus.conf"] {
        env.insert("CNI_CONF_NAME".into(), name.into());
        let mut installer = Installer::new(desired(&env, "info"));
        assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
        assert_eq!(installer.changed_config().unwrap(), None, "{name}");
        node.write(&format!("net.d/{name}"), BRIDGE);
        assert!(installer.changed_config().unwrap().is_some(), "{name}");
        installer.remove().unwrap();
        assert_eq!(node.names("net.d"), ["10-a.conflist"]);
    }
}

#[test]
fn a_file_that_is_replaced_is_not_tidied_up_too() {
    let node = Node::new();
    let odd = r#"{"name": "n", "type": "ptp", "plugins": [{"type": "istio-cni"}, {"type": "x"}]}"#;
    node.write("net.d/10-a.conf", odd);
    let mut installer = Installer::new(desired(&node.env(), "info"));
    installer.config().unwrap();
    assert_eq!(node.names("net.d"), ["10-a.conflist"]);
    assert_eq!(installer.changed_config().unwrap(), None);
}

/// Other components install and remove files at the same time, which is no failure.
#[test]
fn files_that_come_and_go_are_no_failure() {
    let node = Node::new();
    let env = node.env();
    let mut installer = Installer::new(desired(&env, "info"));
    let with_entry = BRIDGE.replace("\"portmap\"", "\"istio-cni\"");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
    std::thread::scope(|scope| {
        for name in [
            "net.d/00-a.conflist",
            "net.d/10-b.conf",
            "net.d/20-c.conflist",
        ] {
            let (node, text) = (&node, with_entry.as_str());
            let text = match name.ends_with("list") {
                true => text,
                false => r#"{"name": "n", "type": "ptp"}"#,
            };
            scope.spawn(move || {
                while std::time::Instant::now() < end {
                    node.write(name, text);
                    let _ = std::fs::remove_file(node.path(name));
                }
            });
        }
        while std::time::Instant::now() < end {
            installer.config().unwrap();
            installer.inspect().unwrap();
        }
    });
}

/// As in upstream's installer, the agent reads the target of the link and replaces the link by a file.
///
/// It does not write to the target, which may be outside the directory.
#[test]
fn a_link_makes_room_for_a_file_and_its_target_stays() {
    let node = Node::new();
    std::fs::create_dir(node.path("elsewhere")).unwrap();
    node.write("elsewhere/pods", BRIDGE);
    let link = node.path("net.d/10-pods.conflist");
    std::os::unix::fs::symlink("../elsewhere/pods", &link).unwrap();
    let mut agent = node.ready(&[]);
    assert!(node.read("net.d/10-pods.conflist").contains("istio-cni"));
    assert!(link.symlink_metadata().unwrap().is_file());
    assert_eq!(node.read("elsewhere/pods"), BRIDGE);
    // The same if only the removal finds the link.
    let text = node.read("net.d/10-pods.conflist");
    node.write("elsewhere/pods", &text);
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("../elsewhere/pods", &link).unwrap();
    agent.wait_ready();
    assert!(agent.terminate().success(), "{}", agent.log());
    assert!(link.symlink_metadata().unwrap().is_file());
    assert!(!node.read("net.d/10-pods.conflist").contains("istio-cni"));
    assert_eq!(node.read("elsewhere/pods"), text);
    assert_eq!(node.names("elsewhere"), ["pods"]);
}
