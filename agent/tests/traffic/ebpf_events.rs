//! The events that the programs in a pod report for real packets.
// matrix: smoke

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use serde_json::json;
use socket2::{Domain, Socket, Type};
use weir_demo::{Lab, Place, Receiver, Stage};
use weir_ebpf::events::{Event, Reader, Verdict};
use weir_ebpf::{Bpffs, Pod as EbpfPod};
use weir_netlink::route::AddressFamily;

use crate::ambient::{lab_with_probes, probe, wanted};
use crate::ebpf::{bpffs, count, mount, redirect, send4, syn, until};
use crate::support::{Pod, tcp};

fn open(bpffs: &Bpffs, verdicts: &[Verdict]) -> Reader {
    let reader = Reader::open(bpffs, verdicts).unwrap_or_else(|e| panic!("{e}"));
    reader.expect("a ring, since programs are attached")
}

/// Reads until one event satisfies the condition, and returns all events read.
#[track_caller]
fn read_until(what: &str, reader: &mut Reader, is_it: impl Fn(&Event) -> bool) -> Vec<Event> {
    let begun = Instant::now();
    let mut all = Vec::new();
    while !all.iter().any(&is_it) {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{what}: {all:#?}"
        );
        reader.wait(Duration::from_millis(100)).expect("waited");
        all.extend(reader.read().expect("events"));
    }
    all
}

/// Attempts a connection that must fail, and returns its source address.
fn connect(lab: &Lab, from: Place, to: SocketAddr) -> SocketAddr {
    let any: IpAddr = match to.is_ipv6() {
        false => std::net::Ipv4Addr::UNSPECIFIED.into(),
        true => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let open = || {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(any, 0).into())?;
        let own = socket.local_addr()?;
        let connected = socket.connect_timeout(&to.into(), Duration::from_millis(200));
        assert!(connected.is_err(), "{to} answers");
        Ok::<_, std::io::Error>(own)
    };
    let own = lab.netns(from).run(open).expect("entered").expect("bound");
    own.as_socket().expect("an address of IP")
}

/// Each drop event contains both addresses, the reason and the namespace; without ztunnel the programs report nothing else.
#[test]
fn drops_are_reported_with_their_ends() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    let netns = lab.netns(Place::Pod);
    redirect(&mounted, netns, &wanted(true, &json!({})));
    let bpffs = bpffs(&mounted);
    let mut reader = open(&bpffs, &[Verdict::Dropped]);
    for &family in lab.families() {
        let pod = lab.address(Place::Pod, family);
        let server = SocketAddr::new(lab.service(family), 80);
        let application = SocketAddr::new(pod, 8080);
        for (from, to, reason) in [
            (Place::Pod, server, "no_outbound_listener"),
            (Place::Client, application, "no_inbound_listener"),
        ] {
            let port = connect(&lab, from, to).port();
            let is_it = |event: &Event| {
                let Some([source, destination]) = event.ends else {
                    return false;
                };
                event.reason.name() == reason
                    && source.port == Some(port)
                    && (destination.address, destination.port) == (to.ip(), Some(to.port()))
            };
            let all = read_until(reason, &mut reader, is_it);
            assert!(
                all.iter().all(|event| event.netns == netns.id().ino
                    && event.reason.verdict() == Verdict::Dropped),
                "{all:#?}"
            );
            let first = all.iter().find(|event| is_it(event)).expect("it was found");
            assert_eq!(first.own().map(|end| end.address), Some(pod), "{first}");
            assert!(first.to_string().contains("no listener"), "{first}");
        }
    }
    assert_eq!(reader.lost().expect("a number"), 0);
}

/// On request the programs report captured and passed connections; without a reader they report nothing.
#[test]
fn captured_and_passed_connections_are_reported_where_it_is_asked_for() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    let netns = lab.netns(Place::Pod);
    redirect(&mounted, netns, &wanted(false, &json!({})));
    let stage = Stage::ambient(&lab).expect("all listeners");
    let flows = Pod::by_ebpf(stage, &lab, &mounted);
    let bpffs = bpffs(&mounted);
    let family = AddressFamily::V4;
    let application = || flows.at(Place::Pod, family, 8080);
    let all = || {
        let service = flows.service(family, 80);
        flows.expect(tcp("out", Place::Pod, service), Receiver::ProxyOutbound);
        let inside = tcp("in", Place::Client, application());
        flows.expect(inside, Receiver::ProxyInbound);
        let of_kubelet = (probe(family), 0).into();
        let checks = tcp("probe", Place::Client, application()).source(of_kubelet);
        flows.expect(checks, Receiver::Application);
    };
    all();
    let mut reader = open(&bpffs, &[Verdict::Dropped]);
    all();
    assert_eq!(reader.read().expect("events"), []);
    drop(reader);
    all();
    let mut reader = open(&bpffs, &Verdict::ALL);
    assert_eq!(reader.read().expect("events"), []);
    all();
    let seen = read_until("the probe", &mut reader, |e| e.reason.name() == "probe");
    let seen: Vec<(&str, &str, Option<IpAddr>)> = seen
        .iter()
        .map(|e| {
            let end = e.ends.map(|[_, destination]| destination.address);
            (e.reason.verdict().name(), e.reason.name(), end)
        })
        .collect();
    let (pod, service) = (application().ip(), lab.service(family));
    assert_eq!(
        seen,
        [
            ("captured", "outbound", Some(service)),
            ("captured", "inbound", Some(pod)),
            ("passed", "probe", Some(pod)),
        ]
    );
    assert_eq!(reader.lost().expect("a number"), 0);
}

