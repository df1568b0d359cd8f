//! Rules of another writer, each with a connection that shows their effect.

/// The tested connection, and the configuration of the redirection.
#[derive(Clone, Copy)]
pub(super) enum Of {
    /// From the application.
    Application,
    /// From the application, if IPv6 is not redirected.
    Ipv4,
    /// To the application, if invalid packets are dropped.
    Client,
    /// To the application, if a sidecar captures with TPROXY.
    Diverted,
    /// From the application to a DNS server, if DNS is redirected.
    Query,
    /// From the proxy, which is not redirected.
    Proxy,
}

/// Rules of another writer: those that are added before the redirection, and those that are added after it.
pub(super) struct Foreign {
    pub(super) what: &'static str,
    /// The tested connection.
    pub(super) of: Of,
    pub(super) tool: &'static str,
    pub(super) first: &'static [&'static str],
    pub(super) rules: &'static [&'static str],
}

const fn nft(what: &'static str, rules: &'static [&'static str]) -> Foreign {
    tables(what, "nft", rules)
}

const fn tables(what: &'static str, tool: &'static str, rules: &'static [&'static str]) -> Foreign {
    Foreign {
        what,
        of: Of::Application,
        tool,
        rules,
        first: &[],
    }
}

/// Each entry is input for its tool: a script for `nft`, or one rule per call for the other tools.
pub(super) const FOREIGN: &[Foreign] = &[
    nft(
        "notrack before conntrack",
        &["table inet t { chain c { type filter hook output priority -310; notrack; }; }"],
    ),
    nft(
        "notrack behind conntrack",
        &["table inet t { chain c { type filter hook output priority -190; notrack; }; }"],
    ),
    nft(
        "notrack of another protocol",
        &[
            "table ip t { chain c { type filter hook output priority -310; meta l4proto udp notrack; }; }",
        ],
    ),
    nft(
        "notrack with the priority of conntrack",
        &["table inet t { chain c { type filter hook output priority -200; notrack; }; }"],
    ),
    nft(
        "verdict maps that lead other protocols to notrack",
        &[
            "table inet t { map m { type inet_proto : verdict; }; map o { type inet_proto . inet_service : verdict; }; \
           chain n { notrack; }; chain c { type filter hook output priority -310; \
           meta l4proto vmap { tcp : accept, udp : jump n }; }; \
           chain d { type filter hook output priority -310; meta l4proto vmap @m; \
           meta l4proto . th dport vmap { udp . 80 : jump n }; meta l4proto . th dport vmap @o; }; }; \
           table ip u { chain n { ct zone set 5; }; chain c { type filter hook output priority -310; \
           ip protocol vmap { icmp : jump n }; }; }; \
           add element inet t m { udp : goto n }; add element inet t o { udp . 80 : goto n };",
        ],
    ),
    nft(
        "a verdict map that leads TCP to notrack",
        &["table inet t { chain n { notrack; }; \
           chain c { type filter hook output priority -310; meta l4proto vmap { tcp : jump n }; }; }"],
    ),
    nft(
        "a verdict map of ranges that leads TCP to notrack",
        &["table inet t { chain n { notrack; }; \
           chain c { type filter hook output priority -310; meta l4proto vmap { 2-16 : jump n }; }; }"],
    ),
    nft(
        "a verdict map of two fields that leads TCP to notrack",
        &["table inet t { chain n { notrack; }; \
           chain c { type filter hook output priority -310; \
           meta l4proto . th dport vmap { tcp . 80 : jump n }; }; }"],
    ),
    nft(
        "a verdict map of two fields with a name that leads TCP to notrack",
        &[
            "table inet t { map m { type inet_proto . inet_service : verdict; }; chain n { notrack; }; \
           chain c { type filter hook output priority -310; meta l4proto . th dport vmap @m; }; }; \
           add element inet t m { tcp . 80 : jump n };",
        ],
    ),
    nft(
        "a set of protocols with TCP for notrack",
        &[
            "table inet t { chain c { type filter hook output priority -310; \
           meta l4proto { udp, tcp } notrack; }; }",
        ],
    ),
    Foreign {
        of: Of::Ipv4,
        ..nft(
            "what holds for IPv6 in tables of both families",
            &[
                "table inet t { chain n { notrack; }; chain c { type filter hook output priority -310; \
               meta nfproto ipv6 notrack; meta nfproto ipv6 jump n; meta nfproto vmap { ipv6 : jump n }; \
               meta protocol ip6 notrack; meta l4proto { icmp, udp } notrack; }; \
               chain d { type nat hook output priority -150; meta nfproto ipv6 meta l4proto tcp redirect to :9999; }; }",
            ],
        )
    },
    Foreign {
        of: Of::Ipv4,
        ..nft(
            "notrack of IPv4 in a table of both families",
            &[
                "table inet t { chain c { type filter hook output priority -310; meta nfproto ipv4 notrack; }; }",
            ],
        )
    },
    nft(
        "notrack and a zone of what comes by lo",
        &[
            "table inet t { chain c { type filter hook prerouting priority -310; \
           iif lo notrack; iifname lo ct zone set 5; }; }",
        ],
    ),
    tables(
        "notrack of what comes by lo, in legacy tables",
        "iptables-legacy",
        &["-t raw -A PREROUTING -i lo -j CT --notrack"],
    ),
    Foreign {
        of: Of::Client,
        ..nft(
            "notrack of what does not come by lo",
            &[
                "table inet t { chain c { type filter hook prerouting priority -310; iif != lo notrack; }; }",
            ],
        )
    },
    Foreign {
        of: Of::Client,
        ..tables(
            "notrack of what does not come by lo, in legacy tables",
            "iptables-legacy",
            &["-t raw -A PREROUTING ! -i lo -j CT --notrack"],
        )
    },
    Foreign {
        of: Of::Client,
        ..nft(
            "notrack at a device",
            &[
                "table netdev t { chain c { type filter hook ingress device eth0 priority 0; notrack; }; }",
            ],
        )
    },
    Foreign {
        of: Of::Client,
        ..nft(
            "a zone at a device",
            &[
                "table inet t { chain c { type filter hook ingress device eth0 priority 0; ct zone set 5; }; }",
            ],
        )
    },
    nft(
        "the zone of all, and one of the original direction",
        &[
            "table inet t { chain c { type filter hook output priority -310; ct zone set 0; }; \
           chain d { type filter hook output priority -309; ct original zone set 5; }; }",
        ],
    ),
    nft(
        "a zone of the original direction",
        &[
            "table inet t { chain c { type filter hook output priority -310; ct original zone set 5; }; \
           chain d { type filter hook prerouting priority -310; ct original zone set 5; }; }",
        ],
    ),
    Foreign {
        of: Of::Diverted,
        ..nft(
            "a zone of the original direction of what arrives",
            &[
                "table inet t { chain c { type filter hook prerouting priority -310; ct original zone set 5; }; }",
            ],
        )
    },
    Foreign {
        of: Of::Client,
        ..tables(
            "a zone of the original direction of what arrives, in legacy tables",
            "iptables-legacy",
            &["-t raw -I PREROUTING -j CT --zone-orig 5"],
        )
    },
    nft(
        "notrack behind what ends its chain",
        &[
            "table inet t { chain c { type filter hook output priority -310; counter accept; notrack; }; \
           chain d { type filter hook output priority -310; meta l4proto tcp return; notrack; }; \
           chain e { goto f; ct zone set 5; }; chain f { counter; }; \
           chain g { type filter hook output priority -310; jump e; }; }",
        ],
    ),
    nft(
        "notrack behind what ends its chain for others",
        &[
            "table inet t { chain c { type filter hook output priority -310; \
           tcp dport 81 accept; meta l4proto udp accept; notrack; }; }",
        ],
    ),
    tables(
        "notrack behind what ends its chain, in legacy tables",
        "iptables-legacy",
        &[
            "-t raw -A OUTPUT -p tcp -j ACCEPT",
            "-t raw -A OUTPUT -j CT --notrack",
        ],
    ),
    tables(
        "notrack behind what ends its chain for others, in legacy tables",
        "iptables-legacy",
        &[
            "-t raw -A OUTPUT -p tcp --dport 81 -j ACCEPT",
            "-t raw -A OUTPUT -p udp -j ACCEPT",
            "-t raw -A OUTPUT -j CT --notrack",
        ],
    ),
    nft(
        "notrack in a chain that is jumped to",
        &["table ip t { chain d { tcp dport 80 notrack; }; \
           chain c { type filter hook output priority -310; jump d; }; }"],
    ),
    nft(
        "notrack in a chain of the rule",
        &[
            "table ip t { chain c { type filter hook output priority -310; tcp dport 80 jump { counter; notrack; }; }; }",
        ],
    ),
    nft(
        "notrack in a chain that nothing leads to",
        &["table ip t { chain d { notrack; }; \
           chain c { type filter hook output priority -310; counter; }; }"],
    ),
    nft(
        "notrack in a table that is dormant",
        &[
            "table ip t { flags dormant; chain c { type filter hook output priority -310; notrack; }; }",
        ],
    ),
    nft(
        "redirection before ours",
        &[
            "table inet t { chain c { type nat hook output priority -150; tcp dport 80 redirect to :9999; }; }",
        ],
    ),
    nft(
        "redirection behind ours",
        &[
            "table inet t { chain c { type nat hook output priority -50; tcp dport 80 redirect to :9999; }; }",
        ],
    ),
    nft(
        "redirection with our priority, registered later",
        &[
            "table ip t { chain c { type nat hook output priority -100; tcp dport 80 redirect to :9999; }; }",
        ],
    ),
    Foreign {
        first: &[
            "table ip t { chain c { type nat hook output priority -100; tcp dport 80 redirect to :9999; }; }",
        ],
        ..nft("redirection with our priority, registered before", &[])
    },
    Foreign {
        first: &["table inet t { chain d { counter; }; }"],
        ..nft(
            "redirection with our priority, registered later in an older table",
            &[
                "table inet t { chain c { type nat hook output priority -100; tcp dport 80 redirect to :9999; }; }",
            ],
        )
    },
    nft(
        "redirection behind a verdict map of the rule",
        &[
            "table inet t { chain d { tcp dport 80 redirect to :9999; }; \
           chain c { type nat hook output priority -110; tcp dport vmap { 80 : jump d }; }; }",
        ],
    ),
    nft(
        "redirection behind a verdict map with a name",
        &[
            "table inet t { map m { type inet_service : verdict; }; chain d { tcp dport 80 redirect to :9999; }; \
           chain c { type nat hook output priority -110; tcp dport vmap @m; }; }; \
           add element inet t m { 80 : goto d };",
        ],
    ),
    nft(
        "verdict maps that lead past a redirection",
        &[
            "table inet t { map m { type inet_service : verdict; }; chain d { tcp dport 80 redirect to :9999; }; \
           chain e { counter; }; chain c { type nat hook output priority -110; \
           tcp dport vmap { 80 : jump e }; tcp dport vmap @m; }; }; add element inet t m { 80 : goto e };",
        ],
    ),
    nft(
        "translation to what is looked up",
        &[
            "table ip t { chain c { type nat hook output priority -150; \
           dnat to tcp dport map { 80 : 10.96.0.10 }; }; }",
        ],
    ),
    nft(
        "what accepts, counts and marks before ours",
        &[
            "table inet t { chain c { type nat hook output priority -150; tcp dport 80 accept; }; \
             chain d { type filter hook output priority -310; meta mark set 7 counter accept; }; \
             chain e { type filter hook prerouting priority -310; ct state invalid drop; }; }",
        ],
    ),
    tables(
        "notrack in legacy tables",
        "iptables-legacy",
        &["-t raw -A OUTPUT -j CT --notrack"],
    ),
    tables(
        "notrack in a legacy chain",
        "iptables-legacy",
        &[
            "-t raw -N MINE",
            "-t raw -A MINE -p tcp -j CT --notrack",
            "-t raw -A OUTPUT -j MINE",
        ],
    ),
    nft(
        "a zone",
        &["table inet t { chain c { type filter hook output priority -310; ct zone set 7; }; }"],
    ),
    tables(
        "a zone in legacy tables",
        "iptables-legacy",
        &["-t raw -A OUTPUT -j CT --zone 7"],
    ),
    tables(
        "a zone and notrack of UDP in legacy tables",
        "iptables-legacy",
        &[
            "-t raw -A OUTPUT -p udp -j CT --notrack",
            "-t raw -A OUTPUT -p udp -j CT --zone 7",
        ],
    ),
    tables(
        "redirection in legacy tables",
        "iptables-legacy",
        &["-t nat -I OUTPUT -p tcp -j REDIRECT --to-ports 9999"],
    ),
    tables(
        "notrack by iptables-nft",
        "iptables-nft",
        &["-t raw -A OUTPUT -p tcp -j CT --notrack"],
    ),
    tables(
        "redirection by iptables-nft",
        "iptables-nft",
        &["-t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 9999"],
    ),
    Foreign {
        first: &["-t nat -A POSTROUTING -p tcp --dport 9 -j RETURN"],
        ..tables(
            "redirection by iptables-nft in an older table",
            "iptables-nft",
            &["-t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 9999"],
        )
    },
    tables(
        "a legacy chain that counts and returns",
        "iptables-legacy",
        &[
            "-t nat -N MINE",
            "-t nat -A MINE -p tcp -j RETURN",
            "-t nat -I OUTPUT -j MINE",
            "-t mangle -I OUTPUT -p tcp -j MARK --set-mark 7",
            "-I OUTPUT -p tcp -j ACCEPT",
        ],
    ),
    // iptables-nft writes matches on ports, flags and marks as native expressions; legacy rules encode them differently.
    tables(
        "redirection of a port by iptables-nft",
        "iptables-nft",
        &["-t nat -I OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 9999"],
    ),
    tables(
        "translation of a port by iptables-nft",
        "iptables-nft",
        &["-t nat -I OUTPUT -p tcp --dport 80 -j DNAT --to-destination 10.96.0.10:9999"],
    ),
    tables(
        "redirection of the first packet by iptables-nft",
        "iptables-nft",
        &["-t nat -I OUTPUT -p tcp --syn -j REDIRECT --to-ports 9999"],
    ),
    tables(
        "redirection of packets without a mark by iptables-nft",
        "iptables-nft",
        &["-t nat -I OUTPUT -p tcp -m mark ! --mark 1/1 -j REDIRECT --to-ports 9999"],
    ),
    tables(
        "notrack of a port by iptables-nft",
        "iptables-nft",
        &["-t raw -A OUTPUT -p tcp --dport 80 -j CT --notrack"],
    ),
    tables(
        "a zone of a port by iptables-nft",
        "iptables-nft",
        &["-t raw -A OUTPUT -p tcp --dport 80 -j CT --zone 7"],
    ),
    tables(
        "redirection of a port of UDP, marks and counters by iptables-nft",
        "iptables-nft",
        &[
            "-t nat -I OUTPUT -p udp --dport 53 -j REDIRECT --to-ports 9999",
            "-t mangle -I OUTPUT -p tcp --dport 80 -j MARK --set-mark 7",
            "-t nat -I OUTPUT -p tcp --dport 80",
        ],
    ),
    Foreign {
        of: Of::Client,
        ..tables(
            "inbound redirection of a port by iptables-nft",
            "iptables-nft",
            &["-t nat -I PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 9999"],
        )
    },
    Foreign {
        of: Of::Client,
        ..tables(
            "tproxy of a port by iptables-nft",
            "iptables-nft",
            &["-t mangle -A PREROUTING -p tcp --dport 8080 -j TPROXY --on-port 9999"],
        )
    },
    // The chain contains a rule of weir for other packets.
    Foreign {
        of: Of::Client,
        ..tables(
            "tproxy in legacy tables",
            "iptables-legacy",
            &["-t mangle -A PREROUTING -p tcp --dport 8080 -j TPROXY --on-port 9999"],
        )
    },
    Foreign {
        of: Of::Client,
        ..tables(
            "tproxy in a legacy chain",
            "iptables-legacy",
            &[
                "-t mangle -N MINE",
                "-t mangle -A MINE -p tcp --dport 8080 -j TPROXY --on-port 9999",
                "-t mangle -A PREROUTING -j MINE",
            ],
        )
    },
    Foreign {
        of: Of::Diverted,
        ..nft(
            "a zone of what arrives",
            &[
                "table inet t { chain c { type filter hook prerouting priority -310; ct zone set 5; }; }",
            ],
        )
    },
    Foreign {
        of: Of::Diverted,
        ..tables(
            "a zone of the answers to what arrives, in legacy tables",
            "iptables-legacy",
            &["-t raw -I PREROUTING -j CT --zone-reply 5"],
        )
    },
    nft(
        "a zone that is looked up",
        &[
            "table inet t { chain c { type filter hook output priority -310; \
           ct zone set tcp dport map { 80 : 5 }; }; }",
        ],
    ),
    Foreign {
        of: Of::Query,
        ..nft(
            "a zone of queries",
            &[
                "table inet t { chain c { type filter hook output priority -310; udp dport 53 ct zone set 9; }; }",
            ],
        )
    },
    Foreign {
        of: Of::Query,
        ..tables(
            "a zone of queries in legacy tables",
            "iptables-legacy",
            &["-t raw -I OUTPUT -p udp --dport 53 -j CT --zone 9"],
        )
    },
    Foreign {
        of: Of::Query,
        ..tables(
            "a zone of another protocol, and a mark of queries, in legacy tables",
            "iptables-legacy",
            &[
                "-t raw -I OUTPUT -p icmp -j CT --zone 9",
                "-t mangle -I OUTPUT -p udp --dport 53 -j MARK --set-mark 7",
            ],
        )
    },
    Foreign {
        of: Of::Proxy,
        ..tables(
            "a policy of legacy tables",
            "iptables-legacy-restore",
            &["*nat\n:OUTPUT DROP [0:0]\nCOMMIT\n"],
        )
    },
    Foreign {
        of: Of::Proxy,
        ..nft(
            "a policy before ours",
            &["table inet t { chain c { type nat hook output priority -150; policy drop; }; }"],
        )
    },
    Foreign {
        of: Of::Proxy,
        ..nft(
            "a policy behind ours",
            &["table inet t { chain c { type nat hook output priority -50; policy drop; }; }"],
        )
    },
];

