//! Acceptance check 3 of eBPF mode: programs of other writers at the pod's link.

use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::scene::{OUTSIDE, PATIENCE, POD, PROXY, Scene, Servers, inside};
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_bpf::{
    Anchor, BPF_MAP_TYPE_ARRAY, BPF_TCX_EGRESS, BPF_TCX_INGRESS, Link, Map, Program, attached,
};
use weir_ebpf::asm::{Alu, Assembler, Helper, If, MapRef, Reg, Size};
use weir_netlink::Netns;
use weir_netlink::route::{Filter, FilterKind, Qdisc, Routing, TcHandle};
use weir_node_ambient::ebpf::{compare, remove};
use weir_testing::{BpfFs, Ends, sockets};

/// The program drops datagrams to this port.
const DROPPED: u16 = 7007;
const OTHER: u16 = 7008;

/// `enum bpf_hdr_start_off` (`linux/bpf.h`): offsets count from the IP header.
const BPF_HDR_START_NET: i32 = 1;
const UDP: i32 = 17;
/// `TC_ACT_SHOT`; `NEXT` lets the next program decide.
const DROP: i32 = 2;
const NEXT: i32 = -1;
/// `TC_ACT_OK`: no later program decides.
const PASS: i32 = 0;

/// Counts and drops IPv4 datagrams to the port. Returns `rest` for all other packets.
fn program(counter: &Map, rest: i32) -> Program {
    use Reg::{R0, R1, R2, R3, R4, R5, R10};
    const HEADERS: i16 = -32;
    const KEY: i16 = -40;
    let mut asm = Assembler::new();
    let [next, drop] = [(); 2].map(|()| asm.label());
    asm.mov(R2, 0);
    asm.mov(R3, R10);
    asm.alu(Alu::Add, R3, i32::from(HEADERS));
    asm.mov(R4, 24);
    asm.mov(R5, BPF_HDR_START_NET);
    asm.call(Helper::LoadBytesRelative);
    asm.jump_if(If::Ne, R0, 0, next);
    asm.load(Size::B, R1, R10, HEADERS + 9);
    asm.jump_if(If::Ne, R1, UDP, next);
    asm.load(Size::H, R1, R10, HEADERS + 22);
    asm.jump_if(If::Ne, R1, i32::from(DROPPED.to_be()), next);
    asm.store(Size::W, R10, KEY, 0);
    asm.map(R1, MapRef(0));
    asm.mov(R2, R10);
    asm.alu(Alu::Add, R2, i32::from(KEY));
    asm.call(Helper::MapLookup);
    asm.jump_if(If::Eq, R0, 0, drop);
    asm.mov(R1, 1);
    asm.atomic_add(R0, 0, R1);
    asm.bind(drop);
    asm.mov(R0, DROP);
    asm.exit();
    asm.bind(next);
    asm.mov(R0, rest);
    asm.exit();
    asm.finish().unwrap().load("another", &[counter]).unwrap()
}

/// The method of attaching the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Link,
    Filter,
}

/// Attaches programs at both hooks of the pod's link: from the pod, and to it. Links exist as long as the returned values.
fn attach(scene: &Scene, programs: &[Program; 2], way: Way) -> Vec<Link> {
    // Like Cilium's filters, with preference 1 and handle 1.
    attach_at((&scene.node, "v1"), programs, (way, 1))
}

fn attach_at(
    (netns, interface): (&Netns, &str),
    programs: &[Program; 2],
    (way, handle): (Way, u32),
) -> Vec<Link> {
    let attach = || {
        let routing = Routing::open().unwrap();
        let index = routing.link(interface).unwrap().index;
        let mut links = Vec::new();
        if way == Way::Link {
            for (program, hook) in programs.iter().zip([BPF_TCX_INGRESS, BPF_TCX_EGRESS]) {
                links.push(Link::to_interface(program, index, hook, Anchor::First).unwrap());
            }
            return links;
        }
        routing.add_qdisc(&Qdisc::clsact(index)).unwrap();
        for (program, parent) in programs.iter().zip([TcHandle::INGRESS, TcHandle::EGRESS]) {
            let kind = FilterKind::bpf(program.as_fd(), "another");
            let filter = Filter {
                handle,
                ..Filter::new(index, parent, 1, kind)
            };
            assert!(routing.add_filter(&filter).unwrap());
        }
        links
    };
    netns.run(attach).unwrap()
}

