//! Pods with peculiarities: behind a branch ENI, in a user namespace of their own, or with several interfaces.

use crate::ambient::{Scene, id, is_captured, running, states};
use crate::attacks::Pretender;
use crate::groups::Group;
use crate::repair::Sandbox;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use weir_testing::TempDir;

/// The policy rules of the host with the agent's protocol number.
fn eni_rules(scene: &Scene) -> Vec<String> {
    let rules = scene.tool("ip rule");
    let ours = rules.lines().filter(|rule| rule.contains("proto 119"));
    ours.map(|rule| rule.trim().replace('\t', " ")).collect()
}

impl Scene {
    /// A pod behind a branch ENI, and a plain one.
    fn behind_eni_and_plain() -> Option<(Sandbox, Sandbox, Self)> {
        let (behind, plain) = (Sandbox::of("behind")?, Sandbox::of("plain")?);
        let scene = Self::new();
        scene.behind_eni(&behind.address);
        scene.put("behind", &behind);
        scene.put("plain", &plain);
        Some((behind, plain, scene))
    }

    /// Configures a pod with a security group as the VPC CNI plugin of AWS does.
    fn behind_eni(&self, address: &str) {
        self.tool("ip link add eni1 type veth peer name peer1");
        self.tool("ip link set eni1 up");
        self.tool(&format!("ip route add {address} dev eni1 table 101"));
        self.tool("ip rule add iif eni1 lookup 101 priority 10");
        let off = || std::fs::write("/proc/sys/net/ipv4/tcp_early_demux", "0");
        self.host.run(off).unwrap().unwrap();
    }
}

