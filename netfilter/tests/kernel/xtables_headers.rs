//! Compares every retyped number and offset of the legacy tables with the system's headers.
// matrix: none: asks a C compiler about the system's headers, and no kernel
use weir_testing::c;

use weir_netfilter::xtables::raw;

const INCLUDES: &str = "\
#include <stddef.h>
#include <stdio.h>
#include <limits.h>
#include <netinet/in.h>
#include <linux/if.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <linux/netfilter_ipv4/ipt_REJECT.h>
#include <linux/netfilter_ipv6/ip6t_REJECT.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/x_tables.h>
#include <linux/netfilter/xt_CT.h>
#include <linux/netfilter/xt_LOG.h>
#include <linux/netfilter/xt_MARK.h>
#include <linux/netfilter/xt_NFLOG.h>
#include <linux/netfilter/xt_TPROXY.h>
#include <linux/netfilter/xt_addrtype.h>
#include <linux/netfilter/xt_comment.h>
#include <linux/netfilter/xt_connmark.h>
#include <linux/netfilter/xt_conntrack.h>
#include <linux/netfilter/xt_dscp.h>
#include <linux/netfilter/xt_iprange.h>
#include <linux/netfilter/xt_limit.h>
#include <linux/netfilter/xt_mark.h>
#include <linux/netfilter/xt_multiport.h>
#include <linux/netfilter/xt_owner.h>
#include <linux/netfilter/xt_physdev.h>
#include <linux/netfilter/xt_pkttype.h>
#include <linux/netfilter/xt_set.h>
#include <linux/netfilter/xt_socket.h>
#include <linux/netfilter/xt_state.h>
#include <linux/netfilter/xt_statistic.h>
#include <linux/netfilter/xt_tcpudp.h>
";

fn compare(ours: &[(String, i64)]) {
    let names: Vec<&str> = ours.iter().map(|(name, _)| name.as_str()).collect();
    let theirs = c::values_in_c(INCLUDES, &names);
    let wrong: Vec<String> = ours
        .iter()
        .filter(|(name, n)| theirs[name] != *n)
        .map(|(name, n)| format!("{name}: {n}, the header says {}", theirs[name]))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_number_is_the_headers() {
    let mut ours: Vec<(String, i64)> = raw::CONSTANTS
        .iter()
        .map(|(name, n)| ((*name).to_owned(), *n))
        .collect();
    for (name, n) in [
        ("ESTABLISHED", raw::XT_CONNTRACK_STATE_ESTABLISHED),
        ("RELATED", raw::XT_CONNTRACK_STATE_RELATED),
        ("NEW", raw::XT_CONNTRACK_STATE_NEW),
    ] {
        ours.push((format!("XT_CONNTRACK_STATE_BIT(IP_CT_{name})"), n.into()));
    }
    // Constants that this crate uses for both families.
    let same = ["_SO_SET_", "_SO_GET_INFO", "_SO_GET_ENTRIES", "_INV"];
    let both = |name: &str| name.starts_with("IPT_") && same.iter().any(|part| name.contains(part));
    let of_ip = ours
        .iter()
        .filter(|(name, _)| both(name) && !name.ends_with("FRAG"));
    let of_ip6: Vec<_> = of_ip
        .map(|(name, n)| (name.replace("IPT_", "IP6T_"), *n))
        .collect();
    assert_eq!(of_ip6.len(), 9);
    ours.extend(of_ip6);
    compare(&ours);
}

#[test]
fn every_offset_is_the_compilers() {
    let ours = raw::layouts().into_iter();
    let ours: Vec<_> = ours
        .map(|(name, n)| (name, i64::try_from(n).unwrap()))
        .collect();
    compare(&ours);
}
