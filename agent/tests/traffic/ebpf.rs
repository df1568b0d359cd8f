//! Properties of redirection by eBPF inside the pod that only this engine has.
//!
//! `ambient.rs` and `ambient_pods.rs` test that it decides like the other engines.
// matrix: smoke

use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use serde_json::json;
use socket2::{Domain, Socket, Type};
use weir_ambient::Redirect;
use weir_bpf::{self as bpf, BPF_TCX_INGRESS, attached};
use weir_demo::{Lab, Place, Receiver, Stage};
use weir_ebpf::show::Attached;
use weir_ebpf::{Bpffs, Pod as EbpfPod};
use weir_netlink::Netns;
use weir_netlink::route::AddressFamily;
pub(super) use weir_testing::mount_for_links as mount;
use weir_testing::{BpfFs, sockets};

use crate::ambient::{lab_with_probes, probe, wanted};
use crate::support::{Pod, tcp};

pub(super) fn bpffs(mounted: &BpfFs) -> Bpffs {
    Bpffs::at(mounted.path()).unwrap_or_else(|e| panic!("{e}"))
}

/// Redirects a namespace as the agent does.
pub(super) fn redirect(mounted: &BpfFs, netns: &Netns, wanted: &Redirect) {
    let bpffs = bpffs(mounted);
    let pod = EbpfPod::of(netns, &bpffs).unwrap_or_else(|e| panic!("{e}"));
    pod.apply(wanted).unwrap_or_else(|e| panic!("{e}"));
    let left = pod.verify(wanted).unwrap_or_else(|e| panic!("{e}"));
    assert!(left.is_empty(), "{left:?}");
}

fn switches(netns: &Netns) -> [String; 2] {
    ["accept_local", "route_localnet"].map(|name| {
        let read = || std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/lo/{name}"));
        netns.run(read).expect("entered").expect("read")
    })
}

/// Applying twice changes nothing the second time, and after the removal the receivers get plain text.
#[test]
fn applied_twice_is_once_and_removal_leaves_nothing() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    let (netns, wanted) = (lab.netns(Place::Pod), wanted(true, &json!({})));
    let state = || {
        let bpffs = bpffs(&mounted);
        let shown = weir_ebpf::show::read(netns, Some(&bpffs)).expect("read");
        let switches = switches(netns);
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
    // Only interfaces of the lab: a kernel with GRE adds gretap0 and erspan0 to every network namespace.
    let of_lab = |p: &&Attached| ["lo", "eth0"].contains(&p.interface.as_str());
    assert_eq!(shown.programs.iter().filter(of_lab).count(), 3, "{text}");
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
    let families = lab.families().len() as u64;
    let counted = (count(&pod, "outbound"), count(&pod, "inbound"));
    assert_eq!(counted, (families, families));
    for name in ["fragments", "cannot be read", "no memory"] {
        assert_eq!(count(&pod, name), 0, "{name}");
    }

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

/// The value of the counter whose name contains `name`.
pub(super) fn count(pod: &EbpfPod<'_>, name: &str) -> u64 {
    let counters = pod.counters().expect("counters");
    counters
        .iter()
        .find(|(n, _)| n.contains(name))
        .expect(name)
        .1
}

/// Waits until the condition holds.
#[track_caller]
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::yield_now();
    }
}

/// A SYN from port 40000 to `port`. The kernel drops it because of its checksum, after the programs have run.
pub(super) fn syn(port: u16) -> Vec<u8> {
    let mut tcp = vec![0; 20];
    tcp[..2].copy_from_slice(&40_000u16.to_be_bytes());
    tcp[2..4].copy_from_slice(&port.to_be_bytes());
    (tcp[12], tcp[13], tcp[14]) = (5 << 4, 2, 1);
    tcp
}

/// Sends a packet with its IP header from the client (`IPPROTO_RAW`).
fn send(lab: &Lab, packet: &[u8], to: SocketAddr) {
    let raw = Some(socket2::Protocol::from(255));
    let open = || Socket::new(Domain::for_address(to), Type::RAW, raw);
    let socket = lab
        .netns(Place::Client)
        .run(open)
        .expect("entered")
        .expect("a raw socket");
    socket.send_to(packet, &to.into()).expect("sent");
}