// matrix: every; variants no-xtables no-ipset
#[test]
fn probes_reach_a_pod_behind_a_branch_eni_for_as_long_as_it_is_enrolled() {
    let Some((behind, _plain, scene)) = Scene::behind_eni_and_plain() else {
        return;
    };
    let (agent, ztunnel) = scene.enrolled(2, &[]);
    let expected = [
        "9: from all iif eni1 lookup local proto 119".to_owned(),
        format!("512: from all to {} lookup 101 proto 119", behind.address),
    ];
    assert_eq!(eni_rules(&scene), expected);
    scene.server.remove(&running("behind", &behind.address));
    agent.until("its rules are gone", || eni_rules(&scene).is_empty());
    agent.until("the other one stays", || states(&agent, "enrolled") == 1);
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

#[test]
fn policy_rules_of_a_pod_that_went_while_no_agent_ran_are_removed() {
    let Some((behind, _plain, scene)) = Scene::behind_eni_and_plain() else {
        return;
    };
    let (mut agent, _ztunnel) = scene.enrolled(2, &[]);
    assert_eq!(eni_rules(&scene).len(), 2);
    agent.signal(nix::sys::signal::Signal::SIGKILL);
    drop(agent);
    scene.server.remove(&running("behind", &behind.address));
    agent = scene.start(&[]);
    agent.until("its rules are gone", || eni_rules(&scene).is_empty());
}

#[test]
fn pods_behind_a_branch_eni_are_not_looked_for_where_that_is_off() {
    let Some((sandbox, scene)) = Scene::of("behind") else {
        return;
    };
    scene.behind_eni(&sandbox.address);
    let (_agent, _ztunnel) = scene.enrolled(1, &[("AMBIENT_ENABLE_AWS_BRANCH_ENI_PROBE", "false")]);
    assert_eq!(eni_rules(&scene), Vec::<String>::new());
}

/// The nf_tables rules accept packets of the kubelet's user, and any process may have the kubelet's name.
#[test]
fn a_process_of_a_pod_that_has_the_name_of_the_kubelet_is_not_the_kubelet() {
    let (Some(sandbox), Some(group)) = (Sandbox::of("named"), Group::of_pod("uid-impostor")) else {
        return;
    };
    let dir = TempDir::new();
    let program = dir.path().join("kubelet");
    weir_testing::copy_program(std::path::Path::new("/bin/sleep"), &program);
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let impostor = Command::new(&program).arg("600").uid(4711).spawn();
    let impostor = weir_testing::Process(impostor.unwrap());
    group.take(impostor.0.id());
    let scene = Scene::new();
    scene.put("named", &sandbox);
    let (_agent, _ztunnel) = scene.enrolled(1, &[]);
    let rules = scene.probed();
    assert!(
        rules.contains("meta skuid") && !rules.contains("meta skuid 4711"),
        "{rules}"
    );
}

/// The pod still exists in an unknown state, so it stays captured and known to ztunnel.
#[test]
fn a_pod_that_cannot_be_read_any_more_stays_enrolled() {
    let Some((sandbox, scene)) = Scene::of("unreadable") else {
        return;
    };
    let agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    agent.until("enrolled", || scene.annotation("unreadable") == "enabled");
    let before = agent.metric("weir_pod_watch_unreadable_total");
    assert_eq!(before, 0);
    let mut odd = running("unreadable", &sandbox.address);
    odd["spec"]["containers"] = 3.into();
    scene.server.put(odd);
    agent.until("counted", || {
        agent.metric("weir_pod_watch_unreadable_total") > 0
    });
    agent.says("pod shop/unreadable cannot be read");
    // The agent still repairs its rules.
    sandbox.tool("nft", &["flush", "ruleset"]);
    agent.until("healed", || {
        is_captured(&sandbox) && states(&agent, "enrolled") == 1
    });
    assert_eq!(ztunnel.pods()["uid-unreadable"].netns, id(&sandbox));
    scene
        .server
        .remove(&running("unreadable", &sandbox.address));
    ztunnel.carries("uid-unreadable", None);
}

/// The network namespace belongs to a user namespace of the pod.
#[test]
fn a_pod_with_users_of_its_own_is_enrolled_and_healed() {
    let address = "10.77.0.1";
    let Some(own) = Pretender::of_pod("uid-own", address) else {
        return;
    };
    let scene = Scene::new();
    let mut pod = running("own", address);
    pod["spec"]["hostUsers"] = false.into();
    scene.server.put(pod);
    let (agent, ztunnel) = scene.enrolled(1, &[]);
    let netns = own.netns.id();
    ztunnel.carries("uid-own", Some((netns.dev, netns.ino)));
    let is_captured = || own.rules().contains("istio-ambient-nat");
    assert!(is_captured(), "{}", own.rules());
    assert!(scene.probed().contains(address));
    let mut flush = Command::new("nsenter");
    flush.arg(format!("--net={}", own.netns.path().display()));
    assert!(
        flush
            .args(["nft", "flush", "ruleset"])
            .status()
            .unwrap()
            .success()
    );
    agent.until("healed", is_captured);
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

/// As Multus configures them: the API server has only the first address, and interfaces may be added while the pod runs.
#[test]
fn a_pod_with_several_interfaces_is_enrolled_by_the_addresses_that_the_api_server_knows() {
    let Some((sandbox, scene)) = Scene::of("several") else {
        return;
    };
    sandbox.link("net1", "192.168.77.1/24");
    let (agent, ztunnel) = scene.enrolled(1, &[("WEIR_VERIFY_INTERVAL", "1")]);
    ztunnel.carries("uid-several", Some(id(&sandbox)));
    let probed = scene.probed();
    assert!(
        probed.contains(&sandbox.address) && !probed.contains("192.168.77.1"),
        "{probed}"
    );
    // A further interface is no drift: the periodic comparison repairs nothing.
    sandbox.link("net2", "192.168.78.1/24");
    let healed =
        |cause: &str| agent.metric(&format!("weir_ambient_healed_total{{cause=\"{cause}\"}}"));
    let verified = || {
        let facts = agent.facts();
        facts["ambient"]["pods"][0]["verifiedAt"].clone()
    };
    for _ in 0..2 {
        let before = verified();
        agent.until("another round", || verified() != before);
    }
    assert_eq!((healed("missing"), healed("changed")), (0, 0));
    sandbox.tool("nft", &["flush", "ruleset"]);
    agent.until("healed", || is_captured(&sandbox) && healed("missing") == 1);
}
