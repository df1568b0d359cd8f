//! Whether something may have changed the rules of the host since they were compared, at the cost of a few system calls.
//!
//! nf_tables has one generation for all tables of a namespace; legacy tables have sizes, and sets of ipset numbers of
//! entries. What leaves these as they were is found by the rounds. Notifications of commits would name the process; where kube-proxy writes
//! nf_tables they are thousands at once, nearly all about rules of its own.

use std::path::Path;
use weir_ambient::host::SETS;
use weir_cni::compile::Engine;
use weir_netfilter::ipset::IpsetEngine;
use weir_netfilter::nft::NftEngine;
use weir_netfilter::xtables::{XtOutline, XtSizes};
use weir_netlink::{Netns, Result};

/// Sockets in the namespace of the host.
#[derive(Debug, Default)]
pub(super) struct Glance {
    nft: Option<NftEngine>,
    legacy: Option<(XtSizes, IpsetEngine)>,
}

/// The index and the number of entries of a set, as far as the kernel tells.
type Set = (Option<u16>, Option<u32>);

/// What was seen. While it is the same nothing has been committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Generation(u32),
    Sizes(XtOutline, Vec<Set>),
    /// Nothing can be seen, or nothing is in force yet.
    Nothing,
}

impl Glance {
    /// Looks at what this engine wrote in the network namespace at this path; `None`: this process's own.
    pub(super) fn look(&mut self, netns: Option<&Path>, engine: Option<Engine>) -> Seen {
        let seen = match engine {
            Some(Engine::Nft) => self.generation(netns),
            Some(Engine::Xtables) => self.sizes(netns),
            None => Ok(Seen::Nothing),
        };
        // The next look begins anew.
        seen.unwrap_or_else(|_| {
            *self = Self::default();
            Seen::Nothing
        })
    }

    fn generation(&mut self, netns: Option<&Path>) -> Result<Seen> {
        let nft = match &mut self.nft {
            Some(open) => open,
            none => none.insert(within(netns, NftEngine::open)?),
        };
        nft.generation().map(Seen::Generation)
    }

    fn sizes(&mut self, netns: Option<&Path>) -> Result<Seen> {
        let open = || Ok((XtSizes::open()?, IpsetEngine::open()?));
        let (tables, ipset) = match &mut self.legacy {
            Some(open) => open,
            none => none.insert(within(netns, open)?),
        };
        let mut sets = Vec::new();
        for name in SETS {
            match ipset.headers(Some(name)) {
                Ok(listed) => sets.extend(listed.iter().map(|l| (l.index, l.elements))),
                Err(e) if e.is_not_found() => sets.push((None, None)),
                Err(e) => return Err(e),
            }
        }
        tables.read().map(|tables| Seen::Sizes(tables, sets))
    }
}

fn within<T: Send>(netns: Option<&Path>, open: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    match netns {
        None => open(),
        Some(path) => Netns::open(path)?.run(open)?,
    }
}
