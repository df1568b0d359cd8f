//! A redirection in a pod's network namespace: applied, compared, removed.
//!
//! [`Sandbox`] is the namespace. The plugin, the node agent and the operator's commands all use this
//! module, so there is one way to write rules to a kernel and one meaning of "in sync".
//!
//! # Atomicity
//! Addresses, routes and policy rules are added first, the netfilter rules last: those are one transaction, and
//! without them the rest has no effect on traffic. After a failure the additions are removed, and [`Failure`]
//! states what is known to be in force: see `apply`.
//!
//! # Owned objects
//! The nf_tables tables of [`TABLES`] in the family `inet`; the chains of legacy tables whose names begin with
//! `ISTIO_`, and the rules that jump to them; the same in tables of `iptables-nft`; in built-in chains of legacy
//! tables the rules that carry weir's tag ([`xtables::Ownership`]); policy rules, local default routes on `lo` and
//! the address `::6/128` on `lo` that carry weir's protocol number (kernels before 5.18 store none for addresses:
//! there the address counts as owned). Everything else in the namespace is foreign, and neither changed nor
//! compared.

mod apply;
mod authorship;
mod change;
mod choice;
mod engines;
mod failure;
mod families;
mod fingerprint;
mod hindrance;
mod leftovers;
mod named;
mod routing;
mod scheme;
mod strays;
mod visit;
mod write;

pub use change::{Change, Difference};
pub use choice::AppliedRedirection;
pub use failure::Failure;
pub use fingerprint::{Fingerprint, FingerprintReader};
pub use routing::RTPROT_WEIR;
pub(crate) use routing::WEIR;
pub use scheme::{Desired, SIDECAR, Scheme};
pub use strays::Strays;
pub use visit::Visit;

use crate::compile::Compiled;
use named::Named;
use routing::{Held, removal};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use weir_netfilter::ipset;
use weir_netfilter::nft::{self, Ruleset};
use weir_netfilter::xtables;
use weir_netlink::route::Routing;
use weir_netlink::{Error, Netns, Result};

/// All tables that a redirection may have. Applying one that needs fewer removes the others, which an
/// earlier redirection may have left.
pub const TABLES: [&str; 3] = ["istio-proxy-nat", "istio-proxy-mangle", "istio-proxy-raw"];

/// The network namespace of a pod; never the host's and never the caller's own.
#[derive(Debug)]
pub struct Sandbox {
    netns: Netns,
}

/// Refuses a namespace that no pod has: this process's own, or the host's ([`Netns::host_reason`]).
///
/// # Errors
/// It is such a namespace, or the own one cannot be read, so that the two cannot be compared.
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

/// Durations of parts of [`Visit::apply_intent`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Reading the rules back; `None` when nothing was written.
    pub read_back: Option<Duration>,
    /// Waiting for the lock of the iptables tools; `None` when it was not taken, as in a pod's namespace.
    pub lock_wait: Option<Duration>,
}

