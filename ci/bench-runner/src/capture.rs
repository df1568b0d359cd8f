//! Records the system calls of `weir apply` as a script for `weir-bench-replay`.
//!
//! strace records the calls and the bytes of each send. The script begins where the program opens
//! the namespace: the part before is the start of a program, which the replay has, too. The script is a list of
//! calls: a letter, the number of a descriptor (as in weir), a 32-bit length in little-endian order, and
//! as many bytes.
//!
//! ```text
//! F fd PATH        open a file and keep it
//! f - PATH         an open that fails
//! M - PATH         stat of a path
//! P - PATH         statfs of a path
//! A fd             fstat
//! Q fd             fstatfs
//! Y fd             ioctl NS_GET_NSTYPE
//! D fd             read
//! X fd             close
//! T -              another thread makes the calls that follow
//! E fd             setns
//! N fd PROTOCOL    open a netlink socket
//! B fd             bind
//! O fd LEVEL       enable a netlink option
//! S fd BYTES       send
//! R fd             receive one datagram
//! L fd             receive without waiting; the queue was empty
//! W - BYTES        write to stdout
//! ```
//!
//! The script omits memory management, signals and the event loop (`brk`, `mmap`, `epoll_wait` and the like). They are
//! details of weir's implementation and not necessary for the result, so the lower bound is slightly less than the time of
//! the recorded calls.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// The calls that a script can contain.
const CALLS: &str = "openat,statx,newfstatat,fstatfs,statfs,ioctl,read,write,close,clone,clone3,setns,\
                     socket,bind,setsockopt,sendto,recvmsg";

/// Runs the command, which works on this namespace, under strace and converts its calls to a script.
pub(crate) fn script(command: &[&str], netns: &str, scratch: &Path) -> Result<Vec<u8>, String> {
    let trace = scratch.join("trace");
    let status = Command::new("strace")
        .args(["-f", "-qq", "-s", "0", "-e"])
        .arg(format!("trace={CALLS}"))
        .args(["-e", "write=all", "-e", "signal=none", "-o"])
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
    let script = parse(&text, netns)?;
    let (sends, receives) = (count(&script, b'S'), count(&script, b'R'));
    match receives >= sends && sends > 0 {
        true => Ok(script),
        // Each message to the kernel has an answer: the script would be no lower bound of anything.
        false => Err(format!(
            "{}: {sends} sends and {receives} receives: CALLS does not name the calls that weir makes",
            trace.display()
        )),
    }
}

/// The number of calls with this letter.
fn count(mut script: &[u8], letter: u8) -> usize {
    let mut found = 0;
    while let [first, _, a, b, c, d, rest @ ..] = script {
        found += usize::from(*first == letter);
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        script = rest.get(length..).unwrap_or_default();
    }
    found
}

/// Appends one call to the script.
fn call(script: &mut Vec<u8>, letter: u8, fd: u8, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    script.extend([letter, fd]);
    script.extend(length.to_le_bytes());
    script.extend(bytes);
}

fn parse(trace: &str, netns: &str) -> Result<Vec<u8>, String> {
    let mut script = Vec::new();
    // The kind of each open descriptor; descriptors of other kinds are ignored.
    let mut open: HashMap<u8, Kind> = HashMap::new();
    let mut begun = false;
    let mut lines = Joined::new(trace);
    while let Some(line) = lines.next() {
        let bad = || format!("cannot read this line of strace: {line}");
        let said = line
            .split_once(' ')
            .map_or("", |(_, call)| call.trim_start());
        let (name, rest) = said.split_once('(').ok_or_else(bad)?;
        let result = line.rsplit_once(" = ").map(|(_, r)| r).ok_or_else(bad)?;
        let path = || rest.split('"').nth(1).map(str::as_bytes).ok_or_else(bad);
        begun |= name == "openat" && path()? == netns.as_bytes();
        let bytes = lines.dump(bad)?;
        if !begun {
            continue;
        }
        let made = || result.parse::<u8>().map_err(|_| bad());
        let first = rest.split([',', ')']).next().and_then(|w| w.parse().ok());
        let known = first.filter(|fd| open.contains_key(fd));
        match (name, known) {
            ("openat", _) if result.starts_with('-') => call(&mut script, b'f', 0, path()?),
            ("openat", _) => {
                open.insert(made()?, Kind::File);
                call(&mut script, b'F', made()?, path()?);
            }
            ("statx" | "newfstatat", None) if rest.starts_with("AT_FDCWD") => {
                call(&mut script, b'M', 0, path()?);
            }
            ("statfs", _) => call(&mut script, b'P', 0, path()?),
            ("clone" | "clone3", _) => call(&mut script, b'T', 0, &[]),
            ("write", _) if first == Some(1) => call(&mut script, b'W', 0, &bytes),
            ("socket", _) => {
                let protocol = match rest {
                    r if r.contains("NETLINK_ROUTE") => 0,
                    r if r.contains("NETLINK_NETFILTER") => 12,
                    _ => continue,
                };
                open.insert(made()?, Kind::Netlink);
                call(&mut script, b'N', made()?, &[protocol]);
            }
            (_, None) => {}
            (_, Some(fd)) => {
                let socket = open.get(&fd) == Some(&Kind::Netlink);
                let letter = match name {
                    "statx" | "newfstatat" => b'A',
                    "fstatfs" => b'Q',
                    "ioctl" if rest.contains("NS_GET_NSTYPE") => b'Y',
                    "read" => b'D',
                    "setns" => b'E',
                    "bind" => b'B',
                    "setsockopt" if rest.contains("SOL_NETLINK") => b'O',
                    "recvmsg" if result.starts_with("-1 EAGAIN") => b'L',
                    "recvmsg" => b'R',
                    "sendto" if result.parse() != Ok(bytes.len()) => return Err(bad()),
                    "sendto" => b'S',
                    "close" => {
                        open.remove(&fd);
                        b'X'
                    }
                    "ioctl" | "setsockopt" => continue,
                    _ => return Err(bad()),
                };
                let bytes = match letter {
                    b'O' if rest.contains("NETLINK_EXT_ACK") => vec![1],
                    b'O' => vec![0],
                    b'S' if socket => bytes,
                    _ => Vec::new(),
                };
                call(&mut script, letter, fd, &bytes);
            }
        }
    }
    Ok(script)
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    File,
    Netlink,
}

