//! Redirection by eBPF inside of the pod: what concerns this engine alone. That it decides as the others do is in
//! `ambient.rs` and `ambient_pods.rs`.
// matrix: smoke

use serde_json::json;
use weir_ambient::Redirect;
use weir_demo::{Place, Receiver, Stage};
use weir_ebpf::{Bpffs, Pod as EbpfPod};
use weir_netlink::Netns;
use weir_netlink::bpf::{BPF_TCX_INGRESS, attached};
use weir_testing::{BpfFs, lacks};

use crate::ambient::{lab_with_probes, wanted};
use crate::support::{Pod, tcp};

/// A bpf file system of the test's own; `None`, with the reason printed, without the rights or on a kernel without tcx.
pub(super) fn mount() -> Option<BpfFs> {
    let mounted = BpfFs::mount()?;
    match attached(1, BPF_TCX_INGRESS) {
        Err(e) if e.raw_os_error() == Some(22) => {
            lacks::skip("attach tcx", "6.6", e);
            None
        }
        _ => Some(mounted),
    }
}

fn bpffs(mounted: &BpfFs) -> Bpffs {
    Bpffs::at(mounted.path()).unwrap_or_else(|e| panic!("{e}"))
}

/// As the agent does it.
pub(super) fn redirect(mounted: &BpfFs, netns: &Netns, wanted: &Redirect) {
    let bpffs = bpffs(mounted);
    let pod = EbpfPod::of(netns, &bpffs).unwrap_or_else(|e| panic!("{e}"));
    pod.apply(wanted).unwrap_or_else(|e| panic!("{e}"));
    let left = pod.verify(wanted).unwrap_or_else(|e| panic!("{e}"));
    assert!(left.is_empty(), "{left:?}");
}

/// A second time nothing changes; removal takes everything away, and the test sees plain text then.
#[test]
fn applied_twice_is_once_and_removal_leaves_nothing() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    let (netns, wanted) = (lab.netns(Place::Pod), wanted(true, &json!({})));
    let state = || {
        let bpffs = bpffs(&mounted);
        let shown = weir_ebpf::show::read(netns, Some(&bpffs)).expect("read");
        let switches = ["accept_local", "route_localnet"].map(|name| {
            let read = || std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/lo/{name}"));
            netns.run(read).expect("entered").expect("read")
        });
        let routing = weir_netlink::route::Routing::open_in(netns).expect("a socket");
        let routes = routing.routes(100).expect("routes");
        (shown, switches, routing.rules().expect("rules"), routes)
    };
    let before = state();
    assert!(before.0.programs.is_empty());
    let bpffs = bpffs(&mounted);
    let pod = EbpfPod::of(netns, &bpffs).expect("a pod");
    let planned = pod.plan(&wanted).expect("planned");
    assert_eq!(pod.apply(&wanted).expect("applied"), planned);
    assert!(pod.apply(&wanted).expect("applied").is_empty());
    let shown = state().0;
    let text = shown.to_string();
    assert_eq!(shown.programs.len(), 3, "{text}");
    for words in [
        "eth0 tcx ingress",
        "eth0 tcx egress",
        "lo tcx ingress",
        "port 15006",
        "sk_storage",
        "pinned at",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let stage = Stage::ambient(&lab).expect("all listeners");
    let flows = Pod::by_ebpf(stage, &lab, &mounted);
    for &family in lab.families() {
        let out = || tcp("out", Place::Pod, flows.service(family, 80));
        flows.expect(out(), Receiver::ProxyOutbound);
        let inside = || tcp("in", Place::Client, flows.at(Place::Pod, family, 8080));
        flows.expect(inside(), Receiver::ProxyInbound);
    }
    let count = |name: &str| {
        let counters = pod.counters().expect("counters");
        counters
            .iter()
            .find(|(n, _)| n.contains(name))
            .expect(name)
            .1
    };
    let families = lab.families().len() as u64;
    assert_eq!((count("outbound"), count("inbound")), (families, families));
    assert_eq!(
        count("fragments") + count("cannot be read") + count("no memory"),
        0
    );

    assert_eq!(
        pod.plan_removal().expect("planned"),
        pod.remove().expect("removed")
    );
    assert!(pod.remove().expect("removed").is_empty());
    assert_eq!(state(), before);
    assert!(pod.counters().is_none());
    for &family in lab.families() {
        flows.expect(
            tcp("out", Place::Pod, flows.service(family, 80)),
            Receiver::Server,
        );
        let to = flows.at(Place::Pod, family, 8080);
        flows.expect(tcp("in", Place::Client, to), Receiver::Application);
    }
}