impl Sandbox {
    /// Opens a namespace by its path, as given in `CNI_NETNS`.
    ///
    /// # Errors
    /// The path does not exist, is not a network namespace, or is the host's.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of(Netns::open(path)?)
    }

    /// Opens the namespace of a process.
    ///
    /// # Errors
    /// There is no such process, or it is in the host's namespace.
    pub fn of_pid(pid: u32) -> Result<Self> {
        Self::of(Netns::of_pid(pid)?)
    }

    /// Takes a namespace that is already open.
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

    /// Addresses of all interfaces: the interface with the lowest index, which is the default network's, before those
    /// attached later; IPv4 before IPv6 within each, and `lo` last.
    ///
    /// With one interface this is the order of the kernel's dump. The dump has IPv4 of all interfaces first, so with a
    /// default network of IPv6 the address of an IPv4 attachment would be taken for the pod's.
    ///
    /// # Errors
    /// The kernel refuses to list them.
    pub fn addresses(&self) -> Result<Vec<IpAddr>> {
        self.visit(|visit| visit.addresses())
    }

    /// The changes that [`Sandbox::apply`] would make; empty when the namespace is in sync.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn plan(&self, desired: &Compiled) -> Result<Vec<Change>> {
        self.visit(|visit| visit.plan(desired))?
    }

    /// How the namespace differs from the desired redirection: as [`Sandbox::plan`], but of a table that must be
    /// replaced only the reasons.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn verify(&self, desired: &Compiled) -> Result<Vec<Change>> {
        self.visit(|visit| visit.verify(desired))?
    }

    /// Applies the redirection and reads it back, rules and routing; without IPv6 if the kernel has none. Returns the
    /// changes; when the namespace was in sync there are none, and nothing is written.
    ///
    /// # Errors
    /// What failed, and whether the redirection is in force. If there were no owned objects before, it is not, and the
    /// namespace is unchanged. New rules that replaced older owned ones are kept, with their routing.
    pub fn apply(&self, desired: &Compiled) -> Result<Vec<Change>, Failure> {
        self.visit(|visit| visit.apply(desired))?
    }

    /// The changes that [`Sandbox::clean`] would make.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn plan_clean(&self, of: Option<&Compiled>) -> Result<Vec<Change>> {
        self.netns.run(|| plan_clean(Named(&SIDECAR, of)))?
    }

    /// Removes the owned objects. Returns the removals; empty when there were none.
    ///
    /// Rules that another writer, such as upstream, made from the same plan in built-in chains of legacy tables or of
    /// `iptables-nft` carry no tag. If that plan is given and owned chains exist, as many rules as equal its own are
    /// removed, too.
    ///
    /// # Errors
    /// Everything that could not be removed. Routing is kept while rules that need it may exist.
    pub fn clean(&self, of: Option<&Compiled>) -> Result<Vec<Change>, Failure> {
        self.netns.run(|| apply::clean(Named(&SIDECAR, of)))?
    }

    /// All nf_tables objects of the namespace, owned and foreign.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn show(netns: &Netns) -> Result<Ruleset> {
        netns.run(|| Ok(nft::NftEngine::open()?.read()?.ruleset))?
    }

    /// The legacy tables that exist in the namespace; reading creates none.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn show_legacy(netns: &Netns) -> Result<xtables::Ruleset> {
        netns.run(engines::show_legacy)?
    }

    /// The legacy tables as text (`iptables-save` and `ip6tables-save`), which for many rules takes less time and memory
    /// than their values.
    ///
    /// # Errors
    /// As [`Sandbox::show_legacy`].
    pub fn show_legacy_text(netns: &Netns) -> Result<String> {
        netns.run(engines::show_legacy_text)?
    }

    /// The sets of ipset in the namespace (`ipset list`); empty if the kernel has no ipset or has not
    /// loaded it, and reading does not load it.
    ///
    /// # Errors
    /// The sets cannot be read.
    pub fn show_sets(netns: &Netns) -> Result<Vec<ipset::Set>> {
        let sets = netns.run(|| engines::show_sets(|e| e.list(None)))??;
        Ok(sets.into_iter().map(|l| l.set).collect())
    }

    /// The sets as text (`ipset save`), which for a large set takes less memory than its entries.
    ///
    /// # Errors
    /// As [`Sandbox::show_sets`].
    pub fn show_sets_text(netns: &Netns) -> Result<Vec<u8>> {
        netns.run(|| engines::show_sets(ipset::IpsetEngine::text))?
    }

    /// The sets without their entries (`ipset list -terse`).
    ///
    /// # Errors
    /// As [`Sandbox::show_sets`].
    pub fn show_set_headers(netns: &Netns) -> Result<Vec<ipset::Header>> {
        let sets = netns.run(|| engines::show_sets(|e| e.headers(None)))??;
        Ok(sets.into_iter().map(|l| l.set.header).collect())
    }
}

/// The changes that a removal would make in the namespace of this thread.
fn plan_clean(named: Named<'_>) -> Result<Vec<Change>> {
    let mut changes = engines::plan_clean(named)?;
    let held = Held::read(named.0, &Routing::open()?, &[])?;
    changes.extend(held.ours().iter().map(removal));
    Ok(changes)
}

/// Checks whether this process can write rules with either engine in the namespace of this thread; changes nothing.
///
/// # Errors
/// What is missing, and what provides it.
pub fn probe() -> Result<()> {
    match nft::NftEngine::open().and_then(|mut engine| engine.generation()) {
        Err(e) if engines::is_lack(&e) && engines::legacy_can_be_used() => Ok(()),
        asked => asked.map(|_| ()),
    }
}
