//! Compares every retyped number and struct with the system's headers: a C program prints the compiler's value of each expression.
// matrix: none: asks a C compiler about the system's headers, and no kernel
use weir_testing::c;

use weir_netlink::message::NL_ATTR_TYPES;
use weir_netlink::{nfnetlink, route};

const INCLUDES: &str = "\
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <linux/version.h>
#include <linux/bpf.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/fib_rules.h>
#include <linux/icmpv6.h>
#include <linux/neighbour.h>
#include <linux/net_namespace.h>
#include <linux/netlink.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nf_tables.h>
";

/// Names that only headers of this release and later define.
const LATER: [(&str, (i64, i64)); 13] = [
    ("IFLA_NETKIT_", (6, 7)),
    ("NL_ATTR_TYPE_SINT", (6, 7)),
    ("NL_ATTR_TYPE_UINT", (6, 7)),
    ("BPF_TCX_", (6, 6)),
    ("BPF_NETKIT_", (6, 7)),
    ("BPF_LINK_TYPE_TCX", (6, 6)),
    ("BPF_LINK_TYPE_NETKIT", (6, 7)),
    ("BPF_F_BEFORE", (6, 6)),
    ("BPF_F_AFTER", (6, 6)),
    ("offsetof(union bpf_attr, link_create.tcx", (6, 6)),
    ("offsetof(union bpf_attr, query.", (6, 6)),
    ("offsetof(struct bpf_link_info, tcx", (6, 6)),
    ("offsetof(struct bpf_link_info, netkit", (6, 7)),
];

#[test]
fn every_number_is_the_headers() {
    let code = "LINUX_VERSION_CODE";
    let version = c::values_in_c(INCLUDES, &[code])[code];
    let is_later = |name: &str| {
        let later = LATER.iter().find(|(start, _)| name.starts_with(start));
        later.is_some_and(|(_, (major, minor))| version < major << 16 | minor << 8)
    };
    let types = (0..).zip(NL_ATTR_TYPES);
    let types = types.map(|(n, name)| (format!("NL_ATTR_TYPE_{name}"), n));
    let ours: Vec<(String, i64)> = route::constants()
        .into_iter()
        .chain(nfnetlink::constants())
        .chain(weir_bpf::constants())
        .map(|(name, n)| (name.to_owned(), n))
        .chain(types)
        .filter(|(name, _)| !is_later(name))
        .collect();
    assert!(ours.len() > 250, "only {} numbers are declared", ours.len());
    let names: Vec<&str> = ours.iter().map(|(name, _)| name.as_str()).collect();
    let theirs = c::values_in_c(INCLUDES, &names);
    let wrong: Vec<String> = ours
        .iter()
        .filter(|(name, n)| theirs.get(name) != Some(n))
        .map(|(name, n)| format!("{name}: {n}, the header says {:?}", theirs.get(name)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
