//! For every feature of legacy tables, ipset and rtnetlink a command that succeeds only if the kernel has the feature.

/// Programs with their arguments, in order; the result of the last one is the answer.
pub(crate) type Commands = Vec<Vec<String>>;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Commands for features such as `match ip6 owner`.
pub(crate) fn xtables(feature: &str) -> Option<Commands> {
    let mut parts = feature.split(' ');
    let (kind, family, name) = (parts.next()?, parts.next()?, parts.next()?);
    let v6 = family == "ip6";
    let program = if v6 {
        "ip6tables-legacy"
    } else {
        "iptables-legacy"
    };
    let (a, b) = if v6 {
        ("fc00::1", "fc00::9")
    } else {
        ("10.0.0.1", "10.0.0.9")
    };
    let set = format!(
        "ipset create s hash:ip family {}",
        if v6 { "inet6" } else { "inet" }
    );
    let rule = match (kind, name) {
        ("table", name) => return Some(vec![words(&format!("{program} -t {name} -L -n"))]),
        ("match", "addrtype") => "-A INPUT -m addrtype --dst-type LOCAL".to_owned(),
        ("match", "comment") => "-A INPUT -m comment --comment x".to_owned(),
        ("match", "connmark") => "-A INPUT -m connmark --mark 1".to_owned(),
        ("match", "conntrack") => "-A INPUT -m conntrack --ctstate NEW".to_owned(),
        ("match", "dscp") => "-A INPUT -m dscp --dscp 1".to_owned(),
        ("match", "icmp") => "-A INPUT -p icmp -m icmp --icmp-type 8".to_owned(),
        ("match", "icmp6") => "-A INPUT -p icmpv6 -m icmp6 --icmpv6-type 128".to_owned(),
        ("match", "iprange") => format!("-A INPUT -m iprange --src-range {a}-{b}"),
        ("match", "limit") => "-A INPUT -m limit --limit 5/s".to_owned(),
        ("match", "mark") => "-A INPUT -m mark --mark 1".to_owned(),
        ("match", "multiport") => "-A INPUT -p tcp -m multiport --dports 1,2".to_owned(),
        ("match", "owner") => "-A OUTPUT -m owner --uid-owner 0".to_owned(),
        ("match", "physdev") => "-A INPUT -m physdev --physdev-in x".to_owned(),
        ("match", "pkttype") => "-A INPUT -m pkttype --pkt-type unicast".to_owned(),
        ("match", "set") => "-A INPUT -m set --match-set s src".to_owned(),
        ("match", "socket") => "-t mangle -A PREROUTING -m socket".to_owned(),
        ("match", "state") => "-A INPUT -m state --state NEW".to_owned(),
        ("match", "statistic") => {
            "-A INPUT -m statistic --mode nth --every 2 --packet 0".to_owned()
        }
        ("match", "tcp") => "-A INPUT -p tcp -m tcp --dport 1".to_owned(),
        ("match", "tos") => "-A INPUT -m tos --tos 0x10".to_owned(),
        ("match", "u32") => "-A INPUT -m u32 --u32 0=0".to_owned(),
        ("match", "udp") => "-A INPUT -p udp -m udp --dport 1".to_owned(),
        ("target", "CONNMARK") => "-t mangle -A OUTPUT -j CONNMARK --save-mark".to_owned(),
        ("target", "CT") => "-t raw -A PREROUTING -j CT --zone 1".to_owned(),
        ("target", "DNAT") => format!("-t nat -A PREROUTING -j DNAT --to-destination {a}"),
        ("target", "LOG") => "-A INPUT -j LOG".to_owned(),
        ("target", "MARK") => "-t mangle -A OUTPUT -j MARK --set-mark 1".to_owned(),
        ("target", "MASQUERADE") => "-t nat -A POSTROUTING -j MASQUERADE".to_owned(),
        ("target", "NFLOG") => "-A INPUT -j NFLOG".to_owned(),
        ("target", "REDIRECT") => "-t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 1".to_owned(),
        ("target", "REJECT") => "-A INPUT -j REJECT".to_owned(),
        ("target", "SET") => "-A INPUT -j SET --add-set s src".to_owned(),
        ("target", "SNAT") => format!("-t nat -A POSTROUTING -j SNAT --to-source {a}"),
        ("target", "TPROXY") => "-t mangle -A PREROUTING -p tcp -j TPROXY --on-port 1".to_owned(),
        ("match", "ah") => "-A INPUT -p ah -m ah --ahspi 1".to_owned(),
        ("match", "cgroup") => "-A OUTPUT -m cgroup --cgroup 1".to_owned(),
        ("match", "cluster") => "-A INPUT -m cluster --cluster-total-nodes 2 --cluster-local-node 1 --cluster-hash-seed 1".to_owned(),
        ("match", "connbytes") => "-A INPUT -m connbytes --connbytes 1: --connbytes-mode packets --connbytes-dir both".to_owned(),
        ("match", "connlabel") => "-A INPUT -m connlabel --label 1".to_owned(),
        ("match", "connlimit") => "-A INPUT -m connlimit --connlimit-above 1".to_owned(),
        ("match", "cpu") => "-A INPUT -m cpu --cpu 0".to_owned(),
        ("match", "dccp") => "-A INPUT -p dccp -m dccp --sport 1".to_owned(),
        ("match", "devgroup") => "-A INPUT -m devgroup --src-group 1".to_owned(),
        ("match", "dst") => "-A INPUT -m dst --dst-len 0".to_owned(),
        ("match", "ecn") => "-A INPUT -p tcp -m ecn --ecn-tcp-cwr".to_owned(),
        ("match", "esp") => "-A INPUT -p esp -m esp --espspi 1".to_owned(),
        ("match", "eui64") => "-A INPUT -m eui64".to_owned(),
        ("match", "frag") => "-A INPUT -m frag --fragfirst".to_owned(),
        ("match", "hashlimit") => "-A INPUT -m hashlimit --hashlimit-above 1/sec --hashlimit-name x".to_owned(),
        ("match", "hbh") => "-A INPUT -m hbh --hbh-len 0".to_owned(),
        ("match", "helper") => "-A INPUT -m helper --helper ftp".to_owned(),
        ("match", "hl") => "-A INPUT -m hl --hl-eq 1".to_owned(),
        ("match", "ipcomp") => "-A INPUT -p ipcomp -m ipcomp --ipcompspi 1".to_owned(),
        ("match", "ipv6header") => "-A INPUT -m ipv6header --header hop --soft".to_owned(),
        ("match", "length") => "-A INPUT -m length --length 1".to_owned(),
        ("match", "mac") => "-A INPUT -m mac --mac-source 42:01:02:03:04:05".to_owned(),
        ("match", "mh") => "-A INPUT -p 135 -m mh --mh-type 1".to_owned(),
        ("match", "osf") => "-A INPUT -p tcp -m osf --genre Linux".to_owned(),
        ("match", "policy") => "-A INPUT -m policy --dir in --pol none".to_owned(),
        ("match", "quota") => "-A INPUT -m quota --quota 1".to_owned(),
        ("match", "realm") => "-A INPUT -m realm --realm 1".to_owned(),
        ("match", "recent") => "-A INPUT -m recent --set".to_owned(),
        ("match", "rpfilter") => "-t raw -A PREROUTING -m rpfilter".to_owned(),
        ("match", "rt") => "-A INPUT -m rt --rt-type 0".to_owned(),
        ("match", "sctp") => "-A INPUT -p sctp -m sctp --sport 1".to_owned(),
        ("match", "srh") => "-A INPUT -m srh --srh-next-hdr 17".to_owned(),
        ("match", "string") => "-A INPUT -m string --string x --algo bm".to_owned(),
        ("match", "tcpmss") => "-A INPUT -p tcp -m tcpmss --mss 1".to_owned(),
        ("match", "time") => "-A INPUT -m time --timestart 01:00".to_owned(),
        ("match", "ttl") => "-A INPUT -m ttl --ttl-eq 1".to_owned(),
        ("target", "AUDIT") => "-A INPUT -j AUDIT --type accept".to_owned(),
        ("target", "CHECKSUM") => "-t mangle -A OUTPUT -p udp -j CHECKSUM --checksum-fill".to_owned(),
        ("target", "CLASSIFY") => "-t mangle -A POSTROUTING -j CLASSIFY --set-class 1:1".to_owned(),
        ("target", "CONNSECMARK") => "-t mangle -A OUTPUT -j CONNSECMARK --save".to_owned(),
        ("target", "DNPT") => "-t mangle -A PREROUTING -j DNPT --src-pfx fd00::/64 --dst-pfx fd01::/64".to_owned(),
        ("target", "DSCP") => "-t mangle -A OUTPUT -j DSCP --set-dscp 1".to_owned(),
        ("target", "ECN") => "-t mangle -A OUTPUT -p tcp -j ECN --ecn-tcp-remove".to_owned(),
        ("target", "HL") => "-t mangle -A OUTPUT -j HL --hl-set 1".to_owned(),
        ("target", "HMARK") => "-t mangle -A OUTPUT -j HMARK --hmark-src-prefix 24 --hmark-mod 2 --hmark-offset 1 --hmark-rnd 1 --hmark-tuple src".to_owned(),
        ("target", "IDLETIMER") => "-A INPUT -j IDLETIMER --timeout 1 --label x".to_owned(),
        ("target", "NETMAP") => format!("-t nat -A PREROUTING -j NETMAP --to {a}"),
        ("target", "NFQUEUE") => "-A INPUT -j NFQUEUE --queue-num 1".to_owned(),
        ("target", "NOTRACK") => "-t raw -A PREROUTING -j NOTRACK".to_owned(),
        ("target", "SNPT") => "-t mangle -A POSTROUTING -j SNPT --src-pfx fd00::/64 --dst-pfx fd01::/64".to_owned(),
        ("target", "SYNPROXY") => "-A INPUT -p tcp -j SYNPROXY --mss 1460".to_owned(),
        ("target", "TCPMSS") => "-A FORWARD -p tcp --tcp-flags SYN SYN -j TCPMSS --set-mss 1400".to_owned(),
        ("target", "TCPOPTSTRIP") => "-t mangle -A PREROUTING -p tcp -j TCPOPTSTRIP --strip-options 2".to_owned(),
        ("target", "TEE") => format!("-t mangle -A PREROUTING -j TEE --gateway {a}"),
        ("target", "TOS") => "-t mangle -A OUTPUT -j TOS --set-tos 0x10".to_owned(),
        ("target", "TRACE") => "-t raw -A PREROUTING -j TRACE".to_owned(),
        ("target", "TTL") => "-t mangle -A OUTPUT -j TTL --ttl-set 1".to_owned(),
        ("match" | "target", "rateest" | "RATEEST") => {
            let estimator =
                "-A INPUT -j RATEEST --rateest-name x --rateest-interval 250ms --rateest-ewmalog 0.5s";
            let estimator = words(&format!("{program} {estimator}"));
            let rule = "-A INPUT -m rateest --rateest x --rateest-lt --rateest-bps 1bit";
            let rule = words(&format!("{program} {rule}"));
            return Some(match kind {
                "match" => vec![estimator, rule],
                _ => vec![estimator],
            });
        }
        _ => return None,
    };
    let rule = words(&format!("{program} {rule}"));
    let needs_set = name == "set" || name == "SET";
    Some(if needs_set {
        vec![words(&set), rule]
    } else {
        vec![rule]
    })
}

