//! The worked examples: a pod, a command in transparent mode, and nf_tables with everything.

use super::*;
use weir_netfilter::xtables::XtFamily;

/// Rules of one family without chain declarations: tables by name.
fn saved(intent: &Intent, family: XtFamily) -> Vec<String> {
    let text = xtables_of(intent).family(family).to_string();
    let lines = text.lines().filter(|l| !l.starts_with(['#', ':']));
    let mut tables: Vec<Vec<String>> = Vec::new();
    for line in lines {
        if line.starts_with('*') {
            tables.push(Vec::new());
        }
        if let Some(table) = tables.last_mut() {
            table.push(line.to_owned());
        }
    }
    tables.sort();
    tables.concat()
}

/// Like [`saved`], for an expected text.
fn expected(text: &str) -> Vec<String> {
    let mut tables: Vec<Vec<String>> = text
        .split_inclusive("COMMIT\n")
        .map(|t| t.lines().map(str::to_owned).collect())
        .collect();
    tables.sort();
    tables.concat()
}

#[test]
fn a_pod_with_redirection() {
    let annotation =
        |name: &str, value: &str| (format!("traffic.sidecar.istio.io/{name}"), value.to_owned());
    let facts = PodFacts {
        annotations: [
            annotation("includeOutboundIPRanges", "10.96.0.0/12,172.20.0.0/16"),
            annotation("excludeOutboundPorts", "3306"),
            annotation("excludeInboundPorts", "9000"),
            ("sidecar.istio.io/status".to_owned(), String::new()),
        ]
        .into(),
        ..PodFacts::default()
    };
    let environment =
        crate::pod::NodeEnvironment::read(&|_| None, "/nonexistent".as_ref()).unwrap();
    let addresses = ["127.0.0.1".parse().unwrap(), "10.244.0.5".parse().unwrap()];
    let redirect = redirect_from(&facts).unwrap();
    let intent = redirect.intent(&environment, &addresses).unwrap();
    assert_eq!(saved(&intent, XtFamily::Ip), expected(POD_REDIRECT));
    assert_eq!(saved(&intent, XtFamily::Ip6), Vec::<String>::new());
    assert_eq!(compile(&intent, Engine::Xtables).routing, []);
}

fn transparent_dual_stack() -> Intent {
    intent(|c| {
        c.mode = texts::tproxy();
        c.inbound = texts::inbound("8080");
        c.outbound_include = texts::destinations("*");
        c.outbound_exclude = texts::networks("192.168.0.0/16,fd12::/16");
        c.exclude_interfaces = texts::interfaces("net1");
        c.enable_ipv6 = true;
        c.drop_invalid = true;
        c.dns = Dns::Servers {
            v4: vec!["10.96.0.10".parse().unwrap()],
            v6: vec!["fd00:10:96::a".parse().unwrap()],
        };
    })
}

#[test]
fn a_transparent_command_in_both_families() {
    let intent = transparent_dual_stack();
    assert_eq!(saved(&intent, XtFamily::Ip6), expected(TRANSPARENT_IPV6));
}

#[test]
fn the_same_in_nf_tables() {
    let ruleset = nft_of(&transparent_dual_stack());
    assert_eq!(
        normalised(&ruleset, "istio-proxy-mangle"),
        tokens(TRANSPARENT_NFT_MANGLE)
    );
}

fn everything() -> Intent {
    intent(|c| {
        c.inbound = texts::inbound("*");
        c.inbound_ports_exclude = texts::ports("15020,15021,15090");
        c.outbound_include = texts::destinations("10.0.0.0/8,fd00::/8");
        c.virtual_interfaces = texts::interfaces("k6t-a,k6t-b");
        c.exclude_interfaces = texts::interfaces("net1");
        c.enable_ipv6 = true;
        c.dns = Dns::All;
        c.owner_groups = texts::groups("2000,2001");
    })
}

