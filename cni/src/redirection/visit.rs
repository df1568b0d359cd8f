//! One visit to a pod's network namespace.

use super::engines::{self, Found};
use super::named::Named;
use super::routing::{Held, refuse_blocked, removal};
use super::scheme::{SIDECAR, Scheme};
use super::{
    AppliedRedirection, Change, Difference, Failure, Sandbox, apply, change, families, hindrance,
};
use crate::compile::{Compiled, PASSTHROUGH_V6};
use nix::net::if_::if_nametoindex;
use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;
use weir_netlink::Result;
use weir_netlink::contention::within;
use weir_netlink::route::{Address, LOOPBACK_IFINDEX, Routing};

/// Maximum total time of all exchanges with the kernel during one visit; the rollback after a failure has its own limit.
const VISIT: Duration = Duration::from_secs(60);

/// Name of the default network's interface in a pod: containerd and CRI-O ask the plugins for no other.
const DEFAULT_LINK: &str = "eth0";

/// The namespace of this thread, entered once to read, plan, write and compare. Addresses are dumped once, at the
/// beginning.
pub struct Visit<'a> {
    sandbox: &'a Sandbox,
    pub(super) scheme: &'static Scheme,
    pub(super) routing: Routing,
    pub(super) addresses: Vec<Address>,
}

impl Sandbox {
    /// Enters the namespace on a new thread and calls `f` on it.
    ///
    /// # Errors
    /// The namespace cannot be entered, or its addresses cannot be listed; `f` is not called then.
    pub fn visit<T: Send>(&self, f: impl FnOnce(&Visit<'_>) -> T + Send) -> Result<T> {
        self.visit_for(&SIDECAR, f)
    }

    /// Like [`Sandbox::visit`], for a kind of redirection other than that to a sidecar.
    ///
    /// # Errors
    /// As [`Sandbox::visit`].
    pub fn visit_for<T: Send>(
        &self,
        scheme: &'static Scheme,
        f: impl FnOnce(&Visit<'_>) -> T + Send,
    ) -> Result<T> {
        let visit = || {
            let routing = Routing::open()?;
            let addresses = routing.addresses()?;
            Ok(f(&Visit {
                sandbox: self,
                scheme,
                routing,
                addresses,
            }))
        };
        self.netns().run(|| within(VISIT, visit))?
    }
}

impl Visit<'_> {
    /// Returns the namespace that was entered.
    #[must_use]
    pub fn sandbox(&self) -> &Sandbox {
        self.sandbox
    }

    pub(super) fn found(&self) -> Result<Found> {
        engines::look(self.scheme)
    }

    /// Returns the addresses of all interfaces: the default network's interface before the others, which are sorted by index;
    /// IPv4 before IPv6 within each, and `lo` last. Excludes the passthrough address, which belongs to a redirection and
    /// not to the pod.
    ///
    /// The default network's interface is the one that has an address of `known`: addresses of the pod from another
    /// source, such as its status. Otherwise it is `eth0`, the name that container runtimes of Kubernetes give it, and
    /// without such an interface the one with the lowest index. The index does not suffice: an interface that was created
    /// on the node keeps its index in the pod, and an interface that is attached later can have a lower one.
    ///
    /// With one interface this is the order of the kernel's dump. The dump lists IPv4 of all interfaces first, so with a
    /// default network of IPv6 the address of an IPv4 attachment would be mistaken for the pod's.
    #[must_use]
    pub fn addresses(&self, known: &[IpAddr]) -> Vec<IpAddr> {
        let is_of_pod =
            |a: &&Address| a.index != LOOPBACK_IFINDEX || a.net.addr() != PASSTHROUGH_V6;
        let mut list: Vec<&Address> = self.addresses.iter().filter(is_of_pod).collect();
        let is_known = |a: &&&Address| a.index != LOOPBACK_IFINDEX && known.contains(&a.net.addr());
        let default = list.iter().find(is_known).map(|a| a.index);
        // With one interface, as nearly every pod has, there is nothing to order.
        let mut indexes = list.iter().map(|a| a.index);
        let index = indexes.find(|index| *index != LOOPBACK_IFINDEX);
        let has_others = indexes.any(|other| other != LOOPBACK_IFINDEX && Some(other) != index);
        let by_name = || has_others.then(|| if_nametoindex(DEFAULT_LINK).ok());
        let default = default.or_else(|| by_name().flatten());
        list.sort_by_key(|a| {
            let (is_lo, is_other) = (a.index == LOOPBACK_IFINDEX, Some(a.index) != default);
            (is_lo, is_other, a.index, a.net.addr().is_ipv6())
        });
        list.iter().map(|a| a.net.addr()).collect()
    }

    /// Returns the changes that [`Sandbox::apply`] would make; empty if the namespace is in sync.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn plan(&self, desired: &Compiled) -> Result<Vec<Change>> {
        let desired = self.possible(desired);
        changes(&desired, &self.held(&desired)?)
    }