/// Sends an IPv4 packet from the client; the kernel fills in length, identification and checksum.
pub(super) fn send4(lab: &Lab, options: &[u8], fragment: u16, payload: &[u8]) {
    let ips = [Place::Client, Place::Pod].map(|place| lab.address(place, AddressFamily::V4));
    let [IpAddr::V4(from), IpAddr::V4(to)] = ips else {
        unreachable!()
    };
    let words = u8::try_from(5 + options.len() / 4).expect("short");
    let mut packet = vec![0x40 | words, 0, 0, 0, 0x12, 0x34];
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, 6, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(options);
    packet.extend(payload);
    send(lab, &packet, (to, 0).into());
}

/// Like [`send4`] for IPv6; `extensions` contains all extension headers, of which the first is of type `next`.
fn send6(lab: &Lab, next: u8, extensions: &[u8], payload: &[u8]) {
    let ips = [Place::Client, Place::Pod].map(|place| lab.address(place, AddressFamily::V6));
    let [IpAddr::V6(from), IpAddr::V6(to)] = ips else {
        unreachable!()
    };
    let length = u16::try_from(extensions.len() + payload.len()).expect("short");
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(extensions);
    packet.extend(payload);
    send(lab, &packet, (to, 0).into());
}

/// IP options and extension headers do not hide a connection. TCP fragments are dropped because they lack the ports.
#[test]
fn headers_that_hide_the_ports_do_not_pass_the_capture_by() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    redirect(&mounted, lab.netns(Place::Pod), &wanted(true, &json!({})));
    let _stage = Stage::ambient(&lab).expect("all listeners");
    let bpffs = bpffs(&mounted);
    let pod = EbpfPod::of(lab.netns(Place::Pod), &bpffs).expect("a pod");
    // Four NOPs.
    send4(&lab, &[1; 4], 0, &syn(8080));
    until("IP options", || count(&pod, "inbound") == 1);
    // A fragment with the flag More Fragments; then the rest at offset 8.
    send4(&lab, &[], 0x2000, &syn(8080)[..8]);
    send4(&lab, &[], 1, &syn(8080)[8..]);
    until("fragments", || count(&pod, "fragments") == 2);
    if lab.families().len() == 2 {
        // Destination options with padding, twice; then the fragment header of an unfragmented packet.
        let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
        let whole = [6, 0, 0, 0, 0, 0, 0, 7];
        let extensions = [options(60), options(44), whole].concat();
        send6(&lab, 60, &extensions, &syn(8080));
        until("extension headers", || count(&pod, "inbound") == 2);
        send6(&lab, 44, &[6, 0, 0, 1, 0, 0, 0, 7], &syn(8080));
        until("fragments of IPv6", || count(&pod, "fragments") == 3);
        // More headers than the programs read.
        let many: Vec<u8> = (0..7)
            .flat_map(|n| options(if n == 6 { 6 } else { 60 }))
            .collect();
        send6(&lab, 60, &many, &syn(8080));
        until("too many headers", || count(&pod, "cannot be read") == 1);
    }
    assert_eq!(count(&pod, "fragments"), lab.families().len() as u64 + 1);
}

/// Acceptance check 6 of eBPF mode, inside the pod: without ztunnel nothing passes in plain text, but probes pass.
#[test]
fn check_6_without_ztunnel_nothing_passes_and_probes_do() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    redirect(&mounted, lab.netns(Place::Pod), &wanted(false, &json!({})));
    let bpffs = bpffs(&mounted);
    let pod = EbpfPod::of(lab.netns(Place::Pod), &bpffs).expect("a pod");
    for &family in lab.families() {
        let any: IpAddr = match family {
            AddressFamily::V4 => std::net::Ipv4Addr::UNSPECIFIED.into(),
            AddressFamily::V6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let listen = |place, port| {
            // Another process may have a copy of the listener of the other family for a moment.
            let open = || TcpListener::bind(SocketAddr::new(any, port));
            let listener = lab
                .netns(place)
                .run(|| sockets::bound(open))
                .expect("entered")
                .expect("a listener");
            listener.set_nonblocking(true).expect("set");
            listener
        };
        // The application also listens on the port that it connects to: a connection must not reach its own sender.
        let listeners = [
            listen(Place::Server, 80),
            listen(Place::Pod, 80),
            listen(Place::Pod, 8080),
        ];
        let connect = |from, to: SocketAddr, source: Option<IpAddr>| {
            // Only probes have a source address, and only they are answered.
            let limit = match source {
                Some(_) => Duration::from_secs(10),
                None => Duration::from_millis(300),
            };
            let open = || {
                let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
                if let Some(source) = source {
                    socket.bind(&SocketAddr::new(source, 0).into())?;
                }
                socket.connect_timeout(&to.into(), limit)?;
                Ok::<_, std::io::Error>(socket)
            };
            lab.netns(from).run(open).expect("entered")
        };
        let to = SocketAddr::new(lab.service(family), 80);
        let out = connect(Place::Pod, to, None).expect_err("nobody answers");
        assert_eq!(out.kind(), std::io::ErrorKind::TimedOut, "{out}");
        let to = SocketAddr::new(lab.address(Place::Pod, family), 8080);
        let inside = connect(Place::Client, to, None).expect_err("nobody answers");
        assert_eq!(inside.kind(), std::io::ErrorKind::TimedOut, "{inside}");
        for listener in &listeners {
            let error = listener.accept().expect_err("no connection");
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        }
        let of_kubelet = connect(Place::Client, to, Some(probe(family)));
        of_kubelet.unwrap_or_else(|e| panic!("a probe: {e}"));
    }
    assert!(count(&pod, "port 15001") >= 1 && count(&pod, "port 15006") >= 1);
}

