//! The calls to the kernel, behind a trait that tests can implement.

use crate::xtables::XtFamily;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use weir_netlink::xtables::RawSocket;
use weir_netlink::{Error, Netns, Owner, Result};

/// The connection of an engine to the kernel.
pub trait XtTransport {
    /// The tables that exist in the namespace, in the kernel's order. Creates no table.
    ///
    /// # Errors
    /// The list cannot be read.
    fn names(&mut self, family: XtFamily) -> io::Result<Vec<String>>;

    /// `getsockopt(2)`, which overwrites the request in `value` with the answer and returns its length. The kernel creates a
    /// missing table on a request for it.
    ///
    /// # Errors
    /// The errno of the kernel.
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
    /// The user namespace from which tables are replaced. `None` if it is that of this process, or cannot be opened: then the
    /// kernel decides whether it accepts a table.
    inside: Option<OwnedFd>,
}

#[derive(Debug)]
struct One {
    socket: RawSocket,
    /// `/proc/net/ip_tables_names`; `None` as long as the kernel has no such tables. An open file remains that of its
    /// namespace.
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

/// Opens the list of tables of the thread's namespace, which may differ from that of the process.
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

/// The same in another namespace. A descriptor of the directory is not sufficient: procfs looks up names in the current
/// namespace of the directory's thread (`get_proc_task_net()`, fs/proc/proc_net.c).
fn names_file_in(netns: &Netns, family: XtFamily) -> io::Result<Option<File>> {
    // The module creates the list in all namespaces, so if it is missing here no namespace needs to be entered.
    if names_file(family)?.is_none() {
        return Ok(None);
    }
    // Entering needs a capability that a thread which is already in the namespace may lack.
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
    /// Opens sockets in the network namespace of the calling thread. If that belongs to another user namespace, as for a pod
    /// with a user namespace, tables are replaced from inside that user namespace ([`RawSocket::replace_inside`]).
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`.
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

    /// The kernel creates the list with the first use of the legacy tables; the thread that opens it may then be in another
    /// namespace.
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
        // IPT_SO_GET_INFO, struct ipt_getinfo: the kernel creates the table.
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
