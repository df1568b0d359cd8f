//! Every fault is named, and no file is left half-written.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::ambient::Scene;
use crate::support::{BRIDGE, Node};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::path::{Path, PathBuf};

const LIST: &str = "net.d/10-pods.conflist";

/// A mount that is removed with this value.
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// Returns `None` if this user may not mount.
    pub(crate) fn tmpfs(path: &Path, flags: MsFlags, options: &str) -> Option<Self> {
        let mounted = mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options));
        Self::of(path, mounted)
    }

    /// Mounts a directory of the node at another path, as in a container.
    pub(crate) fn bind(source: &Path, path: &Path) -> Option<Self> {
        let flags = MsFlags::MS_BIND;
        Self::of(
            path,
            mount(Some(source), path, None::<&str>, flags, None::<&str>),
        )
    }

    /// Makes the mount read-only.
    pub(crate) fn read_only(&self) {
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(None::<&str>, &self.0, None::<&str>, flags, None::<&str>).unwrap();
    }

    fn of(path: &Path, mounted: nix::Result<()>) -> Option<Self> {
        match mounted {
            Ok(()) => Some(Self(path.to_owned())),
            Err(e) => {
                println!("skipped: mounting: {e}");
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// Starts an agent that must exit by itself; returns its log.
fn fails(node: &Node, env: &[(&str, &str)]) -> String {
    let mut agent = node.start(env, &[]);
    assert_eq!(agent.ended().code(), Some(1), "{}", agent.log());
    for socket in ["log.sock", "pod.sock", "agent.sock"] {
        let name = format!("run/{socket}");
        assert!(!node.exists(&name), "{name} is left: {}", agent.log());
    }
    agent.log()
}

#[test]
fn a_read_only_directory_is_named_with_the_remedy() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let Some(_mount) = Mount::tmpfs(&node.path("bin"), MsFlags::MS_RDONLY, "size=64k") else {
        return;
    };
    let log = fails(&node, &[]);
    assert!(
        log.contains("Read-only file system") && log.contains("cniBinDir"),
        "{log}"
    );
    assert_eq!(node.read(LIST), BRIDGE);
}

#[test]
fn a_full_disk_leaves_everything_as_it_was() {
    let node = Node::new();
    let big = "x".repeat(256 << 10);
    node.write("source/istio-cni", &big);
    let Some(mount) = Mount::tmpfs(&node.path("bin"), MsFlags::empty(), "size=64k") else {
        return;
    };
    node.write("bin/istio-cni", "the old one");
    node.write(LIST, BRIDGE);
    let log = fails(&node, &[]);
    assert!(log.contains("the disk of the node is full"), "{log}");
    assert_eq!(
        (node.read("bin/istio-cni").as_str(), node.names("bin").len()),
        ("the old one", 1)
    );
    assert_eq!(node.read(LIST), BRIDGE);
    drop(mount);
    // The same for the directory of the configuration.
    node.write("source/istio-cni", "small");
    let Some(_mount) = Mount::tmpfs(&node.path("net.d"), MsFlags::empty(), "size=8k") else {
        return;
    };
    node.write(LIST, BRIDGE);
    let filler = node.path("net.d/filler");
    let _ = std::fs::write(filler, vec![b'x'; 4096]);
    let log = fails(&node, &[]);
    assert!(log.contains("the file is unchanged"), "{log}");
    assert_eq!(node.read(LIST), BRIDGE);
    assert_eq!(node.names("net.d"), ["10-pods.conflist", "filler"]);
}

/// A large file that is in the image by mistake would fill the node's disk.
#[test]
fn a_program_that_is_too_large_is_refused_and_named() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    let large = std::fs::File::create(node.path("source/large")).unwrap();
    large.set_len(5 << 30).unwrap();
    let log = fails(&node, &[]);
    for words in [
        "source/large: ",
        "more than 256 MiB",
        "remove it from the image",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert!(node.names("bin").is_empty(), "{:?}", node.names("bin"));
    assert_eq!(node.read(LIST), BRIDGE);
}

/// Directories to remove, settings, and the text that the log must then contain.
type Missing = (
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
    &'static str,
);

#[test]
fn missing_directories_and_files_are_named() {
    let cases: [Missing; 7] = [
        (&["bin"], &[], "is not mounted"),
        (&["net.d"], &[], "MOUNTED_CNI_NET_DIR"),
        (&["source"], &[], "WEIR_CNI_BIN_SOURCE_DIR"),
        (&["account"], &[], "token"),
        (&[], &[("KUBE_CA_FILE", "/no/such/ca.crt")], "KUBE_CA_FILE"),
        (
            &[],
            &[("KUBERNETES_SERVICE_HOST", "")],
            "KUBERNETES_SERVICE_HOST is not set",
        ),
        (
            &[],
            &[("KUBERNETES_SERVICE_PORT", "https")],
            "KUBERNETES_SERVICE_PORT",
        ),
    ];
    for (removed, env, named) in cases {
        let node = Node::new();
        node.write(LIST, BRIDGE);
        for dir in removed {
            std::fs::remove_dir_all(node.path(dir)).unwrap();
        }
        let log = fails(&node, env);
        assert!(log.contains(named), "{named}: {log}");
        if node.exists("net.d") {
            assert_eq!(node.read(LIST), BRIDGE, "{named}");
        }
    }
}

#[test]
fn settings_that_cannot_be_used_stop_it_before_anything_is_touched() {
    let node = Node::new();
    node.write(LIST, BRIDGE);
    for (name, value) in [
        ("AMBIENT_ENABLED", "true"),
        ("HOST_PROBE_SNAT_IP", "x"),
        ("FORCE_IPTABLES_BINARY", "x"),
        ("AMBIENT_ENABLEMENT_SELECTOR", "- podSelector: 7"),
        ("MONITORING_PORT", "x"),
        ("KUBECONFIG_MODE", "rw-------"),
        ("CNI_CONF_NAME", "/etc/passwd"),
        ("WEIR_HEALTH_PORT", "70000"),
    ] {
        let out = node.run(&["agent"], &[(name, value)]);
        let errors = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{name}: {errors}");
        assert!(errors.contains(name), "{errors}");
    }
    for args in [
        ["agent", "--no-such-flag"],
        ["agent", "--chained-cni-plugin=maybe"],
        ["agent", "--monitoring-port=x"],
    ] {
        assert_eq!(node.run(&args, &[]).status.code(), Some(1), "{args:?}");
    }
    // Only the agent replaces another program, whose exit code for wrong usage is 1.
    let usage = node.run(&["uninstall", "--no-such-flag"], &[]);
    assert_eq!(usage.status.code(), Some(2));
    assert_eq!(node.read(LIST), BRIDGE);
    assert!(!node.exists("run") && node.names("bin").is_empty());
}

#[test]
fn garbage_in_every_configuration_is_waited_out() {
    let node = Node::new();
    node.write("net.d/00-a.conf", "\u{0}garbage");
    node.write("net.d/01-b.conflist", &"[".repeat(300_000));
    std::fs::write(node.path("net.d/02-c.conf"), [0xff; 64]).unwrap();
    std::os::unix::fs::symlink("nowhere", node.path("net.d/03-d.conf")).unwrap();
    let mut agent = node.start(&[], &[]);
    agent.until("waiting", || agent.log().contains("waiting for"));
    // Another component writes the file in two parts instead of renaming it into place.
    let (start, end) = BRIDGE.split_at(BRIDGE.len() / 2);
    node.write(LIST, start);
    agent.until("a look at the half", || {
        agent.log().contains("10-pods.conflist is not JSON")
    });
    std::io::Write::write_all(
        &mut std::fs::OpenOptions::new()
            .append(true)
            .open(node.path(LIST))
            .unwrap(),
        end.as_bytes(),
    )
    .unwrap();
    agent.wait_ready();
    assert!(node.read(LIST).contains("istio-cni"));
}

/// The bind mount of a container keeps showing the deleted directory, which is empty from then on.
#[test]
fn a_directory_that_is_deleted_on_the_node_ends_it() {
    for filled in [true, false] {
        let node = Node::new();
        let source = node.path("of-the-node");
        std::fs::create_dir(&source).unwrap();
        let Some(_mount) = Mount::bind(&source, &node.path("net.d")) else {
            return;
        };
        let mut agent = node.start(&[], &[]);
        if filled {
            node.write(LIST, BRIDGE);
            agent.wait_ready();
        } else {
            agent.until("waiting", || agent.log().contains("waiting for"));
        }
        // The agent may write into it meanwhile.
        agent.until("deleted", || {
            _ = std::fs::remove_dir_all(&source);
            !source.exists()
        });
        assert_eq!(agent.ended().code(), Some(1), "{}", agent.log());
        assert!(
            agent.log().contains("deleted on the node"),
            "{}",
            agent.log()
        );
    }
}

/// The same for the directory of the kubeconfig and the sockets, and for that of ztunnel's socket.
#[test]
fn a_directory_of_sockets_that_is_deleted_on_the_node_ends_it() {
    for (name, ambient) in [("run", false), ("ztunnel", true)] {
        let scene = Scene::new();
        let node = &scene.node;
        let source = node.path("of-the-node");
        for dir in [&source, &node.path(name)] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let Some(_mount) = Mount::bind(&source, &node.path(name)) else {
            return;
        };
        node.write(LIST, BRIDGE);
        let socket = node.path(name).join("ztunnel.sock").display().to_string();
        let mut agent = match ambient {
            true => scene.start(&[("ZTUNNEL_UDS_ADDRESS", &socket)]),
            false => node.start(&[], &[]),
        };
        let in_force = || agent.log().contains("the plugin is installed and in force");
        agent.until("installed", in_force);
        // The agent may write into it meanwhile.
        agent.until("deleted", || {
            _ = std::fs::remove_dir_all(&source);
            !source.exists()
        });
        std::fs::create_dir(&source).unwrap();
        assert_eq!(agent.ended().code(), Some(1), "{}", agent.log());
        let log = agent.log();
        assert!(log.contains("deleted on the node"), "{name}: {log}");
    }
}

/// Opening a FIFO blocks until another process opens its other end.
#[test]
fn pipes_in_the_place_of_files_hold_nothing_up() {
    let node = Node::new();
    for pipe in [
        "net.d/YYY-istio-cni.conf",
        "bin/istio-cni",
        "account/ca.crt",
    ] {
        let _ = std::fs::remove_file(node.path(pipe));
        nix::unistd::mkfifo(&node.path(pipe), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    let env = [("CHAINED_CNI_PLUGIN", "false")];
    assert!(fails(&node, &env).contains("ca.crt: it is not a file"));
    let insecure = [env[0], ("SKIP_TLS_VERIFY", "true")];
    let mut agent = node.ready(&insecure);
    assert!(node.read("net.d/YYY-istio-cni.conf").contains("istio-cni"));
    assert_eq!(node.read("bin/istio-cni"), node.read("source/istio-cni"));
    assert!(agent.terminate().success());
}