/// Acceptance check 5 of eBPF mode: other programs and another layout replace the attached ones, which capture all the time.
#[test]
fn check_5_programs_and_layouts_are_replaced_in_place() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    let netns = lab.netns(Place::Pod);
    let unchanged = switches(netns);
    redirect(&mounted, netns, &wanted(false, &json!({})));
    let stage = Stage::ambient(&lab).expect("all listeners");
    let flows = Pod::by_ebpf(stage, &lab, &mounted);
    let bpffs = bpffs(&mounted);
    let links = || {
        let shown = weir_ebpf::show::read(netns, Some(&bpffs)).expect("read");
        let link = |p: &weir_ebpf::show::Attached| (p.interface.clone(), p.link);
        shown.programs.iter().map(link).collect::<Vec<_>>()
    };
    let captured = || {
        for &family in lab.families() {
            flows.expect(
                tcp("out", Place::Pod, flows.service(family, 80)),
                Receiver::ProxyOutbound,
            );
            let to = flows.at(Place::Pod, family, 8080);
            flows.expect(tcp("in", Place::Client, to), Receiver::ProxyInbound);
        }
    };
    let before = links();
    redirect(&mounted, netns, &wanted(true, &json!({})));
    assert_eq!(links(), before, "the links stay, their programs are others");
    captured();

    // The directory that an older version with another layout left.
    let (old, new) = (
        mounted.path().join("weir/v1"),
        mounted.path().join("weir/v2"),
    );
    let name = netns.id().ino.to_string();
    let make_old = || std::fs::rename(new.join(&name), old.join(&name)).expect("renamed");
    std::fs::create_dir(&old).expect("a folder");
    make_old();
    captured();
    let pod = EbpfPod::of(netns, &bpffs).expect("a pod");
    assert!(pod.plan(&wanted(true, &json!({}))).expect("planned").len() > 3);
    redirect(&mounted, netns, &wanted(true, &json!({})));
    let after = links();
    assert_eq!(after.len(), before.len());
    assert!(after.iter().all(|link| !before.contains(link)), "{after:?}");
    assert!(!old.join(&name).exists());
    captured();
    pod.remove().expect("removed");
    assert_eq!(links(), []);
    assert_eq!(switches(netns), unchanged, "the older version knew it");

    redirect(&mounted, netns, &wanted(true, &json!({})));
    make_old();
    let planned = pod.plan_removal().expect("planned");
    assert_eq!(pod.remove().expect("removed"), planned);
    assert_eq!(switches(netns), unchanged);
    assert!(!pod.is_present().expect("read") && pod.plan_removal().expect("planned").is_empty());
}

/// After another program has detached all of weir's programs, the original values of the sysctls are still recorded, and no sweep deletes
/// the record.
#[test]
fn what_was_before_is_known_after_all_programs_were_detached() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    let netns = lab.netns(Place::Pod);
    let unchanged = switches(netns);
    let bpffs = bpffs(&mounted);
    let pod = EbpfPod::of(netns, &bpffs).expect("a pod");
    let folder = mounted.path().join("weir/v2");
    let folder = folder.join(netns.id().ino.to_string());
    let detach_all = || {
        let mut detached = 0;
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            if let Ok(bpf::Pinned::Link(link)) = bpf::open_pin(&entry.path()) {
                link.detach().expect("detached");
                detached += 1;
            }
        }
        assert!(detached >= 3, "{detached}");
    };
    for is_repaired in [true, false] {
        redirect(&mounted, netns, &wanted(true, &json!({})));
        assert_ne!(switches(netns), unchanged);
        detach_all();
        let living = [netns.id().ino];
        let swept = bpffs.sweep(|| Some(living.into())).expect("swept");
        assert_eq!(swept, 0, "the namespace is alive");
        if is_repaired {
            redirect(&mounted, netns, &wanted(true, &json!({})));
        }
        pod.remove().expect("removed");
        assert_eq!(switches(netns), unchanged);
    }
}

