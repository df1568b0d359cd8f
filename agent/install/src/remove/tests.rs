//! What cannot be read is not taken for absent. A link that leads to itself cannot be read by anyone (`ELOOP`).

use super::*;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::symlink;
use weir_core::settings::resolve;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let name = format!("weir-remove-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An installation in a directory of the test: `net`, `bin` and `run`.
fn installed(dir: &Path) -> Desired {
    let at = |name: &str| Some(OsString::from(dir.join(name)));
    let lookup = |asked: &str| match asked {
        "MOUNTED_CNI_NET_DIR" => at("net"),
        "WEIR_MOUNTED_CNI_BIN_DIR" => at("bin"),
        "CNI_AGENT_RUN_DIR" => at("run"),
        "WEIR_KEEP_PLUGIN" => Some("false".into()),
        _ => None,
    };
    for name in ["net", "bin", "run"] {
        std::fs::create_dir(dir.join(name)).unwrap();
    }
    let desired = Desired::of(&resolve(&BTreeMap::new(), &lookup), "info").unwrap();
    let list = r#"{"name": "n", "plugins": [{"type": "bridge"}, {"type": "istio-cni"}]}"#;
    std::fs::write(dir.join("net/10-a.conflist"), list).unwrap();
    std::fs::write(&desired.kubeconfig, "token").unwrap();
    std::fs::write(desired.bin_dir.join(PLUGIN), "program").unwrap();
    desired
}

#[test]
fn a_configuration_that_cannot_be_read_may_have_our_entry() {
    let dir = Dir::new("hidden");
    let desired = installed(dir.path());
    let hidden = dir.path().join("net/20-b.conflist");
    symlink(&hidden, &hidden).unwrap();
    let found = left(&desired).unwrap();
    let found = found.iter().find(|left| left.path == hidden).unwrap();
    assert!(found.what.contains("cannot be read"), "{}", found.what);
    assert!(found.unknown);
    // It keeps neither the other configuration nor the token.
    let large = dir.path().join("net/30-c.conflist");
    std::fs::write(&large, vec![b' '; 5 << 20]).unwrap();
    let removed = remove_everything(&desired).unwrap();
    let [of_hidden, of_large] = &removed.unknown[..] else {
        panic!("{removed:?}");
    };
    assert!(of_hidden.contains("20-b.conflist"), "{of_hidden}");
    assert!(of_large.contains("30-c.conflist"), "{of_large}");
    assert!(removed.done.concat().contains("10-a.conflist"));
    assert!(!desired.kubeconfig.exists());
    assert!(left(&desired).unwrap().iter().all(|left| left.unknown));
    std::fs::remove_file(&hidden).unwrap();
    std::fs::remove_file(&large).unwrap();
    assert_eq!(left(&desired).unwrap(), []);
}

#[test]
fn a_missing_directory_of_configurations_has_none() {
    let dir = Dir::new("missing");
    let desired = installed(dir.path());
    std::fs::remove_dir_all(&desired.net_dir).unwrap();
    remove_everything(&desired).unwrap();
    assert_eq!(left(&desired).unwrap(), []);
    // Where no directory of the node is seen, nothing is known.
    std::fs::remove_dir(&desired.bin_dir).unwrap();
    for why in [
        remove_everything(&desired).map(drop).unwrap_err(),
        left(&desired).map(drop).unwrap_err(),
    ] {
        assert!(why.contains("MOUNTED_CNI_NET_DIR"), "{why}");
    }
}

/// The names with a number are those of Istio's agent (Go's `os.CreateTemp`).
#[test]
fn unfinished_files_of_an_agent_of_istio_go() {
    let dir = Dir::new("unfinished");
    let desired = installed(dir.path());
    let at = |name: &str| dir.path().join(name);
    let ours = r#"{"plugins": [{"type": "istio-cni"}]}"#;
    let leftovers = [
        at("run/istio-cni-kubeconfig.tmp.123456"),
        at("net/10-a.conflist.tmp.98"),
        at("net/YYY-istio-cni.conf.tmp.7"),
        at("bin/istio-cni.tmp.55"),
    ];
    let others = [
        at("run/istio-cni-kubeconfig.tmp.old"),
        at("run/other.tmp.12"),
        at("net/10-a.conflist.tmp.x"),
        at("net/notes.tmp.98"),
        at("bin/bridge.tmp.55"),
    ];
    for path in leftovers.iter().chain(&others) {
        std::fs::write(path, ours).unwrap();
    }
    let foreign = at("net/20-b.conflist.tmp.98");
    std::fs::write(&foreign, r#"{"plugins": [{"type": "bridge"}]}"#).unwrap();
    let found = left(&desired).unwrap();
    let is_told = |path: &PathBuf| found.iter().any(|left| left.path == *path);
    assert!(leftovers.iter().all(is_told), "{found:?}");
    assert!(
        !others.iter().any(is_told) && !is_told(&foreign),
        "{found:?}"
    );
    remove_everything(&desired).unwrap();
    assert!(!leftovers.iter().any(|path| path.exists()));
    assert!(others.iter().all(|path| path.exists()) && foreign.exists());
}

#[test]
fn what_cannot_be_looked_at_is_not_gone() {
    let dir = Dir::new("gone");
    let desired = installed(dir.path());
    for path in [desired.kubeconfig.clone(), desired.bin_dir.join(PLUGIN)] {
        std::fs::remove_file(&path).unwrap();
        symlink(&path, &path).unwrap();
        let why = left(&desired).unwrap_err();
        assert!(why.contains(&path.display().to_string()), "{why}");
        std::fs::remove_file(&path).unwrap();
    }
    // Without the names it is not known which lists are copies.
    symlink("owned-names", desired.own_names()).unwrap();
    let why = remove_everything(&desired).unwrap_err();
    assert!(why.contains("owned-names"), "{why}");
    let listing = listing::list(&desired.net_dir).unwrap();
    super::super::own_names::keep(&desired, &listing).unwrap_err();
}

#[test]
fn an_agent_that_cannot_be_asked_may_run() {
    let dir = Dir::new("agent");
    let desired = installed(dir.path());
    check_alone(&desired).unwrap();
    let socket = desired.kubeconfig.with_file_name(LOG_SOCKET);
    symlink(&socket, &socket).unwrap();
    let why = check_alone(&desired).unwrap_err();
    assert!(why.contains("it is unknown whether an agent runs"), "{why}");
}
