//! `raw`: conntrack zones that keep the two halves of redirected DNS apart.

use super::super::family::{Family, FamilyDns};
use super::super::{DNS_LISTENER_PORT, DNS_PORT, ZONE_APPLICATION, ZONE_UPSTREAM};
use super::{Chains, INBOUND, IS, OUTPUT, OUTPUT_DNS, Owner, PREROUTING};
use crate::config::{Dns, Intent};
use weir_netfilter::xtables::{Ct, Rule, Target};

/// The rules of the table `istio-proxy-raw` in [`nft`](super::super::nft), in the same order.
pub(super) fn chains(intent: &Intent, family: &Family) -> Chains {
    let mut chains = Chains::default();
    if intent.dns == Dns::Off {
        return chains;
    }
    let query = || Rule::builder().udp_dport(DNS_PORT.into());
    let answer = |port: u16| Rule::builder().udp_sport(port.into());
    let (upstream, application) = (
        Target::Ct(Ct::in_zone(ZONE_UPSTREAM)),
        Target::Ct(Ct::in_zone(ZONE_APPLICATION)),
    );

    chains.add(OUTPUT, Rule::builder().jump(OUTPUT_DNS));
    for owner in Owner::all(intent) {
        chains.add(
            OUTPUT_DNS,
            owner.option(query(), IS).target(upstream.clone()),
        );
        let to_application = owner.option(answer(DNS_LISTENER_PORT), IS);
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