/// Commands that create a set with this name, for features such as `hash:ip inet6` and `bitmap:port`.
pub(crate) fn ipset(feature: &str, set: &str) -> Option<Commands> {
    let (name, family) = feature.split_once(' ').unwrap_or((feature, ""));
    let more = match (name, family) {
        ("bitmap:port", _) => "range 0-99".to_owned(),
        ("bitmap:ip" | "bitmap:ip,mac", _) => "range 10.0.0.0/24".to_owned(),
        (_, "") => String::new(),
        (_, family) => format!("family {family}"),
    };
    Some(vec![words(&format!("ipset create {set} {name} {more}"))])
}

/// Commands that create a link with this name, for links, routes and qdiscs.
pub(crate) fn net(feature: &str, link: &str) -> Option<Commands> {
    let add = format!("ip link add {link}");
    let lower = format!("ip link add {link}-low type veth");
    let on_lower = |kind: &str| {
        let upper = format!("{add} link {link}-low type {kind}");
        vec![words(&lower), words(&upper)]
    };
    let command = match feature {
        "link macvlan" => return Some(on_lower("macvlan")),
        "link ipvlan" => return Some(on_lower("ipvlan")),
        "link veth" => format!("{add} type veth"),
        "link geneve" => format!("{add} type geneve id 1 remote 192.0.2.1"),
        "link vxlan" => format!("{add} type vxlan id 1 remote 192.0.2.1 dstport 4789"),
        "link bridge" => format!("{add} type bridge"),
        "link dummy" => format!("{add} type dummy"),
        // This version of ip predates the kind: it sends the bare name, and the kernel needs no more.
        "link netkit" => format!("{add} type netkit"),
        "policy routing ip" => "ip rule add fwmark 1 lookup 133".to_owned(),
        "policy routing ip6" => "ip -6 rule add fwmark 1 lookup 133".to_owned(),
        "local route ip" => "ip route add local default dev lo table 133".to_owned(),
        "local route ip6" => "ip -6 route add local default dev lo table 133".to_owned(),
        "qdisc clsact" => "tc qdisc add dev lo clsact".to_owned(),
        _ => return None,
    };
    Some(vec![words(&command)])
}

/// A program that `tc` can attach by itself: a classic BPF program.
pub(crate) fn ebpf(feature: &str) -> Option<Commands> {
    let filter = "tc filter add dev lo ingress bpf direct-action bytecode".split(' ');
    let filter = filter
        .map(str::to_owned)
        .chain(["1,6 0 0 0".to_owned()])
        .collect();
    (feature == "attach cls_bpf").then(|| vec![words("tc qdisc add dev lo clsact"), filter])
}
