//! `raw`: conntrack zones that keep the two halves of redirected DNS apart.

use super::super::family::{Family, FamilyDns};
use super::super::{DNS_LISTENER_PORT, DNS_PORT, ZONE_APPLICATION, ZONE_UPSTREAM};
use super::{Chains, INBOUND, IS, OUTPUT, OUTPUT_DNS, Owner, PREROUTING};
use crate::config::{Dns, Intent};
use weir_netfilter::xtables::{Rule, Target};

/// `OUTPUT` and `PREROUTING`: every packet jumps to the chains below, the latter only if the family captures DNS.
///
/// `ISTIO_OUTPUT_DNS`: the first matching rule sets the zone.
/// 1. For each of the proxy's users, then for each of its groups: queries are in the upstream zone, answers in the
///    application zone.
/// 2. Other queries, to any server or to the known ones, are in the application zone.
///
/// `ISTIO_INBOUND`: answers of the servers are in the upstream zone.
pub(super) fn chains(intent: &Intent, family: &Family) -> Chains {
    let mut chains = Chains::default();
    if intent.dns == Dns::Off {
        return chains;
    }
    let query = || Rule::builder().udp_dport(DNS_PORT.into());
    let answer = |port: u16| Rule::builder().udp_sport(port.into());
    let (upstream, application) = (
        Target::CtZone(ZONE_UPSTREAM),
        Target::CtZone(ZONE_APPLICATION),
    );

    chains.add(OUTPUT, Rule::builder().jump(OUTPUT_DNS));
    for owner in Owner::all(intent) {
        chains.add(
            OUTPUT_DNS,
            owner.matching(query(), IS).target(upstream.clone()),
        );
        let to_application = owner.matching(answer(DNS_LISTENER_PORT), IS);
        chains.add(OUTPUT_DNS, to_application.target(application.clone()));
    }
    if family.dns.is_on() {
        chains.add(PREROUTING, Rule::builder().jump(INBOUND));
    }
    match &family.dns {
        FamilyDns::Off => {}
        FamilyDns::All => {
            chains.add(OUTPUT_DNS, query().target(application));
            chains.add(INBOUND, answer(DNS_PORT).target(upstream));
        }
        FamilyDns::Servers(servers) => {
            for server in servers {
                let query = query().destination(*server);
                chains.add(OUTPUT_DNS, query.target(application.clone()));
                let answer = answer(DNS_PORT).source(*server);
                chains.add(INBOUND, answer.target(upstream.clone()));
            }
        }
    }
    chains
}
