//! AWS security groups for pods: probes to pods behind a branch ENI.
//!
//! The VPC plugin gives such a pod its own link, and policy rules that send all packets received on this link to a table
//! with a default route by the branch ENI, so that security groups apply:
//!
//! ```text
//! 10: from all iif vlan.eth.1   lookup 101       table 101: 10.9.0.2/32 dev eni3f2, default via ... dev vlan.eth.1
//! 10: from all iif eni3f2       lookup 101
//! ```
//! The kubelet's probe is routed by the main table, but the answer would leave by the ENI. Two rules per pod fix that,
//! as in Istio's agent:
//!
//! ```text
//! 512: from all to 10.9.0.2     lookup 101       the probe goes to the pod's link
//!   9: from all iif eni3f2      lookup local     the answer is for this machine
//! ```
//! These rules are only needed if `tcp_early_demux` is off, as the VPC plugin requires.

use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use weir_cni::redirection::RTPROT_WEIR;
use weir_netlink::route::{
    AddressFamily, PolicyRule, RT_TABLE_LOCAL, RT_TABLE_MAIN, RouteProtocol, Routing, RuleAction,
};
use weir_netlink::{Error, Result};

/// Priority of the rule to the pod.
const PRIORITY: u32 = 512;
const WEIR: RouteProtocol = RouteProtocol::Other(RTPROT_WEIR);

/// Whether the node is set up for security groups of pods; call it once. `proc`: the node's `/proc`.
///
/// # Errors
/// The sysctl cannot be read. One that does not exist is not off.
pub fn early_demux_is_off(proc: &Path) -> Result<bool> {
    let file = proc.join("sys/net/ipv4/tcp_early_demux");
    match std::fs::read(&file) {
        Ok(text) => Ok(text.first() == Some(&b'0')),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("read", file.display().to_string(), &e)),
    }
}

/// The rules of all pods behind a branch ENI, by address.
#[derive(Debug, Default)]
pub struct BranchEnis(BTreeMap<IpAddr, Vec<PolicyRule>>);

impl BranchEnis {
    /// Adds the missing rules for a pod's address in the network namespace of the socket (the host's) and returns them.
    /// `None`: the address is not behind a branch ENI. Must be called again if the pod's link may have changed.
    ///
    /// # Errors
    /// Rules or routes cannot be read or written. If adding fails, rules that this call added are deleted.
    pub fn put(&mut self, routing: &Routing, address: IpAddr) -> Result<Option<Vec<PolicyRule>>> {
        let listed = routing.rules()?;
        let Some(wanted) = behind_eni(routing, &listed, address)? else {
            self.remove(routing, address)?;
            return Ok(None);
        };
        let mut now: Vec<PolicyRule> = Vec::new();
        let mut added: Vec<PolicyRule> = Vec::new();
        for rule in wanted {
            // A rule left by another agent, of any version or Istio's, is deleted with the pod, too.
            let same = |l: &&PolicyRule| l.same_effect(&rule) && l.priority == rule.priority;
            if let Some(there) = listed.iter().find(same) {
                now.push(there.clone());
                continue;
            }
            if let Err(e) = routing.add_rule(&rule) {
                for rule in &added {
                    // Only the first failure is returned.
                    let _ = routing.del_rule(rule);
                }
                return Err(e);
            }
            added.push(rule.clone());
            now.push(rule);
        }
        let before = self.0.insert(address, now.clone()).unwrap_or_default();
        for rule in before.iter().filter(|rule| !now.contains(rule)) {
            routing.del_rule(rule)?;
        }
        Ok(Some(added))
    }

    /// Deletes the recorded rules of an address, regardless of where the pod is now.
    ///
    /// # Errors
    /// A rule cannot be deleted. It stays recorded for another attempt.
    pub fn remove(&mut self, routing: &Routing, address: IpAddr) -> Result<()> {
        let Some(rules) = self.0.get_mut(&address) else {
            return Ok(());
        };
        let mut failed: Option<Error> = None;
        rules.retain(|rule| match routing.del_rule(rule) {
            // `Ok(false)`: the rule is already gone.
            Ok(_) => false,
            Err(e) => {
                failed.get_or_insert(e);
                true
            }
        });
        match failed {
            Some(e) => Err(e),
            None => {
                self.0.remove(&address);
                Ok(())
            }
        }
    }

