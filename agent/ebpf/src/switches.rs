//! State of the namespace that the programs need: two sysctls of `lo`, the routing of ambient mode, and an id of the node's namespace.
//!
//! A redirected packet arrives at `lo` with an address of the pod as its source, and a DNS query with 127.0.0.1 as its
//! destination; both are refused unless these sysctls of `lo` are on. Other interfaces still refuse them. A pinned map stores the
//! previous values, which are restored later.

use std::io;
use weir_ambient::REPLY_ROUTING;
use weir_bpf::Map;
use weir_cni::redirection::RTPROT_WEIR;
use weir_netlink::route::{
    AddressFamily, LOOPBACK_IFINDEX, PolicyRule, Route, RouteProtocol, Routing,
};
use weir_netlink::{Error, Netns, Result};
use weir_rules::sysctl;

const WEIR: RouteProtocol = RouteProtocol::Other(RTPROT_WEIR);

/// A boolean sysctl of `lo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// `accept_local`
    AcceptLocal,
    /// `route_localnet`
    RouteLocalnet,
}

impl Switch {
    pub(crate) const ALL: [Self; 2] = [Self::AcceptLocal, Self::RouteLocalnet];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AcceptLocal => "accept_local",
            Self::RouteLocalnet => "route_localnet",
        }
    }

    fn key(self) -> String {
        format!("ipv4/conf/lo/{}", self.name())
    }

    fn failed(self, operation: &str, error: &io::Error) -> Error {
        let object = format!("net.ipv4.conf.lo.{}", self.name());
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => {
                Error::refused(operation, object, sysctl::describe(error))
            }
            _ => Error::io(operation, object, error),
        }
    }

    /// Reads the sysctl in the calling thread's namespace.
    pub(crate) fn is_on(self) -> Result<bool> {
        let text = sysctl::read(&self.key()).map_err(|e| self.failed("read", &e))?;
        Ok(text != "0")
    }

    pub(crate) fn set(self, on: bool) -> Result<()> {
        let text = if on { "1" } else { "0" };
        sysctl::write(&self.key(), text).map_err(|e| self.failed("write", &e))
    }
}

/// Sets the sysctl of this name.
pub(crate) fn set(name: &str, on: bool) -> Result<()> {
    let switch = Switch::ALL.into_iter().find(|switch| switch.name() == name);
    switch.map_or(Ok(()), |switch| switch.set(on))
}

// The value of the map of previous values: byte 0 is 1 once it is written, then one byte for each sysctl.
const KEY: [u8; 4] = [0; 4];

/// Stores the current values of the sysctls, unless they are stored. Values stored by a version with another layout take precedence,
/// because that version changed the sysctls. With `are_weirs`, weir has set the current ones: the previous ones count as off.
pub(crate) fn remember(before: &Map, older: Option<&Map>, are_weirs: bool) -> Result<()> {
    if stored(before)?.is_some() {
        return Ok(());
    }
    let value = match older.map(stored).transpose()?.flatten() {
        Some(value) => value,
        None if are_weirs => vec![1, 0, 0, 0, 0, 0, 0, 0],
        None => {
            let [accept, route] = Switch::ALL.map(Switch::is_on);
            vec![1, u8::from(accept?), u8::from(route?), 0, 0, 0, 0, 0]
        }
    };
    let written = before.set(&KEY, &value);
    written.map_err(|e| crate::failed("write", "map weir_before", &e))
}

/// Returns the stored values; `None`: nothing is stored.
pub(crate) fn stored(before: &Map) -> Result<Option<Vec<u8>>> {
    let value = before.get(&KEY);
    let value = value.map_err(|e| crate::failed("read", "map weir_before", &e))?;
    Ok(value.filter(|value| value.first() == Some(&1)))
}

/// Returns the previous value of a sysctl. If none is stored, it was off, which is the kernel's default.
pub(crate) fn was_on(before: Option<&Map>, switch: Switch) -> Result<bool> {
    let value = before.map(stored).transpose()?.flatten();
    let value = value.unwrap_or_default();
    let at = match switch {
        Switch::AcceptLocal => 1,
        Switch::RouteLocalnet => 2,
    };
    Ok(value.get(at) == Some(&1))
}

/// Assigns the node's namespace an id in the calling thread's, by which programs find its sockets. An existing id is kept: the kernel
/// assigns one with the first link between both namespaces. An id cannot be removed, and has no effect by itself.
pub(crate) fn name_node(node: &Netns) -> Result<()> {
    /// The kernel chooses (`ip netns set NETNS auto`).
    const ANY: i32 = -1;
    let routing = Routing::open()?;
    if routing.nsid(node)?.is_none() {
        // Another process may have set it in the meantime.
        routing.set_nsid(node, ANY)?;
    }
    Ok(())
}

/// Returns the route and the policy rule of a family, the same as those of the netfilter engines.
pub(crate) fn routing(family: AddressFamily) -> (Route, PolicyRule) {
    let (mark, mask, table, priority) = REPLY_ROUTING;
    let route = Route::local_default(family, LOOPBACK_IFINDEX, table).by(WEIR);
    let rule = PolicyRule::mark(family, mark, table).at(priority).by(WEIR);
    let rule = PolicyRule {
        fwmask: Some(mask),
        ..rule
    };
    (route, rule)
}

/// The observed routes and policy rules.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    routes: Vec<Route>,
    rules: Vec<PolicyRule>,
}

impl Routes {
    pub(crate) fn read(routing: &Routing) -> Result<Self> {
        let (_, _, table, _) = REPLY_ROUTING;
        Ok(Self {
            routes: routing.routes(table)?,
            rules: routing.rules()?,
        })
    }

    pub(crate) fn has_route(&self, route: &Route) -> bool {
        self.routes.iter().any(|r| r.same_effect(route))
    }

    pub(crate) fn has_rule(&self, rule: &PolicyRule) -> bool {
        self.rules.iter().any(|r| r.same_effect(rule))
    }

    /// Returns the routes and rules that weir wrote for the programs, of both families. A route is left out if another policy rule of weir
    /// leads to it: another redirection in the namespace uses the same route.
    pub(crate) fn owned(&self) -> (Vec<Route>, Vec<PolicyRule>) {
        let own = |family| routing(family);
        let families = [AddressFamily::V4, AddressFamily::V6].map(own);
        let rule = |r: &&PolicyRule| {
            r.protocol == WEIR && families.iter().any(|(_, rule)| rule.same_effect(r))
        };
        let is_shared = |route: &Route| {
            let mut others = self.rules.iter().filter(|r| !rule(r));
            others.any(|r| r.protocol == WEIR && r.leads_to(route))
        };
        let route = |r: &&Route| {
            let is_own = families.iter().any(|(route, _)| route.same_effect(r));
            r.protocol == WEIR && is_own && !is_shared(r)
        };
        (
            self.routes.iter().filter(route).cloned().collect(),
            self.rules.iter().filter(rule).cloned().collect(),
        )
    }
}
