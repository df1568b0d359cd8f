//! What the sources say, one after the other.

use super::Sandboxes;
use super::place::Identity;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_cni::plugin::NetnsOfPod;
use weir_netlink::Netns;
use weir_netlink::route::Routing;

const UID: &str = "uid-of-sources";

fn add(netns: &Netns, address: IpAddr) {
    let routing = Routing::open_in(netns).unwrap();
    let lo = routing.link("lo").unwrap().index;
    routing.set_up(lo).unwrap();
    assert!(routing.add_address(lo, address.into()).unwrap());
}

/// The identity of a pod of which the API server says that it has this address.
fn pod(address: IpAddr) -> Identity {
    let uids = serde_json::json!({"uids": [UID]});
    let identity: Identity = serde_json::from_value(uids).unwrap();
    identity.with_addresses(vec![address])
}

/// It was called one that is not mounted below /host.
#[test]
fn a_relative_path_of_the_plugin_is_called_that() {
    let named = Sandboxes::of_node().announce_path(UID, "netns/x".as_ref());
    let why = named.unwrap_err();
    assert!(
        why.contains("netns/x") && why.contains("not an absolute path"),
        "{why}"
    );
}

/// The addresses that are known of the pod are those of its sandbox before, which is there still.
#[test]
fn what_the_plugin_named_is_taken_when_it_is_found_to_be_the_pods() {
    let named = weir_testing::namespace_or_skip!();
    let (Some(before), Some(group)) = (
        weir_testing::namespace(),
        weir_testing::groups::Group::of_pod(UID),
    ) else {
        return;
    };
    let [old, new] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    let sandboxes = Sandboxes::of_node();
    sandboxes.announce_path(UID, &named.path()).unwrap();
    let why = sandboxes.find(&pod(old), Instant::now()).unwrap_err();
    let path = named.path().display().to_string();
    assert!(
        why.contains(&path) && why.contains("does not have the addresses 10.0.0.1"),
        "{why}"
    );
    // Another source knows one that has them.
    add(&before, old);
    let sleep = || std::process::Command::new("sleep").arg("600").spawn();
    let process = weir_testing::Process(before.run(sleep).unwrap().unwrap());
    group.take(process.0.id());
    let found = sandboxes.find(&pod(old), Instant::now()).unwrap();
    assert_eq!(found.id(), before.id());
    // The API server has the news, and no process is looked for.
    add(&named, new);
    let found = sandboxes.find(&pod(new), Instant::now()).unwrap();
    assert_eq!(found.id(), named.id());
    let kept = sandboxes.kept(&pod(new)).unwrap();
    assert_eq!(kept.id(), named.id());
}

/// One enrolment reads the namespace once; another one reads it again.
#[test]
fn what_was_read_is_used_by_the_same_job_alone() {
    let named = weir_testing::namespace_or_skip!();
    let address = IpAddr::from([10, 0, 0, 3]);
    add(&named, address);
    let sandboxes = Sandboxes::of_node();
    let is_found_since = |since| {
        sandboxes.announce_path(UID, &named.path()).unwrap();
        let there = sandboxes.there(&pod(address), &[address, [10, 0, 0, 4].into()]);
        assert_eq!(there, Some(vec![address]));
        let routing = Routing::open_in(&named).unwrap();
        let lo = routing.link("lo").unwrap().index;
        assert!(routing.del_address(lo, address.into()).unwrap());
        let found = sandboxes.find(&pod(address), since).is_ok();
        add(&named, address);
        found
    };
    let now = Instant::now();
    assert!(is_found_since(now));
    assert!(!is_found_since(Instant::now() + Duration::from_secs(600)));
    // A later call has no reading left.
    sandboxes.announce_path(UID, &named.path()).unwrap();
    assert!(sandboxes.find(&pod([10, 0, 0, 5].into()), now).is_err());
}