#[test]
fn virtual_interfaces_and_owner_groups_in_nf_tables() {
    let ruleset = nft_of(&everything());
    assert_eq!(ruleset.tables.len(), 2);
    let got = [
        normalised(&ruleset, "istio-proxy-nat"),
        normalised(&ruleset, "istio-proxy-raw"),
    ];
    assert_eq!(got.concat(), tokens(EVERYTHING_NFT));
}

#[test]
fn virtual_interfaces_in_xtables() {
    let expected = [
        "-d 10.0.0.0/8 -i k6t-b -j ISTIO_REDIRECT",
        "-d 10.0.0.0/8 -i k6t-a -j ISTIO_REDIRECT",
        "-i k6t-b -j RETURN",
        "-i k6t-a -j RETURN",
        "-i net1 -j RETURN",
        "-p tcp -j ISTIO_INBOUND",
    ];
    assert_eq!(
        xtables_chain(&everything(), "nat", "PREROUTING").unwrap(),
        expected
    );
}

/// The table as a list of words, without packet counts.
fn normalised(ruleset: &weir_netfilter::nft::Ruleset, table: &str) -> Vec<String> {
    let table = ruleset
        .table(weir_netfilter::nft::TableFamily::Inet, table)
        .unwrap();
    tokens(
        &table
            .to_string()
            .replace("counter packets 0 bytes 0", "counter"),
    )
}

/// The words of a listing, with `dstnat` replaced by -100.
fn tokens(text: &str) -> Vec<String> {
    let text = text.replace("priority dstnat", "priority -100");
    text.split_whitespace().map(str::to_owned).collect()
}

const POD_REDIRECT: &str = r#"*nat
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A OUTPUT -j ISTIO_OUTPUT
-A ISTIO_INBOUND -p tcp -m tcp --dport 15008 -j RETURN
-A ISTIO_INBOUND -p tcp -m tcp --dport 9000 -j RETURN
-A ISTIO_INBOUND -p tcp -m tcp --dport 15020 -j RETURN
-A ISTIO_INBOUND -p tcp -m tcp --dport 15021 -j RETURN
-A ISTIO_INBOUND -p tcp -m tcp --dport 15090 -j RETURN
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A ISTIO_OUTPUT -p tcp -m tcp --dport 3306 -j RETURN
-A ISTIO_OUTPUT -p udp -m udp --dport 3306 -j RETURN
-A ISTIO_OUTPUT -s 127.0.0.6/32 -o lo -j RETURN
-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m tcp ! --dport 15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m tcp ! --dport 15008 -m owner --gid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
-A ISTIO_OUTPUT -d 10.96.0.0/12 -j ISTIO_REDIRECT
-A ISTIO_OUTPUT -d 172.20.0.0/16 -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
"#;