/// A pod would stay without redirection until somebody deletes it.
#[test]
fn a_pin_of_another_form_is_replaced() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    let netns = lab.netns(Place::Pod);
    let folder = mounted
        .path()
        .join("weir/v2")
        .join(netns.id().ino.to_string());
    std::fs::create_dir_all(&folder).expect("a folder");
    let foreign = bpf::Map::create(bpf::BPF_MAP_TYPE_ARRAY, 4, 4, 1, 0).expect("a map");
    let pin = folder.join("weir_counts");
    bpf::pin(std::os::fd::AsFd::as_fd(&foreign), &pin).expect("pinned");
    let bpffs = bpffs(&mounted);
    let pod = EbpfPod::of(netns, &bpffs).expect("a pod");
    redirect(&mounted, netns, &wanted(false, &json!({})));
    pod.remove().expect("removed");
    // The pins of a deleted namespace remain, and a sweep removes them.
    redirect(&mounted, netns, &wanted(false, &json!({})));
    drop(lab);
    until("swept", || bpffs.sweep(|| None).expect("swept") == 1);
    assert!(!folder.exists());
}

/// A transparent, marked listener at every address, like ztunnel's.
fn ztunnel_listener(netns: &Netns, family: AddressFamily, port: u16) -> Socket {
    let open = || {
        let (domain, any): (_, IpAddr) = match family {
            AddressFamily::V4 => (Domain::IPV4, std::net::Ipv4Addr::UNSPECIFIED.into()),
            AddressFamily::V6 => (Domain::IPV6, std::net::Ipv6Addr::UNSPECIFIED.into()),
        };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        socket.set_mark(weir_demo::ZTUNNEL_MARK)?;
        match family {
            AddressFamily::V4 => socket.set_ip_transparent_v4(true)?,
            AddressFamily::V6 => socket.set_ip_transparent_v6(true)?,
        }
        // ztunnel sets this option; before Linux 6.6 programs could not assign packets to such sockets.
        socket.set_reuse_port(true)?;
        socket.bind(&SocketAddr::new(any, port).into())?;
        socket.listen(4)?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok::<_, std::io::Error>(socket)
    };
    netns.run(open).expect("entered").expect("a listener")
}

/// Runs `ethtool -K eth0` in the pod and at both ends of its connections. Prints the reason and returns false without the tool.
fn offload(lab: &Lab, gro: &str, tso: &str) -> bool {
    let args = ["-K", "eth0", "gro", gro, "tso", tso];
    [Place::Pod, Place::Client, Place::Server]
        .into_iter()
        .all(|place| {
            let run = || std::process::Command::new("ethtool").args(args).output();
            match lab.netns(place).run(run).expect("entered") {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    let is_needed = std::env::var_os("WEIR_REQUIRE_TOOLS").is_some();
                    assert!(!is_needed, "ethtool: {e}");
                    println!("skipped: no ethtool");
                    false
                }
                run => {
                    let run = run.expect("run");
                    assert!(run.status.success(), "{args:?}: {run:?}");
                    true
                }
            }
        })
}

/// Acceptance check 4 of eBPF mode, inside the pod.
///
/// Segments of up to 64 KiB, which the interface would split or merge, arrive intact in both directions, whatever the offload settings are.
#[test]
fn check_4_offloads_change_nothing() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    redirect(&mounted, lab.netns(Place::Pod), &wanted(true, &json!({})));
    large_segments_arrive(&lab, "as they are");
    for (gro, tso) in [("on", "off"), ("off", "on"), ("off", "off"), ("on", "on")] {
        if !offload(&lab, gro, tso) {
            return;
        }
        large_segments_arrive(&lab, &format!("gro {gro} tso {tso}"));
    }
    let bpffs = bpffs(&mounted);
    let pod = EbpfPod::of(lab.netns(Place::Pod), &bpffs).expect("a pod");
    let rounds = 5 * lab.families().len() as u64;
    assert_eq!(
        (count(&pod, "outbound"), count(&pod, "inbound")),
        (rounds, rounds)
    );
}

