//! The desired and the observed state of a pod's namespace, and the difference.

use crate::change::{Attachment, Change};
use crate::events;
use crate::hook::{Detached, Direction, Held, Hook};
use crate::inpod::{Role, Traits};
use crate::load::{Tag, has_digest, program_name};
use crate::switches::{Routes, Switch, routing};
use std::collections::BTreeMap;
use weir_ambient::Redirect;
use weir_netlink::route::{AddressFamily, LOOPBACK_IFINDEX};
use weir_netlink::{Error, Result};

/// An interface of the namespace.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) is_up: bool,
    /// True if frames have an Ethernet header, as on `lo`.
    pub(crate) is_ethernet: bool,
}

/// The observed state of the namespace and of the pins.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) held: BTreeMap<Hook, Held>,
    pub(crate) routes: Routes,
    /// True if the kernel has IPv6, so that there may be policy rules for it.
    pub(crate) has_ipv6: bool,
    /// True if `lo` has IPv6, so that there may be routes over it.
    pub(crate) has_ipv6_on_lo: bool,
    pub(crate) switches: Vec<(Switch, bool)>,
    /// The id of the node's namespace in this one.
    pub(crate) node_id: Option<i32>,
    /// The id that the programs let pass, as their map has it.
    pub(crate) passes: Option<i32>,
    /// True if the previous values of the sysctls are stored.
    pub(crate) has_before: bool,
    /// What distinguishes weir's programs from others of the same names, for roles that occur in `held`.
    pub(crate) genuine: BTreeMap<Role, Genuine>,
    /// True if there is a directory of another layout.
    pub(crate) has_other_layout: bool,
}

/// What a program of weir has besides its name.
#[derive(Clone, Debug)]
pub(crate) struct Genuine {
    pub(crate) tag: Tag,
    /// The ids of the pinned maps in the order in which the program uses them; `None` for one that is missing.
    pub(crate) maps: Vec<Option<u32>>,
}

impl Genuine {
    fn is(&self, held: &Held) -> bool {
        let maps = held.maps.iter().copied().map(Some);
        held.tag == self.tag && maps.eq(self.maps.iter().copied())
    }
}

/// The desired state.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    pub(crate) traits: Traits,
    /// Interfaces of virtual machines.
    guests: Vec<String>,
    inbound: bool,
    /// True if the node's namespace is known: connections of its processes pass.
    node: bool,
    /// The name of each program.
    pub(crate) names: BTreeMap<Role, String>,
}

impl Desired {
    pub(crate) fn of(
        redirect: &Redirect,
        (events, node): (bool, bool),
        name: impl Fn(Role, &Traits) -> Result<String>,
    ) -> Result<Self> {
        let (probe4, probe6) = redirect.probe_sources();
        let traits = Traits {
            dual: redirect.captures_ipv6(),
            dns: redirect.captures_dns(),
            probe4,
            probe6,
            events,
        };
        let roles = [Role::Egress, Role::Ingress, Role::Guest, Role::Loopback];
        let named = |role| Ok((role, name(role, &traits)?));
        Ok(Self {
            traits,
            guests: redirect.guest_interfaces().map(str::to_owned).collect(),
            inbound: redirect.captures_inbound(),
            node,
            names: roles.into_iter().map(named).collect::<Result<_>>()?,
        })
    }

    /// True if connections of the node's own processes pass while others are captured.
    pub(crate) fn lets_node_pass(&self) -> bool {
        self.node && self.inbound
    }

