//! Start and end of the agent, and changes in between that other programs may make.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::faults::Mount;
use crate::support::{BRIDGE, Node, desired};
use nix::sys::signal::Signal;
use std::process::Command;
use weir_install::{Installer, Pass};

const LIST: &str = "net.d/10-pods.conflist";

#[test]
fn a_signal_takes_the_installation_away_and_leaves_the_program() {
    for (signal, keep, left) in [(Signal::SIGTERM, "true", 2), (Signal::SIGINT, "false", 1)] {
        let node = Node::new();
        node.write(LIST, BRIDGE);
        std::fs::set_permissions(
            node.path(LIST),
            std::os::unix::fs::PermissionsExt::from_mode(0o644),
        )
        .unwrap();
        node.write("source/other", "another program");
        let mut agent = node.ready(&[("WEIR_KEEP_PLUGIN", keep)]);
        assert_eq!(node.mode(LIST), 0o644, "the mode is the other component's");
        assert_eq!(node.mode("run/istio-cni-kubeconfig"), 0o600);
        assert_eq!(node.names("bin"), ["istio-cni", "other"]);
        agent.signal(signal);
        assert_eq!(agent.ended().code(), Some(0), "{}", agent.log());
        assert!(!node.read(LIST).contains("istio"));
        assert_eq!(node.mode(LIST), 0o644);
        assert_eq!(node.names("bin").len(), left, "{:?}", node.names("bin"));
        assert_eq!(node.names("run"), ["agent.sock", "log.sock"]);
    }
}

/// An upgrade keeps what the previous agent wrote; the next agent maintains it or removes it.
#[test]
fn what_an_agent_with_other_settings_wrote_does_not_stay_beside_a_configuration_of_its_own() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let install = |settings: &[(&str, &str)]| {
        let mut env = node.env();
        let settings = settings.iter();
        env.extend(settings.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        let mut installer = Installer::new(desired(&env, "info"));
        assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
        let found = installer.inspect().unwrap();
        // This installer has not run the first two steps, so it wrote no other file.
        assert!(found.changed.is_none_or(|t| t.contains("renewed")));
        found.warning
    };
    install(&[("EXCLUDE_NAMESPACES", "old")]);
    assert!(node.read(LIST).contains("\"old\""));
    let alone = ("CHAINED_CNI_PLUGIN", "false");
    let warning = install(&[alone, ("CNI_CONF_NAME", "istio-cni.conf")]);
    assert!(warning.is_some_and(|w| w.contains("without the plugin")));
    assert_eq!(node.names("net.d"), ["10-pods.conflist", "istio-cni.conf"]);
    assert!(!node.read(LIST).contains("istio-cni"));
    install(&[alone, ("CNI_CONF_NAME", "mesh.conf")]);
    assert_eq!(node.names("net.d"), ["10-pods.conflist", "mesh.conf"]);
    // If the settings name the file to extend, this agent did not extend the others.
    let entry = BRIDGE.replace("\"portmap\"", "\"istio-cni\"");
    node.write("net.d/05-other.conflist", &entry);
    let warning = install(&[("CNI_CONF_NAME", "10-pods.conflist")]);
    assert!(warning.is_some_and(|w| w.contains("no agent updates")));
}

/// The kubelet reports this for each pod; the agent reports it before there is one.
#[test]
fn a_plugin_that_the_node_does_not_have_is_told_of() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    node.write("bin/bridge", "a program");
    let agent = node.ready(&[]);
    let told = "10-pods.conflist names plugins that are missing in";
    let lines = |log: &str| log.lines().filter(|l| l.contains(told)).count();
    agent.until("told", || lines(&agent.log()) == 1);
    let log = agent.log();
    let line = log.lines().find(|l| l.contains(told)).unwrap();
    assert!(
        line.contains("warn") && line.contains("bin: \"portmap\";"),
        "{line}"
    );
    // The agent reports it once, and not again after the plugin is installed.
    node.write("bin/portmap", "a program");
    let installs = "istio_cni_installs_total{result=\"SUCCESS\"}";
    node.write(LIST, BRIDGE);
    agent.until("another pass", || agent.metric(installs) >= 2);
    assert_eq!(lines(&agent.log()), 1, "{}", agent.log());
}

#[test]
fn a_signal_ends_the_wait_for_a_configuration() {
    let node = Node::new();
    let mut agent = node.start(&[], &[]);
    agent.until("waiting", || agent.log().contains("waiting for"));
    assert!(agent.terminate().success());
    assert!(node.names("net.d").is_empty());
    assert!(!node.exists("run/istio-cni-kubeconfig"));
}