/// The lines of a trace; calls that strace printed in two parts are joined.
struct Joined<'a> {
    lines: std::iter::Peekable<std::str::Lines<'a>>,
    unfinished: HashMap<String, String>,
}

impl<'a> Joined<'a> {
    fn new(trace: &'a str) -> Self {
        Self {
            lines: trace.lines().peekable(),
            unfinished: HashMap::new(),
        }
    }

    fn next(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next()?;
            let pid = line.split(' ').next().unwrap_or_default().to_owned();
            if let Some(start) = line.strip_suffix(" <unfinished ...>") {
                // The new thread makes calls before the clone call returns.
                if start.contains(" clone") {
                    return Some(format!("{start}) = 0"));
                }
                self.unfinished.insert(pid, start.to_owned());
                continue;
            }
            match line.split_once(" resumed>") {
                Some((_, rest)) => match self.unfinished.remove(&pid) {
                    Some(start) => return Some(start + rest),
                    None => continue,
                },
                None => return Some(line.to_owned()),
            }
        }
    }

    /// Decodes " | 00010  00 0a 08 00 01 00 00 00  00 01 30 00 00 00 00 00  ............0... |".
    fn dump(&mut self, bad: impl Fn() -> String) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        while let Some(dump) = self.lines.next_if(|l| l.starts_with(" | ")) {
            for word in dump.get(10..59).ok_or_else(&bad)?.split_whitespace() {
                bytes.push(u8::from_str_radix(word, 16).map_err(|_| bad())?);
            }
        }
        Ok(bytes)
    }
}

#[test]
fn a_trace_becomes_a_script() {
    let trace = "\
7 openat(AT_FDCWD, \"/proc/self/maps\", O_RDONLY|O_CLOEXEC) = 3
7 close(3) = 0
7 openat(AT_FDCWD, \"/run/netns/a\", O_RDONLY|O_CLOEXEC) = 3
7 clone3({flags=CLONE_VM}, 88 <unfinished ...>
8 setns(3, CLONE_NEWNET) = 0
7 <... clone3 resumed> => {parent_tid=[8]}) = 8
8 socket(AF_NETLINK, SOCK_RAW|SOCK_CLOEXEC, NETLINK_NETFILTER) = 8
8 sendto(8, ..., 20, 0, NULL, 0)    = 20
 | 00000  14 00 00 00 10 0a 05 00  01 00 00 00 00 00 00 00  ................ |
 | 00010  00 00 00 2a                                       ...*             |
8 recvmsg(8, {msg_name={sa_family=AF_NETLINK, nl_pid=0}, msg_namelen=12, msg_iovlen=1}, MSG_TRUNC) = 52
8 recvmsg(8, {msg_namelen=12}, MSG_TRUNC|MSG_DONTWAIT) = -1 EAGAIN (Resource temporarily unavailable)
";
    let script = parse(trace, "/run/netns/a").unwrap();
    let mut wanted = Vec::new();
    call(&mut wanted, b'F', 3, b"/run/netns/a");
    call(&mut wanted, b'T', 0, &[]);
    call(&mut wanted, b'E', 3, &[]);
    call(&mut wanted, b'N', 8, &[12]);
    let message = [
        20, 0, 0, 0, 16, 10, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 42,
    ];
    call(&mut wanted, b'S', 8, &message);
    call(&mut wanted, b'R', 8, &[]);
    call(&mut wanted, b'L', 8, &[]);
    assert_eq!(script, wanted);
    assert_eq!((count(&script, b'S'), count(&script, b'R')), (1, 1));
    let cut = "7 openat(AT_FDCWD, \"/run/netns/a\", 0) = 3\n7 socket(AF_NETLINK, 0, NETLINK_ROUTE) = 4\n\
               7 sendto(4, ..., 20, 0, NULL, 0)    = 20\n";
    assert!(parse(cut, "/run/netns/a").is_err());
}