    /// Describes programs, sysctls and routing, one per line.
    pub(crate) fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for switch in self.switches() {
            lines.push(Change::Switch(switch.name(), true).to_string());
        }
        let wanted: Vec<_> = self.families().iter().map(|f| routing(*f)).collect();
        lines.extend(
            wanted
                .iter()
                .map(|(r, _)| Change::AddRoute(r.clone()).to_string()),
        );
        lines.extend(
            wanted
                .iter()
                .map(|(_, r)| Change::AddRule(r.clone()).to_string()),
        );
        if self.lets_node_pass() {
            lines.push(Change::Node(true).to_string());
        }
        let guests = self.guests.join(", ");
        for (role, place) in [
            (Role::Loopback, "ingress of lo".to_owned()),
            (Role::Egress, "egress of every other interface".to_owned()),
            (Role::Ingress, "ingress of every other interface".to_owned()),
            (Role::Guest, format!("ingress of {guests}")),
        ] {
            let is_wanted = match role {
                Role::Guest => !self.guests.is_empty(),
                Role::Ingress => self.inbound,
                Role::Egress | Role::Loopback => true,
            };
            let name = self.names.get(&role).filter(|_| is_wanted);
            lines.extend(name.map(|name| format!("attach {name} at {place}: it {}", role.words())));
        }
        lines
    }

    pub(crate) fn families(&self) -> &'static [AddressFamily] {
        match self.traits.dual {
            true => &[AddressFamily::V4, AddressFamily::V6],
            false => &[AddressFamily::V4],
        }
    }

    pub(crate) fn switches(&self) -> impl Iterator<Item = Switch> {
        let dns = self.traits.dns;
        Switch::ALL
            .into_iter()
            .filter(move |switch| dns || *switch == Switch::AcceptLocal)
    }

    /// True if the interface belongs to a virtual machine. A name in the list may end with a wildcard of nf_tables or xtables.
    fn is_guest(&self, name: &str) -> bool {
        let matches = |guest: &String| match guest.strip_suffix(['*', '+']) {
            Some(start) => name.starts_with(start),
            None => name == guest,
        };
        self.guests.iter().any(matches)
    }

    /// Returns programs in the order of attachment: the one at `lo` before those that send packets there.
    ///
    /// # Errors
    /// An interface without Ethernet headers is up: packets that leave by it cannot be redirected.
    fn attachments(&self, interfaces: &[Interface]) -> Result<Vec<Attachment>> {
        let mut list = Vec::new();
        let mut push = |interface: &Interface, direction, role: Role| {
            list.push(Attachment {
                interface: interface.name.clone(),
                hook: (interface.index, direction),
                role,
                program: self.names.get(&role).cloned().unwrap_or_default(),
                is_lost: false,
            });
        };
        let (lo, others): (Vec<_>, Vec<_>) =
            interfaces.iter().partition(|i| i.index == LOOPBACK_IFINDEX);
        for interface in lo {
            push(interface, Direction::Ingress, Role::Loopback);
        }
        for interface in others {
            if !interface.is_ethernet {
                if interface.is_up {
                    return Err(Error::refused(
                        "redirect by eBPF",
                        format!("interface {}", interface.name),
                        "its frames have no Ethernet header, so that what leaves through it cannot be redirected to lo; \
                         use netfilter for this pod (--engine auto)",
                    ));
                }
                continue;
            }
            push(interface, Direction::Egress, Role::Egress);
            match self.is_guest(&interface.name) {
                true => push(interface, Direction::Ingress, Role::Guest),
                false if self.inbound => push(interface, Direction::Ingress, Role::Ingress),
                false => {}
            }
        }
        Ok(list)
    }
}