#[test]
fn a_namespace_that_cannot_be_looked_at_is_not_gone() {
    let netns = weir_testing::namespace_or_skip!();
    let Some(group) = weir_testing::groups::Group::of_pod("uid-of-another") else {
        return;
    };
    let sleep = || std::process::Command::new("sleep").arg("600").spawn();
    let process = weir_testing::Process(netns.run(sleep).unwrap().unwrap());
    group.take(process.0.id());
    let dir = weir_testing::TempDir::new();
    std::os::unix::fs::symlink("loop", dir.path().join("loop")).unwrap();
    let (sandboxes, uid) = (Sandboxes::of_node(), "uid-of-none");
    let is_absent = |path: PathBuf| {
        let (dev, ino) = (0, 0);
        sandboxes.announce(uid, NetnsOfPod { path, dev, ino });
        sandboxes.is_absent(&Identity::called(uid), Instant::now())
    };
    assert!(is_absent(dir.path().join("none")));
    assert!(!is_absent(dir.path().join("loop")));
}

/// It was taken for both, and the proxy got one namespace for two pods.
#[test]
fn a_namespace_of_another_pod_is_not_taken_because_the_plugin_names_it() {
    let netns = weir_testing::namespace_or_skip!();
    let sandboxes = Sandboxes::of_node();
    let pod = |uid: &str| -> Identity {
        serde_json::from_value(serde_json::json!({"uids": [uid]})).unwrap()
    };
    let named = |uid: &str| {
        sandboxes.announce_path(uid, &netns.path()).unwrap();
        sandboxes.find(&pod(uid), Instant::now())
    };
    let first = named("uid-a").unwrap();
    for _ in 0..2 {
        let why = named("uid-b").unwrap_err();
        let expected = format!("{} is that of another pod, with the UID uid-a", first.id());
        assert!(why.contains(&expected), "{why}");
        // Another attachment of the same pod.
        assert_eq!(named("uid-a").unwrap().id(), first.id());
    }
    // The pod is gone.
    sandboxes.retain(&["uid-b"].into());
    assert_eq!(named("uid-b").unwrap().id(), netns.id());
    // Its namespace is closed when it has ended.
    sandboxes.forget("uid-b");
    assert_eq!(named("uid-a").unwrap().id(), netns.id());
}

/// It was seen before, so this agent would see it if it were there: the runtime has removed it.
#[test]
fn a_path_of_the_plugin_that_is_gone_leaves_the_pod_to_the_other_sources() {
    const GONE: &str = "uid-of-gone";
    let (Some(named), Some(next)) = (weir_testing::namespace(), weir_testing::namespace()) else {
        return;
    };
    let Some(group) = weir_testing::groups::Group::of_pod(GONE) else {
        return;
    };
    let dir = weir_testing::TempDir::new();
    let (folder, sandboxes) = (dir.file("run"), Sandboxes::of_node());
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("netns");
    let address = IpAddr::from([10, 0, 0, 6]);
    let uids = serde_json::json!({"uids": [GONE]});
    let identity: Identity = serde_json::from_value(uids).unwrap();
    let pod = identity.with_addresses(vec![address]);
    let announce = || sandboxes.announce_path(GONE, &path);
    let find = || sandboxes.find(&pod, Instant::now());
    let link = |to: &Path| std::os::unix::fs::symlink(to, &path).unwrap();

    assert!(announce().unwrap_err().contains("mounted below /host"));
    link(&named.path());
    announce().unwrap();
    std::fs::remove_file(&path).unwrap();
    announce().unwrap();
    // Its directory may be a file now (ENOTDIR).
    std::fs::remove_dir(&folder).unwrap();
    std::fs::write(&folder, "").unwrap();
    announce().unwrap();
    std::fs::remove_file(&folder).unwrap();
    std::fs::create_dir(&folder).unwrap();
    let why = find().unwrap_err();
    let expected = format!("the plugin named {}, which is not taken", path.display());
    assert!(why.contains(&expected), "{why}");
    add(&next, address);
    let sleep = || std::process::Command::new("sleep").arg("600").spawn();
    let process = weir_testing::Process(next.run(sleep).unwrap().unwrap());
    group.take(process.0.id());
    assert_eq!(find().unwrap().id(), next.id());
    // One that cannot be looked at may be there, and another one was never seen.
    link("netns".as_ref());
    assert!(announce().is_err());
    assert!(sandboxes.announce_path(GONE, &dir.file("other")).is_err());
}
