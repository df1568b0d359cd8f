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
//! The nf_tables tables of [`TABLES`] in the family `inet`; the chains of legacy tables whose names begin with
//! `ISTIO_`, and the rules that jump to them; the same in tables of `iptables-nft`; in built-in chains of legacy
//! tables the rules that carry weir's sign ([`xtables::Ownership`]); policy rules and routes that carry weir's
//! protocol number; and `::6/128` on `lo`. Everything else in the namespace is neither changed nor compared.

mod change;
mod engines;
mod families;
mod leftovers;
mod routing;

pub use change::{Change, Difference};

use crate::compile::{Compiled, Engine, Rules};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use weir_netfilter::ipset;
use weir_netfilter::nft::{self, Ruleset};
use weir_netfilter::xtables;
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

/// How long parts of [`Sandbox::apply`] took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Reading the rules back; `None` when nothing was written.
    pub read_back: Option<Duration>,
    /// Waiting for the lock of the iptables tools; `None` when it was not taken, as in a pod's namespace, where
    /// nobody else writes.
    pub lock_wait: Option<Duration>,
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

    /// The engine to use here when nobody says which: what the namespace uses already, else nf_tables where
    /// the kernel has it, else legacy tables.
    ///
    /// # Errors
    /// The kernel has neither nf_tables nor legacy tables, or does not let this process look.
    pub fn choose_engine(&self) -> Result<Engine> {
        let takes_owners = self.netns.is_of_own_user_namespace()?;
        self.netns.run(|| engines::choose(takes_owners))?
    }

    /// Whether the kernel could take these rules here; changes nothing. [`Sandbox::apply`] asks by itself.
    ///
    /// # Errors
    /// Legacy rules that match owners, for a pod with users of its own (`hostUsers: false`): the kernel takes them
    /// only from inside of the pod's user namespace. What would help.
    pub fn check(&self, wished: &Compiled) -> Result<()> {
        if !engines::match_owners(&wished.rules) || self.netns.is_of_own_user_namespace()? {
            return Ok(());
        }
        Err(Error::refused(
            "write",
            format!("legacy tables of {}", self.netns.id()),
            "the pod has users of its own (hostUsers: false), and the kernel takes legacy rules that match \
             users only from inside of the pod's user namespace; use nf_tables (--engine nft or auto, for the \
             plugin \"native_nftables\": true); nothing was changed",
        ))
    }

    /// What [`Sandbox::apply`] would change now; nothing when all is as it should be.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn plan(&self, wished: &Compiled) -> Result<Vec<Change>> {
        self.netns.run(|| {
            let wished = families::possible(wished);
            let routing = Routing::open()?;
            let mut changes = routing::missing(&routing, &wished.routing)?;
            changes.extend(routing::stale(&routing, &wished.routing)?);
            changes.extend(engines::drift(&wished.rules)?);
            Ok(changes)
        })?
    }

    /// Makes the namespace what is wished and reads it back; of IPv6 nothing, where the kernel does without it. Returns what was changed; nothing when all
    /// was as it should be, and then nothing was written.
    ///
    /// # Errors
    /// What was refused, and why; the namespace is as it was. Only when the rules of another engine cannot be
    /// taken away are the new ones there beside them.
    pub fn apply(&self, wished: &Compiled) -> Result<Vec<Change>> {
        self.apply_measured(wished).map(|(changes, _)| changes)
    }

    /// The same, and how long its parts took.
    ///
    /// # Errors
    /// As [`Sandbox::apply`].
    pub fn apply_measured(&self, wished: &Compiled) -> Result<(Vec<Change>, Cost)> {
        self.check(wished)?;
        self.netns.run(|| {
            let wished = families::possible(wished);
            let routing = Routing::open()?;
            let mut changes = routing::add(&routing, &wished.routing)?;
            let mut written = match engines::write(&wished.rules) {
                Ok(written) => written,
                Err(e) => return Err(routing::take_back(&routing, &changes, e)),
            };
            // The new rules are in force and need their routing, whatever happens from here on.
            changes.append(&mut written.changes);
            let cost = written.cost;
            changes.extend(written.take_over()?);
            // Only now: until the rules changed, the old ones needed it.
            changes.extend(routing::remove_stale(&routing, &wished.routing)?);
            Ok((changes, cost))
        })?
    }

    /// What [`Sandbox::clean`] would remove now.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn plan_clean(&self, of: Option<&Compiled>) -> Result<Vec<Change>> {
        self.netns.run(|| {
            let mut changes = engines::plan_clean(&legacy_of(of))?;
            changes.extend(routing::all(&Routing::open()?)?);
            Ok(changes)
        })?
    }

    /// Removes what is ours. Returns what was removed; nothing when nothing was there.
    ///
    /// Rules that somebody else made of the same plan, as upstream does, bear no sign of whose they are in the
    /// built-in chains of legacy tables. Where that plan is given, as many rules that equal its own go too, beside
    /// chains of ours.
    ///
    /// # Errors
    /// The first thing that could not be removed; the rest was tried all the same.
    pub fn clean(&self, of: Option<&Compiled>) -> Result<Vec<Change>> {
        self.netns.run(|| {
            let mut changes = engines::clean(&legacy_of(of))?;
            changes.extend(routing::remove_all(&Routing::open()?)?);
            Ok(changes)
        })?
    }

    /// Everything that nf_tables holds in the namespace, ours and others'.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn show(netns: &Netns) -> Result<Ruleset> {
        netns.run(|| Ok(nft::Engine::open()?.read()?.ruleset))?
    }

    /// The legacy tables that exist in the namespace; none comes into being by looking.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn show_legacy(netns: &Netns) -> Result<xtables::Ruleset> {
        netns.run(engines::show_legacy)?
    }

    /// The sets of ipset in the namespace (`ipset list`); none where the kernel has no ipset or has not
    /// loaded it, and looking does not load it.
    ///
    /// # Errors
    /// The sets cannot be read.
    pub fn show_sets(netns: &Netns) -> Result<Vec<ipset::Set>> {
        let sets = netns.run(|| engines::show_sets(|e| e.list(None)))??;
        Ok(sets.into_iter().map(|l| l.set).collect())
    }

    /// The same as text (`ipset save`), which of a large set takes less memory than its entries.
    ///
    /// # Errors
    /// As [`Sandbox::show_sets`].
    pub fn show_sets_text(netns: &Netns) -> Result<Vec<u8>> {
        netns.run(|| engines::show_sets(ipset::Engine::text))?
    }

    /// The same without the entries (`ipset list -terse`).
    ///
    /// # Errors
    /// As [`Sandbox::show_sets`].
    pub fn show_set_headers(netns: &Netns) -> Result<Vec<ipset::Header>> {
        let sets = netns.run(|| engines::show_sets(|e| e.headers(None)))??;
        Ok(sets.into_iter().map(|l| l.set.header).collect())
    }
}

/// The plan's rules in legacy tables.
fn legacy_of(plan: Option<&Compiled>) -> xtables::Ruleset {
    match plan.map(|p| &p.rules) {
        Some(Rules::Xtables(rules)) => rules.clone(),
        _ => xtables::Ruleset::default(),
    }
}

/// Whether this process can write rules at all; changes nothing.
///
/// # Errors
/// What is lacking and what gives it.
pub fn probe() -> Result<()> {
    nft::Engine::open()?.generation().map(|_| ())
}
