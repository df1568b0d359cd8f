//! Every row: its places are in the structure, and its text leads to its bytes and back.

use super::super::blob::Blob;
use super::super::row::{Extension, Row};
use super::super::{All, Context, Part, Unknown, match_of, target_of};
use super::ROWS;
use crate::xtables::sets::Interned;
use crate::xtables::{Match, Rule, Script, Snapshot, Target, XtFamily, plan_restore};
use XtFamily::{Ip, Ip6};
use std::collections::BTreeSet;

/// One text at least for every row, as `iptables-save` prints it.
const TEXTS: &[(XtFamily, &str)] = &[
    (Ip, "-m ah ! --ahspi 7:9"),
    (Ip6, "-m ah --ahspi 3 ! --ahlen 4 --ahres"),
    (Ip, "-m bpf --bytecode \"2,48 0 0 9,6 1 2 4294967295\""),
    (Ip, "-m cgroup ! --path \"/a b\""),
    (Ip6, "-m cgroup --cgroup 65537"),
    (
        Ip,
        "-m cluster ! --cluster-local-nodemask 0x00000005 --cluster-total-nodes 3 --cluster-hash-seed 0x00c0ffee",
    ),
    (
        Ip,
        "-m connbytes ! --connbytes 10:1000 --connbytes-mode avgpkt --connbytes-dir reply",
    ),
    (Ip, "-m connlabel ! --label \"40\" --set"),
    (
        Ip,
        "-m connlimit --connlimit-upto 3 --connlimit-mask 20 --connlimit-daddr",
    ),
    (
        Ip6,
        "-m connlimit --connlimit-above 3 --connlimit-mask 68 --connlimit-saddr",
    ),
    (Ip, "-m cpu ! --cpu 258"),
    (
        Ip,
        "-m dccp ! --sport 1:772 --dport 5 ! --dccp-types ACK,INVALID --dccp-option 9",
    ),
    (Ip, "-m dscp ! --dscp 0x2e"),
    (
        Ip6,
        "-m iprange --src-range ::1-::2 ! --dst-range fe80::1-fe80::ff",
    ),
    (
        Ip,
        "-m physdev ! --physdev-is-in --physdev-in eth+ --physdev-out b ! --physdev-is-bridged",
    ),
    (Ip, "-m pkttype ! --pkt-type multicast"),
    (Ip6, "-m tos ! --tos 0x12/0x3f"),
    (Ip, "-m devgroup --src-group 0x102/0xfff ! --dst-group 0x3"),
    (Ip6, "-m dst ! --dst-len 42 --dst-opts 149:92,12"),
    (Ip, "-m ecn ! --ecn-tcp-ece --ecn-tcp-cwr ! --ecn-ip-ect 2"),
    (Ip, "-m esp ! --espspi 258:772"),
    (Ip6, "-m eui64"),
    (
        Ip6,
        "-m frag ! --fragid 1:42 --fraglen 258 --fragres --fragfirst --fragmore",
    ),
    (
        Ip,
        "-m hashlimit --hashlimit-above 7/min --hashlimit-burst 9 --hashlimit-mode srcip,dstport --hashlimit-name a \
          --hashlimit-htable-size 3 --hashlimit-htable-expire 4 --hashlimit-srcmask 24",
    ),
    (
        Ip6,
        "-m hashlimit --hashlimit-upto 4kb/s --hashlimit-burst 400kb --hashlimit-name b --hashlimit-dstmask 64 \
           --hashlimit-rate-match --hashlimit-rate-interval 10",
    ),
    (Ip6, "-m hbh --hbh-len 42 --hbh-opts 1:2,23"),
    (Ip, "-m helper ! --helper ftp-2121"),
    (Ip6, "-m hl ! --hl-eq 3"),
    (Ip, "-m ipcomp --ipcompspi 18 --compres"),
    (Ip6, "-m ipv6header ! --header ipv6-route,ah --soft"),
    (Ip, "-m length ! --length 258:772"),
    (Ip, "-m limit --limit 7/min"),
    (Ip6, "-m limit --limit 3/hour --limit-burst 258"),
    (Ip, "-m mac ! --mac-source 42:01:02:03:04:05"),
    (Ip6, "-m mh ! --mh-type 4:123"),
    (Ip, "-m nfacct --nfacct-name \"a b\""),
    (Ip, "-m osf ! --genre Linux --ttl 1 --log 2"),
    (
        Ip,
        "-m policy --dir in --pol ipsec --strict --reqid 1 ! --spi 0x102 --proto esp --mode tunnel \
          --tunnel-dst 10.0.0.0/8 --tunnel-src 10.1.2.3 --next ! --reqid 2",
    ),
    (Ip6, "-m policy --dir out --pol none"),
    (Ip, "-m quota ! --quota 18446744073709551615"),
    (
        Ip,
        "-m rateest --rateest-delta --rateest1 a --rateest-bps1 5000bit ! --rateest-lt --rateest-bps2 2000Kbit \
          --rateest2 b",
    ),
    (Ip6, "-m rateest --rateest a --rateest-gt --rateest-pps 42"),
    (Ip, "-m realm ! --realm 0x1/0x2a"),
    (
        Ip,
        "-m recent ! --update --seconds 3 --reap --hitcount 4 --rttl --name a --mask 255.255.0.0 --rdest",
    ),
    (
        Ip6,
        "-m recent --set --name DEFAULT --mask ffff:: --rsource",
    ),
    (
        Ip,
        "-m rpfilter --loose --validmark --accept-local --invert",
    ),
    (
        Ip6,
        "-m rt --rt-type 0 ! --rt-segsleft 1:23 --rt-len 42 --rt-0-res --rt-0-addrs ::1,a::b --rt-0-not-strict",
    ),
    (
        Ip,
        "-m sctp ! --sport 1:772 --dport 5 ! --chunk-types only DATA:iB,ASCONF",
    ),
    (
        Ip6,
        "-m srh ! --srh-next-hdr 17 --srh-hdr-len-gt 8 --srh-segs-left-eq 1 --srh-last-entry-lt 4 --srh-tag 258 \
           ! --srh-psid a::/64 --srh-nsid b::/128 --srh-lsid c::/0",
    ),
    (
        Ip,
        "-m statistic --mode random ! --probability 0.33333333349",
    ),
    (Ip6, "-m statistic --mode nth --every 258 --packet 3"),
    (
        Ip,
        "-m string ! --string \"a \\\"b\\\\c\" --algo kmp --from 258 --to 772 --icase",
    ),
    (Ip, "-m string --hex-string \"|00ff7c|\" --algo bm"),
    (Ip, "-m tcpmss ! --mss 42:12345"),
    (
        Ip,
        "-m time --timestart 01:02:03 --timestop 04:05:06 --monthdays 1,31 --weekdays Mon,Sun \
          --datestart 2000-02-29T04:05:06 --datestop 2038-01-19T03:14:07 --kerneltz --contiguous",
    ),
    (Ip, "-m ttl --ttl-gt 3"),
    (
        Ip,
        "-m u32 ! --u32 \"0x0>>0x16&0x3c@0x4=0x1:0x50,0x60&&0x8=0x102\"",
    ),
    (Ip, "-j AUDIT --type reject"),
    (Ip, "-j CHECKSUM --checksum-fill"),
    (Ip, "-j CLASSIFY --set-class 0102:ffff"),
    (Ip, "-j CONNSECMARK --restore"),
    (Ip6, "-j DNPT --src-pfx dead::/64 --dst-pfx 1c3::/48"),
    (Ip, "-j DSCP --set-dscp 0x2e"),
    (Ip, "-j ECN --ecn-tcp-remove"),
    (Ip, "-j ECN --ecn-tcp-ece 1 --ecn-tcp-cwr 0 --ecn-ip-ect 2"),
    (Ip6, "-j HL --hl-dec 3"),
    (
        Ip,
        "-j HMARK --hmark-src-prefix 8 --hmark-dst-prefix 24 --hmark-sport-mask 0x0102 --hmark-dport 0x0304 \
          --hmark-proto-mask 0x05 --hmark-rnd 0x00000004 --hmark-mod 42 --hmark-offset 1 --hmark-tuple ct",
    ),
    (
        Ip6,
        "-j HMARK --hmark-src-prefix 65 --hmark-spi-mask 0x01020304 --hmark-spi 0x00000007 --hmark-mod 3",
    ),
    (Ip, "-j IDLETIMER --timeout 258 --label a --alarm"),
    (
        Ip,
        "-j LOG --log-prefix \"a \\\"b\\\\\" --log-level 7 --log-tcp-sequence --log-tcp-options --log-ip-options \
          --log-uid --log-macdecode",
    ),
    (Ip, "-j LOG"),
    (Ip, "-j NETMAP --to 1.2.3.0/24"),
    (Ip6, "-j NETMAP --to dead::/64"),
    (
        Ip6,
        "-j NFLOG --nflog-prefix word --nflog-group 258 --nflog-size 0 --nflog-threshold 772",
    ),
    (Ip, "-j NFLOG --nflog-range 258"),
    (
        Ip,
        "-j NFQUEUE --queue-balance 258:772 --queue-bypass --queue-cpu-fanout",
    ),
    (Ip, "-j NFQUEUE --queue-num 258"),
    (
        Ip,
        "-j RATEEST --rateest-name a --rateest-interval 500.0ms --rateest-ewmalog 2.0s",
    ),
    (Ip, "-j REJECT --reject-with icmp-admin-prohibited"),
    (Ip6, "-j REJECT --reject-with icmp6-port-unreachable"),
    (Ip, "-j SECMARK --selctx system_u:object_r:a_t:s0"),
    (Ip6, "-j SNPT --src-pfx dead::/64 --dst-pfx 1c3::/48"),
    (
        Ip,
        "-j SYNPROXY --sack-perm --timestamp --wscale 9 --mss 1460 --ecn",
    ),
    (Ip, "-j TCPMSS --set-mss 258"),
    (Ip, "-j TCPMSS --clamp-mss-to-pmtu"),
    (Ip, "-j TCPOPTSTRIP --strip-options 2,33,255"),
    (Ip, "-j TEE --gateway 1.2.3.4 --oif eth0"),
    (Ip6, "-j TEE --gateway dead::beef"),
    (Ip, "-j TOS --set-tos 0x12/0x3f"),
    (Ip, "-j TRACE"),
    (Ip, "-j TTL --ttl-inc 3"),
];

