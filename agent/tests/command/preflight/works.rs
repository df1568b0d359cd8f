//! The verdict of `weir preflight` on capture at the node agrees with what works there.

use crate::support::weir_with;
use serde_json::Value;
use std::path::Path;
use weir_demo::node_ambient::{Lab, Place};
use weir_ebpf::Bpffs;
use weir_node_ambient::{Carrier, CarrierChoice};
use weir_testing::BpfFs;

/// Whether a job works with programs pinned at `bpffs`, and the reasons. `None` if weir could not find out without loading a module.
fn said(job: &str, bpffs: &Path) -> Option<(bool, Vec<String>)> {
    let bpffs = bpffs.to_str().unwrap();
    let run = weir_with(
        &["preflight", "--json", "--job", job],
        &[("WEIR_BPFFS", bpffs)],
    );
    let report: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let verdict = &report["jobs"][0];
    assert_eq!(verdict["job"], job);
    let reasons = verdict["reasons"].as_array().unwrap().iter();
    let reasons = reasons.map(|reason| reason.as_str().unwrap().to_owned());
    let works = match verdict["verdict"].as_str().unwrap() {
        "works" | "works-with-fallback" => true,
        "does-not-work" => false,
        other => {
            println!("not compared: {other}");
            return None;
        }
    };
    Some((works, reasons.collect()))
}

// matrix: every; variants no-nftables no-xtables no-tproxy no-nft-tproxy no-ipset no-ipv6
#[test]
fn rules_at_the_node_work_where_it_says_so_with_the_carrier_that_it_says() {
    let Some(lab) = weir_testing::granted(Lab::create()) else {
        return;
    };
    let Some((works, reasons)) = said("node-ambient", Path::new("/sys/fs/bpf")) else {
        return;
    };
    let config = lab.config().unwrap();
    let applied = weir_node_ambient::apply(&config, lab.netns(Place::Node), None, false);
    assert_eq!(applied.is_ok(), works, "{applied:?}, {reasons:?}");
    let Ok(applied) = applied else { return };
    let kind = match applied.node.carrier {
        Carrier::Geneve(_) => CarrierChoice::Geneve,
        Carrier::Vxlan(_) => CarrierChoice::Vxlan,
        Carrier::Veth => CarrierChoice::Veth,
    };
    // Preflight does not mention the first choice.
    let named = |kind: CarrierChoice| {
        let text = format!("tunnel to the proxy: {} ", kind.words());
        reasons.iter().any(|reason| reason.starts_with(&text))
    };
    let said = CarrierChoice::ORDER.into_iter().find(|kind| named(*kind));
    assert_eq!(said.unwrap_or(CarrierChoice::ORDER[0]), kind, "{reasons:?}");
}

// matrix: every; variants no-nftables no-xtables no-btf no-ipv6
#[test]
fn programs_at_the_node_work_where_it_says_so() {
    let Some(lab) = weir_testing::granted(Lab::create()) else {
        return;
    };
    let Some(mounted) = BpfFs::mount() else {
        return;
    };
    let Some((works, reasons)) = said("node-ebpf", mounted.path()) else {
        return;
    };
    let config = lab.config().unwrap();
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let applied = weir_node_ambient::ebpf::apply(&config, lab.netns(Place::Node), &bpffs);
    assert_eq!(applied.is_ok(), works, "{applied:?}, {reasons:?}");
    let by_filters = reasons.iter().any(|r| r.contains("clsact"));
    let has_links = weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok();
    assert_eq!(by_filters, works && !has_links, "{reasons:?}");
}
