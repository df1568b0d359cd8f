//! Identity of network namespaces, and refused operations, on the running kernel.
// matrix: variants no-ipv6

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use weir_testing::namespace_or_skip;

use weir_netlink::ErrorKind;
use weir_netlink::Netns;
use weir_netlink::Owner;
use weir_netlink::route::Routing;

#[test]
fn the_same_namespace_has_the_same_identity_however_it_is_opened() {
    let netns = namespace_or_skip!();
    let by_path = Netns::open(&netns.path()).expect("by path");
    let file = File::open(netns.path()).expect("the path of another process's eye");
    let by_fd = Netns::from_fd(OwnedFd::from(file)).expect("by descriptor");
    let from_inside = netns
        .run(|| Netns::current().expect("current"))
        .expect("run");
    let cloned = netns.try_clone().expect("clone");
    let all = [&netns, &by_path, &by_fd, &from_inside, &cloned];
    assert_eq!(all.iter().map(|n| n.id()).collect::<HashSet<_>>().len(), 1);
    assert_eq!(
        netns.id().to_string(),
        netns
            .run(|| std::fs::read_link("/proc/thread-self/ns/net"))
            .unwrap()
            .unwrap()
            .display()
            .to_string(),
    );

    let other = namespace_or_skip!();
    assert_ne!(netns.id(), other.id());
    assert_ne!(netns.id(), Netns::current().expect("current").id());
}

/// The inode number of a deleted namespace is soon reused; the cookie is not.
#[test]
fn a_cookie_is_of_one_namespace() {
    let netns = namespace_or_skip!();
    let Some(cookie) = netns.cookie().expect("a cookie") else {
        return weir_testing::lacks::skip("SO_NETNS_COOKIE", "5.14", "the kernel has none");
    };
    let same = netns.try_clone().expect("clone");
    assert_eq!(same.cookie().expect("a cookie"), Some(cookie));
    let own = Netns::current().expect("current");
    assert_ne!(own.cookie().expect("a cookie"), Some(cookie));
    drop((netns, same));
    for _ in 0..8 {
        let other = namespace_or_skip!();
        assert_ne!(other.cookie().expect("a cookie"), Some(cookie));
    }
}

#[test]
fn the_caller_never_changes_its_namespace() {
    let netns = namespace_or_skip!();
    let before = Netns::current().expect("current").id();
    let inside = netns
        .run(|| Netns::current().expect("current").id())
        .expect("run");
    assert_eq!(inside, netns.id());
    // Also from inside another namespace, into the one that the thread is already in.
    let nested = netns
        .run(|| netns.run(|| Netns::current().expect("current").id()))
        .unwrap()
        .unwrap();
    assert_eq!(nested, netns.id());
    assert_eq!(Netns::current().expect("current").id(), before);
}

#[test]
fn a_namespace_lives_through_its_descriptor_and_goes_with_it() {
    let netns = namespace_or_skip!();
    let path = netns.path();
    assert!(path.exists());
    let id = netns.id();
    let socket = netns
        .run(|| std::net::UdpSocket::bind("0.0.0.0:0").expect("socket"))
        .expect("run");
    drop(netns);
    assert!(
        Netns::open(&path).is_ok_and(|n| n.id() == id).eq(&false),
        "the path names it no more"
    );
    drop(socket);
}

#[test]
fn a_panic_inside_goes_on_outside() {
    let netns = namespace_or_skip!();
    let caught = std::panic::catch_unwind(|| netns.run(|| panic!("inside")));
    assert_eq!(
        caught.expect_err("panics").downcast_ref::<&str>(),
        Some(&"inside")
    );
}

#[test]
fn our_own_namespace_and_the_host_s_are_refused() {
    let host = Netns::current().expect("current");
    let reason = |netns: &Netns| netns.host_reason().expect("compared");
    let own = "it is the network namespace that this program runs in";
    assert_eq!(reason(&host), Some(own));
    let netns = namespace_or_skip!();
    assert_eq!(reason(&netns), None);
    // The thread's own namespace counts, and from inside another one so does that of the main thread.
    assert_eq!(netns.run(|| reason(&netns)).expect("run"), Some(own));
    assert_eq!(netns.run(|| reason(&host)).expect("run"), Some(own));
}

/// The child of a test runs in a namespace of its own, and opens the parent's by the path in this variable.
const HOST: &str = "WEIR_TEST_HOST_NETNS";

