//! Detects that another program changed legacy tables, for which the kernel sends no notification.

use super::TableId;
use super::read::info;
use super::transport::{XtSockets, XtTransport};
use crate::xtables::XtFamily;
use crate::xtables::table::Info;
use std::collections::BTreeMap;
use weir_netlink::{Error, Result};

/// Reads the answers to `IPT_SO_GET_INFO` for all tables of a network namespace, in a few microseconds. A difference between two
/// readings shows that a program changed the tables.
///
/// The answers depend on the existing tables, on the number and size of their rules, and on the offsets of built-in chains: they
/// change if a rule is added or deleted, after `iptables -F` and after a restored ruleset. They do not change if a rule is
/// replaced by another rule of the same size, which only [`super::XtEngine::read`] and a comparison detect, or with packet
/// counters.
///
/// ```no_run
/// # fn main() -> weir_netlink::Result<()> {
/// use weir_netfilter::xtables::XtSizes;
///
/// let mut sizes = XtSizes::open()?;
/// let before = sizes.read()?;
/// if sizes.read()? != before {
///     // Read the tables.
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct XtSizes {
    sockets: XtSockets,
}

/// The result of [`XtSizes::read`], to be compared with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "ipt_getinfo")]
pub struct XtOutline(BTreeMap<TableId, Info>);

impl XtSizes {
    /// Opens the tables of the calling thread's network namespace. The value keeps that namespace open.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `EMFILE`, since it needs up to six descriptors.
    pub fn open() -> Result<Self> {
        let sockets = XtSockets::open()?;
        Ok(Self { sockets })
    }

    /// Reads the sizes of all existing tables, from any thread. Creates no table.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN` over the network namespace.
    pub fn read(&mut self) -> Result<XtOutline> {
        let mut outline = BTreeMap::new();
        for family in [XtFamily::Ip, XtFamily::Ip6] {
            let names = self.sockets.names(family);
            let names = names.map_err(|e| Error::io("list", "the legacy tables", &e))?;
            for name in names {
                match info(&mut self.sockets, family, &name) {
                    Ok(info) => _ = outline.insert((family, name), info),
                    // The module of the table was unloaded after the list was read.
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                    Err(e) => return Err(Error::io("read", format!("the table {name}"), &e)),
                }
            }
        }
        Ok(XtOutline(outline))
    }
}