    /// Like [`Visit::plan`], but fails where [`Sandbox::apply`] would refuse.
    ///
    /// # Errors
    /// The namespace cannot be read; a foreign object blocks a policy rule or a route.
    pub fn dry_run(&self, desired: &Compiled) -> Result<Vec<Change>> {
        let desired = self.possible(desired);
        let changes = changes(&desired, &self.held_to_write(&desired)?)?;
        refuse_blocked(&changes, desired.scheme())?;
        Ok(changes)
    }

    /// Returns how the namespace differs from the desired redirection: like [`Visit::plan`], but for a table that must be
    /// replaced only the reasons. Does not read foreign tables, so contention with another writer there cannot delay it.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn differences(&self, desired: &Compiled) -> Result<Vec<Change>> {
        let found = self.plan(desired).map(change::differences)?;
        if found.iter().all(Change::stays) {
            self.sandbox.note(true);
        }
        Ok(found)
    }

    /// Returns [`Visit::differences`], then the foreign objects that keep packets from the redirection
    /// ([`Change::Hindrance`]). If there are differences and foreign tables cannot be read, one more entry states that.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn verify(&self, desired: &Compiled) -> Result<Vec<Change>> {
        self.and_hindrances(desired, self.differences(desired)?)
    }

    /// Like [`Visit::verify`], but also accepts rules of another form: compares with `other` if `desired` is not in sync and
    /// `other` is nearer, which means fewer differences.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn verify_either(
        &self,
        desired: &Compiled,
        other: impl FnOnce() -> Option<Compiled>,
    ) -> Result<Vec<Change>> {
        let found = self.differences(desired)?;
        if !found.is_empty()
            && let Some(other) = other()
        {
            let of_other = self.differences(&other)?;
            // If objects are only missing, those that exist are of both forms: report what `apply` would add.
            let is_of_other = |c: &Change| c.difference() == Difference::Unexpected;
            let is_nearer = of_other.len() < found.len() && found.iter().any(is_of_other);
            if of_other.is_empty() || is_nearer {
                return self.and_hindrances(&other, of_other);
            }
        }
        self.and_hindrances(desired, found)
    }

    fn and_hindrances(&self, desired: &Compiled, mut found: Vec<Change>) -> Result<Vec<Change>> {
        let lines = match self.find_hindrances(desired) {
            Err(e) if found.is_empty() => return Err(e),
            Err(e) => vec![hindrance::unknown(&e)],
            Ok(lines) => lines,
        };
        found.extend(lines.into_iter().map(Change::Hindrance));
        Ok(found)
    }

    /// Returns one line for each foreign rule or policy that keeps packets from the redirection, regardless of other
    /// differences.
    ///
    /// # Errors
    /// The tables cannot be read; the error is the line to report.
    pub fn hindrances(&self, desired: &Compiled) -> std::result::Result<Vec<String>, String> {
        self.find_hindrances(desired)
            .map_err(|e| hindrance::unknown(&e))
    }

    /// Like [`Visit::hindrances`], for capture by eBPF programs, which send packets to `lo` as rules do: also reports the sysctl with
    /// which answers have the mark of the proxy, and returns foreign objects that take the packets of the policy rules and routes. With netfilter rules these objects are among the [`Visit::differences`].
    ///
    /// # Errors
    /// As [`Visit::hindrances`].
    pub fn hindrances_of_programs(
        &self,
        desired: &Compiled,
    ) -> std::result::Result<Vec<String>, String> {
        let desired = self.possible(desired);
        let found = hindrance::find(&desired, &self.routing, &self.addresses);
        let mut lines = found.map_err(|e| hindrance::unknown(&e))?;
        let blocked = |change| match change {
            Change::Blocked(item, by) => Some(format!(
                "`{item}` has no effect: a foreign {by}; remove that"
            )),
            _ => None,
        };
        let held = self.held(&desired).map_err(|e| hindrance::unknown(&e))?;
        lines.extend(
            held.missing(&desired.routing)
                .into_iter()
                .filter_map(blocked),
        );
        let lo = hindrance::lo_is_down(&self.routing, &self.addresses);
        for found in [lo, hindrance::marked_answers()] {
            match found {
                Ok(line) => lines.extend(line),
                Err(e) if lines.is_empty() => return Err(hindrance::unknown(&e)),
                Err(e) => lines.push(hindrance::unknown(&e)),
            }
        }
        Ok(lines)
    }

    fn find_hindrances(&self, desired: &Compiled) -> Result<Vec<String>> {
        hindrance::find(&self.possible(desired), &self.routing, &self.addresses)
    }

    /// Applies the redirection, as [`Sandbox::apply`].
    ///
    /// # Errors
    /// As [`Sandbox::apply`].
    pub fn apply(&self, desired: &Compiled) -> Result<Vec<Change>, Failure> {
        let applied = self.apply_beside(desired, self.found()?)?;
        Ok(applied.changes)
    }

    /// Like [`Visit::apply`], with rules that were already read.
    pub(super) fn apply_beside(
        &self,
        desired: &Compiled,
        found: Found,
    ) -> Result<AppliedRedirection, Failure> {
        let desired = self.possible(desired);
        let before = self.held_to_write(&desired)?;
        apply::apply(&desired, found, &self.routing, &before)
    }

    /// Removes the owned objects, as [`Sandbox::clean`].
    ///
    /// # Errors
    /// As [`Sandbox::clean`].
    pub fn clean(&self, of: Option<&Compiled>) -> Result<Vec<Change>, Failure> {
        let gone = apply::clean(Named(self.scheme, of))?;
        self.sandbox.note(false);
        Ok(gone)
    }

    /// Returns the changes that [`Visit::clean`] would make.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn plan_clean(&self, of: Option<&Compiled>) -> Result<Vec<Change>> {
        let mut changes = engines::plan_clean(Named(self.scheme, of))?;
        let held = Held::beside(self.scheme, self.addresses.clone(), &self.routing, &[])?;
        changes.extend(held.ours().iter().map(removal));
        Ok(changes)
    }

    /// Returns the part of the redirection that is possible in this namespace.
    pub(super) fn possible<'d>(&self, desired: &'d Compiled) -> Cow<'d, Compiled> {
        families::possible(desired, &self.addresses)
    }

    fn held(&self, desired: &Compiled) -> Result<Held> {
        let addresses = self.addresses.clone();
        Held::beside(desired.scheme(), addresses, &self.routing, &desired.routing)
    }

    /// Like [`Visit::held`], but policy rules are moved before foreign ones that lead replies past the proxy, where new
    /// ones are placed, too.
    pub(super) fn held_to_write(&self, desired: &Compiled) -> Result<Held> {
        let mut held = self.held(desired)?;
        let past = hindrance::past(desired, &self.routing, &held.rules, &self.addresses)?;
        held.past = past.into_iter().map(|(rule, _)| rule).collect();
        Ok(held)
    }
}

