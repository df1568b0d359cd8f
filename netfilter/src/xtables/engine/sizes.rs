//! Noticing that another program changed legacy tables, which the kernel announces to nobody.

use super::TableId;
use super::read::info;
use super::transport::{XtSockets, XtTransport};
use crate::xtables::XtFamily;
use crate::xtables::table::Info;
use std::collections::BTreeMap;
use weir_netlink::{Error, Result};

/// What `IPT_SO_GET_INFO` says of all tables of a namespace, which a few microseconds find out: a change of it shows that another
/// program was there.
///
/// It changes with tables that come and go, and with the number of rules, their size, and the place of a chain: with a rule that
/// is added or deleted, `iptables -F`, a restored ruleset. A rule that is replaced by another one of the same size leaves it as
/// it is; [`super::XtEngine::read`] and a comparison find that. Counters of packets change nothing.
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

/// What [`XtSizes::read`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "ipt_getinfo")]
pub struct XtOutline(BTreeMap<TableId, Info>);

impl XtSizes {
    /// In the network namespace of the calling thread. It stays with that, and keeps it alive.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_RAW; `EMFILE`: it has up to six descriptors.
    pub fn open() -> Result<Self> {
        let sockets = XtSockets::open()?;
        Ok(Self { sockets })
    }

    /// Asks from any thread. No table is created by asking.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_ADMIN over the namespace.
    pub fn read(&mut self) -> Result<XtOutline> {
        let mut outline = BTreeMap::new();
        for family in [XtFamily::Ip, XtFamily::Ip6] {
            let names = self.sockets.names(family);
            let names = names.map_err(|e| Error::io("list", "the legacy tables", &e))?;
            for name in names {
                match info(&mut self.sockets, family, &name) {
                    Ok(info) => _ = outline.insert((family, name), info),
                    // Its module went since.
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                    Err(e) => return Err(Error::io("read", format!("the table {name}"), &e)),
                }
            }
        }
        Ok(XtOutline(outline))
    }
}
