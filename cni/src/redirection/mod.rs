//! A redirection in a pod's network namespace: applied, compared, removed.
//!
//! [`Sandbox`] is the namespace. The plugin, the node agent and the operator's commands all use this
//! module, so there is one way to write rules to a kernel and one meaning of "in sync".
//!
//! # Atomicity
//! Addresses, routes and policy rules are added first, the netfilter rules last: those are one transaction, and
//! without them the rest has no effect on traffic. After a failure the additions are removed, and [`Failure`]
//! states what is known to be in force: see `apply`. A namespace whose traffic was captured before gets as much of the
//! redirection as possible: see `again`.
//!
//! # Owned objects
//! The nf_tables tables of [`TABLES`] in the family `inet`; the chains of the legacy tables `nat`, `mangle` and `raw` whose names
//! begin with `ISTIO_`, and the rules that jump to them; the same in tables of `iptables-nft`; rules in built-in chains of
//! legacy tables that carry weir's tag ([`Ownership`](weir_netfilter::xtables::Ownership)); policy rules, local default routes on `lo` and the
//! address `::6/128` on `lo` that carry weir's protocol number (kernels before 5.18 store none for addresses: there the
//! address counts as owned). Objects of another kind of redirection ([`Scheme`]), and everything else in the namespace,
//! are foreign: weir neither changes nor compares them.

mod again;
mod apply;
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
mod visit;
mod write;

pub use change::{Change, Difference};
pub use choice::{AppliedRedirection, InUse};
pub use engines::has_legacy_tables;
pub use failure::Failure;
pub use families::{has_ipv6, has_ipv6_on_lo};
pub use fingerprint::{Fingerprint, FingerprintReader, ROUTING_GROUPS};
pub use routing::RTPROT_WEIR;
pub(crate) use routing::WEIR;
pub use scheme::{Desired, Legacy, SIDECAR, Scheme};
pub use visit::Visit;

use crate::compile::Compiled;
use named::Named;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use weir_netfilter::nft;
use weir_netlink::{Error, Netns, Result};

/// All tables that a redirection may have. Applying a redirection that needs fewer removes the others: an earlier
/// redirection may have left them.
pub const TABLES: [&str; 3] = ["istio-proxy-nat", "istio-proxy-mangle", "istio-proxy-raw"];

/// The network namespace of a pod; never the host's, and never that of the calling process.
#[derive(Debug)]
pub struct Sandbox {
    netns: Netns,
    /// True if a redirection was observed in force: see `again`.
    was_captured: AtomicBool,
}

/// Refuses a namespace that cannot be a pod's: that of this process, or the host's ([`Netns::host_reason`]).
///
/// # Errors
/// It is such a namespace, or the namespace of this process cannot be read, so that the two cannot be compared.
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

impl Sandbox {
    /// Opens a namespace by its path, as given in `CNI_NETNS`.
    ///
    /// # Errors
    /// The path does not exist, is not a network namespace, or is the host's.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of(Netns::open(path)?)
    }

    /// Uses a namespace that is already open.
    ///
    /// # Errors
    /// It is the host's, or that of the calling process.
    pub fn of(netns: Netns) -> Result<Self> {
        refuse_host(&netns)?;
        Ok(Self {
            netns,
            was_captured: AtomicBool::new(false),
        })
    }

    /// Returns the network namespace.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Returns the differences between the namespace and the desired redirection, see [`Visit::verify`].
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn verify(&self, desired: &Compiled) -> Result<Vec<Change>> {
        self.visit_for(desired.scheme(), |visit| visit.verify(desired))?
    }

    /// Applies the redirection and reads its rules and routing back; omits IPv6 if the kernel has none. Returns the
    /// changes. In a namespace that is in sync it writes nothing and returns no changes.
    ///
    /// # Errors
    /// The cause, and whether the redirection is in force. If there were no owned objects before, it is not in force and
    /// the namespace is unchanged. New rules that replaced older owned ones are kept, with their routing.
    pub fn apply(&self, desired: &Compiled) -> Result<Vec<Change>, Failure> {
        self.visit_for(desired.scheme(), |visit| visit.apply(desired))?
    }

    /// Removes the owned objects. Returns the removals; empty if there were no owned objects.
    ///
    /// Rules that another writer, such as upstream, made from the same plan in built-in chains of legacy tables or of
    /// `iptables-nft` carry no tag. If the plan is given and owned chains exist, rules that equal those of the plan are
    /// removed too, each as many times as the plan has it.
    ///
    /// # Errors
    /// One error per object that could not be removed. Routing is kept while rules that need it may exist.
    pub fn clean(&self, of: Option<&Compiled>) -> Result<Vec<Change>, Failure> {
        let scheme = of.map_or(&SIDECAR, Compiled::scheme);
        let gone = self.netns.run(|| apply::clean(Named(scheme, of)))??;
        self.note(false);
        Ok(gone)
    }
}

/// Checks whether this process can enter a namespace, and write rules with either engine in that of this thread; changes
/// nothing.
///
/// # Errors
/// The missing privilege or feature, and what provides it: [`Error::is_unsupported`] if the kernel has neither engine.
pub fn probe() -> Result<()> {
    // Entering the own namespace needs the same privilege as entering a pod's.
    Netns::current()?.run(|| ())?;
    match nft::NftEngine::open().and_then(|mut engine| engine.generation()) {
        Err(e) if engines::is_lack(&e) => match engines::legacy_can_be_used() {
            true => Ok(()),
            false => Err(neither(&e)),
        },
        asked => asked.map(|_| ()),
    }
}

/// The error of a kernel that has no legacy tables, and no nf_tables for the reason given.
fn neither(nft: &Error) -> Error {
    let reason = format!("the kernel has neither: {nft}; legacy tables: they are not there");
    Error::unsupported("write rules in", "nf_tables or legacy tables", reason)
}
