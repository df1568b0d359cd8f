//! A redirection in a pod's network namespace: put there, compared, taken away.
//!
//! [`Sandbox`] is the namespace. The plugin, the node agent and the operator's commands all come
//! through here, so there is one way in which rules get into a kernel and one meaning of "in sync".
//!
//! # All or nothing
//! Addresses, routes and policy rules are added first, the rules last: those are one transaction, and
//! without them the rest does nothing to traffic. After a failure what was added is taken back, and [`Failure`]
//! says what is known to be in force: see `apply`.
//!
//! # What is ours
//! The nf_tables tables of [`TABLES`] in the family `inet`; the chains of legacy tables whose names begin with
//! `ISTIO_`, and the rules that jump to them; the same in tables of `iptables-nft`; in built-in chains of legacy
//! tables the rules that carry weir's sign ([`xtables::Ownership`]); policy rules, local default routes on `lo` and
//! the address `::6/128` on `lo` that carry weir's protocol number (kernels before 5.18 keep none for addresses:
//! there the address is taken for ours). Everything else in the namespace is neither changed nor compared.

mod apply;
mod authorship;
mod change;
mod choice;
mod engines;
mod failure;
mod families;
mod fingerprint;
mod leftovers;
mod named;
mod routing;
mod strays;
mod visit;
mod write;

pub use change::{Change, Difference};
pub use choice::Applied;
pub use failure::Failure;
pub use fingerprint::Fingerprint;
pub use routing::RTPROT_WEIR;
pub use strays::Strays;
pub use visit::Visit;

use crate::compile::Compiled;
use named::Named;
use routing::{Held, Ours};
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

/// Refuses a namespace that no pod has: ours, or the host's ([`Netns::host_reason`]).
///
/// # Errors
/// It is such a namespace, or our own cannot be read, so that nothing can be compared.
pub fn refuse_host(netns: &Netns) -> Result<()> {
    let Some(reason) = netns.host_reason()? else {
        return Ok(());
    };
    let object = format!("{} as a pod's network namespace", netns.origin().display());
    let reason = format!(
        "{reason}, and rules there would take the traffic of the whole node; \
         give the pod's namespace, as `--netns /proc/PID/ns/net` of a process in the pod"
    );
    Err(Error::refused("use", object, reason))
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
        refuse_host(&netns)?;
        Ok(Self { netns })
    }

    /// The namespace itself.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Addresses of all interfaces: the interface that was there first, which is the default network's, before those
    /// that were attached later; IPv4 before IPv6 within each, and `lo` last.
    ///
    /// With one interface this is the order of the kernel's dump. That has IPv4 of all interfaces first, so beside a
    /// default network of IPv6 an attachment with IPv4 would be taken for the pod's address.
    ///
    /// # Errors
    /// The kernel does not list them.
    pub fn addresses(&self) -> Result<Vec<IpAddr>> {
        self.visit(|visit| visit.addresses())
    }

    /// What [`Sandbox::apply`] would change now; nothing when the namespace is in sync.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn plan(&self, desired: &Compiled) -> Result<Vec<Change>> {
        self.visit(|visit| visit.plan(desired))?
    }

    /// How the namespace differs from the desired redirection: as [`Sandbox::plan`], but of a table that has to be replaced
    /// only why.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn verify(&self, desired: &Compiled) -> Result<Vec<Change>> {
        self.visit(|visit| visit.verify(desired))?
    }

    /// Puts the redirection into the namespace and reads it back, rules and routing; nothing of IPv6 where the kernel
    /// does without it. Returns what was changed; nothing when the namespace was in sync, and then nothing was
    /// written.
    ///
    /// # Errors
    /// What failed, and whether the redirection is in force. It is not when nothing of ours was there before: then
    /// the namespace is as it was. New rules that replaced older ones of ours stay, with their routing.
    pub fn apply(&self, desired: &Compiled) -> Result<Vec<Change>, Failure> {
        self.apply_measured(desired).map(|(changes, _)| changes)
    }

    /// The same, and how long its parts took.
    ///
    /// # Errors
    /// As [`Sandbox::apply`].
    pub fn apply_measured(&self, desired: &Compiled) -> Result<(Vec<Change>, Cost), Failure> {
        self.visit(|visit| visit.apply(desired))?
    }

    /// What [`Sandbox::clean`] would remove now.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn plan_clean(&self, of: Option<&Compiled>) -> Result<Vec<Change>> {
        self.netns.run(|| {
            let mut changes = engines::plan_clean(Named(of))?;
            let held = Held::read(&Routing::open()?, &[])?;
            changes.extend(held.ours().iter().map(Ours::change));
            Ok(changes)
        })?
    }

    /// Removes what is ours. Returns what was removed; nothing when nothing was there.
    ///
    /// Rules that another writer made of the same plan, as upstream does, bear no sign of whose they are in the
    /// built-in chains of legacy tables, and of those of `iptables-nft`. Where that plan is given, as many rules that equal its own go too, beside
    /// chains of ours.
    ///
    /// # Errors
    /// Everything that could not be removed. Routing stays where rules that need it may have stayed.
    pub fn clean(&self, of: Option<&Compiled>) -> Result<Vec<Change>, Failure> {
        self.netns.run(|| apply::clean(Named(of)))?
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

/// Whether this process can write rules by either engine in the namespace of this thread; changes nothing.
///
/// # Errors
/// What is lacking and what gives it.
pub fn probe() -> Result<()> {
    match nft::Engine::open().and_then(|mut engine| engine.generation()) {
        Err(e) if engines::is_lack(&e) && engines::legacy_can_be_used() => Ok(()),
        asked => asked.map(|_| ()),
    }
}
