//! Ambient mode by eBPF programs: what other writers change comes back, and an agent with another setting takes over.

use crate::ambient::{SELDOM, Scene, has_no_rules, id, is_captured, labelled, states, why};
use crate::ambient_ebpf_traffic::{give, route};
use crate::ambient_proved::{PROOF, proved};
use crate::repair::Sandbox;
use std::path::PathBuf;
use weir_ambient::{Config, PodOverrides, Redirect};
use weir_bpf::{Anchor, BPF_PROG_TYPE_SCHED_CLS, BPF_TCX_INGRESS, Link, Pinned, Program, open_pin};
use weir_cni::compile::Engine;
use weir_cni::redirection::{Desired, Sandbox as Redirected};
use weir_ebpf::{Bpffs, Pod};
use weir_netlink::Netns;
use weir_netlink::route::Routing;
pub(crate) use weir_testing::mount_for_links as mount;
use weir_testing::{BpfFs, lacks};

/// A pod with a link to the host, and a bpf file system for its programs.
fn linked(name: &str) -> Option<(BpfFs, Sandbox, Scene)> {
    let mounted = mount()?;
    let (sandbox, scene) = Scene::of(name)?;
    let routing = Routing::open_in(sandbox.netns()).unwrap();
    routing.add_veth("eth0", "veth0", &scene.host).unwrap();
    Some((mounted, sandbox, scene))
}

/// The pin of the program at a hook of an interface.
fn pin(netns: &Netns, mounted: &BpfFs, at: (&str, &str)) -> PathBuf {
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let shown = weir_ebpf::show::read(netns, Some(&bpffs)).unwrap();
    let mut programs = shown.programs.into_iter();
    let found = programs.find(|p| (&*p.interface, &*p.hook) == at);
    found.and_then(|program| program.pin).expect("its pin")
}

fn link(netns: &Netns, mounted: &BpfFs, at: (&str, &str)) -> Link {
    match open_pin(&pin(netns, mounted, at)).unwrap() {
        Pinned::Link(link) => link,
        other => panic!("{other:?}"),
    }
}

/// A program that accepts every packet: `r0 = 0; exit`.
fn passes() -> Program {
    let code = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    Program::load(BPF_PROG_TYPE_SCHED_CLS, 0, &code, c"GPL").unwrap()
}