/// Runs a test again in a network namespace of its own, by this command. `None`: nothing shows that this test runs in
/// the host's namespace.
fn again(test: &str, host: &str, command: &[&str]) -> Option<Command> {
    let own = Netns::current().expect("current");
    // NET_NS_INIT_INO is fixed since 6.18; before, process 1 shows the host's namespace.
    let known = own.id().ino == 0xEFFF_FFF9 || Netns::of_pid(1).is_ok_and(|n| n.id() == own.id());
    if !known {
        println!("skipped: nothing shows that this test runs in the host's namespace");
        return None;
    }
    let mut again = Command::new("unshare");
    again.arg("--net").args(command);
    again.arg(std::env::current_exe().expect("this test"));
    again.args(["--exact", test]).env(HOST, host);
    Some(again)
}

fn passes(mut test: Command) {
    let ran = test.output().expect("util-linux is needed");
    let said = [ran.stdout, ran.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn the_host_s_namespace_is_refused_from_elsewhere_too() {
    if let Some(path) = std::env::var_os(HOST) {
        let host = Netns::open(Path::new(&path)).expect("the parent's");
        let reason = host.host_reason().expect("compared").expect("the host's");
        assert!(reason.ends_with("the host's"), "{reason}");
        return;
    }
    let _ = namespace_or_skip!();
    let host = Netns::current().expect("current");
    let test = "netns::the_host_s_namespace_is_refused_from_elsewhere_too";
    if let Some(test) = again(test, &host.path().display().to_string(), &[]) {
        passes(test);
    }
}

/// `/proc` may be that of another PID namespace, where the number of getpid(2) is that of another process.
#[test]
fn the_path_leads_to_the_namespace_in_another_pid_namespace_too() {
    const AGAIN: &str = "WEIR_TEST_AGAIN";
    let netns = namespace_or_skip!();
    let opened = Netns::open(&netns.path()).expect("its path");
    assert_eq!(opened.id(), netns.id());
    if std::env::var_os(AGAIN).is_some() {
        return;
    }
    let mut again = Command::new("unshare");
    again.args(["--pid", "--fork"]);
    again.arg(std::env::current_exe().expect("this test"));
    let test = "netns::the_path_leads_to_the_namespace_in_another_pid_namespace_too";
    again.args(["--exact", test]).env(AGAIN, "1");
    passes(again);
}

/// Root without `CAP_SYS_PTRACE` may not look at the namespace of process 1.
#[test]
fn the_host_s_namespace_is_refused_where_process_1_may_not_be_looked_at() {
    if let Some(path) = std::env::var_os(HOST) {
        // On Linux 5.10 this link is empty. `ln -s` to it in /run/netns is usual.
        let links = [(); 2].map(|()| weir_testing::TempDir::new());
        let [near, far] = links.each_ref().map(|dir| dir.path().join("net"));
        symlink("/proc/1/ns/net", &near).expect("a link");
        symlink(&near, &far).expect("a link");
        for path in [Path::new("/proc/1/ns/net"), &near, &far] {
            let denied = Netns::open(path).expect_err("process 1");
            assert!(denied.is_permission(), "{denied}");
        }
        let host = Netns::open(Path::new(&path)).expect("the parent's");
        let reason = host.host_reason().expect("compared").expect("the host's");
        assert!(reason.ends_with("the host's"), "{reason}");
        assert!(host.is_initial().expect("sysctls"));
        let other = Netns::create().expect("a namespace");
        assert_eq!(other.host_reason().expect("compared"), None);
        assert!(!other.is_initial().expect("sysctls"));
        return;
    }
    let _ = namespace_or_skip!();
    let host = Netns::current().expect("current");
    let test = "netns::the_host_s_namespace_is_refused_where_process_1_may_not_be_looked_at";
    let without = ["setpriv", "--bounding-set", "-sys_ptrace"];
    let Some(mut test) = again(test, "/proc/self/fd/0", &without) else {
        return;
    };
    // The child may not look at the descriptors of this process either, so it inherits one.
    let host = host.as_fd().try_clone_to_owned().expect("a descriptor");
    test.stdin(host);
    passes(test);
}

/// There is no room for the stack of a thread.
#[test]
fn a_thread_that_cannot_start_is_named() {
    const AGAIN: &str = "WEIR_TEST_WITHOUT_THREADS";
    let own = Netns::current().expect("current");
    if std::env::var_os(AGAIN).is_none() {
        let mut again = Command::new(std::env::current_exe().expect("this test"));
        let test = "netns::a_thread_that_cannot_start_is_named";
        again.args(["--exact", test]).env(AGAIN, "1");
        return passes(again);
    }
    let pages = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let limit = format!("--as={}", pages * 4096 + (1 << 20));
    let pid = std::process::id().to_string();
    let limited = Command::new("prlimit")
        .args(["--pid", &pid, &limit])
        .status();
    assert!(limited.expect("util-linux is needed").success());
    let error = own.run(|| ()).expect_err("there is no room").to_string();
    assert!(
        error.starts_with("cannot start a thread to enter"),
        "{error}"
    );
    assert!(error.contains("pids.max"), "{error}");
}

#[test]
fn what_is_no_network_namespace_is_refused_with_the_reason() {
    let kind = |e: weir_netlink::Error| (matches!(e.kind, ErrorKind::Refused(_)), e.to_string());

    let (refused, text) = kind(Netns::open(Path::new("/proc/self/ns/uts")).expect_err("uts"));
    assert!(
        refused && text.contains("/proc/self/ns/uts") && text.contains("kind uts"),
        "{text}"
    );

    let dir = weir_testing::TempDir::new();
    let link = dir.path().join("net");
    symlink(".", &link).expect("a link");
    let link = link.to_str().expect("a path");
    for file in ["/proc/self/status", "/dev/null", "/", link] {
        let (refused, text) = kind(Netns::open(Path::new(file)).expect_err(file));
        assert!(
            refused && text.contains("not a namespace") && text.contains(file),
            "{text}"
        );
    }

    let missing = Netns::open(Path::new("/run/netns/weir-there-is-none")).expect_err("missing");
    assert!(missing.is_not_found(), "{missing}");

    let gone = Netns::of_pid(u32::MAX).expect_err("no such process");
    assert!(
        gone.is_not_found() && gone.to_string().contains("has the process ended?"),
        "{gone}"
    );
}

#[test]
fn a_fifo_does_not_make_the_open_wait() {
    let directory = std::env::temp_dir().join(format!("weir-netns-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("directory");
    let fifo = directory.join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("fifo");
    let answer = Netns::open(&fifo);
    std::fs::remove_dir_all(&directory).expect("removed");
    assert!(
        answer
            .expect_err("a fifo")
            .to_string()
            .contains("not a namespace")
    );
}

#[test]
fn a_fresh_namespace_has_lo_and_nothing_else_and_it_is_down() {
    let netns = namespace_or_skip!();
    let links = Routing::open_in(&netns)
        .expect("socket")
        .links()
        .expect("links");
    let lo = links.iter().find(|l| l.name == "lo").expect("lo");
    assert!(!lo.up && lo.index == 1, "{lo}");
}

/// Creates a network namespace below this many user namespaces, as an ordinary user may.
// Clippy grants these to `#[test]` functions only.
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout
)]
fn below(user_namespaces: u32) -> Option<(std::process::Child, Netns)> {
    use std::io::Read;
    use std::process::Stdio;
    let mut words = vec!["unshare", "--user", "--map-root-user"];
    for _ in 1..user_namespaces {
        words.extend(["unshare", "--user", "--map-root-user"]);
    }
    words.extend(["--net", "sh", "-c", "echo && exec cat"]);
    let mut process = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare is there");
    let mut ready = [0];
    let said = process.stdout.as_mut().unwrap().read(&mut ready).unwrap();
    if said == 0 {
        let status = process.wait().unwrap();
        println!("skipped: no user namespaces may be made here: {status}");
        return None;
    }
    let netns = Netns::of_pid(process.id()).expect("its namespace");
    Some((process, netns))
}

#[test]
fn how_deep_the_owner_of_a_namespace_is() {
    let own = namespace_or_skip!();
    assert_eq!(own.user_namespace_depth().unwrap(), Some(0));
    assert!(matches!(own.owner().unwrap(), Owner::Own));
    for depth in [1, 2, 3] {
        let Some((mut process, netns)) = below(depth) else {
            return;
        };
        let found = netns.user_namespace_depth().unwrap();
        let is_own = matches!(netns.owner().unwrap(), Owner::Own);
        let _ = process.kill();
        let _ = process.wait();
        assert_eq!((found, is_own), (Some(depth), false));
    }
}
