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

impl XtSockets {
    /// In the network namespace of the calling thread. Where that belongs to another user namespace, as a pod's with
    /// users of its own, tables are replaced from inside of it ([`RawSocket::replace_inside`]).
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_RAW.
    pub fn open() -> Result<Self> {
        let inside = match Netns::current()?.owner()? {
            Owner::Other(user_ns) => Some(user_ns),
            Owner::Own | Owner::OutOfSight => None,
        };
        let ip = One::open(XtFamily::Ip).map_err(|e| Error::io("open", "a raw IPv4 socket", &e))?;
        let ip6 = match One::open(XtFamily::Ip6) {
            Ok(one) => Some(one),
            Err(e) if e.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            Err(e) => return Err(Error::io("open", "a raw IPv6 socket", &e)),
        };
        Ok(Self { ip, ip6, inside })
    }

    fn of(&mut self, family: XtFamily) -> io::Result<&mut One> {
        match family {
            XtFamily::Ip => Ok(&mut self.ip),
            XtFamily::Ip6 => self.ip6.as_mut().ok_or_else(no_ipv6),
        }
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
        let Ok(one) = self.of(family) else {
            return Ok(Vec::new());
        };
        if one.names.is_none() {
            one.names = names_file(family)?;
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
