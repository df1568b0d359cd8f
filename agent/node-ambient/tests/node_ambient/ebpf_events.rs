//! The events that the programs at the node report for real packets.

use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::scene::{LONG, OUTSIDE, POD, PROXY, SECOND, Servers, connects, inside};
use std::time::{Duration, Instant};
use weir_ebpf::events::{Event, Reader, Verdict};
use weir_node_ambient::ebpf::{apply, compare, remove};

fn read_until(reader: &mut Reader, is_it: impl Fn(&Event) -> bool) -> Event {
    let begun = Instant::now();
    let mut seen = Vec::new();
    loop {
        assert!(begun.elapsed() < LONG, "{seen:#?}");
        reader.wait(Duration::from_millis(100)).unwrap();
        let events = reader.read().unwrap();
        if let Some(event) = events.iter().find(|event| is_it(event)) {
            return event.clone();
        }
        seen.extend(events);
    }
}

/// Connections that the proxy receives, connections that are excluded or the node's own, and connections that are dropped without a proxy
/// or its listener: each event has both addresses.
// matrix: every
#[test]
fn what_becomes_of_connections_is_reported() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        let bpffs = bpffs(&mounted);
        if !bpffs.has_events().unwrap() {
            println!("skipped: map ringbuf (since 5.8)");
            return;
        }
        let node = scene.node.id().ino;
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        let mut reader = Reader::open(&bpffs, &Verdict::ALL).unwrap().unwrap();
        let mut expect = |verdict: Verdict, reason: &str, v6, own: u8| {
            let event = read_until(&mut reader, |event| {
                let is_of_family = event.ends.is_some_and(|[s, _]| s.address.is_ipv6() == v6);
                event.reason.name() == reason && is_of_family
            });
            assert_eq!(
                (event.netns, event.reason.verdict()),
                (node, verdict),
                "{event}"
            );
            let end = event.own().map(|end| end.address);
            assert_eq!(end, Some(inside(own, v6)), "{event}");
        };
        for v6 in [false, true] {
            assert_eq!(answer(&scene.pod, web(OUTSIDE, v6)), "outbound|outside|x");
            expect(Verdict::Captured, "outbound", v6, POD);
            assert_eq!(answer(&scene.outside, web(POD, v6)), "inbound|pod|x");
            expect(Verdict::Captured, "inbound", v6, POD);
            assert_eq!(answer(&scene.node, web(POD, v6)), "pod|x");
            expect(Verdict::Passed, "node", v6, POD);
        }
        let more = r#", "exclude": {"outbound_ports": [8080]}"#;
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], more));
        for v6 in [false, true] {
            assert_eq!(answer(&scene.pod, web(OUTSIDE, v6)), "outside|x");
            expect(Verdict::Passed, "excluded", v6, POD);
        }
        // No process listens in the second proxy's namespace.
        applied(&scene, &mounted, &scene.config(&[(SECOND, 1)], ""));
        assert!(!connects(&scene.pod, web(OUTSIDE, false)));
        expect(Verdict::Dropped, "no_outbound_listener", false, POD);
        assert!(!connects(&scene.outside, web(POD, true)));
        expect(Verdict::Dropped, "no_inbound_listener", true, POD);
        applied(&scene, &mounted, &scene.config(&[], ""));
        assert!(!connects(&scene.pod, web(OUTSIDE, false)));
        expect(Verdict::Dropped, "no_proxy", false, POD);
        drop(servers);
    }
}

/// As on a kernel before 5.8, the programs capture and count, but report nothing. Removal leaves no pin in either case.
// matrix: every
#[test]
fn without_ring_buffers_programs_capture_and_count() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], "");
        let without = bpffs(&mounted).without_events();
        apply(&config, &scene.node, &without).unwrap();
        assert!(compare(&config, &scene.node, &without).unwrap().is_empty());
        assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outbound|outside|x");
        assert!(Reader::open(&without, &Verdict::ALL).unwrap().is_none());
        let left = || {
            let entries = std::fs::read_dir(mounted.path().join("weir")).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name());
            names.collect::<Vec<_>>()
        };
        assert_eq!(left(), ["v2"]);
        let closed = scene.config(&[], "");
        apply(&closed, &scene.node, &without).unwrap();
        assert!(!connects(&scene.pod, web(OUTSIDE, false)));
        let counters = weir_ebpf::node::Node::of(&scene.node, &without).counters();
        let dropped = counters.unwrap().into_iter();
        let dropped = dropped.filter(|(name, _)| name.contains("no proxy"));
        assert!(dropped.map(|(_, count)| count).sum::<u64>() > 0);
        // With ring buffers, and without them again.
        applied(&scene, &mounted, &config);
        assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outbound|outside|x");
        remove(&scene.node, &without, Some(&config)).unwrap();
        assert_eq!(left(), ["v2"]);
    }
}