fn bound(netns: &Netns, at: impl Into<SocketAddr>) -> UdpSocket {
    let at = at.into();
    let bind = || sockets::bound(|| UdpSocket::bind(at));
    let socket = netns.run(bind).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// In both directions, a datagram to the port is dropped and counted, and one to another port arrives.
fn runs(scene: &Scene, counters: &[Map; 2]) {
    let counted = |counter: &Map| {
        let value = counter.get(&0_u32.to_ne_bytes()).unwrap().unwrap();
        u64::from_ne_bytes(value.try_into().unwrap())
    };
    let ends = [(&scene.pod, POD), (&scene.outside, OUTSIDE)];
    for (ends, counter) in [[ends[0], ends[1]], [ends[1], ends[0]]]
        .iter()
        .zip(counters)
    {
        let [(from, of), (to, place)] = *ends;
        let at = |port| SocketAddr::new(inside(place, false), port);
        let sender = bound(from, (inside(of, false), 0));
        let [dropped, other] = [DROPPED, OTHER].map(|port| bound(to, at(port)));
        let before = counted(counter);
        for _ in 0..3 {
            sender.send_to(b"dropped", at(DROPPED)).unwrap();
        }
        sender.send_to(b"other", at(OTHER)).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(other.recv(&mut buffer).unwrap(), 5);
        assert_eq!(counted(counter) - before, 3, "to {place}");
        dropped.set_nonblocking(true).unwrap();
        assert!(dropped.recv(&mut buffer).is_err());
    }
}

fn counter() -> Map {
    Map::create(BPF_MAP_TYPE_ARRAY, 4, 8, 1, 0).unwrap()
}

/// A program of another writer at the pod's link keeps running beside weir's and after their removal, whichever method either uses.
// matrix: every
#[test]
fn check_3_programs_of_others_stay() {
    let ways: &[Way] = match attached(1, BPF_TCX_INGRESS) {
        Ok(_) => &[Way::Link, Way::Filter],
        Err(_) => &[Way::Filter],
    };
    for way in ways {
        for (scene, mounted) in builds() {
            let servers = Servers::start(&scene);
            let counters = [counter(), counter()];
            let others = [&counters[0], &counters[1]].map(|counter| program(counter, NEXT));
            let links = attach(&scene, &others, *way);
            let programs = || {
                let shown = weir_ebpf::show::read(&scene.node, Some(&bpffs(&mounted))).unwrap();
                let at = shown
                    .programs
                    .into_iter()
                    .filter(|p| p.interface == "v1" && p.hook.contains("ingress"));
                at.map(|p| p.name).collect::<Vec<_>>()
            };
            assert_eq!(programs(), ["another"]);
            runs(&scene, &counters);
            let config = scene.config(&[(PROXY, 1)], "");
            applied(&scene, &mounted, &config);
            let both = programs();
            let weir = both.iter().position(|name| name.starts_with("weir_o"));
            assert!(both.len() == 2 && weir.is_some(), "{both:?}");
            // If both use the same method, weir's program runs first.
            if mounted.by_filters() == (*way == Way::Filter) {
                assert_eq!(weir, Some(0), "{both:?}");
            }
            runs(&scene, &counters);
            let captured = || {
                for v6 in [false, true] {
                    assert_eq!(answer(&scene.pod, web(OUTSIDE, v6)), "outbound|outside|x");
                    assert_eq!(answer(&scene.outside, web(POD, v6)), "inbound|pod|x");
                }
            };
            captured();
            // Changes of weir's programs do not affect the other ones.
            applied(&scene, &mounted, &scene.config(&[], ""));
            runs(&scene, &counters);
            applied(&scene, &mounted, &config);
            runs(&scene, &counters);
            captured();
            remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
            assert_eq!(programs(), ["another"]);
            runs(&scene, &counters);
            assert_eq!(answer(&scene.pod, web(OUTSIDE, false)), "outside|x");
            drop((links, servers));
        }
    }
}

/// The writers of the programs at the ingress hook of an interface, in the order in which the programs run.
fn writers(netns: &Netns, interface: &str, mounted: &BpfFs) -> Vec<&'static str> {
    let shown = weir_ebpf::show::read(netns, Some(&bpffs(mounted))).unwrap();
    let at =
        |p: &&weir_ebpf::show::Attached| p.interface == interface && p.hook.contains("ingress");
    let all = shown.programs.iter().filter(at);
    let writer = |name: &str| if name == "another" { "another" } else { "weir" };
    all.map(|p| writer(&p.name)).collect()
}