    /// Deletes the rules of all addresses, for an agent that cleans up the node.
    ///
    /// # Errors
    /// The first failure; the remaining rules are still deleted.
    pub fn remove_all(&mut self, routing: &Routing) -> Result<()> {
        let addresses: Vec<IpAddr> = self.0.keys().copied().collect();
        let mut done = Ok(());
        for address in addresses {
            done = done.and(self.remove(routing, address));
        }
        done
    }

    /// Deletes rules with the protocol number of this agent that belong to none of these addresses: their pods were deleted
    /// while no agent ran. Rules without it, such as those of Istio's agent, may be foreign. Returns the deleted rules.
    ///
    /// # Errors
    /// Rules cannot be read, or the first rule that cannot be deleted; the remaining rules are still deleted.
    pub fn remove_others(&self, routing: &Routing) -> Result<Vec<PolicyRule>> {
        let mut removed = Vec::new();
        let mut failed: Option<Error> = None;
        for rule in made_here(routing)? {
            let same =
                |known: &PolicyRule| known.same_effect(&rule) && known.priority == rule.priority;
            if self.0.values().flatten().any(same) {
                continue;
            }
            match routing.del_rule(&rule) {
                Ok(_) => removed.push(rule),
                Err(e) => _ = failed.get_or_insert(e),
            }
        }
        failed.map_or(Ok(removed), Err)
    }

    /// The addresses that have rules.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.0.keys().copied()
    }
}

/// Returns the rules with the protocol number of this agent, of all pods.
///
/// # Errors
/// Rules cannot be read.
pub fn made_here(routing: &Routing) -> Result<Vec<PolicyRule>> {
    let rules = routing.rules()?.into_iter();
    Ok(rules.filter(is_made_here).collect())
}

/// Whether this is one of the two rules of a pod, with the protocol number of this agent.
fn is_made_here(rule: &PolicyRule) -> bool {
    let (to, iif) = (rule.selectors.to, rule.selectors.iif.as_deref());
    let made = match (to, iif) {
        (Some(to), None) if rule.priority == Some(PRIORITY) => PolicyRule::to(to, rule.table),
        (None, Some(link)) => PolicyRule::iif(rule.family, link, RT_TABLE_LOCAL),
        _ => return false,
    };
    rule.protocol == WEIR && rule.same_effect(&made)
}