/// Returns the changes, in the order in which they are applied. Pure.
///
/// # Errors
/// The reason why the namespace cannot be redirected by programs.
pub(crate) fn plan(desired: &Desired, observed: &Observed) -> Result<Vec<Change>> {
    let attachments = desired.attachments(&observed.interfaces)?;
    let mut changes = Vec::new();
    for switch in desired.switches() {
        if !observed.switches.contains(&(switch, true)) {
            changes.push(Change::Switch(switch.name(), true));
        }
    }
    // Routes before rules, so that no packet is looked up in an empty table.
    // Without IPv6 on `lo` there are no packets to route there, and the kernel refuses the route.
    let families = desired.families().iter().copied();
    let families = families.filter(|f| *f == AddressFamily::V4 || observed.has_ipv6);
    let wanted: Vec<_> = families.map(routing).collect();
    for (route, _) in &wanted {
        let is_possible = route.family() == AddressFamily::V4 || observed.has_ipv6_on_lo;
        if is_possible && !observed.routes.has_route(route) {
            changes.push(Change::AddRoute(route.clone()));
        }
    }
    for (_, rule) in &wanted {
        if !observed.routes.has_rule(rule) {
            changes.push(Change::AddRule(rule.clone()));
        }
    }
    if !desired.traits.dual {
        let (routes, rules) = observed.routes.owned();
        let rules = rules.into_iter().filter(|r| r.family == AddressFamily::V6);
        changes.extend(rules.map(Change::DeleteRule));
        let routes = routes
            .into_iter()
            .filter(|r| r.family() == AddressFamily::V6);
        changes.extend(routes.map(Change::DeleteRoute));
    }
    if !observed.held.is_empty() && !observed.has_before {
        changes.push(Change::Forgotten);
    }
    let passes = observed.passes;
    let is_so = match desired.lets_node_pass() {
        true => passes.is_some() && passes == observed.node_id,
        false => passes.is_none(),
    };
    if !is_so {
        changes.push(Change::Node(desired.lets_node_pass()));
    }
    for a in &attachments {
        let genuine = observed.genuine.get(&a.role);
        match observed.held.get(&a.hook) {
            Some(held)
                if held.is_attached
                    && held.behind.is_none()
                    && held.program == a.program
                    && genuine.is_some_and(|genuine| genuine.is(held)) => {}
            Some(Held {
                behind: Some(other),
                is_attached: true,
                ..
            }) => {
                changes.push(Change::MoveFirst(a.clone(), other.clone()));
            }
            Some(held) if held.is_attached => changes.push(Change::Replace(Attachment {
                is_lost: !has_digest(&held.program)
                    || (held.program == a.program && genuine.is_some_and(|g| g.tag != held.tag)),
                ..a.clone()
            })),
            _ => changes.push(Change::Attach(Attachment {
                is_lost: was_attached(observed, a),
                ..a.clone()
            })),
        }
    }
    let is_wanted = |hook: &Hook| attachments.iter().any(|a| a.hook == *hook);
    let unwanted = observed.held.iter().filter(|(hook, _)| !is_wanted(hook));
    changes.extend(unwanted.map(|(hook, held)| detach(observed, *hook, held)));
    if observed.has_other_layout {
        changes.push(Change::RemoveOtherLayout);
    }
    Ok(changes)
}

/// True if the program was attached before: at its hook, or at that of an interface that is gone since. False for what another setting
/// or another interface adds.
fn was_attached(observed: &Observed, a: &Attachment) -> bool {
    let held = &observed.held;
    let is_alone = match a.role {
        // No setting leaves it out.
        Role::Loopback => observed.has_before,
        Role::Egress => held.contains_key(&(a.hook.0, Direction::Ingress)),
        Role::Ingress | Role::Guest => false,
    };
    let was_moved = |held: &Held| !held.is_attached && Role::of_name(&held.program) == Some(a.role);
    held.contains_key(&a.hook) || is_alone || held.values().any(was_moved)
}

/// Returns the change that detaches one program.
pub(crate) fn detach(observed: &Observed, hook: Hook, held: &Held) -> Change {
    let index = hook.0;
    let interface = observed.interfaces.iter().find(|i| i.index == index);
    let name = interface.map_or_else(
        || format!("interface {index}, which is gone"),
        |i| i.name.clone(),
    );
    Change::Detach(name, Detached(hook), held.program.clone())
}

/// Describes what [`crate::Pod::apply`] attaches, for namespaces that cannot be read.
///
/// # Errors
/// A mistake in weir's own source.
pub fn describe(redirect: &Redirect) -> Result<Vec<String>> {
    // If this is unknown, `apply` would fail as well.
    let events = events::is_supported().unwrap_or(true);
    let desired = Desired::of(redirect, (events, true), program_name)?;
    Ok(desired.describe())
}
