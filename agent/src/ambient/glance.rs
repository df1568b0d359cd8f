//! Detects possible changes of the host's rules since the last comparison with a few system calls.
//!
//! nf_tables has one generation ID for all tables of a network namespace; legacy tables have sizes, and ipset sets have numbers of
//! entries. Changes that do not alter these are found by the rounds. Notifications of commits would name the process, but if
//! kube-proxy writes nf_tables, thousands arrive at once, nearly all about its own rules.

use std::path::Path;
use weir_ambient::host::SETS;
use weir_cni::compile::Engine;
use weir_netfilter::ipset::IpsetEngine;
use weir_netfilter::nft::NftEngine;
use weir_netfilter::xtables::{XtOutline, XtSizes};
use weir_netlink::{Netns, Result};

/// Open sockets in the network namespace of the host.
#[derive(Debug, Default)]
pub(super) struct Glance {
    nft: Option<NftEngine>,
    legacy: Option<(XtSizes, IpsetEngine)>,
}

/// The index and the number of entries of a set, if the kernel reports them.
type Set = (Option<u16>, Option<u32>);

/// A summary of the state. While it is the same, the rules are assumed unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Generation(u32),
    Sizes(XtOutline, Vec<Set>),
    /// Nothing can be read, or nothing is in force yet.
    Nothing,
}

impl Glance {
    /// Reads the summary for this engine in the network namespace at this path; `None`: that of this process.
    pub(super) fn look(&mut self, netns: Option<&Path>, engine: Option<Engine>) -> Seen {
        let seen = match engine {
            Some(Engine::Nft) => self.generation(netns),
            Some(Engine::Xtables) => self.sizes(netns),
            None => Ok(Seen::Nothing),
        };
        // The next look opens new sockets.
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
