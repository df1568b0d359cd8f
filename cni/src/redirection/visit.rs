//! One visit to a pod's network namespace.

use super::engines::{self, Found};
use super::named::Named;
use super::routing::{Held, removal};
use super::scheme::{SIDECAR, Scheme};
use super::write::Written;
use super::{Change, Failure, Sandbox, apply, change, families, hindrance};
use crate::compile::Compiled;
use std::borrow::Cow;
use std::net::IpAddr;
use weir_netlink::Result;
use weir_netlink::route::{Address, LOOPBACK_IFINDEX, Routing};

/// The namespace of this thread, entered once for everything that is read, planned, written and compared. Addresses
/// are dumped once, at the beginning.
pub struct Visit<'a> {
    sandbox: &'a Sandbox,
    scheme: &'static Scheme,
    routing: Routing,
    addresses: Vec<Address>,
}

impl Sandbox {
    /// Enters the namespace on a new thread and calls `f` there.
    ///
    /// # Errors
    /// The namespace cannot be entered, or its addresses cannot be listed; `f` is not called then.
    pub fn visit<T: Send>(&self, f: impl FnOnce(&Visit<'_>) -> T + Send) -> Result<T> {
        self.visit_for(&SIDECAR, f)
    }

    /// The same for another kind of redirection than that to a sidecar.
    ///
    /// # Errors
    /// As [`Sandbox::visit`].
    pub fn visit_for<T: Send>(
        &self,
        scheme: &'static Scheme,
        f: impl FnOnce(&Visit<'_>) -> T + Send,
    ) -> Result<T> {
        self.netns().run(|| {
            let routing = Routing::open()?;
            let addresses = routing.addresses()?;
            Ok(f(&Visit {
                sandbox: self,
                scheme,
                routing,
                addresses,
            }))
        })?
    }
}

impl Visit<'_> {
    /// The namespace that was entered.
    #[must_use]
    pub fn sandbox(&self) -> &Sandbox {
        self.sandbox
    }

    pub(super) fn found(&self) -> Result<Found> {
        engines::look(self.scheme)
    }

    /// As [`Sandbox::addresses`].
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut list: Vec<&Address> = self.addresses.iter().collect();
        list.sort_by_key(|a| {
            let address = a.net.addr();
            (a.index == LOOPBACK_IFINDEX, a.index, address.is_ipv6())
        });
        list.iter().map(|a| a.net.addr()).collect()
    }

    /// As [`Sandbox::plan`].
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn plan(&self, desired: &Compiled) -> Result<Vec<Change>> {
        let desired = self.possible(desired);
        let held = self.held(&desired)?;
        let mut changes = held.missing(&desired.routing);
        changes.extend(held.stale(&desired.routing).iter().map(removal));
        changes.extend(engines::drift(&desired)?);
        Ok(changes)
    }

    /// True if the routing, addresses included, is as desired when it is read now.
    pub(super) fn routing_is_in_sync(&self, desired: &Compiled) -> Result<bool> {
        let items = &self.possible(desired).routing;
        let held = Held::read(self.scheme, &self.routing, items)?;
        Ok(held.missing(items).is_empty() && held.stale(items).is_empty())
    }

    /// As [`Sandbox::verify`].
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn verify(&self, desired: &Compiled) -> Result<Vec<Change>> {
        self.plan(desired).map(change::differences)
    }

    /// Foreign rules and policies in legacy built-in chains that keep packets from the redirection, a line for each. They
    /// are no difference: what is desired is there.
    ///
    /// # Errors
    /// The tables cannot be read.
    pub fn hindrances(&self, desired: &Compiled) -> Result<Vec<String>> {
        hindrance::find(&self.possible(desired))
    }

    /// As [`Sandbox::apply`].
    pub(super) fn apply(&self, desired: &Compiled) -> Result<Vec<Change>, Failure> {
        let written = self.apply_beside(desired, self.found()?)?;
        Ok(written.changes)
    }

    /// Like [`Visit::apply`], with the rules that were `found`.
    pub(super) fn apply_beside(
        &self,
        desired: &Compiled,
        found: Found,
    ) -> Result<Written, Failure> {
        let desired = self.possible(desired);
        let before = self.held(&desired)?;
        apply::apply(&desired, found, &self.routing, &before)
    }

    /// As [`Sandbox::clean`].
    ///
    /// # Errors
    /// As [`Sandbox::clean`].
    pub fn clean(&self, of: Option<&Compiled>) -> Result<Vec<Change>, Failure> {
        apply::clean(Named(self.scheme, of))
    }

    /// The changes that [`Visit::clean`] would make.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn plan_clean(&self, of: Option<&Compiled>) -> Result<Vec<Change>> {
        super::plan_clean(Named(self.scheme, of))
    }

    /// The part of it that is possible in this namespace.
    pub(super) fn possible<'d>(&self, desired: &'d Compiled) -> Cow<'d, Compiled> {
        families::possible(desired, &self.addresses)
    }

    fn held(&self, desired: &Compiled) -> Result<Held> {
        let addresses = self.addresses.clone();
        Held::beside(self.scheme, addresses, &self.routing, &desired.routing)
    }
}
