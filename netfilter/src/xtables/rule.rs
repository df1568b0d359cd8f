//! A rule and its builder.

use super::ext::matches::{
    conntrack::Conntrack,
    mark::Mark,
    multiport::{Multiport, Side},
    owner::Owner,
    tcp::Tcp,
    udp::Udp,
};
use super::net::Network;
use super::{ConntrackState, Interface, Match, PortRange, Protocol, Target};
use ipnet::IpNet;
use std::fmt;
use std::ops::RangeInclusive;

/// Whether a condition is inverted: `!`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Not(pub bool);

/// Conditions, matches, and a target.
///
/// The conditions are those of `struct ipt_ip` and `struct ip6t_ip6`: each occurs at most once, and their order has
/// no meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "ipt_entry")]
pub struct Rule {
    /// `-s`
    pub source: Option<(Not, Network)>,
    /// `-d`
    pub destination: Option<(Not, Network)>,
    /// `-i`
    pub in_interface: Option<(Not, Interface)>,
    /// `-o`
    pub out_interface: Option<(Not, Interface)>,
    /// `-p`
    pub protocol: Option<(Not, Protocol)>,
    /// `-f`: fragments that are not the first; IPv4 only.
    pub fragment: Option<Not>,
    /// `struct ipt_ip` or `struct ip6t_ip6` as raw bytes, if the fields above cannot represent it, for example because the
    /// mask of an interface name has a hole. Those fields are empty then.
    pub header: Option<Vec<u8>>,
    /// Evaluated from left to right.
    pub matches: Vec<Match>,
    /// The target; a rule without a target only counts packets.
    pub target: Option<Target>,
}

impl Rule {
    /// Starts a rule that matches every packet.
    pub fn builder() -> RuleBuilder {
        RuleBuilder::default()
    }
}

/// Builds a rule as `iptables -A` does from the same options.
#[must_use]
#[derive(Clone, Debug, Default)]
pub struct RuleBuilder {
    rule: Rule,
}

const IS: Not = Not(false);
const IS_NOT: Not = Not(true);

impl RuleBuilder {
    /// `-s NET`
    pub fn source(mut self, net: IpNet) -> Self {
        self.rule.source = Some((IS, net.into()));
        self
    }

    /// `-d NET`
    pub fn destination(mut self, net: IpNet) -> Self {
        self.rule.destination = Some((IS, net.into()));
        self
    }

    /// `! -d NET`
    pub fn not_destination(mut self, net: IpNet) -> Self {
        self.rule.destination = Some((IS_NOT, net.into()));
        self
    }

    /// `-i NAME`; a trailing `+` matches every name with this prefix.
    pub fn in_interface(mut self, name: &str) -> Self {
        self.rule.in_interface = Some((IS, name.into()));
        self
    }

    /// `-o NAME`; a trailing `+` matches every name with this prefix.
    pub fn out_interface(mut self, name: &str) -> Self {
        self.rule.out_interface = Some((IS, name.into()));
        self
    }

    /// `! -o NAME`
    pub fn not_out_interface(mut self, name: &str) -> Self {
        self.rule.out_interface = Some((IS_NOT, name.into()));
        self
    }