/// Another writer attaches programs before those of weir: weir reports a difference, and moves its own to the front without a gap in which
/// a connection could pass. The other programs stay.
// matrix: every
#[test]
fn check_3_programs_come_first_again() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], "");
        applied(&scene, &mounted, &config);
        let way = match mounted.by_filters() {
            true => Way::Filter,
            false => Way::Link,
        };
        let places = [
            (&scene.node, "v1"),
            (&scene.node, "v2"),
            (&scene.proxy, "eth0"),
        ];
        let mut held = Vec::new();
        for (handle, rest) in (1..).zip([NEXT, NEXT, NEXT, PASS]) {
            let counters = [counter(), counter()];
            for (netns, interface) in places {
                // A program cannot be attached twice to one hook.
                let programs = [&counters[0], &counters[1]].map(|of| program(of, rest));
                held.extend(attach_at((netns, interface), &programs, (way, handle)));
                assert_eq!(writers(netns, interface, &mounted)[0], "another");
            }
            if rest == PASS {
                assert_eq!(answer(&scene.pod, web(OUTSIDE, false)), "outside|x");
            }
            let found = compare(&config, &scene.node, &bpffs(&mounted))
                .unwrap()
                .steps;
            for steps in [&found.host, &found.proxy] {
                let lines = steps.iter().map(ToString::to_string);
                let is_named = |line: &String| {
                    line.starts_with("move before program ")
                        && line.contains(" (another) of another writer: weir_")
                };
                assert!(
                    !steps.is_empty() && lines.clone().all(|l| is_named(&l)),
                    "{found:#?}"
                );
            }
            let end = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let ends = Ends(&end);
                let asks = scope.spawn(|| {
                    let mut said = BTreeSet::new();
                    while rest == NEXT && !end.load(Ordering::Relaxed) {
                        said.insert(answer(&scene.pod, web(OUTSIDE, said.len() > 1)));
                    }
                    said
                });
                applied(&scene, &mounted, &config);
                drop(ends);
                let said = asks.join().unwrap();
                assert!(said.iter().all(|s| s == "outbound|outside|x"), "{said:?}");
            });
            for (netns, interface) in places {
                let order = writers(netns, interface, &mounted);
                assert_eq!(order[..2], ["weir", "another"], "{interface}: {order:?}");
                assert_eq!(order.len(), 1 + handle as usize, "{interface}: {order:?}");
            }
            if handle == 1 {
                runs(&scene, &counters);
            }
            for v6 in [false, true] {
                assert_eq!(answer(&scene.pod, web(OUTSIDE, v6)), "outbound|outside|x");
                assert_eq!(answer(&scene.outside, web(POD, v6)), "inbound|pod|x");
            }
        }
        remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
        assert_eq!(writers(&scene.node, "v1", &mounted), ["another"; 4]);
        drop((held, servers));
    }
}