const TRANSPARENT_IPV6: &str = r#"*raw
-A PREROUTING -j ISTIO_INBOUND
-A OUTPUT -j ISTIO_OUTPUT_DNS
-A ISTIO_INBOUND -s fd00:10:96::a/128 -p udp -m udp --sport 53 -j CT --zone 1
-A ISTIO_OUTPUT_DNS -p udp -m udp --dport 53 -m owner --uid-owner 1337 -j CT --zone 1
-A ISTIO_OUTPUT_DNS -p udp -m udp --sport 15053 -m owner --uid-owner 1337 -j CT --zone 2
-A ISTIO_OUTPUT_DNS -p udp -m udp --dport 53 -m owner --gid-owner 1337 -j CT --zone 1
-A ISTIO_OUTPUT_DNS -p udp -m udp --sport 15053 -m owner --gid-owner 1337 -j CT --zone 2
-A ISTIO_OUTPUT_DNS -d fd00:10:96::a/128 -p udp -m udp --dport 53 -j CT --zone 2
COMMIT
*nat
-A PREROUTING -i net1 -j RETURN
-A OUTPUT -o net1 -j RETURN
-A OUTPUT -j ISTIO_OUTPUT
-A ISTIO_INBOUND -p tcp -m tcp --dport 15008 -j RETURN
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A ISTIO_OUTPUT -s ::6/128 -o lo -j RETURN
-A ISTIO_OUTPUT ! -d ::1/128 -o lo -p tcp -m multiport ! --dports 53,15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -p tcp -m tcp ! --dport 53 -m owner ! --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT ! -d ::1/128 -o lo -p tcp -m tcp ! --dport 15008 -m owner --gid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -p tcp -m tcp ! --dport 53 -m owner ! --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_OUTPUT_DNS
-A ISTIO_OUTPUT -d ::1/128 -j RETURN
-A ISTIO_OUTPUT -d fd12::/16 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
-A ISTIO_OUTPUT_DNS -d fd00:10:96::a/128 -p tcp -m tcp --dport 53 -j REDIRECT --to-ports 15053
-A ISTIO_OUTPUT_DNS -d fd00:10:96::a/128 -p udp -m udp --dport 53 -j REDIRECT --to-ports 15053
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
*mangle
-A PREROUTING -i net1 -j RETURN
-A PREROUTING -m conntrack --ctstate INVALID -j ISTIO_DROP
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A PREROUTING -p tcp -m mark --mark 0x539 -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff
-A OUTPUT -o net1 -j RETURN
-A OUTPUT -o lo -p tcp -m mark --mark 0x539 -j RETURN
-A OUTPUT ! -d ::1/128 -o lo -p tcp -m owner --uid-owner 1337 -j MARK --set-xmark 0x53a/0xffffffff
-A OUTPUT ! -d ::1/128 -o lo -p tcp -m owner --gid-owner 1337 -j MARK --set-xmark 0x53a/0xffffffff
-A OUTPUT -p tcp -m connmark --mark 0x539 -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff
-A ISTIO_DIVERT -j MARK --set-xmark 0x539/0xffffffff
-A ISTIO_DIVERT -j ACCEPT
-A ISTIO_DROP -j DROP
-A ISTIO_INBOUND -p tcp -m mark --mark 0x539 -j RETURN
-A ISTIO_INBOUND -s ::6/128 -i lo -p tcp -j RETURN
-A ISTIO_INBOUND -i lo -p tcp -m mark ! --mark 0x53a -j RETURN
-A ISTIO_INBOUND -p tcp -m tcp --dport 8080 -m conntrack --ctstate RELATED,ESTABLISHED -j ISTIO_DIVERT
-A ISTIO_INBOUND -p tcp -m tcp --dport 8080 -j ISTIO_TPROXY
-A ISTIO_TPROXY ! -d ::1/128 -p tcp -j TPROXY --on-port 15006 --on-ip :: --tproxy-mark 0x539/0xffffffff
COMMIT
"#;

const TRANSPARENT_NFT_MANGLE: &str = r#"table inet istio-proxy-mangle {
  chain prerouting { type filter hook prerouting priority mangle; policy accept;
    iifname "net1" counter return
    meta l4proto tcp ct state invalid counter jump istio-drop
    meta l4proto tcp counter jump istio-inbound
    meta l4proto tcp meta mark 0x00000539 counter ct mark set meta mark
  }
  chain output { type route hook output priority mangle; policy accept;
    oifname "net1" counter return
    oifname "lo" meta l4proto tcp meta mark 0x00000539 counter return
    oifname "lo" meta l4proto tcp ip daddr != 127.0.0.1 meta skuid 1337 counter meta mark set 0x0000053a
    oifname "lo" meta l4proto tcp ip6 daddr != ::1 meta skuid 1337 counter meta mark set 0x0000053a
    oifname "lo" meta l4proto tcp ip daddr != 127.0.0.1 meta skgid 1337 counter meta mark set 0x0000053a
    oifname "lo" meta l4proto tcp ip6 daddr != ::1 meta skgid 1337 counter meta mark set 0x0000053a
    meta l4proto tcp ct mark 0x00000539 counter meta mark set ct mark
  }
  chain istio-divert { counter meta mark set 0x00000539
    counter accept }
  chain istio-tproxy {
    meta l4proto tcp ip daddr != 127.0.0.1 tproxy ip to :15006 meta mark set 0x00000539 counter accept
    meta l4proto tcp ip6 daddr != ::1 tproxy ip6 to :15006 meta mark set 0x00000539 counter accept
  }
  chain istio-inbound {
    meta l4proto tcp meta mark 0x00000539 counter return
    iifname "lo" meta l4proto tcp ip6 saddr ::6 counter return
    iifname "lo" meta l4proto tcp meta mark != 0x0000053a counter return
    iifname "lo" meta l4proto tcp ip saddr 127.0.0.6 counter return
    ct state established,related tcp dport 8080 counter jump istio-divert
    tcp dport 8080 counter jump istio-tproxy
  }
  chain istio-drop { counter drop }
}
"#;