    /// `-p PROTOCOL`
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.rule.protocol = Some((IS, protocol));
        self
    }

    /// Appends any match.
    pub fn matching(mut self, m: Match) -> Self {
        self.rule.matches.push(m);
        self
    }

    /// `-p tcp --dport P`
    pub fn tcp_dport(self, ports: PortRange) -> Self {
        let ports = Tcp {
            dport: Some((IS, ports)),
            ..Tcp::default()
        };
        self.protocol(Protocol::TCP).matching(Match::Tcp(ports))
    }

    /// `-p tcp ! --dport P`
    pub fn not_tcp_dport(self, ports: PortRange) -> Self {
        let ports = Tcp {
            dport: Some((IS_NOT, ports)),
            ..Tcp::default()
        };
        self.protocol(Protocol::TCP).matching(Match::Tcp(ports))
    }

    /// `-p tcp -m multiport ! --dports P,Q`
    pub fn not_tcp_dports(self, ports: Vec<PortRange>) -> Self {
        let ports = Multiport {
            not: IS_NOT,
            side: Side::Destination,
            ports,
        };
        self.protocol(Protocol::TCP)
            .matching(Match::Multiport(ports))
    }

    /// `-p udp --dport P`
    pub fn udp_dport(self, ports: PortRange) -> Self {
        let ports = Udp {
            dport: Some((IS, ports)),
            ..Udp::default()
        };
        self.protocol(Protocol::UDP).matching(Match::Udp(ports))
    }

    /// `-p udp --sport P`
    pub fn udp_sport(self, ports: PortRange) -> Self {
        let ports = Udp {
            sport: Some((IS, ports)),
            ..Udp::default()
        };
        self.protocol(Protocol::UDP).matching(Match::Udp(ports))
    }

    /// `-m owner [!] --uid-owner U`
    pub fn uid(self, not: Not, uids: RangeInclusive<u32>) -> Self {
        self.matching(Match::Owner(Owner {
            uid: Some((not, uids)),
            ..Owner::default()
        }))
    }

    /// `-m owner [!] --gid-owner G`
    pub fn gid(self, not: Not, gids: RangeInclusive<u32>) -> Self {
        self.matching(Match::Owner(Owner {
            gid: Some((not, gids)),
            ..Owner::default()
        }))
    }

    /// `-m mark [!] --mark M`, all bits
    pub fn mark(self, not: Not, value: u32) -> Self {
        self.matching(Match::Mark(Mark {
            not,
            value,
            mask: u32::MAX,
        }))
    }

    /// `-m connmark --mark M`, all bits
    pub fn connmark(self, value: u32) -> Self {
        self.matching(Match::Connmark(Mark {
            not: IS,
            value,
            mask: u32::MAX,
        }))
    }

    /// `-m conntrack --ctstate A,B`
    pub fn ctstate(self, states: &[ConntrackState]) -> Self {
        let states = Some((IS, states.to_vec()));
        self.matching(Match::Conntrack(Conntrack {
            states,
            ..Conntrack::default()
        }))
    }

    /// Finishes the rule with `-j TARGET`.
    #[must_use]
    pub fn target(mut self, target: Target) -> Rule {
        self.rule.target = Some(target);
        self.rule
    }

    /// Finishes the rule with `-j CHAIN`.
    #[must_use]
    pub fn jump(self, chain: &str) -> Rule {
        self.target(Target::Jump(chain.to_owned()))
    }
}

impl fmt::Display for Not {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { " !" } else { "" })
    }
}

/// Prints an option and its value. Format arguments are avoided because they took a tenth of the time of a listing.
pub(super) fn condition(
    f: &mut fmt::Formatter<'_>,
    not: Not,
    option: &str,
    value: &impl fmt::Display,
) -> fmt::Result {
    f.write_str(if not.0 { " !" } else { "" })?;
    f.write_str(option)?;
    value.fmt(f)
}

/// Prints the options after `-A CHAIN`. The text begins with a space unless the rule is empty.
///
/// Conditions that every packet fulfils are omitted, as in `iptables-save`; their inversion, which no packet fulfils, is
/// printed. iptables 1.8.9 omits `! -i +` and `! --dport 0:65535` as well, so its text restores a rule that matches every packet.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (option, net) in [(" -s ", &self.source), (" -d ", &self.destination)] {
            if let Some((not, net)) = net
                && (not.0 || !net.is_any())
            {
                condition(f, *not, option, net)?;
            }
        }
        for (option, name) in [(" -i ", &self.in_interface), (" -o ", &self.out_interface)] {
            match name {
                Some((Not(false), Interface::Prefix(prefix))) if prefix.is_empty() => {}
                Some((not, name)) => condition(f, *not, option, name)?,
                None => {}
            }
        }
        if let Some((not, protocol)) = &self.protocol {
            condition(f, *not, " -p ", protocol)?;
        }
        self.fragment
            .iter()
            .try_for_each(|not| write!(f, "{not} -f"))?;
        if let Some(header) = &self.header {
            f.write_str(" [header:")?;
            header.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            f.write_str("]")?;
        }
        self.matches.iter().try_for_each(|m| m.fmt(f))?;
        self.target.iter().try_for_each(|t| t.fmt(f))
    }
}
