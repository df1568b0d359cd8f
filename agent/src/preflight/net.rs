//! rtnetlink: links, policy routing, traffic control.

use nix::errno::Errno;
use weir_netfilter::probe::{Answer, Finding, Kernel, Row, answer, row, unanswered};
use weir_netlink::route::{Family, PolicyRule, Route, Routing, TrialLink};
use weir_netlink::{Error, Result};

/// The name of the area in findings.
pub const AREA: &str = "net";

/// Errors that say "I have no such thing".
const ABSENT: &[i32] = &[
    Errno::EOPNOTSUPP as i32,
    Errno::EAFNOSUPPORT as i32,
    Errno::ENOENT as i32,
];

/// A table of routes and a mark that nobody uses: the namespace is new.
const TABLE: u32 = 133;
const MARK: u32 = 1337;

/// How a feature is tried.
#[derive(Clone, Copy, Debug)]
pub enum Trial {
    /// A link of this kind is added.
    Link(TrialLink),
    /// A link of this kind is added on top of a veth.
    Upper(TrialLink),
    /// A rule by mark is added.
    Rule(Family),
    /// A route that delivers everything locally is added to a table of its own.
    LocalRoute(Family),
    /// The qdisc is added to `lo`.
    Clsact,
}

/// Every feature.
#[rustfmt::skip]
pub const ROWS: &[Row<Trial>] = &[
    row("link veth", Trial::Link(TrialLink::Veth), "veth", "", "geneve or vxlan as carrier of node-level ambient"),
    row("link geneve", Trial::Link(TrialLink::Geneve), "geneve", "4.2", "a veth pair, or vxlan"),
    row("link vxlan", Trial::Link(TrialLink::Vxlan), "vxlan", "", "a veth pair, or geneve"),
    row("link bridge", Trial::Link(TrialLink::Bridge), "bridge", "", "not used: other CNI plugins do"),
    row("link dummy", Trial::Link(TrialLink::Dummy), "dummy", "", "not used"),
    row("link macvlan", Trial::Upper(TrialLink::Macvlan), "macvlan", "", "not used: pods may have it"),
    row("link ipvlan", Trial::Upper(TrialLink::Ipvlan), "ipvlan", "", "not used: pods may have it"),
    row("link netkit", Trial::Link(TrialLink::Netkit), "netkit", "6.7", "veth"),
    row("policy routing ip", Trial::Rule(Family::V4), "fib_rules", "", "REDIRECT instead of TPROXY"),
    row("policy routing ip6", Trial::Rule(Family::V6), "ipv6 fib6_rules", "", "IPv4 only"),
    row("local route ip", Trial::LocalRoute(Family::V4), "fib_rules", "", "REDIRECT instead of TPROXY"),
    row("local route ip6", Trial::LocalRoute(Family::V6), "ipv6 fib6_rules", "", "IPv4 only"),
    row("qdisc clsact", Trial::Clsact, "sch_ingress", "4.5", "tcx"),
];

/// Tries every row in the network namespace of the calling thread, which must be a throwaway one.
#[must_use]
pub fn features(kernel: &Kernel) -> Vec<Finding> {
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

/// Every row unanswered.
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
                self.routing.add_trial_link(NAME, kind, None)?;
                self.remove(NAME)
            }
            Trial::Upper(kind) => {
                const LOWER: &str = "weir-lower";
                let lower = self.routing.add_trial_link(LOWER, TrialLink::Veth, None);
                // That is no answer to the question.
                lower.map_err(|e| {
                    Error::refused("try", "a link on top of another", e.to_string())
                })?;
                let made = self.routing.link(LOWER).and_then(|lower| {
                    self.routing.add_trial_link(NAME, kind, Some(lower.index))?;
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
            Trial::Clsact => self.routing.add_clsact(self.lo),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        let link = self.routing.link(name)?;
        match self.routing.delete_link(link.index)? {
            true => Ok(()),
            false => Err(Error::malformed("delete", name, "it was gone before")),
        }
    }
}