/// Of many packets the programs report a few per second and count the others as unreported; the drop counter counts all of them.
#[test]
fn a_flood_is_counted_and_reported_in_part() {
    const PACKETS: usize = 300;
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    redirect(&mounted, lab.netns(Place::Pod), &wanted(false, &json!({})));
    let bpffs = bpffs(&mounted);
    let pod = EbpfPod::of(lab.netns(Place::Pod), &bpffs).expect("a pod");
    let mut reader = open(&bpffs, &[Verdict::Dropped]);
    let begun = Instant::now();
    // First fragments of TCP packets, without the rest.
    (0..PACKETS).for_each(|_| send4(&lab, &[], 0x2000, &syn(8080)[..8]));
    until("fragments", || count(&pod, "fragments") == PACKETS as u64);
    let seconds = usize::try_from(begun.elapsed().as_secs()).expect("short") + 2;
    let events = reader.read().expect("events");
    let lost = usize::try_from(reader.lost().expect("a number")).expect("few");
    assert_eq!(events.len() + lost, PACKETS);
    // Twice the limit, because two processors may count at the same time.
    let most = 2 * 10 * seconds;
    assert!(
        (10..=most).contains(&events.len()),
        "{} of {most}",
        events.len()
    );
    let source = lab.address(Place::Client, AddressFamily::V4);
    for event in &events {
        let [from, _] = event.ends.expect("addresses");
        assert_eq!((event.reason.name(), from.address), ("fragment", source));
    }
}

/// Only one process reads at a time. The ring buffer is deleted with the last pod, and created with the next one.
#[test]
fn there_is_one_reader_and_the_ring_goes_with_the_last_pod() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    let bpffs = bpffs(&mounted);
    let nothing = Reader::open(&bpffs, &Verdict::ALL).expect("opened");
    assert!(nothing.is_none(), "nothing is attached");
    let netns = [Place::Pod, Place::Client].map(|place| lab.netns(place));
    let pods = netns.map(|netns| EbpfPod::of(netns, &bpffs).expect("a pod"));
    for netns in netns {
        redirect(&mounted, netns, &wanted(false, &json!({})));
    }
    let reader = open(&bpffs, &Verdict::ALL);
    let second = Reader::open(&bpffs, &Verdict::ALL).expect_err("refused");
    assert!(second.to_string().contains("another process"), "{second}");
    pods[0].remove().expect("removed");
    assert!(reader.is_current());
    pods[1].remove().expect("removed");
    assert!(!reader.is_current());
    let left = std::fs::read_dir(mounted.path().join("weir")).expect("a folder");
    let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["v2"]);
    redirect(&mounted, netns[0], &wanted(false, &json!({})));
    assert!(!reader.is_current());
    drop(reader);
    assert!(open(&bpffs, &Verdict::ALL).is_current());
}

/// As on a kernel before 5.8, drops are only counted. An agent that can read events replaces the programs without a gap.
#[test]
fn without_ring_buffers_drops_are_counted() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    let (netns, wanted) = (lab.netns(Place::Pod), wanted(false, &json!({})));
    let without = bpffs(&mounted).without_events();
    let pod = EbpfPod::of(netns, &without).expect("a pod");
    pod.apply(&wanted).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(pod.verify(&wanted).expect("compared"), []);
    assert!(!mounted.path().join("weir/weir_events").exists());
    assert!(
        Reader::open(&without, &Verdict::ALL)
            .expect("asked")
            .is_none()
    );
    let to = SocketAddr::new(lab.service(AddressFamily::V4), 80);
    connect(&lab, Place::Pod, to);
    assert!(count(&pod, "port 15001") >= 1);

    let bpffs = bpffs(&mounted);
    let pod = EbpfPod::of(netns, &bpffs).expect("a pod");
    let planned = pod.plan(&wanted).expect("planned");
    let is_replacement =
        |change: &weir_ebpf::Change| matches!(change, weir_ebpf::Change::Replace(_));
    assert!(
        planned.len() >= 3 && planned.iter().all(is_replacement),
        "{planned:?}"
    );
    redirect(&mounted, netns, &wanted);
    let mut reader = open(&bpffs, &[Verdict::Dropped]);
    connect(&lab, Place::Pod, to);
    read_until("a drop", &mut reader, |e| {
        e.reason.name() == "no_outbound_listener"
    });
}