/// What is read and what is printed of it.
const OTHER_TEXTS: &[(XtFamily, &str, &str)] = &[
    (
        Ip,
        "-m time ! --weekdays Mon,2 --datestop 2038-01-19T03:14:07",
        "-m time --weekdays Wed,Thu,Fri,Sat,Sun \
          --datestop 2038-01-19T03:14:07",
    ),
    (
        Ip,
        "-m string --hex-string \"a|20 62|c\" --algo bm",
        "-m string --string \"a bc\" --algo bm",
    ),
    (
        Ip,
        "-m cluster --cluster-local-node 2 --cluster-total-nodes 2 --cluster-hash-seed 1",
        "-m cluster --cluster-local-nodemask 0x00000002 --cluster-total-nodes 2 --cluster-hash-seed 0x00000001",
    ),
    (
        Ip,
        "-m connlimit ! --connlimit-upto 3",
        "-m connlimit --connlimit-above 3 --connlimit-mask 32 --connlimit-saddr",
    ),
    (Ip, "-m limit", "-m limit --limit 3/hour"),
    (Ip, "-m limit --limit 5", "-m limit --limit 5/sec"),
    // As iptables-save prints the period of 199/10000 seconds.
    (Ip, "-m limit --limit 3015/min", "-m limit --limit 50/sec"),
    (
        Ip,
        "-m statistic --mode nth --every 3",
        "-m statistic --mode nth --every 3 --packet 0",
    ),
    (Ip, "-j LOG --log-level panic", "-j LOG --log-level 0"),
    (Ip, "-j LOG --log-level warn", "-j LOG"),
    (
        Ip,
        "-j NFLOG --nflog-size 3 --nflog-range 5",
        "-j NFLOG --nflog-size 3",
    ),
    (
        Ip,
        "-j REJECT",
        "-j REJECT --reject-with icmp-port-unreachable",
    ),
    (
        Ip6,
        "-j REJECT",
        "-j REJECT --reject-with icmp6-port-unreachable",
    ),
    (
        Ip6,
        "-j REJECT --reject-with port-unreach",
        "-j REJECT --reject-with icmp6-port-unreachable",
    ),
    (Ip, "-j TOS --and-tos 0x12", "-j TOS --set-tos 0x00/0xed"),
    (Ip, "-j DSCP --set-dscp-class EF", "-j DSCP --set-dscp 0x2e"),
    (Ip, "-m dscp --dscp-class af31", "-m dscp --dscp 0x1a"),
    (Ip, "-m tos --tos Minimize-Delay", "-m tos --tos 0x10/0x3f"),
    (
        Ip,
        "-m pkttype --pkt-type host",
        "-m pkttype --pkt-type unicast",
    ),
    (
        Ip,
        "-m iprange --src-range 10.0.0.1",
        "-m iprange --src-range 10.0.0.1-10.0.0.1",
    ),
    (Ip6, "-m mh --mh-type brr:BU", "-m mh --mh-type 0:5"),
    (
        Ip6,
        "-m ipv6header --header hop,60,route",
        "-m ipv6header --header hop-by-hop,ipv6-opts,ipv6-route",
    ),
    (
        Ip,
        "-j TCPOPTSTRIP --strip-options mss,md5",
        "-j TCPOPTSTRIP --strip-options 2,19",
    ),
];

