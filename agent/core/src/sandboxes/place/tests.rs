//! A directory with the files of some processes stands for `/proc`.

use super::*;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use weir_netlink::route::Routing;
use weir_testing::TempDir;

/// The files of processes that a scan reads.
struct Proc(TempDir);

impl Proc {
    fn new() -> Self {
        Self(TempDir::new())
    }

    fn of(&self, pid: u32) -> PathBuf {
        self.0.path().join(pid.to_string())
    }

    /// Adds a process of this pod; its network namespace is `net`.
    fn add(&self, pid: u32, uid: &str, net: impl AsRef<Path>) {
        let at = self.of(pid);
        fs::create_dir_all(at.join("ns")).unwrap();
        symlink(net, at.join("ns/net")).unwrap();
        let stat = format!("{pid} (x) S 1 2 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid} 0 0");
        fs::write(at.join("stat"), stat).unwrap();
        fs::write(at.join("cgroup"), format!("0::/kubepods/pod{uid}/c\n")).unwrap();
    }

    fn processes(&self) -> Processes {
        Processes {
            root: self.0.path().to_owned(),
        }
    }
}

/// What Linux 5.10 shows where access is denied.
const DENIED: &str = ".";

/// A scan that leaves out a process would say that its pod does not run here, and what is of the pod would be removed.
#[test]
fn a_process_that_cannot_be_read_is_not_left_out() {
    let proc = Proc::new();
    let netns = [1, 7].map(|pid| proc.0.write(&format!("net{pid}"), ""));
    proc.add(1, "1", &netns[0]);
    proc.add(7, "7", &netns[1]);
    // It has ended.
    fs::create_dir(proc.of(9)).unwrap();
    let processes = proc.processes();
    let has_none_of = |uid: &str| {
        let scan = processes.scan();
        scan.map(|scan| scan.has_none_of(&Identity::called(uid)))
    };
    assert_eq!(has_none_of("7"), Ok(false));
    assert_eq!(has_none_of("8"), Ok(true));
    let names = processes.root_of_node().join("run/netns");
    assert_eq!(processes.namespaces().unwrap().len(), 2, "none has a name");
    fs::create_dir_all(&names).unwrap();
    fs::write(names.join("a"), "").unwrap();
    assert_eq!(processes.namespaces().unwrap().len(), 3);
    symlink("b", names.join("b")).unwrap();
    assert_eq!(processes.namespaces(), None);
    fs::remove_file(names.join("b")).unwrap();
    proc.add(8, "8", DENIED);
    assert_eq!(has_none_of("8"), Ok(false));
    assert_eq!(processes.namespaces(), None);
    fs::remove_file(proc.of(8).join("ns/net")).unwrap();
    symlink("net", proc.of(8).join("ns/net")).unwrap();
    let why = has_none_of("8").unwrap_err();
    assert!(why.contains("/8: "), "{why}");
    assert_eq!(processes.namespaces(), None);
}

/// What cannot be examined may be the pod's, and then it is unknown which one is.
#[test]
fn one_namespace_is_not_taken_while_another_one_cannot_be_examined() {
    let (first, second) = (
        weir_testing::namespace_or_skip!(),
        weir_testing::namespace_or_skip!(),
    );
    let (proc, own) = (Proc::new(), Netns::current().unwrap());
    proc.add(1, "none", own.path());
    proc.add(7, "u", first.path());
    proc.add(8, "u", second.path());
    let processes = proc.processes();
    let scan = processes.scan().unwrap();
    let find = || processes.find(&scan, &Identity::called("u"));
    let both = find().unwrap_err();
    assert!(both.contains("each have a process"), "{both}");
    for file in ["cgroup", "stat", "ns/net"] {
        let (it, kept) = (proc.of(8).join(file), proc.0.path().join("kept"));
        fs::rename(&it, &kept).unwrap();
        symlink("loop", proc.of(8).join("loop")).unwrap();
        symlink(proc.of(8).join("loop"), &it).unwrap();
        let why = find().unwrap_err();
        assert!(why.contains("cannot be examined"), "{file}: {why}");
        fs::remove_file(proc.of(8).join("loop")).unwrap();
        fs::rename(&kept, &it).unwrap();
    }
    // It has ended.
    fs::remove_dir_all(proc.of(8)).unwrap();
    assert_eq!(find().map(|place| place.pid), Ok(7));
}

/// The processes of the pod itself may be hidden, and a container that root runs inside of the pod visible.
#[test]
fn beside_a_hidden_process_of_the_pod_only_an_address_shows_which_namespace_is_its_own() {
    let netns = weir_testing::namespace_or_skip!();
    let (proc, own) = (Proc::new(), Netns::current().unwrap());
    proc.add(1, "none", own.path());
    proc.add(7, "u", netns.path());
    proc.add(8, "other", DENIED);
    let processes = proc.processes();
    let find = |pod: &Identity| {
        let scan = processes.scan().unwrap();
        processes.find(&scan, pod).map(|place| place.pid)
    };
    let called = Identity::called("u");
    assert_eq!(find(&called), Ok(7));
    proc.add(9, "u", DENIED);
    let why = find(&called).unwrap_err();
    assert!(why.contains("cannot be examined"), "{why}");
    let address = IpAddr::from([10, 0, 0, 1]);
    let routing = Routing::open_in(&netns).unwrap();
    assert!(routing.add_address(1, address.into()).unwrap());
    let known = Identity {
        by_group: false,
        ..called
    };
    let known = known.with_addresses(vec![address]);
    assert_eq!(find(&known), Ok(7));
    let why = find(&known.with_any_addresses()).unwrap_err();
    assert!(why.contains("cannot be examined"), "{why}");
}

#[test]
fn a_name_may_hold_anything() {
    let rest = "S 1 2 3 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
    for name in ["sleep", "a b", ") 1 (", "(("] {
        assert_eq!(
            start_time(&format!("7 ({name}) {rest}")),
            Some(4711),
            "{name}"
        );
    }
    assert_eq!(start_time("7 (x) S 1"), None);
    assert_eq!(start_time(""), None);
    let own = std::fs::read_to_string("/proc/self/stat").unwrap();
    assert!(start_time(&own).unwrap() > 0, "{own}");
}