/// Returns the rules for an address behind a branch ENI: a policy rule by link (`iif`) leads to a table with a host route to
/// the address by the same link.
fn behind_eni(
    routing: &Routing,
    listed: &[PolicyRule],
    address: IpAddr,
) -> Result<Option<[PolicyRule; 2]>> {
    let host = IpNet::from(address);
    let family = match address {
        IpAddr::V4(_) => AddressFamily::V4,
        IpAddr::V6(_) => AddressFamily::V6,
    };
    let mut tables = BTreeMap::new();
    for rule in listed.iter().filter(|rule| rule.family == family) {
        let Some(link) = rule.selectors.iif.as_deref() else {
            continue;
        };
        let is_own = !matches!(rule.table, 0 | RT_TABLE_MAIN | RT_TABLE_LOCAL);
        if rule.action != RuleAction::Lookup || !is_own {
            continue;
        }
        let routes = match tables.entry(rule.table) {
            std::collections::btree_map::Entry::Occupied(read) => read.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                new.insert(routing.routes(rule.table)?)
            }
        };
        let Some(oif) = routes.iter().find(|r| r.dst == host).and_then(|r| r.oif) else {
            continue;
        };
        let index = match routing.link(link) {
            Ok(found) => found.index,
            // The rule belongs to a deleted pod.
            Err(e) if e.is_not_found() => continue,
            Err(e) => return Err(e),
        };
        if index != oif {
            continue;
        }
        let earlier = rule.priority.unwrap_or(0).saturating_sub(1);
        return Ok(Some([
            PolicyRule::to(host, rule.table).at(PRIORITY).by(WEIR),
            PolicyRule::iif(family, link, RT_TABLE_LOCAL)
                .at(earlier)
                .by(WEIR),
        ]));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use weir_netlink::Netns;

    fn ip(netns: &Netns, arguments: &str) -> Vec<String> {
        let run = Command::new("nsenter")
            .arg(format!("--net={}", netns.path().display()))
            .arg("ip")
            .args(arguments.split(' '))
            .output()
            .expect("nsenter of util-linux and ip of iproute2 are needed as oracles");
        assert!(
            run.status.success(),
            "{arguments}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
        let text = String::from_utf8(run.stdout).unwrap();
        text.lines()
            .map(|line| line.trim().replace('\t', " "))
            .collect()
    }

    /// A node as the VPC plugin leaves it, with two pods behind ENIs.
    fn node(netns: &Netns) {
        for (link, table, v4, v6) in [
            ("eni1", 101, "10.9.0.2", "fd09::2"),
            ("eni2", 102, "10.9.0.3", "fd09::3"),
        ] {
            ip(
                netns,
                &format!("link add {link} type veth peer name p{link}"),
            );
            ip(netns, &format!("link set {link} up"));
            ip(netns, &format!("link set p{link} up"));
            for (flag, address) in [("-4", v4), ("-6", v6)] {
                ip(
                    netns,
                    &format!("{flag} route add {address} dev {link} table {table}"),
                );
                // The first is of no use: the route is not by this link.
                ip(
                    netns,
                    &format!("{flag} rule add iif vlan{table} lookup {table} priority 10"),
                );
                ip(
                    netns,
                    &format!("{flag} rule add iif {link} lookup {table} priority 10"),
                );
            }
        }
    }

    fn rules(netns: &Netns) -> Vec<String> {
        let mut rules = ip(netns, "-4 rule");
        rules.extend(ip(netns, "-6 rule"));
        rules
    }

    fn new_ones(netns: &Netns, before: &[String]) -> Vec<String> {
        let mut now = rules(netns);
        now.retain(|rule| !before.contains(rule));
        now
    }

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_pod_behind_an_eni_has_two_rules_for_as_long_as_it_lives() {
        let netns = weir_testing::namespace_or_skip!();
        let routing = Routing::open_in(&netns).unwrap();
        node(&netns);
        let before = rules(&netns);
        let mut enis = BranchEnis::default();
        // A pod with an ordinary link has none.
        assert_eq!(enis.put(&routing, at("10.9.0.9")).unwrap(), None);
        assert_eq!(rules(&netns), before);
        for (address, link, table) in [("10.9.0.2", "eni1", 101), ("fd09::3", "eni2", 102)] {
            for missing in [2, 0] {
                let added = enis.put(&routing, at(address)).unwrap();
                assert_eq!(added.map(|rules| rules.len()), Some(missing), "{address}");
                assert_eq!(
                    new_ones(&netns, &before),
                    [
                        format!("9: from all iif {link} lookup local proto 119"),
                        format!("512: from all to {address} lookup {table} proto 119"),
                    ]
                );
            }
            enis.remove(&routing, at(address)).unwrap();
            assert_eq!(rules(&netns), before);
            // What is gone already is no failure.
            enis.remove(&routing, at(address)).unwrap();
        }
    }

    #[test]
    fn a_pod_that_moves_takes_its_rules_along_and_one_that_leaves_the_eni_loses_them() {
        let netns = weir_testing::namespace_or_skip!();
        let routing = Routing::open_in(&netns).unwrap();
        node(&netns);
        let before = rules(&netns);
        let mut enis = BranchEnis::default();
        enis.put(&routing, at("10.9.0.2")).unwrap();
        ip(&netns, "route del 10.9.0.2 dev eni1 table 101");
        ip(&netns, "route add 10.9.0.2 dev eni2 table 102");
        enis.put(&routing, at("10.9.0.2")).unwrap();
        assert_eq!(
            new_ones(&netns, &before),
            [
                "9: from all iif eni2 lookup local proto 119",
                "512: from all to 10.9.0.2 lookup 102 proto 119"
            ]
        );
        ip(&netns, "route del 10.9.0.2 dev eni2 table 102");
        assert_eq!(enis.put(&routing, at("10.9.0.2")).unwrap(), None);
        assert_eq!(rules(&netns), before);
        assert_eq!(enis.addresses().count(), 0);
    }

    /// A restart with the rules in place, by this agent or by Istio's, whose rules have no protocol of their own.
    #[test]
    fn rules_of_an_agent_before_this_one_go_with_the_pod() {
        let netns = weir_testing::namespace_or_skip!();
        let routing = Routing::open_in(&netns).unwrap();
        node(&netns);
        let before = rules(&netns);
        BranchEnis::default().put(&routing, at("10.9.0.3")).unwrap();
        ip(&netns, "rule add to 10.9.0.2 lookup 101 priority 512");
        let mut next = BranchEnis::default();
        for address in ["10.9.0.2", "10.9.0.3"] {
            assert!(next.put(&routing, at(address)).unwrap().is_some());
        }
        assert_eq!(new_ones(&netns, &before).len(), 4);
        next.remove_all(&routing).unwrap();
        assert_eq!(rules(&netns), before);
    }

    /// Pods may go while no agent runs, and another program may have rules of the same shape.
    #[test]
    fn rules_of_pods_that_are_gone_go_and_those_of_others_stay() {
        let netns = weir_testing::namespace_or_skip!();
        let routing = Routing::open_in(&netns).unwrap();
        node(&netns);
        ip(&netns, "rule add to 10.9.0.7 lookup 101 priority 512");
        ip(
            &netns,
            "rule add to 10.9.0.7 lookup 101 priority 511 proto 119",
        );
        ip(&netns, "rule add iif other lookup 101 priority 8 proto 119");
        ip(
            &netns,
            "rule add fwmark 7 lookup 101 priority 512 proto 119",
        );
        let before = rules(&netns);
        let mut earlier = BranchEnis::default();
        for address in ["10.9.0.2", "fd09::3"] {
            earlier.put(&routing, at(address)).unwrap();
        }
        let mut now = BranchEnis::default();
        now.put(&routing, at("10.9.0.2")).unwrap();
        let removed = now.remove_others(&routing).unwrap();
        assert_eq!(removed.len(), 2, "{removed:?}");
        assert_eq!(
            new_ones(&netns, &before),
            [
                "9: from all iif eni1 lookup local proto 119",
                "512: from all to 10.9.0.2 lookup 101 proto 119"
            ]
        );
        assert_eq!(now.remove_others(&routing).unwrap(), []);
        now.remove_all(&routing).unwrap();
        assert_eq!(rules(&netns), before);
    }

    /// The VPC plugin deletes the link of a pod that leaves; its rule is then listed as `[detached]`.
    #[test]
    fn rules_of_a_pod_whose_link_is_gone_go() {
        let netns = weir_testing::namespace_or_skip!();
        let routing = Routing::open_in(&netns).unwrap();
        node(&netns);
        BranchEnis::default().put(&routing, at("10.9.0.2")).unwrap();
        ip(&netns, "link del eni1");
        let listed = rules(&netns);
        let detached = "9: from all iif eni1 [detached] lookup local proto 119".to_owned();
        assert!(listed.contains(&detached), "{listed:?}");
        let removed = BranchEnis::default().remove_others(&routing).unwrap();
        assert_eq!(removed.len(), 2, "{removed:?}");
        assert_eq!(made_here(&routing).unwrap(), []);
    }

    #[test]
    fn the_setting_of_the_node() {
        let dir = weir_testing::TempDir::new();
        assert!(!early_demux_is_off(dir.path()).unwrap());
        let at = dir.path().join("sys/net/ipv4");
        std::fs::create_dir_all(&at).unwrap();
        for (text, is_off) in [("0\n", true), ("1\n", false), ("", false)] {
            std::fs::write(at.join("tcp_early_demux"), text).unwrap();
            assert_eq!(early_demux_is_off(dir.path()).unwrap(), is_off);
        }
        // A setting that cannot be read is not the usual one.
        std::fs::remove_file(at.join("tcp_early_demux")).unwrap();
        std::fs::create_dir(at.join("tcp_early_demux")).unwrap();
        early_demux_is_off(dir.path()).unwrap_err();
    }
}