/// What is refused, and a part of the reason.
const WRONG: &[(XtFamily, &str, &str)] = &[
    (Ip, "-m hl --hl-eq 3", "not a match"),
    (Ip, "-m cpu", "--cpu"),
    (Ip, "-m cpu --cpu 4294967296", "too large"),
    (Ip, "-m ttl --ttl-eq 1 --ttl-gt 3", "excludes"),
    (Ip, "-p tcp -m multiport --dports 5:3", "before it begins"),
    (Ip6, "-p mh -m mh --mh-type 5:3", "before it begins"),
    (
        Ip6,
        "-j DNAT --to-destination [fd00::1]-[fd00::5]:80",
        "after ]",
    ),
    (Ip6, "-j DNAT --to-destination [fd00::1]x:80", "after ]"),
    (
        Ip6,
        "-j SNAT --to-source [fd00::1]-[fd00::9]:100-200",
        "after ]",
    ),
    (Ip6, "-j SNAT --to-source [fd00::1]-fd00::5", "after ]"),
    (Ip, "-m mac --mac-source 1:2:3", "aa:bb"),
    (Ip, "-m bpf --bytecode \"2,48 0 0 9\"", "LENGTH"),
    (Ip, "-m u32 --u32 0", "START"),
    (Ip, "-m u32 --u32 0<5=1", "operator"),
    (Ip, "-m string --string \"\" --algo bm", "1 to 128"),
    (Ip, "-m string --hex-string |0| --algo bm", "pairs"),
    (Ip, "-m time --datestart 2100-01-01", "2038"),
    (Ip, "-m time --monthdays 32", "days"),
    (Ip, "-m sctp --chunk-types any DATA:Q", "flag"),
    (Ip, "-m policy --pol ipsec", "--dir"),
    (
        Ip,
        "-m policy --dir in --pol ipsec --reqid 1 --reqid 2",
        "twice",
    ),
    (
        Ip,
        "-m hashlimit --hashlimit-upto 0/sec --hashlimit-name a",
        "rate",
    ),
    (
        Ip,
        "-m connlimit --connlimit-above 1 --connlimit-mask 33",
        "longer",
    ),
    (Ip, "-j NFQUEUE --queue-balance 3:3", "range"),
    (Ip, "-j TCPOPTSTRIP --strip-options 1", "cannot be removed"),
    (Ip, "-j TEE --gateway ::1", "address"),
    (Ip, "-j DSCP --set-dscp 64", "no code point"),
    (Ip, "-m dscp --dscp-class AF44", "no code point"),
    (Ip, "-m physdev", "needs one of --physdev-is-in"),
    (Ip, "-m iprange --src-range ::1-::2", "no address of ip"),
    (Ip, "-m pkttype --pkt-type other", "multicast"),
    (Ip, "-j SET-NOTHING --x 1", "SYNPROXY"),
    (Ip, "-m set --match-set a src ! --packets-lt 5", "inverted"),
    (Ip, "-m set --match-set a src ! --bytes-gt 5", "inverted"),
    (
        Ip,
        "-m set --match-set a src --packets-lt 5 --packets-gt 3",
        "only one",
    ),
    (
        Ip,
        "-m addrtype --src-type LOCAL --limit-iface-in --limit-iface-out",
        "exclude each other",
    ),
    (Ip, "-m owner --suppl-groups", "needs --gid-owner"),
    (
        Ip,
        "-m recent --name x --rsource",
        "needs one of --set, --rcheck",
    ),
    (Ip, "-m recent --rcheck --update", "exclude each other"),
    (Ip, "-m mark --mark 0x+5", "no mark"),
    (Ip, "-m mac --mac-source 00:00:00:00:00:+1", "no MAC"),
    (Ip6, "-m mh --mh-type brr:nothing", "no number"),
    (Ip, "-m conntrack --ctexpire :x", "no time"),
    (Ip, "-p tcp --dport 010", "reads 010 as octal"),
    (Ip, "-p tcp -m multiport --dports 80,0443", "octal"),
    (Ip, "-s 10.0.0.0/024", "octal"),
    (Ip6, "-s fd00::/064", "octal"),
    (Ip, "-p 017", "octal"),
    (Ip, "-p icmp --icmp-type 3/01", "octal"),
    (Ip, "-m limit --limit 5/sec --limit-burst 010", "octal"),
    (Ip, "-m mark --mark 1/010", "octal"),
    (Ip, "-m ttl --ttl-eq 064", "octal"),
    (Ip, "-m owner --uid-owner 0100-0200", "octal"),
    (Ip, "-m conntrack --ctexpire 1:010", "octal"),
    (
        Ip,
        "-m hashlimit --hashlimit-upto 5/sec --hashlimit-burst 010 --hashlimit-name a",
        "octal",
    ),
    (Ip, "-j LOG --log-level 06", "octal"),
    (Ip, "-j LOG --log-level 8", "no level"),
    (
        Ip,
        "-j LOG --log-prefix 123456789012345678901234567890",
        "29 bytes",
    ),
    (Ip, "-m limit --limit 0/sec", "no rate"),
    (Ip, "-m limit --limit 10001/sec", "no rate"),
    (Ip, "-m limit ! --limit 1/sec", "inverted"),
    (
        Ip,
        "-m statistic --mode random --probability 1.5",
        "between 0 and 1",
    ),
    (
        Ip,
        "-m statistic --mode nth --every 3 --packet 3",
        "more than --packet",
    ),
    (Ip, "-m statistic --mode often", "random or nth"),
    (
        Ip6,
        "-j REJECT --reject-with icmp-net-unreachable",
        "icmp6-no-route",
    ),
    (Ip, "-j REJECT --reject-with no-route", "tcp-reset"),
    (Ip, "-m state --state SNAT", "no state"),
    (Ip, "-j CONNMARK --left-shift-mark 3", "needs one of"),
    (
        Ip,
        "-j CONNMARK --save-mark --left-shift-mark 3 --right-shift-mark 3",
        "exclude each other",
    ),
    (
        Ip,
        "-j CONNMARK --save-mark --left-shift-mark 32",
        "0 to 31",
    ),
];

