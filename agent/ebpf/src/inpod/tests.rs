use super::*;
use crate::maps::Maps;

fn traits(dual: bool, dns: bool, events: bool) -> Traits {
    Traits {
        dual,
        dns,
        probe4: std::net::Ipv4Addr::new(169, 254, 7, 127),
        probe6: "fd16:9254:7127:1337:ffff:ffff:ffff:ffff".parse().unwrap(),
        events,
    }
}

const ROLES: [Role; 4] = [Role::Egress, Role::Ingress, Role::Guest, Role::Loopback];

/// Acceptance check 1 of eBPF mode: all programs load, with a license that is not GPL.
#[test]
fn check_1_every_program_loads() {
    let has_events = crate::events::is_supported().unwrap_or(false);
    for bits in 0..if has_events { 8 } else { 4 } {
        let [dual, dns, events] = [1, 2, 4].map(|bit| bits & bit != 0);
        let maps = match Maps::create(dns, events) {
            Err(e) if e.is_permission() => {
                println!("skipped: {e}");
                return;
            }
            made => made.unwrap(),
        };
        for role in ROLES {
            let code = assemble(role, &traits(dual, dns, events)).unwrap();
            let loaded = code.load("weir_test", &maps.list());
            let program =
                loaded.unwrap_or_else(|e| panic!("{role:?} {dual} {dns} {events}: {e}\n{}", e.log));
            println!(
                "{role:?} {dual} {dns} {events}: {} instructions, {:?}",
                code.bytes().len(),
                program.info().unwrap().length
            );
        }
    }
}

#[test]
fn numbers_and_offsets_are_those_of_the_headers() {
    use layout::*;
    let ours = [
        ("offsetof(struct __sk_buff, len)", i32::from(SKB_LEN)),
        ("offsetof(struct __sk_buff, mark)", SKB_MARK.into()),
        ("offsetof(struct __sk_buff, protocol)", SKB_PROTOCOL.into()),
        (
            "offsetof(struct __sk_buff, vlan_present)",
            SKB_VLAN_PRESENT.into(),
        ),
        ("offsetof(struct __sk_buff, vlan_tci)", SKB_VLAN_TCI.into()),
        ("offsetof(struct __sk_buff, ifindex)", SKB_IFINDEX.into()),
        ("offsetof(struct __sk_buff, sk)", SKB_SK.into()),
        ("offsetof(struct bpf_sock, src_ip4)", SOCK_SRC_IP4.into()),
        ("offsetof(struct bpf_sock, src_ip6)", SOCK_SRC_IP6.into()),
        ("offsetof(struct bpf_sock, src_port)", SOCK_SRC_PORT.into()),
        ("offsetof(struct bpf_sock, dst_port)", SOCK_DST_PORT.into()),
        ("offsetof(struct bpf_sock, dst_ip4)", SOCK_DST_IP4.into()),
        ("offsetof(struct bpf_sock, dst_ip6)", SOCK_DST_IP6.into()),
        ("offsetof(struct bpf_sock, state)", SOCK_STATE.into()),
        ("BPF_TCP_TIME_WAIT", BPF_TCP_TIME_WAIT),
        ("BPF_TCP_LISTEN", BPF_TCP_LISTEN),
        ("BPF_HDR_START_MAC", BPF_HDR_START_MAC),
        ("BPF_HDR_START_NET", BPF_HDR_START_NET),
        ("BPF_F_INGRESS", BPF_F_INGRESS),
        ("BPF_F_PSEUDO_HDR", BPF_F_PSEUDO_HDR),
        ("BPF_F_MARK_MANGLED_0", BPF_F_MARK_MANGLED_0),
        ("BPF_SK_STORAGE_GET_F_CREATE", BPF_SK_STORAGE_GET_F_CREATE),
        ("TC_ACT_UNSPEC", NEXT),
        ("TC_ACT_SHOT", DROP),
        ("ETH_HLEN", ETHERNET.into()),
        ("ETH_P_IP", parse::ETH_P[0].into()),
        ("ETH_P_IPV6", parse::ETH_P[1].into()),
        ("ETH_P_8021Q", parse::ETH_P_VLAN[0].into()),
        ("ETH_P_8021AD", parse::ETH_P_VLAN[1].into()),
        ("IPPROTO_ICMP", IPPROTO_ICMP),
        ("IPPROTO_ICMPV6", IPPROTO_ICMPV6),
        ("IPPROTO_TCP", IPPROTO_TCP),
        ("IPPROTO_UDP", IPPROTO_UDP),
    ];
    let includes = [
        "stddef.h",
        "stdio.h",
        "linux/bpf.h",
        "linux/if_ether.h",
        "linux/in.h",
        "linux/in6.h",
        "linux/pkt_cls.h",
    ];
    let includes = includes.map(|name| format!("#include <{name}>\n")).concat();
    let theirs = weir_testing::c::values_in_c(&includes, &ours.map(|(name, _)| name));
    for (name, number) in ours {
        assert_eq!(theirs[name], i64::from(number), "{name}");
    }
}