/// Also, an agent with the other setting replaces programs by rules, and rules by programs.
#[test]
fn by_ebpf_a_pod_joins_is_healed_is_switched_and_leaves() {
    let Some((mounted, sandbox, scene)) = linked("web") else {
        return;
    };
    let root = mounted.path().to_str().unwrap();
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let shown = || weir_ebpf::show::read(sandbox.netns(), Some(&bpffs)).unwrap();
    // A kernel with GRE adds gretap0 and erspan0 to every network namespace.
    let by_programs = || {
        let mut programs = shown().programs;
        programs.retain(|p| ["lo", "eth0"].contains(&p.interface.as_str()));
        programs.len() == 3 && !sandbox.rules().contains("istio")
    };
    let interval = ("WEIR_VERIFY_INTERVAL", "1");
    let ebpf = [
        ("WEIR_AMBIENT_ENGINE", "ebpf"),
        ("WEIR_BPFFS", root),
        interval,
    ];
    let agent = scene.start(&ebpf);
    agent.until("captured", by_programs);
    let ztunnel = scene.ztunnel();
    ztunnel.carries("uid-web", Some(id(&sandbox)));
    agent.until("enrolled", || {
        scene.annotation("web") == "enabled" && states(&agent, "enrolled") == 1
    });
    // Deleting the pin also detaches the program.
    let egress = pin(sandbox.netns(), &mounted, ("eth0", "tcx egress"));
    std::fs::remove_file(egress).unwrap();
    agent.until("healed", by_programs);
    agent.until("told", || {
        agent.metric("weir_ambient_healed_total{cause=\"missing\"}") == 1
    });
    // A program of another writer accepts every packet before weir's program runs.
    let pass = passes();
    let attach_first = || {
        let index = Routing::open().unwrap().link("eth0").unwrap().index;
        Link::to_interface(&pass, index, BPF_TCX_INGRESS, Anchor::First).unwrap()
    };
    let foreign = sandbox.netns().run(attach_first).unwrap();
    let is_first = || {
        let mut all = shown().programs.into_iter();
        all.find(|p| p.interface == "eth0" && p.hook == "tcx ingress")
            .is_some_and(|p| p.name.starts_with("weir_"))
    };
    agent.until("first again", is_first);
    agent.until("told", || {
        agent.metric("weir_ambient_healed_total{cause=\"missing\"}") == 2
    });
    drop((agent, foreign));
    // The programs stay attached without the agent.
    assert!(by_programs());

    let by_rules = || shown().programs.is_empty() && is_captured(&sandbox);
    let agent = scene.start(&[("WEIR_BPFFS", root), interval]);
    agent.until("rules in place of programs", by_rules);
    let rules_at_host = || scene.probed().contains("istio-inpod-probes-v4");
    agent.until("rules at the host", rules_at_host);
    drop(agent);
    let agent = scene.start(&ebpf);
    agent.until("programs in place of rules", by_programs);
    agent.until("no rules at the host", || scene.probed().is_empty());

    let ztunnel = scene.ztunnel();
    ztunnel.carries("uid-web", Some(id(&sandbox)));
    scene.server.put(labelled("none"));
    agent.until("it has left", || {
        shown().programs.is_empty() && has_no_rules(&sandbox)
    });
}

/// Another writer than the agent, such as `weir apply` with another engine, adds what captures beside it: this breaks inbound connections.
#[test]
fn by_ebpf_what_captures_beside_the_agent_goes() {
    let Some((mounted, sandbox, scene)) = linked("both") else {
        return;
    };
    let root = ("WEIR_BPFFS", mounted.path().to_str().unwrap());
    let interval = ("WEIR_VERIFY_INTERVAL", "1");
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let has_programs = || {
        let shown = weir_ebpf::show::read(sandbox.netns(), Some(&bpffs)).unwrap();
        !shown.programs.is_empty()
    };
    // As the agent's settings.
    let config = Config {
        enable_ipv6: true,
        redirect_dns: true,
        ..Config::default()
    };
    let wanted = Redirect::new(config, &PodOverrides::default()).unwrap();
    let (agent, ztunnel) = scene.enrolled(1, &[("WEIR_AMBIENT_ENGINE", "ebpf"), root, interval]);
    let pod = Redirected::of(sandbox.netns().try_clone().unwrap()).unwrap();
    pod.apply(&wanted.compile(Engine::Nft)).unwrap();
    let is_alone = || has_programs() && !sandbox.rules().contains("istio");
    agent.until("programs alone", is_alone);
    agent.until("told", || agent.log().contains("istio-ambient-nat"));
    drop((agent, ztunnel));

    let agent = scene.start(&[root, interval]);
    let _ztunnel = scene.ztunnel();
    agent.until("rules alone", || !has_programs() && is_captured(&sandbox));
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    let pod = Pod::of(sandbox.netns(), &bpffs).unwrap();
    pod.apply(&wanted).unwrap();
    sandbox.tool("nft", &["flush", "ruleset"]);
    agent.until("rules alone again", || {
        !has_programs() && is_captured(&sandbox)
    });
}

