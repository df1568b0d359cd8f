//! `istio-proxy-raw`: conntrack zones that keep the two halves of redirected DNS apart.

use super::super::family::{Family, FamilyDns};
use super::super::{DNS_LISTENER_PORT, DNS_PORT, ZONE_APPLICATION, ZONE_UPSTREAM};
use super::{Chains, End, INBOUND, OUTPUT, OUTPUT_DNS, Owner, PREROUTING};
use crate::config::{Dns, Intent};
use weir_netfilter::nft::{ChainType, CmpOp, L4Proto, Rule, RuleBuilder, priority};

/// `output` and `prerouting`: every packet jumps to the chains below, the latter only if its chain has rules.
///
/// `istio-output-dns`: the first matching rule sets the zone.
/// 1. For each of the proxy's users, then for each of its groups: queries are in the upstream zone, answers in the
///    application zone.
/// 2. Other queries, to any server or to the known ones, are in the application zone.
///
/// `istio-inbound`: answers of the servers are in the upstream zone.
pub(super) fn chains(intent: &Intent, families: &[Family]) -> Chains {
    let types = [ChainType::Filter, ChainType::Filter];
    let mut chains = Chains::new(types, priority::RAW, &[INBOUND, OUTPUT_DNS]);
    if intent.dns == Dns::Off {
        return chains;
    }
    let query = || Rule::builder().dport(L4Proto::Udp, CmpOp::Eq, DNS_PORT..=DNS_PORT);
    let answer = |port| Rule::builder().sport(L4Proto::Udp, CmpOp::Eq, port..=port);
    let zone = |rule: RuleBuilder, zone| rule.counter().set_ct_zone(zone).build();

    chains.add(OUTPUT, Rule::builder().count_jump(OUTPUT_DNS));
    if families.iter().any(|f| f.dns.is_on()) {
        chains.add(PREROUTING, Rule::builder().count_jump(INBOUND));
    }
    for owner in Owner::all(intent) {
        chains.add(
            OUTPUT_DNS,
            zone(owner.matching(query(), CmpOp::Eq), ZONE_UPSTREAM),
        );
        let to_application = owner.matching(answer(DNS_LISTENER_PORT), CmpOp::Eq);
        chains.add(OUTPUT_DNS, zone(to_application, ZONE_APPLICATION));
    }
    if families.iter().any(|f| matches!(f.dns, FamilyDns::All)) {
        chains.add(OUTPUT_DNS, zone(query(), ZONE_APPLICATION));
        chains.add(INBOUND, zone(answer(DNS_PORT), ZONE_UPSTREAM));
    }
    for family in families {
        let FamilyDns::Servers(servers) = &family.dns else {
            continue;
        };
        for server in servers {
            chains.add(
                OUTPUT_DNS,
                zone(query().daddr(CmpOp::Eq, *server), ZONE_APPLICATION),
            );
            chains.add(
                INBOUND,
                zone(answer(DNS_PORT).saddr(CmpOp::Eq, *server), ZONE_UPSTREAM),
            );
        }
    }
    chains
}
