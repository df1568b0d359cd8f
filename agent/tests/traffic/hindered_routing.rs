//! Policy rules of another writer before ours: those that lead replies past the proxy are named, and no others.

use std::process::Command;

use serde_json::json;
use weir_ambient::Redirect;
use weir_cni::compile::Engine;
use weir_cni::config::{Intent, NameFiles, SidecarConfig};
use weir_cni::redirection::{Change, Desired, Sandbox};
use weir_demo::{Flow, Lab, Mode, Owner, Place, Receiver, Stage, ZTUNNEL_MARK};
use weir_netlink::route::AddressFamily;

use crate::ambient::wanted;
use crate::lab_or_skip;
use crate::support::{config, lab, tcp};

/// Table 50 leads out of the pod, 51 has no route, and 52 none that leads out.
const RULES: [&str; 12] = [
    "from POD lookup 50",
    "from ANOTHER lookup 50",
    "from POD lookup 51",
    "from POD lookup 52",
    "from POD suppress_prefixlength 0 lookup 50",
    "from POD fwmark 0x777 lookup 50",
    "from POD goto 32766",
    "iif lo lookup 50",
    "iif eth0 lookup 50",
    "ipproto tcp lookup 50",
    "ipproto udp lookup 50",
    "from POD iif lo ipproto tcp blackhole",
];

fn ip(lab: &Lab, family: AddressFamily, arguments: &str) {
    let option = match family {
        AddressFamily::V4 => "-4",
        AddressFamily::V6 => "-6",
    };
    let run = || {
        let mut ip = Command::new("ip");
        ip.arg(option).args(arguments.split(' ')).output()
    };
    let run = lab
        .netns(Place::Pod)
        .run(run)
        .expect("entered")
        .expect("ip");
    assert!(run.status.success(), "{arguments}: {run:?}");
}

/// What is wrong about the rules beside this kind of redirection: `verify` gives the lines, and a reply that does not pass the
/// proxy is lost.
fn mistaken<D: Desired>(
    (lab, stage): (&Lab, &Stage<'_>),
    desired: &D,
    family: AddressFamily,
    flow: &Flow,
) -> Vec<String> {
    let sandbox = Sandbox::of(lab.netns(Place::Pod).try_clone().expect("a descriptor"));
    let sandbox = sandbox.expect("a pod");
    let verify = || {
        let compiled = desired.compile_for(None, Engine::Nft);
        let found = sandbox.visit_for(D::SCHEME, |visit| visit.verify(&compiled));
        found.expect("entered").expect("compared")
    };
    assert_eq!(verify(), [], "without foreign rules");
    let pod = lab.address(Place::Pod, family).to_string();
    let another = lab.address(Place::Client, family).to_string();
    ip(lab, family, "route add default dev eth0 table 50");
    ip(lab, family, "route add throw default table 52");
    let mut mistaken = Vec::new();
    for rule in RULES {
        let rule = rule.replace("POD", &pod).replace("ANOTHER", &another);
        ip(lab, family, &format!("rule add priority 50 {rule}"));
        let found = verify();
        assert!(
            found.iter().all(|c| matches!(c, Change::Hindrance(_))),
            "{found:?}"
        );
        let outcome = stage.send(flow).expect("sent");
        let returns = outcome.by() == Some(Receiver::Application);
        let text = format!("{family} {rule}: {outcome}; {found:?}");
        println!("{text}");
        if found.is_empty() != returns {
            mistaken.push(text);
        }
        ip(lab, family, "rule delete priority 50");
    }
    mistaken
}

fn in_ambient_mode(family: AddressFamily) -> Vec<String> {
    let Some(lab) = lab() else { return Vec::new() };
    let wanted = wanted(false, &json!({}));
    crate::ambient::redirect(lab.netns(Place::Pod), Engine::Nft, false, &json!({}));
    let stage = Stage::ambient(&lab).expect("all listeners");
    let to = (lab.address(Place::Pod, family), 8080).into();
    let client = (lab.address(Place::Client, family), 0).into();
    let flow = tcp("as the client", Place::Pod, to).source(client);
    mistaken::<Redirect>((&lab, &stage), &wanted, family, &flow.mark(ZTUNNEL_MARK))
}

fn beside_a_sidecar(family: AddressFamily) -> Vec<String> {
    let Some(lab) = lab() else { return Vec::new() };
    let given = config(Mode::Tproxy, json!({}));
    crate::support::program_for(lab.netns(Place::Pod), None, Engine::Nft, &given);
    let given: SidecarConfig = serde_json::from_value(given).expect("a configuration");
    let intent = Intent::parse(&given, &NameFiles::default()).expect("an intent");
    let stage = Stage::open(&lab, Mode::Tproxy).expect("everybody in place");
    let to = (lab.address(Place::Pod, family), 8080).into();
    let client = (lab.address(Place::Client, family), 40_001).into();
    let flow = tcp("as the client", Place::Pod, to).of(Owner::ROOT);
    mistaken(
        (&lab, &stage),
        &intent,
        family,
        &flow.source(client).mark(1337),
    )
}

/// Side by side: an answer that is lost is waited for.
#[test]
fn policy_rules_that_lead_replies_past_the_proxy_are_named_and_nothing_else() {
    let families = lab_or_skip!().families().to_vec();
    let mistaken: Vec<String> = std::thread::scope(|scope| {
        let kinds: [fn(AddressFamily) -> Vec<String>; 2] = [in_ambient_mode, beside_a_sidecar];
        let each = families
            .iter()
            .flat_map(|family| kinds.map(|kind| (kind, *family)));
        let running: Vec<_> = each
            .map(|(kind, family)| scope.spawn(move || kind(family)))
            .collect();
        let joined = running.into_iter().map(|one| one.join().expect("said"));
        joined.flatten().collect()
    });
    assert!(mistaken.is_empty(), "{mistaken:#?}");
}
