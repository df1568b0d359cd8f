//! Policy rules of another writer before ours: those that lead replies past the proxy are named, and no others.

use std::process::Command;

use serde_json::json;
use weir_ambient::Redirect;
use weir_cni::compile::{Compiled, Engine};
use weir_cni::config::{Intent, NameFiles, SidecarConfig};
use weir_cni::redirection::{Change, Desired, Sandbox, Scheme};
use weir_demo::{Flow, Lab, Mode, Owner, Place, Receiver, Stage, ZTUNNEL_MARK};
use weir_netlink::route::AddressFamily;

use crate::ambient::wanted;
use crate::ebpf;
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

/// What `verify` names.
fn named(lab: &Lab, compiled: &Compiled, scheme: &'static Scheme) -> Vec<String> {
    let sandbox = Sandbox::of(lab.netns(Place::Pod).try_clone().expect("a descriptor"));
    let sandbox = sandbox.expect("a pod");
    let found = sandbox.visit_for(scheme, |visit| visit.verify(compiled));
    let found = found.expect("entered").expect("compared");
    let object = |change: &Change| match change {
        Change::Hindrance(line) => line.clone(),
        other => panic!("{other}"),
    };
    found.iter().map(object).collect()
}

/// What is wrong about the rules beside this kind of redirection: `verify` gives the lines, and a packet that does not pass the
/// proxy is lost; otherwise the receiver gets it.
fn mistaken(
    (lab, stage): (&Lab, &Stage<'_>),
    verify: impl Fn() -> Vec<String>,
    family: AddressFamily,
    flows: &[(Flow, Receiver)],
) -> Vec<String> {
    assert_eq!(verify(), [""; 0], "without foreign rules");
    let pod = lab.address(Place::Pod, family).to_string();
    let another = lab.address(Place::Client, family).to_string();
    ip(lab, family, "route add default dev eth0 table 50");
    ip(lab, family, "route add throw default table 52");
    let mut mistaken = Vec::new();
    for rule in RULES {
        let rule = rule.replace("POD", &pod).replace("ANOTHER", &another);
        ip(lab, family, &format!("rule add priority 50 {rule}"));
        let found = verify();
        for (flow, receiver) in flows {
            // What has no route is not sent.
            let outcome = stage.send(flow);
            let returns = outcome.as_ref().is_ok_and(|o| o.by() == Some(*receiver));
            let outcome = outcome.map_or_else(|e| e.to_string(), |o| o.to_string());
            let text = format!("{family} {rule}: {outcome}; {found:?}");
            println!("{text}");
            // A packet that gets a mark is looked up again, on older kernels without its protocol: such a rule does not count there.
            let is_lenient = returns && rule.starts_with("ipproto tcp");
            if found.is_empty() != returns && !is_lenient {
                mistaken.push(text);
            }
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
    let compiled = wanted.compile_for(None, Engine::Nft);
    let verify = || named(&lab, &compiled, Redirect::SCHEME);
    mistaken((&lab, &stage), verify, family, &[of_ztunnel(&lab, family)])
}

/// ztunnel connects with the address of the client.
fn of_ztunnel(lab: &Lab, family: AddressFamily) -> (Flow, Receiver) {
    let to = (lab.address(Place::Pod, family), 8080).into();
    let client = (lab.address(Place::Client, family), 0).into();
    let flow = tcp("as the client", Place::Pod, to).source(client);
    (flow.mark(ZTUNNEL_MARK), Receiver::Application)
}

/// Outbound packets return by `lo`, too.
fn by_programs(family: AddressFamily) -> Vec<String> {
    let Some(mounted) = ebpf::mount() else {
        return Vec::new();
    };
    let Some(lab) = lab() else { return Vec::new() };
    let wanted = wanted(false, &json!({}));
    ebpf::redirect(&mounted, lab.netns(Place::Pod), &wanted);
    let stage = Stage::ambient(&lab).expect("all listeners");
    let without = wanted.compile_without_rules();
    let verify = || named(&lab, &without, Redirect::SCHEME);
    let service = (lab.service(family), 80).into();
    let out = (tcp("out", Place::Pod, service), Receiver::ProxyOutbound);
    let flows = [of_ztunnel(&lab, family), out];
    mistaken((&lab, &stage), verify, family, &flows)
}

fn beside_a_sidecar(family: AddressFamily) -> Vec<String> {
    let Some(lab) = lab() else { return Vec::new() };
    let given = config(Mode::Tproxy, json!({}));
    crate::support::program_for(lab.netns(Place::Pod), None, Engine::Nft, &given);
    let given: SidecarConfig = serde_json::from_value(given).expect("a configuration");
    let intent = Intent::parse(&given, &NameFiles::default()).expect("an intent");
    let stage = Stage::open(&lab, Mode::Tproxy).expect("everybody in place");
    let to = (lab.address(Place::Pod, family), 8080).into();
    let client = (lab.address(Place::Client, family), 0).into();
    let flow = tcp("as the client", Place::Pod, to).of(Owner::ROOT);
    let flow = (flow.source(client).mark(1337), Receiver::Application);
    let compiled = intent.compile_for(None, Engine::Nft);
    let verify = || named(&lab, &compiled, Intent::SCHEME);
    mistaken((&lab, &stage), verify, family, &[flow])
}

/// Side by side: an answer that is lost is waited for.
#[test]
fn policy_rules_that_lead_replies_past_the_proxy_are_named_and_nothing_else() {
    let families = lab_or_skip!().families().to_vec();
    let mistaken: Vec<String> = std::thread::scope(|scope| {
        let kinds: [fn(AddressFamily) -> Vec<String>; 3] =
            [in_ambient_mode, by_programs, beside_a_sidecar];
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

/// Programs capture, and a foreign rule takes the packets of ours by their mark: replies to the client do not return.
#[test]
fn a_policy_rule_that_takes_the_mark_is_named_beside_programs() {
    let Some(mounted) = ebpf::mount() else {
        return;
    };
    let lab = lab_or_skip!();
    let wanted = wanted(false, &json!({}));
    ebpf::redirect(&mounted, lab.netns(Place::Pod), &wanted);
    let stage = Stage::ambient(&lab).expect("all listeners");
    let without = wanted.compile_without_rules();
    let sandbox = Sandbox::of(lab.netns(Place::Pod).try_clone().expect("a descriptor"));
    let sandbox = sandbox.expect("a pod");
    let named = || {
        let found = sandbox.visit_for(Redirect::SCHEME, |visit| {
            visit.hindrances_of_programs(&without)
        });
        found.expect("entered").expect("read")
    };
    for &family in lab.families() {
        let (flow, receiver) = of_ztunnel(&lab, family);
        assert_eq!(named(), [""; 0]);
        let got = stage.send(&flow).expect("sent").by();
        assert_eq!(got, Some(receiver));
        ip(
            &lab,
            family,
            "rule add priority 50 fwmark 0x111/0xfff blackhole",
        );
        let found = named();
        assert_eq!(found.len(), 1, "{found:?}");
        let line = found.first().expect("one");
        assert!(line.contains("takes its packets"), "{line}");
        let got = stage.send(&flow).map(|outcome| outcome.by());
        assert!(!matches!(got, Ok(Some(_))), "{got:?}");
        ip(&lab, family, "rule delete priority 50");
    }
}
