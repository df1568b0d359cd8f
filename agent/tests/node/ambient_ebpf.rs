//! Ambient mode by programs of eBPF, and back to rules.

use crate::ambient::{Scene, has_no_rules, id, is_captured, labelled, states};
use crate::repair::Sandbox;
use weir_bpf::{BPF_TCX_INGRESS, attached};
use weir_ebpf::Bpffs;
use weir_netlink::route::Routing;
use weir_testing::{BpfFs, lacks};

/// The same by eBPF; and an agent with the other setting replaces programs by rules, and rules by programs.
#[test]
fn by_ebpf_a_pod_joins_is_healed_is_switched_and_leaves() {
    let Some(mounted) = BpfFs::mount() else {
        return;
    };
    if let Err(e) = attached(1, BPF_TCX_INGRESS)
        && e.raw_os_error() == Some(22)
    {
        return lacks::skip("attach tcx", "6.6", e);
    }
    let Some(sandbox) = Sandbox::of("web") else {
        return;
    };
    let scene = Scene::new();
    scene.put("web", &sandbox);
    let routing = Routing::open_in(sandbox.netns()).unwrap();
    routing.add_veth("eth0", "veth0", &scene.host).unwrap();
    let root = mounted.path().to_str().unwrap();
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let shown = || weir_ebpf::show::read(sandbox.netns(), Some(&bpffs)).unwrap();
    // A kernel with GRE adds gretap0 and erspan0 to every namespace.
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
    // A pin is deleted, and with it the attachment.
    let program = shown()
        .programs
        .into_iter()
        .find(|p| p.interface == "eth0" && p.hook == "tcx egress");
    let pin = program
        .and_then(|p| p.pin)
        .expect("the pin of the program for egress");
    std::fs::remove_file(&pin).unwrap();
    agent.until("healed", by_programs);
    agent.until("told", || {
        agent.metric("weir_ambient_healed_total{cause=\"missing\"}") == 1
    });
    drop(agent);
    // Nothing depends on the process.
    assert!(by_programs());

    let by_rules = || shown().programs.is_empty() && is_captured(&sandbox);
    let agent = scene.start(&[("WEIR_BPFFS", root), interval]);
    agent.until("rules in place of programs", by_rules);
    drop(agent);
    let agent = scene.start(&ebpf);
    agent.until("programs in place of rules", by_programs);

    let ztunnel = scene.ztunnel();
    ztunnel.carries("uid-web", Some(id(&sandbox)));
    scene.server.put(labelled("none"));
    agent.until("it has left", || {
        shown().programs.is_empty() && has_no_rules(&sandbox)
    });
}
