//! Access to connection tracking for the test connections.

use std::path::Path;
use std::time::Duration;
use weir_netfilter::conntrack::{Conntrack, Entry, NewConnections, Tuple};
use weir_netlink::Result;

/// The sysctl that enables notifications; with 0 connections are tracked without notifications.
const EVENTS: &str = "/proc/sys/net/netfilter/nf_conntrack_events";
/// Maximum number of notifications read to find one connection.
const NOTIFICATIONS: usize = 1 << 16;

/// Connection tracking; tests replace it with a kernel that reports nothing.
pub(crate) trait Tracking {
    /// Same as [`Conntrack::find`].
    fn find(&mut self, original: &Tuple, zone: u16) -> Result<Option<Entry>>;

    /// Returns the first new connection since the last call that satisfies `is_it`.
    fn begun(&mut self, is_it: &dyn Fn(&Entry) -> bool) -> Result<Option<Entry>>;

    /// True if the kernel sends notifications, so that removed entries were reported as well.
    fn reports(&self) -> bool;
}

/// Connection tracking of the network namespace of the thread that opened it. Opening fails on a kernel without netfilter; the
/// error is reported only when connection tracking is used.
#[derive(Debug)]
pub(crate) struct Kernel(Result<(Conntrack, NewConnections)>);

impl Kernel {
    pub(crate) fn open() -> Self {
        let open = || Ok((Conntrack::open()?, NewConnections::open()?));
        Self(open())
    }

    fn sockets(&mut self) -> Result<&mut (Conntrack, NewConnections)> {
        self.0.as_mut().map_err(|e| e.clone())
    }
}

impl Tracking for Kernel {
    fn find(&mut self, original: &Tuple, zone: u16) -> Result<Option<Entry>> {
        self.sockets()?.0.find(original, zone)
    }

    fn begun(&mut self, is_it: &dyn Fn(&Entry) -> bool) -> Result<Option<Entry>> {
        let (_, new) = self.sockets()?;
        for _ in 0..NOTIFICATIONS {
            match new.next(Duration::ZERO)? {
                Some(entry) if is_it(&entry) => return Ok(Some(entry)),
                Some(_) => {}
                None => break,
            }
        }
        Ok(None)
    }

    fn reports(&self) -> bool {
        let text = std::fs::read_to_string(Path::new(EVENTS));
        text.is_ok_and(|text| text.trim() != "0")
    }
}