#[test]
fn a_signal_ends_the_copying_of_programs() {
    const PROGRAMS: usize = 500;
    let node = Node::new();
    node.write(LIST, BRIDGE);
    for n in 0..PROGRAMS {
        node.write(&format!("source/program-{n}"), "a program");
    }
    // The agent is stopped after it has copied the first program. After the signal it finishes at most the program that it has begun.
    // On a busy machine this process may see the first one late.
    let mut command = Command::new("nice");
    command.env_clear();
    command.args(["-n", "19", env!("CARGO_BIN_EXE_weir")]);
    let mut agent = node.start_by(command, &[], &[]);
    agent.until("the first", || !node.names("bin").is_empty());
    agent.signal(Signal::SIGSTOP);
    let stat = format!("/proc/{}/stat", agent.pid());
    agent.until("stopped", || {
        std::fs::read_to_string(&stat).unwrap().contains(") T ")
    });
    let copied = node.names("bin").len();
    assert!(copied < PROGRAMS, "too quick to tell");
    agent.signal(Signal::SIGTERM);
    agent.signal(Signal::SIGCONT);
    assert!(agent.ended().success(), "{}", agent.log());
    let left = node.names("bin");
    assert!(left.len() <= copied + 1, "{copied}, then {}", left.len());
    assert!(!left.iter().any(|name| name.contains(".tmp.")), "{left:?}");
    assert_eq!(node.read(LIST), BRIDGE);
}

#[test]
fn killed_at_once_and_started_again() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    // The agent is killed during every part of the first pass.
    for n in 0..12_u32 {
        let mut agent = node.start(&[], &[]);
        let enough = |agent: &crate::support::Agent| match n % 4 {
            0 => node.exists("run/log.sock"),
            1 => node.exists("bin/istio-cni"),
            2 => node.exists("run/istio-cni-kubeconfig"),
            _ => agent.is_ready(),
        };
        agent.until("some progress", || enough(&agent));
        agent.signal(Signal::SIGKILL);
        assert!(!agent.ended().success());
        let list: serde_json::Value = serde_json::from_str(&node.read(LIST)).expect("a whole file");
        assert!(list["plugins"].as_array().unwrap().len() >= 2);
    }
    // Files that a killed agent may leave, and files of other components.
    node.write("bin/istio-cni.tmp.123", "half");
    node.write("run/istio-cni-kubeconfig.tmp.weir-7-1", "half");
    node.write("net.d/10-pods.conflist.tmp.other", "another installer's");
    let mut agent = node.ready(&[]);
    assert_eq!(node.names("bin"), ["istio-cni"]);
    assert_eq!(
        node.names("run"),
        ["agent.sock", "istio-cni-kubeconfig", "log.sock"]
    );
    assert_eq!(
        node.names("net.d"),
        ["10-pods.conflist", "10-pods.conflist.tmp.other"]
    );
    assert_eq!(
        node.read(LIST).matches("\"istio-cni\"").count(),
        2,
        "one entry, name and type"
    );
    assert!(agent.terminate().success());
    assert!(!node.read(LIST).contains("istio"));
}

/// Entries of the plugin that no agent maintains would call a plugin without a kubeconfig.
#[test]
fn a_signal_takes_every_entry_away() {
    let node = Node::new();
    let entry = r#"{"type": "istio-cni"}"#;
    let twice = BRIDGE.replace("\n  ]", &format!(",\n    {entry},\n    {entry}\n  ]"));
    assert_eq!(twice.matches("istio-cni").count(), 2);
    node.write("net.d/00-old.conflist", &twice);
    node.write(
        "net.d/05-only.conflist",
        &format!(r#"{{"name": "n", "plugins": [{entry}, {entry}]}}"#),
    );
    node.write(LIST, BRIDGE);
    node.write("net.d/90-other.conflist", BRIDGE);
    node.write("net.d/95-broken.conflist", "{");
    let named = [("CNI_CONF_NAME", "10-pods.conflist")];
    let mut agent = node.ready(&named);
    assert!(node.read(LIST).contains("istio-cni"));
    assert!(agent.terminate().success(), "{}", agent.log());
    let wanted = [
        "00-old.conflist",
        "10-pods.conflist",
        "90-other.conflist",
        "95-broken.conflist",
    ];
    assert_eq!(node.names("net.d"), wanted, "{}", agent.log());
    for name in ["net.d/00-old.conflist", LIST] {
        let text = node.read(name);
        assert!(!text.contains("istio-cni"), "{name}: {text}");
        assert!(text.contains("portmap"), "{name}: {text}");
    }
    assert_eq!(node.read("net.d/90-other.conflist"), BRIDGE);
    assert_eq!(node.read("net.d/95-broken.conflist"), "{");
}

/// The directory no longer has an entry of the plugin, and the token in the kubeconfig would stay valid for days.
#[test]
fn a_configuration_or_directory_that_was_replaced_keeps_no_kubeconfig() {
    for deleted in [false, true] {
        let node = Node::new();
        node.write("net.d/pods.conflist", BRIDGE);
        let mut env = node.env();
        env.insert("CNI_CONF_NAME".into(), "pods.conflist".into());
        let source = node.path("of-the-node");
        for dir in [&source, &node.path("run")] {
            std::fs::create_dir(dir).unwrap();
        }
        let Some(_mount) = Mount::bind(&source, &node.path("net.d")) else {
            return;
        };
        node.write("net.d/pods.conflist", BRIDGE);
        let mut installer = Installer::new(desired(&env, "info"));
        installer.files(&|| false).unwrap();
        assert!(matches!(installer.config(), Ok(Pass::Installed(_))));
        assert!(node.exists("run/istio-cni-kubeconfig"));
        let single = r#"{"name": "n", "type": "ptp"}"#;
        match deleted {
            false => node.write("net.d/pods.conflist", single),
            true => std::fs::remove_dir_all(&source).unwrap(),
        }
        installer.remove().unwrap();
        assert!(!node.exists("run/istio-cni-kubeconfig"));
        if !deleted {
            assert_eq!(node.read("net.d/pods.conflist"), single);
        }
    }
}

/// During an upgrade two agents may write at the same time, each as process 1 of its container.
#[test]
fn what_another_agent_is_writing_stays_and_what_was_left_goes() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let being_written = [
        "bin/istio-cni.tmp.weir-0123",
        "run/istio-cni-kubeconfig.tmp.weir-0123",
        "net.d/10-pods.conflist.tmp.weir-0123",
    ];
    std::fs::create_dir(node.path("run")).unwrap();
    node.write("victim", "");
    let mut locks = Vec::new();
    for name in being_written {
        node.write(name, "half");
        let file = std::fs::File::open(node.path(name)).unwrap();
        file.lock().unwrap();
        locks.push(file);
        node.write(&name.replace("0123", "4567"), "half");
        let link = node.path(&name.replace("0123", "89ab"));
        std::os::unix::fs::symlink(node.path("victim"), link).unwrap();
    }
    node.write("net.d/77-gone.conf.tmp.weir-1-0", "half");
    let mut agent = node.ready(&[]);
    assert_eq!(node.names("bin"), ["istio-cni", "istio-cni.tmp.weir-0123"]);
    let wanted = ["10-pods.conflist", "10-pods.conflist.tmp.weir-0123"];
    assert_eq!(node.names("net.d"), wanted);
    assert!(being_written.iter().all(|name| node.read(name) == "half"));
    // The writer is killed. A process that another test starts has copies of the descriptors until it executes its program.
    locks.iter().for_each(|file| file.unlock().unwrap());
    assert!(agent.terminate().success());
    assert!(!being_written.iter().any(|name| node.exists(name)));
    assert!(node.exists("victim"));
}

