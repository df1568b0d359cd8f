//! The calls to the kernel, behind a trait that tests can implement.

use crate::xtables::XtFamily;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use weir_netlink::xtables::RawSocket;
use weir_netlink::{Error, Netns, Owner, Result};

/// The connection of an engine to the kernel.
pub trait XtTransport {
    /// The tables that exist in the namespace, in the kernel's order. Does not create any.
    ///
    /// # Errors
    /// The list cannot be read.
    fn names(&mut self, family: XtFamily) -> io::Result<Vec<String>>;

    /// `getsockopt(2)`. The kernel creates a missing table when it is asked for one.
    ///
    /// # Errors
    /// As the kernel answers.
    fn get(&mut self, family: XtFamily, option: i32, value: &mut [u8]) -> io::Result<usize>;

    /// `setsockopt(IPT_SO_SET_REPLACE)`; the counters of the old table are written to `counters`.
    ///
    /// # Errors
    /// As the kernel answers.
    fn replace(
        &mut self,
        family: XtFamily,
        value: &mut [u8],
        counters: &mut [u8],
    ) -> io::Result<()>;

    /// `setsockopt(IPT_SO_SET_ADD_COUNTERS)`
    ///
    /// # Errors
    /// As the kernel answers.
    fn add_counters(&mut self, family: XtFamily, value: &[u8]) -> io::Result<()>;
}

/// The running kernel, in one network namespace.
#[derive(Debug)]
pub struct XtSockets {
    ip: One,
    /// `None` where the kernel has no IPv6.
    ip6: Option<One>,
    netns: Netns,
    /// The user namespace that tables are replaced from; `None` if it is that of this process, or cannot be opened:
    /// then the kernel decides.
    inside: Option<OwnedFd>,
}

#[derive(Debug)]
struct One {
    socket: RawSocket,
    /// `/proc/net/ip_tables_names`; not there while the kernel has no such tables at all. An open one stays
    /// with its namespace.
    names: Option<File>,
}

impl One {
    fn open(family: XtFamily) -> io::Result<Self> {
        let socket = RawSocket::open(family == XtFamily::Ip6)?;
        Ok(Self {
            socket,
            names: names_file(family)?,
        })
    }
}

/// Of the thread's namespace, which may differ from that of the process.
fn names_file(family: XtFamily) -> io::Result<Option<File>> {
    let path = match family {
        XtFamily::Ip => "/proc/thread-self/net/ip_tables_names",
        XtFamily::Ip6 => "/proc/thread-self/net/ip6_tables_names",
    };
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The same in another namespace. A descriptor of the directory would not do: procfs looks names up in the namespace
/// that the directory's thread is in by then (`get_proc_task_net()`, fs/proc/proc_net.c).
fn names_file_in(netns: &Netns, family: XtFamily) -> io::Result<Option<File>> {
    // The module makes the list in all namespaces: without it none is entered in vain.
    if names_file(family)?.is_none() {
        return Ok(None);
    }
    // To enter it takes a right that a thread which is there already may not have.
    if Netns::current().is_ok_and(|own| own.id() == netns.id()) {
        return names_file(family);
    }
    let fail = |e: Error| match e.errno() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::other(e),
    };
    netns.run(|| names_file(family)).map_err(fail)?
}

impl XtSockets {
    /// In the network namespace of the calling thread. Where that belongs to another user namespace, as a pod's with
    /// users of its own, tables are replaced from inside of it ([`RawSocket::replace_inside`]).
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_RAW.
    pub fn open() -> Result<Self> {
        let netns = Netns::current()?;
        let inside = match netns.owner()? {
            Owner::Other(user_ns) => Some(user_ns),
            Owner::Own | Owner::OutOfSight => None,
        };
        let ip = One::open(XtFamily::Ip)
            .map_err(|e| Error::io("open", "a raw socket (CAP_NET_RAW)", &e))?;
        let ip6 = match One::open(XtFamily::Ip6) {
            Ok(one) => Some(one),
            Err(e) if e.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            Err(e) => return Err(Error::io("open", "a raw IPv6 socket", &e)),
        };
        Ok(Self {
            ip,
            ip6,
            netns,
            inside,
        })
    }

    fn socket(&self, family: XtFamily) -> io::Result<&RawSocket> {
        match family {
            XtFamily::Ip => Ok(&self.ip.socket),
            XtFamily::Ip6 => Ok(&self.ip6.as_ref().ok_or_else(no_ipv6)?.socket),
        }
    }
}

fn no_ipv6() -> io::Error {
    io::Error::from_raw_os_error(libc::EAFNOSUPPORT)
}

impl XtTransport for XtSockets {
    fn names(&mut self, family: XtFamily) -> io::Result<Vec<String>> {
        let one = match (family, &mut self.ip6) {
            (XtFamily::Ip, _) => &mut self.ip,
            (XtFamily::Ip6, Some(one)) => one,
            (XtFamily::Ip6, None) => return Ok(Vec::new()),
        };
        if one.names.is_none() {
            one.names = names_file_in(&self.netns, family)?;
        }
        let Some(file) = &mut one.names else {
            return Ok(Vec::new());
        };
        file.rewind()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn get(&mut self, family: XtFamily, option: i32, value: &mut [u8]) -> io::Result<usize> {
        self.socket(family)?.get(option, value)
    }

    fn replace(
        &mut self,
        family: XtFamily,
        value: &mut [u8],
        counters: &mut [u8],
    ) -> io::Result<()> {
        let socket = self.socket(family)?;
        match &self.inside {
            Some(user_ns) => socket.replace_inside(user_ns.as_fd(), value, counters),
            None => socket.replace(value, counters),
        }
    }

    fn add_counters(&mut self, family: XtFamily, value: &[u8]) -> io::Result<()> {
        self.socket(family)?.add_counters(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list comes into being with the first use of the legacy tables, and who asks then may be elsewhere.
    #[test]
    fn a_list_that_is_opened_late_is_that_of_the_namespace() {
        let created = Netns::create().and_then(|ns| Ok((ns, Netns::create()?)));
        let (ns, other) = match created {
            Ok(both) => both,
            Err(e) => {
                assert!(e.is_permission(), "{e}");
                eprintln!("skipped: {e}");
                return;
            }
        };
        let mut kernel = ns.run(XtSockets::open).expect("entered").expect("opened");
        // IPT_SO_GET_INFO, struct ipt_getinfo: the table comes into being.
        let mut info = [0; 84];
        info[..6].copy_from_slice(b"mangle");
        match kernel.get(XtFamily::Ip, 64, &mut info) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                eprintln!("skipped: the kernel has no legacy tables");
                return;
            }
            Err(e) => panic!("{e}"),
        }
        for asks in [&ns, &other] {
            kernel.ip.names = None;
            let names = asks.run(|| kernel.names(XtFamily::Ip)).expect("entered");
            assert_eq!(names.expect("read"), ["mangle"]);
        }
    }
}
