//! rtnetlink: links, policy routing, traffic control.

use nix::errno::Errno;
use weir_netfilter::probe::{Answer, Finding, Row, RunningKernel, answer, row, unanswered};
use weir_netlink::route::{AddressFamily, Link, LinkKind, PolicyRule, Qdisc, Route, Routing};
use weir_netlink::{Error, Result};
use weir_node_ambient::CarrierChoice;

/// The name of the area in findings.
pub const AREA: &str = "net";

/// Errors that mean "not supported".
const ABSENT: &[i32] = &[
    Errno::EOPNOTSUPP as i32,
    Errno::EAFNOSUPPORT as i32,
    Errno::ENOENT as i32,
];

/// Routing table and mark of the trials; they are unused, because the namespace is new.
const TABLE: u32 = 133;
const MARK: u32 = 1337;

/// How a feature is tried.
#[derive(Clone, Copy, Debug)]
pub enum Trial {
    /// Add a link of this kind.
    Link(&'static str),
    /// Use weir's own check for the links that carry the first packets of connections at the node.
    Carrier(CarrierChoice),
    /// Add a link of this kind on top of a veth.
    Upper(&'static str),
    /// Add a policy rule by mark.
    Rule(AddressFamily),
    /// Add a route that delivers everything locally to a separate table.
    LocalRoute(AddressFamily),
    /// Add a clsact qdisc to `lo`.
    Clsact,
}

/// Every feature.
#[rustfmt::skip]
pub const ROWS: &[Row<Trial>] = &[
    row("link veth", Trial::Carrier(CarrierChoice::Veth), "veth", "", "geneve or vxlan as tunnel to the node's proxy"),
    row("link geneve", Trial::Carrier(CarrierChoice::Geneve), "geneve", "4.2", "vxlan, or a veth pair"),
    row("link vxlan", Trial::Carrier(CarrierChoice::Vxlan), "vxlan", "", "geneve, or a veth pair"),
    row("link bridge", Trial::Link("bridge"), "bridge", "", "not used: other CNI plugins do"),
    row("link dummy", Trial::Link("dummy"), "dummy", "", "not used"),
    row("link macvlan", Trial::Upper("macvlan"), "macvlan", "", "not used: pods may have it"),
    row("link ipvlan", Trial::Upper("ipvlan"), "ipvlan", "", "not used: pods may have it"),
    row("link netkit", Trial::Link("netkit"), "netkit", "6.7", "veth"),
    row("policy routing ip", Trial::Rule(AddressFamily::V4), "fib_rules", "", "REDIRECT instead of TPROXY"),
    row("policy routing ip6", Trial::Rule(AddressFamily::V6), "ipv6 fib6_rules", "", "IPv4 only"),
    row("local route ip", Trial::LocalRoute(AddressFamily::V4), "fib_rules", "", "REDIRECT instead of TPROXY"),
    row("local route ip6", Trial::LocalRoute(AddressFamily::V6), "ipv6 fib6_rules", "", "IPv4 only"),
    row("qdisc clsact", Trial::Clsact, "sch_ingress", "4.5", "tcx"),
];

/// Tries every row in the network namespace of the calling thread, which must be a throwaway one.
#[must_use]
pub fn features(kernel: &RunningKernel) -> Vec<Finding> {
    let lab = match Lab::open() {
        Ok(lab) => lab,
        Err(e) => return untried(&e.to_string()),
    };
    let one = |row: &Row<Trial>| {
        answer(AREA, "", row, kernel, |trial| {
            let lower = matches!(trial, Trial::Upper(_)).then_some("veth");
            let guard = lower.and_then(|needs| kernel.guard(needs));
            guard.unwrap_or_else(|| Answer::of(lab.try_one(trial).map(|()| String::new()), ABSENT))
        })
    };
    ROWS.iter().map(one).collect()
}

/// Reports every row as unknown.
#[must_use]
pub fn untried(why: &str) -> Vec<Finding> {
    unanswered(AREA, "", ROWS, why)
}

struct Lab {
    routing: Routing,
    lo: u32,
}

impl Lab {
    fn open() -> Result<Self> {
        let routing = Routing::open()?;
        let lo = routing.link("lo")?.index;
        routing.set_up(lo)?;
        Ok(Self { routing, lo })
    }

    fn try_one(&self, trial: &Trial) -> Result<()> {
        const NAME: &str = "weir-trial";
        match *trial {
            Trial::Link(kind) => {
                self.add(NAME, kind, None)?;
                self.remove(NAME)
            }
            Trial::Carrier(kind) => kind.try_in(&self.routing),
            Trial::Upper(kind) => {
                const LOWER: &str = "weir-lower";
                let lower = self.add(LOWER, "veth", None);
                // A failure to add the veth says nothing about the upper kind.
                lower.map_err(|e| {
                    Error::refused("try", "a link on top of another", e.to_string())
                })?;
                let made = self.routing.link(LOWER).and_then(|lower| {
                    self.add(NAME, kind, Some(lower.index))?;
                    self.remove(NAME)
                });
                self.remove(LOWER)?;
                made
            }
            Trial::Rule(family) => self
                .routing
                .add_rule(&PolicyRule::mark(family, MARK, TABLE))
                .map(drop),
            Trial::LocalRoute(family) => self
                .routing
                .add_route(&Route::local_default(family, self.lo, TABLE))
                .map(drop),
            Trial::Clsact => self.routing.add_qdisc(&Qdisc::clsact(self.lo)).map(drop),
        }
    }

    fn add(&self, name: &str, kind: &str, lower: Option<u32>) -> Result<()> {
        let link = Link {
            lower,
            ..Link::new(name, LinkKind::plain(kind))
        };
        self.routing.add_link(&link, None)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let link = self.routing.link(name)?;
        match self.routing.delete_link(link.index)? {
            true => Ok(()),
            false => Err(Error::malformed("delete", name, "it was gone before")),
        }
    }
}
