//! Frames with tags of VLAN ID 0, which only carry a priority: the kernel delivers them as if untagged, whatever the number of tags.
//!
//! Before the programs run, the kernel has removed the first tag, but no further ones.

use crate::ebpf::{answer, applied, bpffs, web};
use crate::leaks::{frames, parse};
use crate::scene::{OUTSIDE, POD, PROXY, SECOND, Scene, Servers, connects, inside};
use socket2::Socket;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use weir_ebpf::asm::{Assembler, Helper, Reg};
use weir_netlink::Netns;
use weir_netlink::route::{Filter, FilterKind, Qdisc, Routing, TcHandle};
use weir_testing::BpfFs;

/// Adds `tags` tags to every frame that leaves through `eth0`.
pub(crate) fn tag(netns: &Netns, tags: usize) {
    use Reg::{R0, R1, R2, R3, R6};
    let mut asm = Assembler::new();
    asm.mov(R6, R1);
    for _ in 0..tags {
        asm.mov(R1, R6);
        // 802.1Q
        asm.mov(R2, 0);
        asm.mov(R3, 0);
        asm.call(Helper::VlanPush);
    }
    asm.mov(R0, 0);
    asm.exit();
    let program = asm.finish().unwrap().load("tags", &[]).unwrap();
    let routing = Routing::open_in(netns).unwrap();
    let index = routing.link("eth0").unwrap().index;
    assert!(routing.add_qdisc(&Qdisc::clsact(index)).unwrap());
    let kind = FilterKind::bpf(program.as_fd(), "tags");
    let filter = Filter::new(index, TcHandle::EGRESS, 1, kind);
    assert!(routing.add_filter(&filter).unwrap());
}

fn untag(netns: &Netns) {
    let routing = Routing::open_in(netns).unwrap();
    let index = routing.link("eth0").unwrap().index;
    assert!(routing.delete_qdisc(&Qdisc::clsact(index)).unwrap());
}

/// Whether the frames contain the first segment of a connection from this place, under any tags.
///
/// Later segments may belong to a previous connection, which the proxy ends at any time.
fn has_syn(frames: &Socket, from: u8) -> bool {
    frames.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; 1 << 17];
    let mut found = false;
    while let Ok(n) = (&*frames).read(&mut buffer) {
        let mut frame = buffer[..n].to_vec();
        while frame.get(12..14) == Some(&[0x81, 0x00]) {
            frame.drain(12..16);
        }
        let is_it = parse(&frame).is_some_and(|(source, protocol, segment)| {
            let is_from = (source, protocol) == (inside(from, source.is_ipv6()), 6);
            // SYN without ACK.
            is_from && segment.get(13).is_some_and(|flags| flags & 0x12 == 0x02)
        });
        found |= is_it;
    }
    found
}

/// Without programs the peer answers. With programs the proxy answers as long as they can parse the frame; otherwise nothing does.
fn check(
    scene: &Scene,
    mounted: &BpfFs,
    [(from, own), (at, to)]: [(&Netns, u8); 2],
    [plain, captured]: [&str; 2],
) {
    let said = |to: SocketAddr| connects(from, to).then(|| answer(from, to));
    let config = scene.config(&[(PROXY, 1)], "");
    for tags in 0..=3 {
        tag(from, tags);
        for (expected, is_applied) in [
            (Some(plain), false),
            (Some(captured).filter(|_| tags < 2), true),
        ] {
            if is_applied {
                applied(scene, mounted, &config);
            }
            for v6 in [false, true] {
                let what = format!("{tags} tags, {plain}, programs: {is_applied}, IPv6: {v6}");
                let came = frames(at);
                assert_eq!(said(web(to, v6)).as_deref(), expected, "{what}");
                // The proxy sends with the sender's address as well.
                assert_eq!(has_syn(&came, own), expected.is_some(), "{what}");
            }
        }
        weir_node_ambient::ebpf::remove(&scene.node, &bpffs(mounted), Some(&config)).unwrap();
        untag(from);
    }
}

fn mounts() -> impl Iterator<Item = BpfFs> {
    BpfFs::each(|| weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok())
}

// matrix: every
#[test]
fn programs_let_no_tagged_frame_past_the_proxy() {
    for mounted in mounts() {
        let Some(scene) = Scene::build() else { return };
        let _servers = Servers::start(&scene);
        let expected = ["outside|x", "outbound|outside|x"];
        check(
            &scene,
            &mounted,
            [(&scene.pod, POD), (&scene.outside, OUTSIDE)],
            expected,
        );
    }
}

/// A bridge forwards such frames from one port to the other.
// matrix: every
#[test]
fn programs_let_no_tagged_frame_past_the_proxy_at_a_bridge() {
    for mounted in mounts() {
        let Some(scene) = Scene::bridged() else {
            return;
        };
        let servers = Servers::start(&scene);
        servers.echo(&scene.second, "neighbour");
        let expected = ["pod|x", "inbound|pod|x"];
        check(
            &scene,
            &mounted,
            [(&scene.second, SECOND), (&scene.pod, POD)],
            expected,
        );
        let expected = ["neighbour|x", "outbound|neighbour|x"];
        check(
            &scene,
            &mounted,
            [(&scene.pod, POD), (&scene.second, SECOND)],
            expected,
        );
    }
}
