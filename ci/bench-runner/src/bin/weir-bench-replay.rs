//! `weir-bench-replay SCRIPT NETNS`: the floor under a `weir apply`.
//!
//! Enters the namespace and makes the socket calls that `weir apply` made there, with the same
//! bytes, prepared before. It decides nothing, builds nothing, reads no configuration and looks
//! at no answer: what is left is a program's start, the kernel's work, and its end.
//!
//! See `capture.rs` for the script.
#![forbid(unsafe_code)]
// A floor that was not reached must not be measured.
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    socket,
};

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let (script, netns) = (
        arguments.next().expect("SCRIPT"),
        arguments.next().expect("NETNS"),
    );
    let script = std::fs::read(script).expect("the script");
    setns(
        File::open(netns).expect("the namespace"),
        CloneFlags::CLONE_NEWNET,
    )
    .expect("setns");
    let mut sockets: Vec<OwnedFd> = Vec::new();
    let mut buffer = vec![0; 128 << 10];
    let mut rest = script.as_slice();
    while let [call, slot, a, b, c, d, after @ ..] = rest {
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        rest = after;
        match call {
            b'N' => sockets.push(netlink(*slot)),
            b'S' => {
                let (bytes, after) = rest.split_at(length);
                rest = after;
                let sent = send(
                    sockets[usize::from(*slot)].as_raw_fd(),
                    bytes,
                    MsgFlags::empty(),
                );
                assert_eq!(sent, Ok(length));
            }
            b'R' => {
                let fd = sockets[usize::from(*slot)].as_raw_fd();
                recv(fd, &mut buffer, MsgFlags::empty()).expect("an answer");
            }
            // A last look, that finds nothing.
            b'L' => {
                let fd = sockets[usize::from(*slot)].as_raw_fd();
                let _ = recv(fd, &mut buffer, MsgFlags::MSG_DONTWAIT);
            }
            other => panic!("no such call: {other}"),
        }
    }
}

fn netlink(protocol: u8) -> OwnedFd {
    let protocol = match protocol {
        0 => SockProtocol::NetlinkRoute,
        12 => SockProtocol::NetlinkNetFilter,
        other => panic!("no such netlink protocol: {other}"),
    };
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        protocol,
    )
    .expect("a netlink socket");
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0)).expect("bind");
    fd
}
