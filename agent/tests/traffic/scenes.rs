//! The output of `weir demo` is true, and its measurement detects the difference.

use serde_json::json;
use weir_demo::{
    EXCLUDED_INBOUND_PORT, Mode, Outcome, Place, Receiver, Stage, excluded_cidr, play, scenes,
    table,
};
use weir_netlink::route::AddressFamily;

use crate::lab_or_skip;
use crate::support::{CASES, FAMILIES, config, program, tcp};

#[test]
fn every_scene_of_the_demonstration_goes_as_it_says() {
    for case in CASES {
        let lab = lab_or_skip!();
        let cidrs = FAMILIES.map(|family| excluded_cidr(&lab, family));
        let more = json!({
            "inbound_ports_exclude": EXCLUDED_INBOUND_PORT.to_string(),
            "outbound_ip_ranges_exclude": cidrs.join(","),
            "redirect_dns": true,
            "capture_all_dns": true,
        });
        program(lab.netns(Place::Pod), case.engine, &config(case.mode, more));
        let stage = Stage::open(&lab, case.mode).expect("everybody in place");
        for family in FAMILIES {
            let played = play(&stage, scenes(&lab, family)).expect("played");
            let shown = table(&played, false).to_string();
            assert!(played.iter().all(|one| one.is_good()), "{case:?}\n{shown}");
            println!("{shown}");
        }
    }
}

#[test]
fn without_rules_nothing_is_captured_and_the_scenes_say_so() {
    let lab = lab_or_skip!();
    let stage = Stage::open(&lab, Mode::Redirect).expect("everybody in place");
    for family in FAMILIES {
        let played = play(&stage, scenes(&lab, family)).expect("played");
        let shown = table(&played, false).to_string();
        for one in &played {
            let by = one.outcome.by().unwrap_or_else(|| panic!("{shown}"));
            assert!(!by.is_proxy(), "{shown}");
            assert_eq!(one.is_good(), !one.scene.expect.is_proxy(), "{shown}");
        }
    }
}

#[test]
fn a_flow_that_nobody_takes_is_lost_with_a_reason() {
    let lab = lab_or_skip!();
    let stage = Stage::open(&lab, Mode::Redirect).expect("everybody in place");
    let to = (lab.address(Place::Pod, AddressFamily::V4), 4321).into();
    let outcome = stage
        .send(&tcp("to no listener", Place::Client, to))
        .expect("sent");
    let Outcome::Lost(reason) = &outcome else {
        panic!("{outcome}")
    };
    assert!(reason.contains("refused"), "{reason}");
    assert_eq!(outcome.by(), None::<Receiver>);
}

/// Runs in a namespace of the test: other programs add and delete links in that of the host.
#[test]
fn nothing_is_left_in_the_namespace_of_the_caller() {
    drop(lab_or_skip!());
    let links = || {
        let routing = weir_netlink::route::Routing::open().expect("socket");
        routing.links().expect("links")
    };
    let scene = || {
        let before = links();
        drop(lab_or_skip!());
        assert_eq!(before, links());
    };
    let caller = weir_netlink::Netns::create().expect("a namespace");
    caller.run(scene).expect("the namespace is entered");
}