#[test]
fn a_new_version_replaces_a_program_that_runs() {
    use std::os::unix::fs::MetadataExt;
    let node = Node::new();
    node.write(LIST, BRIDGE);
    // A real program that is running: writing to its file would fail with ETXTBSY.
    let sleep = std::path::Path::new("/bin/sleep");
    weir_testing::copy_program(sleep, &node.path("bin/istio-cni"));
    let mut running = std::process::Command::new(node.path("bin/istio-cni"))
        .arg("600")
        .spawn()
        .unwrap();
    let agent = node.ready(&[]);
    let same = node.read("bin/istio-cni") == node.read("source/istio-cni");
    let _ = running.kill();
    let _ = running.wait();
    assert!(same);
    // A program that is already up to date keeps its inode.
    let inode = || std::fs::metadata(node.path("bin/istio-cni")).unwrap().ino();
    let before = inode();
    let installs = "istio_cni_installs_total{result=\"SUCCESS\"}";
    node.write(LIST, BRIDGE);
    agent.until("another pass", || agent.metric(installs) >= 2);
    assert_eq!(inode(), before);
}

#[test]
fn group_read_and_kubeconfig_mode() {
    let node = Node::new();
    let env = [
        ("CHAINED_CNI_PLUGIN", "false"),
        ("CNI_CONF_GROUP_READ", "true"),
        ("KUBECONFIG_MODE", "0644"),
        ("CNI_CONF_NAME", "istio-cni.conf"),
    ];
    let agent = node.ready(&env);
    assert_eq!(node.mode("net.d/istio-cni.conf"), 0o640);
    assert_eq!(node.mode("run/istio-cni-kubeconfig"), 0o644);
    assert_eq!(node.mode("run"), 0o750);
    drop(agent);
}

/// Bytes of a file in the page cache, as `fincore` prints them. `None` if the file system does not count them or cannot be queried.
fn in_page_cache(path: &std::path::Path) -> Option<u64> {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    if nix::sys::statfs::statfs(path).unwrap().filesystem_type().0 == TMPFS_MAGIC {
        println!("skipped: {} is in memory anyway", path.display());
        return None;
    }
    let mut fincore = std::process::Command::new("fincore");
    fincore.args(["--bytes", "--noheadings", "--output", "RES"]);
    match fincore.arg(path).output() {
        Ok(out) => Some(
            String::from_utf8(out.stdout)
                .unwrap()
                .trim()
                .parse()
                .unwrap(),
        ),
        Err(e) => {
            println!("skipped: fincore of util-linux: {e}");
            None
        }
    }
}

#[test]
fn a_copied_program_leaves_the_page_cache() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    node.write("source/istio-cni", &"x".repeat(3 << 20));
    std::fs::File::open(node.path("source/istio-cni"))
        .unwrap()
        .sync_all()
        .unwrap();
    let _agent = node.ready(&[]);
    for file in ["bin/istio-cni", "source/istio-cni"] {
        let Some(resident) = in_page_cache(&node.path(file)) else {
            return;
        };
        assert_eq!(resident, 0, "{file}");
    }
}
