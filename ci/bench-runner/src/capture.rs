//! What `weir apply` says to the kernel, as a script for `weir-bench-replay`.
//!
//! strace sees the calls and prints the bytes of each send. The script is a list of calls: a
//! letter, a byte, a 32-bit length in little-endian order, and for a send the bytes.
//!
//! ```text
//! N protocol 0          a socket; they are numbered from 0
//! S socket length       send the bytes that follow
//! R socket 0            receive one datagram
//! L socket 0            look for one without waiting; there was none
//! ```
//!
//! Socket options, epoll and the thread are left out: they are part of how weir does it, and
//! not of what has to be done.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the command under strace and makes the script of its netlink calls.
pub(crate) fn script(command: &[&str], scratch: &Path) -> Result<Vec<u8>, String> {
    let trace = scratch.join("trace");
    let status = Command::new("strace")
        .args([
            "-f",
            "-qq",
            "-s",
            "0",
            "-e",
            "trace=socket,sendto,recvfrom",
            "-e",
            "write=all",
        ])
        .args(["-e", "signal=none", "-o"])
        .arg(&trace)
        .args(command)
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(s) if s.success() => {}
        Ok(s) => return Err(format!("strace of {command:?}: {s}")),
        Err(e) => return Err(format!("strace: {e}; ci/deps installs it")),
    }
    let text = std::fs::read_to_string(&trace).map_err(|e| format!("{}: {e}", trace.display()))?;
    parse(&text)
}

fn parse(trace: &str) -> Result<Vec<u8>, String> {
    let mut script = Vec::new();
    // Descriptor to number of the socket.
    let mut sockets: HashMap<&str, u8> = HashMap::new();
    let mut count = 0;
    let mut lines = trace.lines().peekable();
    while let Some(line) = lines.next() {
        let bad = || format!("cannot read this line of strace: {line}");
        let call = line
            .split_once(' ')
            .map_or("", |(_, call)| call.trim_start());
        let (name, rest) = call.split_once('(').ok_or_else(bad)?;
        let result = line.rsplit_once(" = ").map(|(_, r)| r).ok_or_else(bad)?;
        if name == "socket" {
            let protocol = match rest {
                r if r.contains("NETLINK_ROUTE") => 0,
                r if r.contains("NETLINK_NETFILTER") => 12,
                _ => continue,
            };
            sockets.insert(result, count);
            count += 1;
            script.extend([b'N', protocol, 0, 0, 0, 0]);
            continue;
        }
        let fd = rest.split(',').next().ok_or_else(bad)?;
        let slot = *sockets.get(fd).ok_or_else(bad)?;
        match name {
            "recvfrom" if result.starts_with("-1 EAGAIN") => {
                script.extend([b'L', slot, 0, 0, 0, 0])
            }
            "recvfrom" => script.extend([b'R', slot, 0, 0, 0, 0]),
            "sendto" => {
                let mut bytes = Vec::new();
                // " | 00010  00 0a 08 00 01 00 00 00  00 01 30 00 00 00 00 00  ............0... |"
                while let Some(dump) = lines.next_if(|l| l.starts_with(" | ")) {
                    let hex = dump.get(10..59).ok_or_else(bad)?;
                    for word in hex.split_whitespace() {
                        bytes.push(u8::from_str_radix(word, 16).map_err(|_| bad())?);
                    }
                }
                if result.parse() != Ok(bytes.len()) {
                    return Err(bad());
                }
                let length = u32::try_from(bytes.len()).map_err(|_| bad())?;
                script.extend([b'S', slot]);
                script.extend(length.to_le_bytes());
                script.extend(bytes);
            }
            _ => return Err(bad()),
        }
    }
    Ok(script)
}

#[test]
fn a_trace_becomes_a_script() {
    let trace = "\
7 socket(AF_NETLINK, SOCK_RAW|SOCK_CLOEXEC, NETLINK_NETFILTER) = 8
7 sendto(8, ..., 20, 0, NULL, 0)    = 20
 | 00000  14 00 00 00 10 0a 05 00  01 00 00 00 00 00 00 00  ................ |
 | 00010  00 00 00 2a                                       ...*             |
7 recvfrom(8, ..., 131072, MSG_TRUNC, {sa_family=AF_NETLINK}, [12]) = 52
7 recvfrom(8, 0x7f, 131072, MSG_DONTWAIT, 0x7f, [12]) = -1 EAGAIN (Resource temporarily unavailable)
";
    let script = parse(trace).unwrap();
    assert_eq!(script[..6], [b'N', 12, 0, 0, 0, 0]);
    assert_eq!(script[6..16], [b'S', 0, 20, 0, 0, 0, 0x14, 0, 0, 0]);
    assert_eq!(
        script[31..],
        [0x2a, b'R', 0, 0, 0, 0, 0, b'L', 0, 0, 0, 0, 0]
    );
    assert!(parse("7 sendto(8, ..., 20, 0, NULL, 0)    = 20\n").is_err());
}
