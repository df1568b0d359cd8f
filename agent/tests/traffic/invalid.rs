//! Packets that belong to no connection.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use serde_json::json;
use socket2::{Domain, Protocol, Socket, Type};
use weir_demo::{Place, Receiver};
use weir_netlink::route::AddressFamily;

use crate::support::{CASES, Pod, each, tcp};

const CLOSED_PORT: u16 = 4321;
/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOSE: &str = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose";

/// A TCP segment with only the ACK flag: an answer within a connection that nothing opened.
fn stray_ack(from: IpAddr, to: SocketAddr) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(40_000u16.to_be_bytes());
    segment.extend(to.port().to_be_bytes());
    segment.extend([0, 0, 0, 1, 0, 0, 0, 1]); // sequence, acknowledgement
    segment.extend([5 << 4, 0x10, 0x10, 0]); // 20 bytes, ACK, window
    segment.extend([0; 4]); // checksum, urgent
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (from, to.ip()) else {
        panic!("IPv4 only: its checksum is made here")
    };
    let mut summed = [source.octets(), destination.octets()].concat();
    summed.extend([0, 6, 0, 20]); // protocol and length of the pseudo header
    summed.extend(&segment);
    let words = summed
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = u16::try_from((folded & 0xffff) + (folded >> 16)).expect("folded");
    segment[16..18].copy_from_slice(&(!folded).to_be_bytes());
    segment
}

/// Returns true if the pod answered a stray segment with a reset. Waits for an answer that is expected.
fn is_answered(pod: &Pod<'_>, should: bool) -> bool {
    let raw = pod
        .lab
        .netns(Place::Client)
        .run(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP)))
        .expect("entered")
        .expect("raw socket");
    raw.set_nonblocking(true).expect("non-blocking");
    let to = pod.at(Place::Pod, AddressFamily::V4, CLOSED_PORT);
    let segment = stray_ack(pod.lab.address(Place::Client, AddressFamily::V4), to);
    // The first flow resolves the neighbours; the second one arrives after any answer.
    let flow = || {
        tcp(
            "before and after",
            Place::Client,
            pod.at(Place::Pod, AddressFamily::V4, 8080),
        )
    };
    pod.expect(flow(), Receiver::ProxyInbound);
    raw.send_to(&segment, &to.into()).expect("sent");
    pod.expect(flow(), Receiver::ProxyInbound);
    let mut packet = [0; 256];
    let begun = Instant::now();
    loop {
        while let Ok(length) = (&raw).read(&mut packet) {
            let tcp_header = &packet[20..length];
            let reset = tcp_header[13] & 0x04 != 0;
            if reset && tcp_header[..2] == CLOSED_PORT.to_be_bytes() {
                return true;
            }
        }
        // On a busy machine, processors may handle packets in another order.
        if !should || begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn packets_of_no_connection_are_dropped_when_asked_for() {
    for drop_invalid in [false, true] {
        each(&CASES, json!({ "drop_invalid": drop_invalid }), |pod| {
            // Otherwise conntrack would take the segment for the middle of a connection.
            let strict = pod.lab.netns(Place::Pod).run(|| std::fs::write(LOOSE, "0"));
            strict.expect("entered").expect("set");
            // With TPROXY the inbound listener may receive the segment, and answers as well.
            assert_eq!(
                is_answered(pod, !drop_invalid),
                !drop_invalid,
                "{:?}, {drop_invalid}",
                pod.case
            );
        });
    }
}
