//! `weir-bench-replay SCRIPT NETNS`: the lower bound of a `weir apply`.
//!
//! Makes the system calls that `weir apply` made, with the same bytes, on the given namespace. The script is prepared
//! in advance: this program makes no decisions, builds no messages, reads no configuration and parses no answers. What
//! remains is the start of a program, the work of the kernel, and the end of the program.
//!
//! See `capture.rs` for the format of the script, and for the calls that it omits.
#![forbid(unsafe_code)]
// A replay that fails must not be measured.
#![allow(clippy::expect_used, clippy::panic)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use neli::consts::socket::{Msg, NlFamily};
use neli::socket::NlSocket;
use neli::utils::Groups;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::fstat;
use nix::sys::statfs::{fstatfs, statfs};

/// The object behind a descriptor of the script.
enum Open {
    No,
    File(File),
    Netlink(NlSocket),
}

impl Open {
    fn file(&mut self) -> &mut File {
        match self {
            Self::File(file) => file,
            _ => panic!("not a file"),
        }
    }

    fn netlink(&self) -> &NlSocket {
        match self {
            Self::Netlink(socket) => socket,
            _ => panic!("not a netlink socket"),
        }
    }
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let (script, netns) = (
        arguments.next().expect("SCRIPT"),
        arguments.next().expect("NETNS"),
    );
    let script = std::fs::read(script).expect("the script");
    let mut open: Vec<Open> = (0..=u8::MAX).map(|_| Open::No).collect();
    replay(&script, &mut open, Path::new(&netns), true);
}

fn replay(script: &[u8], open: &mut [Open], netns: &Path, mut first: bool) {
    let mut buffer = vec![0; 128 << 10];
    let mut rest = script;
    while let [letter, fd, a, b, c, d, after @ ..] = rest {
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let (bytes, after) = after.split_at(length);
        rest = after;
        let slot = open
            .get_mut(usize::from(*fd))
            .expect("there are 256 of them");
        let path = || Path::new(std::str::from_utf8(bytes).expect("a path"));
        match letter {
            b'F' => {
                // The first file is the namespace: the given one replaces that of the script.
                let path = if first { netns } else { path() };
                first = false;
                *slot = Open::File(File::open(path).expect("the file"));
            }
            b'f' => drop(File::open(path())),
            b'M' => drop(std::fs::metadata(path())),
            b'P' => drop(statfs(path())),
            b'A' => drop(fstat(slot.file())),
            b'Q' => drop(fstatfs(slot.file())),
            b'Y' => drop(weir_netlink::namespace_type(slot.file().as_fd())),
            b'D' => drop(slot.file().read(&mut buffer)),
            b'X' => *slot = Open::No,
            b'T' => {
                std::thread::scope(|scope| {
                    std::thread::Builder::new()
                        .name("replay".to_owned())
                        .spawn_scoped(scope, || replay(rest, open, netns, first))
                        .map(|_| ())
                        .expect("a thread");
                });
                return;
            }
            b'E' => setns(slot.file(), CloneFlags::CLONE_NEWNET).expect("setns"),
            b'N' => {
                let family = match bytes {
                    [0] => NlFamily::Route,
                    _ => NlFamily::Netfilter,
                };
                *slot = Open::Netlink(NlSocket::new(family).expect("a netlink socket"));
            }
            b'B' => slot.netlink().bind(None, Groups::empty()).expect("bind"),
            b'O' => match bytes {
                [1] => slot.netlink().enable_ext_ack(true).expect("an option"),
                _ => slot
                    .netlink()
                    .enable_strict_checking(true)
                    .expect("an option"),
            },
            b'S' => {
                let sent = slot.netlink().send(bytes, Msg::empty()).expect("sent");
                assert_eq!(sent, length);
            }
            b'R' => {
                let answer = slot.netlink().recv(&mut buffer, Msg::TRUNC);
                assert!(answer.is_ok(), "an answer");
            }
            // The receive that found the queue empty.
            b'L' => drop(slot.netlink().recv(&mut buffer, Msg::DONTWAIT)),
            b'W' => std::io::stdout().write_all(bytes).expect("written"),
            other => panic!("no such call: {other}"),
        }
    }
}