fn changes(desired: &Compiled, held: &Held) -> Result<Vec<Change>> {
    let mut changes = held.missing(&desired.routing);
    changes.extend(held.stale(&desired.routing).iter().map(removal));
    changes.extend(engines::drift(desired)?);
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Engine, compile, compile_chosen};
    use crate::config::{Inbound, Intent, texts};
    use weir_testing::tool::output;

    fn intent() -> Intent {
        Intent {
            mode: texts::tproxy(),
            inbound: Inbound::All,
            proxy_uids: texts::ids("1337"),
            proxy_gids: texts::ids("1337"),
            ..Intent::default()
        }
    }

    /// The objects that differ from the chosen form or upstream's.
    fn differing(sandbox: &Sandbox) -> Vec<String> {
        let [chosen, named] = [compile_chosen, compile].map(|form| form(&intent(), Engine::Nft));
        let found = sandbox.visit(|visit| visit.verify_either(&chosen, || Some(named)));
        let found = found.unwrap().unwrap();
        found.iter().map(Change::object).collect()
    }

    /// An interface that was created on the node keeps its index, so that the others, which are made in the pod, have lower ones.
    #[test]
    fn the_default_network_comes_first_whatever_its_index() {
        let netns = weir_testing::namespace_or_skip!();
        let run = |command: &str| assert_eq!(output(&netns, command), "");
        let sandbox = Sandbox::of(netns.try_clone().unwrap()).unwrap();
        let order = |known: &[&str]| {
            let known: Vec<IpAddr> = known.iter().map(|ip| ip.parse().unwrap()).collect();
            let all = sandbox.visit(|visit| visit.addresses(&known)).unwrap();
            let all = all.iter().filter(|ip| !ip.is_loopback());
            all.map(ToString::to_string).collect::<Vec<_>>()
        };
        let link = |name: &str, index: u32, addresses: &[&str]| {
            run(&format!(
                "ip link add {name} index {index} type veth peer name at-{name}"
            ));
            for address in addresses {
                run(&format!("ip address add {address} dev {name}"));
            }
        };
        link("net2", 1122, &["192.168.8.5/24"]);
        link("net1", 1100, &["192.168.7.5/24"]);
        assert_eq!(order(&[]), ["192.168.7.5", "192.168.8.5"]);
        link("eth0", 1120, &["10.0.0.5/24", "fd00::5/64"]);
        let (eth0, rest) = (["10.0.0.5", "fd00::5"], ["192.168.7.5", "192.168.8.5"]);
        for known in [&[][..], &["10.9.9.9"], &["127.0.0.1"], &["fd00::5"]] {
            assert_eq!(order(known), [eth0, rest].concat(), "{known:?}");
        }
        let second = ["192.168.8.5", "192.168.7.5", "10.0.0.5", "fd00::5"];
        assert_eq!(order(&["fd00::9", "192.168.8.5"]), second);
    }

    #[test]
    fn differences_are_those_of_the_nearer_form() {
        let netns = weir_testing::namespace_or_skip!();
        let run = |command: &str| assert_eq!(output(&netns, command), "");
        run("ip link set lo up");
        let sandbox = Sandbox::of(netns.try_clone().unwrap()).unwrap();
        for form in [compile, compile_chosen] {
            sandbox.apply(&form(&intent(), Engine::Nft)).unwrap();
            assert_eq!(differing(&sandbox), [""; 0]);
            run("nft add rule inet istio-proxy-nat output tcp dport 7 return");
            let found = differing(&sandbox);
            assert!(
                found.len() == 1 && found[0].contains("dport 7"),
                "{found:?}"
            );
            run("ip rule del fwmark 1337 lookup 133");
            let found = differing(&sandbox);
            assert!(found.len() == 2 && found[0].contains("fwmark"), "{found:?}");
        }
        // Without any object no form is nearer.
        sandbox.clean(None).unwrap();
        let chosen = compile_chosen(&intent(), Engine::Nft);
        assert_eq!(
            differing(&sandbox).len(),
            sandbox.verify(&chosen).unwrap().len()
        );
    }
}