const EVERYTHING_NFT: &str = r#"table inet istio-proxy-nat {
  chain prerouting { type nat hook prerouting priority dstnat; policy accept;
    iifname "k6t-b" ip6 daddr fd00::/8 counter jump istio-redirect
    iifname "k6t-a" ip6 daddr fd00::/8 counter jump istio-redirect
    iifname "k6t-b" ip daddr 10.0.0.0/8 counter jump istio-redirect
    iifname "k6t-a" ip daddr 10.0.0.0/8 counter jump istio-redirect
    iifname "k6t-b" counter return
    iifname "k6t-a" counter return
    iifname "net1" counter return
    meta l4proto tcp counter jump istio-inbound
  }
  chain output { type nat hook output priority -100; policy accept;
    oifname "net1" counter return
    counter jump istio-output
  }
  chain istio-inbound {
    tcp dport 15008 counter return
    tcp dport 15020 counter return
    tcp dport 15021 counter return
    tcp dport 15090 counter return
    meta l4proto tcp counter jump istio-in-redirect
  }
  chain istio-redirect { meta l4proto tcp counter redirect to :15001 }
  chain istio-in-redirect { meta l4proto tcp counter redirect to :15006 }
  chain istio-output {
    oifname "lo" ip saddr 127.0.0.6 counter return
    oifname "lo" ip6 saddr ::6 counter return
    oifname "lo" ip daddr != 127.0.0.1 tcp dport != { 53, 15008 } meta skuid 1337 counter jump istio-in-redirect
    oifname "lo" ip6 daddr != ::1 tcp dport != { 53, 15008 } meta skuid 1337 counter jump istio-in-redirect
    oifname "lo" tcp dport != 53 meta skuid != 1337 counter return
    meta skuid 1337 counter return
    oifname "lo" ip daddr != 127.0.0.1 tcp dport != 15008 meta skgid 1337 counter jump istio-in-redirect
    oifname "lo" ip6 daddr != ::1 tcp dport != 15008 meta skgid 1337 counter jump istio-in-redirect
    oifname "lo" tcp dport != 53 meta skgid != 1337 counter return
    meta skgid 1337 counter return
    meta skgid != 2000 meta skgid != 2001 counter return
    counter jump istio-output-dns
    ip daddr 127.0.0.1 counter return
    ip6 daddr ::1 counter return
    ip daddr 10.0.0.0/8 counter jump istio-redirect
    ip6 daddr fd00::/8 counter jump istio-redirect
  }
  chain istio-output-dns {
    tcp dport 53 counter redirect to :15053
    udp dport 53 counter redirect to :15053
  }
}
table inet istio-proxy-raw {
  chain prerouting { type filter hook prerouting priority raw; policy accept; counter jump istio-inbound }
  chain output { type filter hook output priority raw; policy accept; counter jump istio-output-dns }
  chain istio-inbound { udp sport 53 counter ct zone set 1 }
  chain istio-output-dns {
    udp dport 53 meta skuid 1337 counter ct zone set 1
    udp sport 15053 meta skuid 1337 counter ct zone set 2
    udp dport 53 meta skgid 1337 counter ct zone set 1
    udp sport 15053 meta skgid 1337 counter ct zone set 2
    udp dport 53 counter ct zone set 2
  }
}
"#;