/// The periodic comparison would be too late to find it.
#[test]
fn by_ebpf_routing_that_another_program_deletes_comes_back_at_once() {
    let Some((mounted, sandbox, scene)) = linked("by-programs") else {
        return;
    };
    let root = mounted.path().to_str().unwrap();
    let (agent, _ztunnel) = scene.enrolled(
        1,
        &[
            ("WEIR_AMBIENT_ENGINE", "ebpf"),
            ("WEIR_BPFFS", root),
            SELDOM,
        ],
    );
    let rules = || sandbox.ip("rule");
    let whole = rules();
    assert!(whole.contains("lookup 100"), "{whole}");
    let routes = || sandbox.ip("route show table 100");
    let all_routes = routes();
    // A repair in progress when the next one becomes due would cover both, hence the wait for the counter.
    let counted = || agent.metric("weir_ambient_healed_total{cause=\"missing\"}");
    sandbox.ip("rule del table 100");
    agent.until("the rule is back", || rules() == whole && counted() == 1);
    sandbox.ip("route flush table 100");
    agent.until("the route is back", || {
        routes() == all_routes && counted() == 2
    });
    // A rule that leads packets past the programs stays, and the agent reports a conflict.
    sandbox.ip("address add 10.99.0.1/24 dev eth0");
    sandbox.ip("route add blackhole default table 50");
    sandbox.ip("rule add iif lo lookup 50 priority 50");
    agent.until("told", || {
        states(&agent, "conflict") == 1 && why(&agent, "by-programs").contains("lookup 50")
    });
    sandbox.ip("rule del priority 50");
    agent.until("good again", || states(&agent, "enrolled") == 1);
    assert_eq!(counted(), 2);
}

/// Before it is enrolled and afterwards; the route of IPv6 is there while `lo` has IPv6.
#[test]
fn by_ebpf_a_pod_may_disable_ipv6() {
    let Some((mounted, sandbox, scene)) = linked("without-ipv6") else {
        return;
    };
    if !weir_cni::redirection::has_ipv6() {
        return lacks::skip("disable IPv6", "every", "this kernel has none");
    }
    let disable = |value: u8| {
        for name in ["all", "lo"] {
            let key = format!("net.ipv6.conf.{name}.disable_ipv6={value}");
            sandbox.tool("sysctl", &["-qw", &key]);
        }
    };
    let routes = || sandbox.ip("-6 route show table all");
    let rules = || sandbox.ip("-6 rule");
    disable(1);
    let (agent, _ztunnel) = scene.enrolled(
        1,
        &[
            ("WEIR_AMBIENT_ENGINE", "ebpf"),
            ("WEIR_BPFFS", mounted.path().to_str().unwrap()),
            ("AMBIENT_IPV6", "true"),
            ("WEIR_VERIFY_INTERVAL", "1"),
        ],
    );
    assert!(rules().contains("lookup 100"), "{}", rules());
    disable(0);
    agent.until("the route", || routes().contains("table 100"));
    disable(1);
    sandbox.ip("-6 rule del table 100");
    agent.until("the rule is back", || rules().contains("lookup 100"));
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    assert!(!routes().contains("table 100"), "{}", routes());
}

/// The kernel reports none of these changes, and the periodic comparison would be too late. After each repair a connection proves that the
/// programs capture.
#[test]
fn by_ebpf_programs_that_another_one_detaches_or_replaces_come_back_at_once() {
    let Some((mounted, sandbox, scene)) = linked("held") else {
        return;
    };
    let (netns, host) = (sandbox.netns(), &scene.host);
    give(host, "veth0", "10.98.0.1/24");
    give(netns, "eth0", "10.98.0.2/24");
    route(netns, "0.0.0.0/0", (Some("10.98.0.1"), "eth0"));
    // Otherwise each proof would wait for the answer of the gateway, which may come too late.
    sandbox.ip("neighbour add 10.98.0.1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent");
    let agent = scene.start(&[
        ("WEIR_AMBIENT_ENGINE", "ebpf"),
        ("WEIR_BPFFS", mounted.path().to_str().unwrap()),
        PROOF,
        SELDOM,
    ]);
    let _ztunnel = scene.ztunnel();
    let healed = || agent.metric("weir_ambient_healed_total{cause=\"missing\"}");
    agent.until("enrolled and proved", || {
        states(&agent, "enrolled") == 1 && proved(&agent)[0] > 0
    });
    assert_eq!(healed(), 0, "{}", agent.log());
    // On a busy machine a comparison may fail, and then the next one is followed by a proof as well.
    let comes_back = |what: &str, change: &dyn Fn()| {
        let (before, [yes, ..]) = (healed(), proved(&agent));
        change();
        agent.until(what, || healed() > before && proved(&agent)[0] > yes);
    };
    let link = |at| link(netns, &mounted, at);
    comes_back("attached again", &|| {
        link(("eth0", "tcx egress")).detach().unwrap();
    });
    comes_back("its program again", &|| {
        let ingress = link(("eth0", "tcx ingress"));
        ingress.replace(&passes(), None).unwrap();
    });
    comes_back("pinned again", &|| {
        std::fs::remove_file(pin(netns, &mounted, ("lo", "tcx ingress"))).unwrap();
    });
    assert_eq!(proved(&agent)[1..], [0, 0], "{}", agent.log());
    assert!(link(("lo", "tcx ingress")).info().is_ok());
}

