//! A redirection in a pod's network namespace: put there, compared, taken away.
//!
//! [`Sandbox`] is the namespace. The plugin, the node agent and the operator's commands all come
//! through here, so there is one way in which rules get into a kernel and one meaning of "as it should be".
//!
//! # All or nothing
//! Addresses, policy rules and routes are added first, the rules last: those are one transaction, and
//! without them the rest does nothing to traffic. When the rules are refused, what was added is taken back. So
//! a failure leaves the namespace as it was, which is more than the order "rules first" could promise.
//!
//! # What is ours
//! The tables of [`TABLES`] in the family `inet`; policy rules and routes that carry weir's protocol number;
//! and `::6/128` on `lo`. Everything else in the namespace is neither changed nor compared.

mod change;
mod routing;

pub use change::{Change, Difference};

use crate::compile::{Compiled, Rules};
use std::net::IpAddr;
use std::path::Path;
use weir_netfilter::nft::{Engine, Family, Ruleset, TableId};
use weir_netlink::route::Routing;
use weir_netlink::{Error, Netns, Result};

/// The tables of a redirection, whether a given one needs them or not: what an earlier one left in the
/// others goes away with the next.
pub const TABLES: [&str; 3] = ["istio-proxy-nat", "istio-proxy-mangle", "istio-proxy-raw"];

/// The network namespace of a pod; never the host's and never the caller's own.
#[derive(Debug)]
pub struct Sandbox {
    netns: Netns,
}

impl Sandbox {
    /// A namespace by its path, as `CNI_NETNS` gives it.
    ///
    /// # Errors
    /// It is not there, not a network namespace, or the host's.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of(Netns::open(path)?)
    }

    /// The namespace of a process.
    ///
    /// # Errors
    /// There is no such process, or it lives in the host's namespace.
    pub fn of_pid(pid: u32) -> Result<Self> {
        Self::of(Netns::of_pid(pid)?)
    }

    /// A namespace that is open already.
    ///
    /// # Errors
    /// It is the host's or the caller's own.
    pub fn of(netns: Netns) -> Result<Self> {
        netns.refuse_host()?;
        Ok(Self { netns })
    }

    /// The namespace itself.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Addresses of all interfaces in the order of the kernel's dump: IPv4 by interface, then IPv6.
    ///
    /// # Errors
    /// The kernel does not list them.
    pub fn addresses(&self) -> Result<Vec<IpAddr>> {
        let list = self.netns.run(|| Routing::open()?.addresses())??;
        Ok(list.iter().map(|a| a.net.addr()).collect())
    }

    /// What [`Sandbox::apply`] would change now; nothing when all is as it should be.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn plan(&self, wished: &Compiled) -> Result<Vec<Change>> {
        let rules = nft(&wished.rules)?;
        self.netns.run(|| {
            let routing = Routing::open()?;
            let mut changes = routing::missing(&routing, &wished.routing)?;
            changes.extend(routing::stale(&routing, &wished.routing)?);
            let ops = Engine::open()?.drift(rules, &owned())?.ops;
            changes.extend(ops.into_iter().map(Change::Rules));
            Ok(changes)
        })?
    }

    /// Makes the namespace what is wished and reads it back. Returns what was changed; nothing when all
    /// was as it should be, and then nothing was written.
    ///
    /// # Errors
    /// What was refused, and why; the namespace is as it was.
    pub fn apply(&self, wished: &Compiled) -> Result<Vec<Change>> {
        let rules = nft(&wished.rules)?;
        self.netns.run(|| {
            let routing = Routing::open()?;
            let mut engine = Engine::open()?;
            let mut changes = routing::add(&routing, &wished.routing)?;
            match engine.apply(rules, &owned()) {
                Ok(applied) => changes.extend(applied.ops.into_iter().map(Change::Rules)),
                Err(e) => return Err(routing::take_back(&routing, &changes, e)),
            }
            // Only now: until the rules changed, the old ones needed it.
            changes.extend(routing::remove_stale(&routing, &wished.routing)?);
            Ok(changes)
        })?
    }

    /// What [`Sandbox::clean`] would remove now.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn plan_clean(&self) -> Result<Vec<Change>> {
        self.netns.run(|| {
            let ops = Engine::open()?.drift(&Ruleset::default(), &owned())?.ops;
            let mut changes: Vec<Change> = ops.into_iter().map(Change::Rules).collect();
            changes.extend(routing::all(&Routing::open()?)?);
            Ok(changes)
        })?
    }

    /// Removes what is ours. Returns what was removed; nothing when nothing was there.
    ///
    /// # Errors
    /// The first thing that could not be removed; the rest was tried all the same.
    pub fn clean(&self) -> Result<Vec<Change>> {
        self.netns.run(|| {
            let applied = Engine::open()?.apply(&Ruleset::default(), &owned())?;
            let mut changes: Vec<Change> = applied.ops.into_iter().map(Change::Rules).collect();
            changes.extend(routing::remove_all(&Routing::open()?)?);
            Ok(changes)
        })?
    }

    /// Everything that nf_tables holds in the namespace, ours and others'.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn show(netns: &Netns) -> Result<Ruleset> {
        netns.run(|| Ok(Engine::open()?.read()?.ruleset))?
    }
}

/// Whether this process can use nf_tables at all; changes nothing.
///
/// # Errors
/// What is lacking and what gives it.
pub fn probe() -> Result<()> {
    Engine::open()?.generation().map(|_| ())
}

fn owned() -> Vec<TableId> {
    TABLES
        .iter()
        .map(|name| (Family::Inet, (*name).to_owned()))
        .collect()
}

fn nft(rules: &Rules) -> Result<&Ruleset> {
    match rules {
        Rules::Nft(ruleset) => Ok(ruleset),
        Rules::Xtables(_) => Err(Error::unsupported(
            "use",
            "the engine xtables",
            "legacy tables are not built yet; use --engine nft",
        )),
    }
}