fn parse(family: XtFamily, text: &str) -> Result<Rule, String> {
    let script = format!("*filter\n-A INPUT {text}\nCOMMIT\n");
    let script = Script::parse(family, &script).map_err(|e| e.to_string())?;
    let planned = plan_restore(&script, &Snapshot::default(), false).unwrap();
    let tables = planned.tables().tables;
    let chains = tables.into_iter().flat_map(|t| t.chains);
    Ok(chains.flat_map(|c| c.rules).next().unwrap())
}

fn extension(family: XtFamily, text: &str) -> Extension {
    let rule = parse(family, text).unwrap_or_else(|e| panic!("{text}: {e}"));
    match (rule.matches.first(), rule.target) {
        (Some(Match::Extension(v)), None) => v.clone(),
        (None, Some(Target::Extension(v))) => v,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn places_are_in_the_structure() {
    for row in ROWS.iter().flat_map(|rows| rows.iter()) {
        let extent = row.extent();
        assert!(extent <= row.size, "{}: {extent}", row.name);
        let names: BTreeSet<&str> = row.names().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), row.names().len(), "{}", row.name);
    }
}

#[test]
fn every_row_comes_back() {
    let sets = Interned::default();
    let mut seen = BTreeSet::new();
    for (family, text) in TEXTS {
        let value = extension(*family, text);
        let cx = Context {
            family: *family,
            sets: &sets,
            revisions: &All,
        };
        let wire = value.wire(&cx).unwrap();
        let unknown = Unknown {
            name: wire.name.clone(),
            revision: wire.revision,
            data: wire.data.clone(),
        };
        let (part, shown) = if text.starts_with("-m") {
            let read = match_of(*family, &unknown);
            assert_eq!(read, Match::Extension(value.clone()), "{text}");
            (Part::Match, read.to_string())
        } else {
            let read = target_of(*family, &unknown);
            assert_eq!(read, Target::Extension(value.clone()), "{text}");
            (Part::Target, read.to_string())
        };
        assert_eq!(shown, format!(" {text}"));
        let row: &Row = Row::find(part, value.name(), *family).unwrap();
        seen.insert(std::ptr::from_ref(row).addr());
        // Of every other length it is opaque, and so is what no options stand for.
        for len in (0..wire.data.len()).step_by(8) {
            let cut = wire.data.get(..len).unwrap();
            assert_eq!(
                Extension::decode(part, &wire.name, wire.revision, cut, *family),
                None
            );
        }
        for at in 0..wire.data.len() {
            let mut changed = Blob(wire.data.clone());
            changed.xor(super::super::blob::Place { at, width: 1 }, 0x81);
            drop(Extension::decode(
                part,
                &wire.name,
                wire.revision,
                changed.bytes(0, wire.data.len()),
                *family,
            ));
        }
    }
    let missing = ROWS.iter().flat_map(|rows| rows.iter());
    let missing: Vec<&str> = missing
        .filter(|row| !seen.contains(&std::ptr::from_ref::<Row>(row).addr()))
        .map(|row| row.name)
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

/// Another writer's period has a text that stands for one nearby, and stays.
#[test]
fn a_rounded_rate_is_kept() {
    let mut data = Blob::zeros(40);
    data.put(0, 4, 199);
    data.put(4, 4, 5);
    let with = |data: &Blob| {
        let unknown = Unknown {
            name: "limit".to_owned(),
            revision: 0,
            data: data.bytes(0, 40).to_vec(),
        };
        match_of(Ip, &unknown)
    };
    let read = with(&data);
    assert_eq!(read.to_string(), " -m limit --limit 50/sec");
    let Match::Extension(value) = &read else {
        panic!("{read:?}");
    };
    let sets = Interned::default();
    let cx = Context {
        family: Ip,
        sets: &sets,
        revisions: &All,
    };
    assert_eq!(value.wire(&cx).unwrap().data, data.bytes(0, 40));
    // No period, and what the kernel keeps for itself.
    for (at, value) in [(0, 0), (16, 1)] {
        let mut data = data.clone();
        data.put(at, 4, value);
        assert!(matches!(with(&data), Match::Unknown(_)), "{at}");
    }
}

#[test]
fn other_words_mean_the_same() {
    for (family, text, shown) in OTHER_TEXTS {
        assert_eq!(
            parse(*family, text).unwrap().to_string(),
            format!(" {shown}")
        );
    }
}

#[test]
fn an_error_says_what_is_wrong() {
    for (family, text, part) in WRONG {
        let e = parse(*family, text).unwrap_err();
        assert!(e.contains(part), "{text}: {e}");
    }
}
