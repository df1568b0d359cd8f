//! For every feature of nf_tables a script that `nft` can load only if the kernel has the feature.

/// Input for `nft -f -` that creates a table with this name; `None` if no script can use the feature.
pub(crate) fn script(feature: &str, t: &str) -> Option<String> {
    let chain = |kind: &str, hook: &str, priority: i32, rule: &str| {
        Some(format!(
            "table inet {t} {{\nchain c {{\ntype {kind} hook {hook} priority {priority}\n{rule}\n}}\n}}"
        ))
    };
    let out = |rule: &str| chain("filter", "output", 0, rule);
    let pre = |rule: &str| chain("filter", "prerouting", -300, rule);
    let set = |text: &str| Some(format!("table inet {t} {{\n{text}\n}}"));
    if let Some(family) = feature.strip_prefix("family ") {
        return Some(format!("table {family} {t} {{ }}"));
    }
    match feature {
        "chain netdev filter" => Some(format!(
            "table netdev {t} {{ chain c {{ type filter hook ingress device lo priority 0; }}; }}"
        )),
        "chain bridge filter" => Some(format!(
            "table bridge {t} {{ chain c {{ type filter hook prerouting priority 0; }}; }}"
        )),
        _ if feature.starts_with("chain ") => {
            let mut words = feature.split(' ').skip(1);
            let (family, kind) = (words.next()?, words.next()?);
            Some(format!(
                "table {family} {t} {{ chain c {{ type {kind} hook output priority -100; }}; }}"
            ))
        }
        "expression bitwise" => out("meta mark and 0xff == 1"),
        "expression byteorder" => out("meta mark 1-9"),
        "expression cmp" => out("meta mark 1"),
        "expression connlimit" => pre("ct count over 1"),
        "expression counter" => out("counter"),
        "expression ct" => pre("ct state new"),
        "expression dup" => Some(format!(
            "table ip {t} {{ chain c {{ type filter hook prerouting priority 0; dup to 127.0.0.1; }}; }}"
        )),
        "expression exthdr" => out("exthdr hbh exists"),
        "expression fib" => pre("fib daddr type local"),
        "expression fwd" => Some(format!(
            "table netdev {t} {{ chain c {{ type filter hook ingress device lo priority 0; fwd to lo; }}; }}"
        )),
        "expression hash" => out("meta mark set symhash mod 2"),
        "expression immediate" => out("accept"),
        "expression limit" => out("limit rate 5/second"),
        "expression log" => out("log prefix \"x\""),
        "expression lookup" => out("meta mark { 1, 2 }"),
        "expression masq" => chain("nat", "postrouting", 100, "masquerade"),
        "expression meta" => out("oifname \"lo\""),
        "expression nat" => chain("nat", "output", -100, "dnat ip to 127.0.0.1"),
        "expression notrack" => pre("notrack"),
        "expression numgen" => out("meta mark set numgen inc mod 2"),
        "expression osf" => pre("osf name \"Linux\""),
        "expression payload" => out("tcp dport 80"),
        "expression quota" => out("quota 1 bytes"),
        "expression range" => out("meta mark != 1-9"),
        "expression redir" => chain("nat", "output", -100, "tcp dport 80 redirect to :15001"),
        "expression reject" => chain(
            "filter",
            "input",
            0,
            "reject with icmpx type port-unreachable",
        ),
        "expression rt" => out("rt ip nexthop 10.0.0.1"),
        "expression synproxy" => chain("filter", "input", 0, "synproxy mss 1460 wscale 7"),
        "expression xfrm" => pre("ipsec in reqid 1"),
        "expression socket" => pre("socket transparent 1"),
        "expression tproxy" => pre("meta l4proto tcp tproxy to :15006"),
        "expression queue" => out("queue num 0"),
        "expression dynset" => set("set s { type mark; size 9; flags dynamic; }\n\
             chain c { type filter hook output priority 0; add @s { meta mark }; }"),
        "meta skuid" => out("meta skuid 1"),
        "meta mark set" => out("meta mark set 1"),
        "ct mark set" => pre("ct mark set meta mark"),
        "ct zone set" => pre("ct zone set 1"),
        "set plain" => set("set s { type mark; elements = { 1 }; }"),
        "set interval" => {
            set("set s { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 }; }")
        }
        "set timeout" => set("set s { type ipv4_addr; timeout 60s; elements = { 10.0.0.1 }; }"),
        "set concatenation" => set("set s { type ipv4_addr . mark; elements = { 10.0.0.1 . 1 }; }"),
        "set interval concatenation" => set(
            "set s { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 . 1-9 }; }",
        ),
        "map verdict" => set("map m { type mark : verdict; elements = { 1 : accept }; }"),
        "map value" => set("map m { type mark : mark; elements = { 1 : 2 }; }"),
        "comment table" => set("comment \"kept\";"),
        "comment chain" => set("chain c { comment \"kept\"; }"),
        _ => None,
    }
}