/// Beside a proxy whose listeners are all transparent, such as ztunnel's.
pub(super) const SOCKETS: &[Foreign] = &[
    Foreign {
        of: Of::Client,
        ..nft(
            "tproxy behind ours",
            &[
                "table ip t { chain c { type filter hook prerouting priority -50; meta l4proto tcp tproxy to :15001; }; }",
            ],
        )
    },
    Foreign {
        of: Of::Client,
        ..nft(
            "tproxy behind ours, for all ports but one",
            &[
                "table ip t { chain c { type filter hook prerouting priority -50; tcp dport != 22 tproxy to :15001; }; }",
            ],
        )
    },
    Foreign {
        of: Of::Client,
        ..nft(
            "tproxy behind ours, for the port from before it was translated",
            &[
                "table ip t { chain c { type filter hook prerouting priority 0; tcp dport 8080 tproxy to :15001; }; }",
            ],
        )
    },
];

/// Beside a sidecar: in ambient mode the queries of pods have no conntrack zone.
pub(super) const QUERIES: &[Foreign] = &[Foreign {
    of: Of::Query,
    ..nft(
        "the zone of all for queries",
        &[
            "table inet t { chain c { type filter hook output priority -310; udp dport 53 ct zone set 0; }; }",
        ],
    )
}];
