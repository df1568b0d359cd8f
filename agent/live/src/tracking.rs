//! What connection tracking knows of the connections that are made here.

use std::path::Path;
use std::time::Duration;
use weir_netfilter::conntrack::{Conntrack, Entry, NewConnections, Tuple};
use weir_netlink::Result;

/// 0: connections are tracked and not reported.
const EVENTS: &str = "/proc/sys/net/netfilter/nf_conntrack_events";
/// Notifications that are read to find one connection; an idle pod has some.
const NOTIFICATIONS: usize = 1 << 16;

/// A kernel that shows nothing is stood in for by tests.
pub(crate) trait Tracking {
    /// As [`Conntrack::find`].
    fn find(&mut self, original: &Tuple, zone: u16) -> Result<Option<Entry>>;

    /// The first of the connections that were begun since the last call.
    fn begun(&mut self, is_it: &dyn Fn(&Entry) -> bool) -> Result<Option<Entry>>;

    /// Whether connections that are gone again were reported.
    fn reports(&self) -> bool;
}

/// The kernel, in the namespace of the thread that opened it. One without netfilter has no such sockets, which may be no matter.
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