fn large_segments_arrive(lab: &Lab, what: &str) {
    const LENGTH: usize = 4 << 20;
    let netns = lab.netns(Place::Pod);
    let text: Vec<u8> = (0..LENGTH).map(|n| ((n * 31) >> 3) as u8).collect();
    let cases = [(Place::Pod, 15001), (Place::Client, 15006)];
    for (&family, (from, port)) in lab
        .families()
        .iter()
        .flat_map(|f| cases.map(|case| (f, case)))
    {
        let listener = ztunnel_listener(netns, family, port);
        let to = match from {
            Place::Pod => SocketAddr::new(lab.service(family), 80),
            _ => SocketAddr::new(lab.address(Place::Pod, family), 8080),
        };
        let open = || std::net::TcpStream::connect_timeout(&to, Duration::from_secs(30));
        let mut asks = lab
            .netns(from)
            .run(open)
            .expect("entered")
            .expect("connected");
        asks.set_read_timeout(Some(Duration::from_secs(30)))
            .expect("set");
        let (mut taken, _) = listener.accept().expect("accepted");
        assert_eq!(
            taken.local_addr().expect("an address").as_socket(),
            Some(to)
        );
        std::thread::scope(|scope| {
            let echo = scope.spawn(|| {
                let mut got = vec![0; LENGTH];
                std::io::Read::read_exact(&mut taken, &mut got).expect("received");
                std::io::Write::write_all(&mut taken, &got).expect("sent");
            });
            std::io::Write::write_all(&mut asks, &text).expect("sent");
            let mut got = vec![0; LENGTH];
            std::io::Read::read_exact(&mut asks, &mut got).expect("received");
            assert!(got == text, "{what}, {to}: other bytes than were sent");
            echo.join().expect("no panic");
        });
        // The listener shares its port, and would get connections as long as another process has a copy of it.
        listener.shutdown(Shutdown::Both).expect("shut down");
    }
}

/// If programs of another writer accept every packet before weir's programs, weir reports a difference, and moves its own to the front.
#[test]
fn programs_come_before_those_of_others_again() {
    let Some(mounted) = mount() else { return };
    let Some(lab) = lab_with_probes() else { return };
    let (netns, wanted) = (lab.netns(Place::Pod), wanted(false, &json!({})));
    redirect(&mounted, netns, &wanted);
    let stage = Stage::ambient(&lab).expect("all listeners");
    let flows = Pod::by_ebpf(stage, &lab, &mounted);
    let arrive = |outbound, inbound| {
        for &family in lab.families() {
            let to = flows.service(family, 80);
            flows.expect(tcp("out", Place::Pod, to), outbound);
            let to = flows.at(Place::Pod, family, 8080);
            flows.expect(tcp("in", Place::Client, to), inbound);
        }
    };
    arrive(Receiver::ProxyOutbound, Receiver::ProxyInbound);
    // `r0 = 0 (TC_ACT_OK); exit`
    let pass = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let hooks = [BPF_TCX_INGRESS, bpf::BPF_TCX_EGRESS];
    let index = || weir_netlink::route::Routing::open()?.link("eth0");
    let index = netns.run(index).expect("entered").expect("eth0").index;
    let attach = |hook| {
        let kind = bpf::BPF_PROG_TYPE_SCHED_CLS;
        let program = bpf::Program::load(kind, 0, &pass, c"GPL").expect("a program");
        let link = bpf::Link::to_interface(&program, index, hook, bpf::Anchor::First);
        link.expect("attached")
    };
    let links = netns.run(|| hooks.map(attach)).expect("entered");
    arrive(Receiver::Server, Receiver::Application);

    let bpffs = bpffs(&mounted);
    let pod = EbpfPod::of(netns, &bpffs).expect("a pod");
    let found = pod.verify(&wanted).expect("read");
    let is_named = |line: &String| {
        line.starts_with("move before program ") && line.contains(" of another writer: weir_")
    };
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(lines.len() == 2 && lines.iter().all(is_named), "{lines:?}");
    redirect(&mounted, netns, &wanted);
    arrive(Receiver::ProxyOutbound, Receiver::ProxyInbound);
    let count = |hook| attached(index, hook).expect("listed").len();
    assert_eq!(netns.run(|| hooks.map(count)).expect("entered"), [2; 2]);
    pod.remove().expect("removed");
    assert_eq!(netns.run(|| hooks.map(count)).expect("entered"), [1; 2]);
    drop(links);
}
