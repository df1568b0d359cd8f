//! Network configurations as files, and the negotiated version.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use std::path::Path;

use crate::common::TempDir;
use weir_runner::NetworkList;

#[test]
fn files() {
    let dir = TempDir::new();
    let load = |name: &str, text: &str| NetworkList::load(&dir.write(name, text));
    let single = load(
        "a.conf",
        r#"{"name":"n","type":"one","cniVersion":"0.4.0"}"#,
    )
    .unwrap();
    assert_eq!(
        (single.plugins.len(), single.cni_version.as_str()),
        (1, "0.4.0")
    );
    for (name, text, word) in [
        ("b.conf", "{", "JSON"),
        ("b.conf", r#"{"name":"n"}"#, "type"),
        ("b.conf", r#"{"type":"t"}"#, "name"),
        (
            "b.conf",
            r#"{"name":"n","type":"t","capabilities":[]}"#,
            "capabilities",
        ),
        ("b.conf", r#"{"name":"n","plugins":[]}"#, ".conflist"),
        ("b.conflist", r#"{"name":"n","plugins":[]}"#, "empty"),
        ("b.conflist", r#"{"name":"n","plugins":{}}"#, "array"),
        ("b.conflist", r#"{"name":"n","plugins":[1]}"#, "plugin 0"),
        (
            "b.conflist",
            r#"{"name":"n","plugins":[{"type":"a"},{}]}"#,
            "plugin 1",
        ),
        (
            "b.conflist",
            r#"{"name":"n","plugins":[{"type":"../a"}]}"#,
            "path",
        ),
        ("b.conflist", r#"{"name":"n"}"#, "no plugins"),
        (
            "b.conflist",
            r#"{"name":"n","loadOnlyInlinedPlugins":true}"#,
            "loadOnlyInlinedPlugins",
        ),
        (
            "b.conflist",
            r#"{"name":"n","disableCheck":1,"plugins":[{"type":"a"}]}"#,
            "disableCheck",
        ),
        (
            "b.conflist",
            r#"{"name":"n","cniVersion":"9.0.0","plugins":[{"type":"a"}]}"#,
            "9.0.0",
        ),
        ("b.json", r#"{"name":"n","plugins":[]}"#, ".conflist"),
        ("b.txt", "{}", ".conflist"),
    ] {
        let error = load(name, text).unwrap_err().to_string();
        assert!(
            error.contains(word) && error.contains(name),
            "{word:?}: {error}"
        );
    }
    assert!(NetworkList::load(Path::new("/no/such.conf")).is_err());
}

/// containerd, CRI-O and Multus load them, too.
#[test]
fn a_network_in_a_json_or_in_a_file_without_a_stem() {
    let dir = TempDir::new();
    let single = |name: &str| format!(r#"{{"name":"{name}","type":"one"}}"#);
    for (file, name) in [(".conf", "a"), ("05-b.json", "b"), ("10-c.conf", "c")] {
        dir.write(file, &single(name));
        assert_eq!(NetworkList::load(&dir.file(file)).unwrap().name, name);
        assert_eq!(
            NetworkList::load_named(dir.path(), name).unwrap().name,
            name
        );
    }
    assert_eq!(NetworkList::load_dir(dir.path()).unwrap().name, "a");
    std::fs::remove_file(dir.file(".conf")).unwrap();
    assert_eq!(NetworkList::load_dir(dir.path()).unwrap().name, "b");
}

#[test]
fn plugins_from_a_directory_of_the_network() {
    let dir = TempDir::new();
    std::fs::create_dir(dir.file("n")).unwrap();
    dir.write("n/20.conf", r#"{"type":"three"}"#);
    dir.write("n/10.conf", r#"{"type":"two"}"#);
    dir.write("n/readme", "x");
    let kinds = |text: &str| -> Vec<String> {
        let list = NetworkList::load(&dir.write("a.conflist", text)).unwrap();
        list.plugins.into_iter().map(|plugin| plugin.kind).collect()
    };
    assert_eq!(
        kinds(r#"{"name":"n","plugins":[{"type":"one"}]}"#),
        ["one", "two", "three"]
    );
    assert_eq!(kinds(r#"{"name":"n"}"#), ["two", "three"]);
    let text = r#"{"name":"n","loadOnlyInlinedPlugins":true,"plugins":[{"type":"one"}]}"#;
    assert_eq!(kinds(text), ["one"]);
    // The first usable file is the network.
    dir.write("0.conf", "{");
    assert_eq!(NetworkList::load_dir(dir.path()).unwrap().name, "n");
    std::fs::remove_file(dir.file("a.conflist")).unwrap();
    let error = NetworkList::load_dir(dir.path()).unwrap_err().to_string();
    assert!(error.contains("0.conf"), "{error}");
    // Without the directory the list has all plugins; one that cannot be listed may have more.
    let text = r#"{"name":"m","plugins":[{"type":"one"}]}"#;
    assert_eq!(kinds(text), ["one"]);
    dir.write("m", "no directory");
    let error = NetworkList::load(&dir.file("a.conflist")).unwrap_err();
    let why = format!("{}: cannot list it", dir.file("m").display());
    assert!(error.to_string().contains(&why), "{error}");
}

#[test]
fn the_newest_common_version() {
    for (versions, expected) in [
        (r#""cniVersions":["0.3.1","1.0.0","0.4.0"]"#, "1.0.0"),
        (r#""cniVersion":"0.4.0","cniVersions":["0.3.1"]"#, "0.4.0"),
        (
            r#""cniVersion":"1.1.0","cniVersions":["1.0.0","1.2.0","9.0.0"]"#,
            "1.1.0",
        ),
        (r#""cniVersion":"9.0.0","cniVersions":["1.0.0"]"#, "1.0.0"),
        (r#""cniVersion":"""#, "0.1.0"),
    ] {
        let text = format!(r#"{{"name":"n",{versions},"plugins":[{{"type":"a"}}]}}"#);
        assert_eq!(
            NetworkList::from_list(&text, "(test)").unwrap().cni_version,
            expected
        );
    }
    for versions in [
        r#""cniVersions":["9.0.0"]"#,
        r#""cniVersions":["x"]"#,
        r#""cniVersions":1"#,
    ] {
        let text = format!(r#"{{"name":"n",{versions},"plugins":[{{"type":"a"}}]}}"#);
        assert!(
            NetworkList::from_list(&text, "(test)").is_err(),
            "{versions}"
        );
    }
}