#[test]
fn by_ebpf_a_program_that_is_detached_while_no_agent_runs_is_reported_by_the_next_agent() {
    let Some((mounted, sandbox, scene)) = linked("detached") else {
        return;
    };
    let settings = [
        ("WEIR_AMBIENT_ENGINE", "ebpf"),
        ("WEIR_BPFFS", mounted.path().to_str().unwrap()),
        SELDOM,
    ];
    let enrolled = || {
        let agent = scene.start(&settings);
        agent.until("enrolled", || states(&agent, "enrolled") == 1);
        let healed = agent.metric("weir_ambient_healed_total{cause=\"missing\"}");
        (agent, healed)
    };
    let _ztunnel = scene.ztunnel();
    for _ in 0..2 {
        let (agent, healed) = enrolled();
        assert_eq!(healed, 0, "{}", agent.log());
    }
    let egress = link(sandbox.netns(), &mounted, ("eth0", "tcx egress"));
    egress.detach().unwrap();
    let (agent, healed) = enrolled();
    assert_eq!(healed, 1, "{}", agent.log());
    agent.says("was not captured as it should be");
}

/// A pod that leaves while no agent runs is released by the next one, whatever its setting is and whatever captured the pod.
#[test]
fn an_agent_with_another_setting_releases_a_pod_that_has_left() {
    let Some((mounted, sandbox, scene)) = linked("web") else {
        return;
    };
    let routing = Routing::open_in(sandbox.netns()).unwrap();
    let routing_of_pod = || (routing.rules().unwrap(), routing.routes(100).unwrap());
    let root = mounted.path().to_str().unwrap();
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let programs = || {
        let shown = weir_ebpf::show::read(sandbox.netns(), Some(&bpffs)).unwrap();
        shown.programs.len()
    };
    let before = routing_of_pod();
    for (captured_by, left_by) in [("auto", "ebpf"), ("ebpf", "auto"), ("ebpf", "node-ebpf")] {
        let start =
            |engine: &str| scene.start(&[("WEIR_AMBIENT_ENGINE", engine), ("WEIR_BPFFS", root)]);
        scene.server.put(labelled("ambient"));
        let mut agent = start(captured_by);
        let ztunnel = scene.ztunnel();
        agent.until("enrolled", || scene.annotation("web") == "enabled");
        let by_programs = captured_by == "ebpf";
        let has_rules = sandbox.rules().contains("istio");
        assert_eq!((programs() > 0, has_rules), (by_programs, !by_programs));
        agent.signal(nix::sys::signal::Signal::SIGKILL);
        agent.ended();
        drop(ztunnel);
        scene.server.put(labelled("none"));
        let agent = start(left_by);
        agent.until("it has left", || scene.annotation("web").is_null());
        agent.until("nothing is left in it", || {
            programs() == 0 && has_no_rules(&sandbox) && routing_of_pod() == before
        });
    }
}
