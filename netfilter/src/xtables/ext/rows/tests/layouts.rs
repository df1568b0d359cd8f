//! Sizes and offsets of every row, compared with the system's headers by a C compiler.

use super::*;
use std::path::Path;
use weir_testing::c;

/// The structure of a row, and its fields with their offsets. Rows without an entry have no structure.
#[rustfmt::skip]
const LAYOUTS: &[(&str, u8, Option<XtFamily>, &str, &str)] = &[
    ("addrtype", 1, None, "xt_addrtype_info_v1", "0:source 2:dest 4:flags"),
    ("addrtype", 0, Some(Ip), "xt_addrtype_info", "0:source 2:dest 4:invert_source 8:invert_dest"),
    ("ah", 0, Some(Ip), "ipt_ah", "0:spis 4:spis[1] 8:invflags"),
    ("ah", 0, Some(Ip6), "ip6t_ah", "0:spis 4:spis[1] 8:hdrlen 12:hdrres 13:invflags"),
    ("bpf", 1, None, "xt_bpf_info_v1", "0:mode 2:bpf_program_num_elem 8:bpf_program"),
    ("cgroup", 2, None, "xt_cgroup_info_v2", "0:has_path 1:has_classid 2:invert_path 3:invert_classid 4:path 4:classid"),
    ("cluster", 0, None, "xt_cluster_match_info", "0:total_nodes 4:node_mask 8:hash_seed 12:flags"),
    ("connbytes", 0, None, "xt_connbytes_info", "0:count.from 8:count.to 16:what 17:direction"),
    ("connlabel", 0, None, "xt_connlabel_mtinfo", "0:bit 2:options"),
    ("connlimit", 1, None, "xt_connlimit_info", "0:mask 16:limit 20:flags"),
    ("cpu", 0, None, "xt_cpu_info", "0:cpu 4:invert"),
    ("dccp", 0, None, "xt_dccp_info", "0:dpts 4:spts 8:flags 10:invflags 12:typemask 14:option"),
    ("devgroup", 0, None, "xt_devgroup_info", "0:flags 4:src_group 8:src_mask 12:dst_group 16:dst_mask"),
    ("dscp", 0, None, "xt_dscp_info", "0:dscp 1:invert"),
    ("dst", 0, Some(Ip6), "ip6t_opts", "0:hdrlen 4:flags 5:invflags 6:opts 38:optsnr"),
    ("ecn", 0, None, "xt_ecn_info", "0:operation 1:invert 2:ip_ect"),
    ("esp", 0, None, "xt_esp", "0:spis 4:spis[1] 8:invflags"),
    ("frag", 0, Some(Ip6), "ip6t_frag", "0:ids 4:ids[1] 8:hdrlen 12:flags 13:invflags"),
    ("hashlimit", 3, None, "xt_hashlimit_mtinfo3", "0:name 256:cfg.avg 264:cfg.burst 288:cfg.expire 292:cfg.interval 296:cfg.srcmask 297:cfg.dstmask"),
    ("hbh", 0, Some(Ip6), "ip6t_opts", "0:hdrlen 4:flags 5:invflags 6:opts 38:optsnr"),
    ("helper", 0, None, "xt_helper_info", "0:invert 4:name"),
    ("hl", 0, Some(Ip6), "ip6t_hl_info", "0:mode 1:hop_limit"),
    ("icmp", 0, Some(Ip), "ipt_icmp", "0:type 1:code 3:invflags"),
    ("icmp6", 0, Some(Ip6), "ip6t_icmp", "0:type 1:code 3:invflags"),
    ("ipcomp", 0, None, "xt_ipcomp", "0:spis 8:invflags 9:hdrres"),
    ("iprange", 1, None, "xt_iprange_mtinfo", "0:src_min 16:src_max 32:dst_min 48:dst_max 64:flags"),
    ("ipv6header", 0, Some(Ip6), "ip6t_ipv6header_info", "0:matchflags 1:invflags 2:modeflag"),
    ("length", 0, None, "xt_length_info", "0:min 2:max 4:invert"),
    ("limit", 0, None, "xt_rateinfo", "0:avg 4:burst 8:prev"),
    ("mac", 0, None, "xt_mac_info", "0:srcaddr 8:invert"),
    ("mh", 0, Some(Ip6), "ip6t_mh", "0:types 1:types[1] 2:invflags"),
    ("nfacct", 1, None, "xt_nfacct_match_info_v1", "0:name"),
    ("osf", 0, Some(Ip), "xt_osf_info", "0:genre 32:len 36:flags 40:loglevel 44:ttl"),
    ("physdev", 0, None, "xt_physdev_info", "0:physindev 16:in_mask 32:physoutdev 48:out_mask 64:invert 65:bitmask"),
    ("pkttype", 0, None, "xt_pkttype_info", "0:pkttype 4:invert"),
    ("policy", 0, None, "xt_policy_info", "0:pol 64:pol[0].spi 68:pol[0].reqid 72:pol[0].proto 73:pol[0].mode 74:pol[0].match 75:pol[0].invert 76:pol[1] 304:flags 306:len"),
    ("quota", 0, None, "xt_quota_info", "0:flags 8:quota"),
    ("rateest", 0, None, "xt_rateest_match_info", "0:name1 16:name2 32:flags 34:mode 36:bps1 40:pps1 44:bps2 48:pps2"),
    ("realm", 0, Some(Ip), "xt_realm_info", "0:id 4:mask 8:invert"),
    ("recent", 1, None, "xt_recent_mtinfo_v1", "0:seconds 4:hit_count 8:check_set 9:invert 10:name 210:side 212:mask"),
    ("rpfilter", 0, None, "xt_rpfilter_info", "0:flags"),
    ("rt", 0, Some(Ip6), "ip6t_rt", "0:rt_type 4:segsleft 8:segsleft[1] 12:hdrlen 16:flags 17:invflags 20:addrs 276:addrnr"),
    ("sctp", 0, None, "xt_sctp_info", "0:dpts 4:spts 8:chunkmap 264:chunk_match_type 268:flag_info 271:flag_info[1] 274:flag_info[2] 277:flag_info[3] 280:flag_count 284:flags 288:invflags"),
    ("socket", 3, None, "xt_socket_mtinfo3", "0:flags"),
    ("socket", 2, None, "xt_socket_mtinfo2", "0:flags"),
    ("socket", 1, None, "xt_socket_mtinfo1", "0:flags"),
    ("srh", 1, Some(Ip6), "ip6t_srh1", "0:next_hdr 1:hdr_len 2:segs_left 3:last_entry 4:tag 8:psid_addr 24:nsid_addr 40:lsid_addr 56:psid_msk 72:nsid_msk 88:lsid_msk 104:mt_flags 106:mt_invflags"),
    ("statistic", 0, None, "xt_statistic_info", "0:mode 2:flags 4:u.nth.every 4:u.random.probability 8:u.nth.packet 12:u.nth.count"),
    ("string", 1, None, "xt_string_info", "0:from_offset 2:to_offset 4:algo 20:pattern 148:patlen 149:u.v1.flags"),
    ("tcpmss", 0, None, "xt_tcpmss_match_info", "0:mss_min 2:mss_max 4:invert"),
    ("time", 0, None, "xt_time_info", "0:date_start 4:date_stop 8:daytime_start 12:daytime_stop 16:monthdays_match 20:weekdays_match 21:flags"),
    ("tos", 1, None, "xt_tos_match_info", "0:tos_mask 1:tos_value 2:invert"),
    ("ttl", 0, Some(Ip), "ipt_ttl_info", "0:mode 1:ttl"),
    ("u32", 0, None, "xt_u32", "0:tests 4:tests[0].location[0].nextop 88:tests[0].value 176:tests[0].nnums 177:tests[0].nvalues 180:tests[1] 1980:ntests 1981:invert"),
    ("AUDIT", 0, None, "xt_audit_info", "0:type"),
    ("CHECKSUM", 0, None, "xt_CHECKSUM_info", "0:operation"),
    ("CLASSIFY", 0, None, "xt_classify_target_info", "0:priority"),
    ("CONNSECMARK", 0, None, "xt_connsecmark_target_info", "0:mode"),
    ("DNPT", 0, Some(Ip6), "ip6t_npt_tginfo", "0:src_pfx 16:dst_pfx 32:src_pfx_len 33:dst_pfx_len 34:adjustment"),
    ("DSCP", 0, None, "xt_DSCP_info", "0:dscp"),
    ("ECN", 0, Some(Ip), "ipt_ECN_info", "0:operation 1:ip_ect 2:proto"),
    ("HL", 0, Some(Ip6), "ip6t_HL_info", "0:mode 1:hop_limit"),
    ("HMARK", 0, None, "xt_hmark_info", "0:src_mask 16:dst_mask 32:port_mask 34:port_mask.p16.dst 36:port_set 38:port_set.p16.dst 40:flags 44:proto_mask 48:hashrnd 52:hmodulus 56:hoffset"),
    ("IDLETIMER", 1, None, "idletimer_tg_info_v1", "0:timeout 4:label 33:timer_type"),
    ("LOG", 0, None, "xt_log_info", "0:level 1:logflags 2:prefix"),
    ("NETMAP", 0, Some(Ip), "nf_nat_ipv4_multi_range_compat", "0:rangesize 4:range[0].flags 8:range[0].min_ip 12:range[0].max_ip"),
    ("NETMAP", 0, Some(Ip6), "nf_nat_range", "0:flags 4:min_addr 20:max_addr"),
    ("NFLOG", 0, None, "xt_nflog_info", "0:len 4:group 6:threshold 8:flags 12:prefix"),
    ("NFQUEUE", 3, None, "xt_NFQ_info_v3", "0:queuenum 2:queues_total 4:flags"),
    ("RATEEST", 0, None, "xt_rateest_target_info", "0:name 16:interval 17:ewma_log"),
    ("REJECT", 0, Some(Ip), "ipt_reject_info", "0:with"),
    ("REJECT", 0, Some(Ip6), "ip6t_reject_info", "0:with"),
    ("SECMARK", 1, None, "xt_secmark_target_info_v1", "0:mode 1:secctx"),
    ("SECMARK", 0, None, "xt_secmark_target_info", "0:mode 4:secid 8:secctx"),
    ("SNPT", 0, Some(Ip6), "ip6t_npt_tginfo", "0:src_pfx 16:dst_pfx 32:src_pfx_len 33:dst_pfx_len 34:adjustment"),
    ("SYNPROXY", 0, None, "xt_synproxy_info", "0:options 1:wscale 2:mss"),
    ("TCPMSS", 0, None, "xt_tcpmss_info", "0:mss"),
    ("TCPOPTSTRIP", 0, None, "xt_tcpoptstrip_target_info", "0:strip_bmap"),
    ("TEE", 1, None, "xt_tee_tginfo", "0:gw 16:oif"),
    ("TOS", 1, None, "xt_tos_target_info", "0:tos_value 1:tos_mask"),
    ("TTL", 0, Some(Ip), "ipt_TTL_info", "0:mode 1:ttl"),
];

/// Rows without a structure: the match has an `int`, or no data.
const WITHOUT: [(&str, u8); 3] = [("eui64", 0), ("socket", 0), ("TRACE", 0)];

/// The headers of matches, or those of targets, whose names are in capital letters: `ipt_ttl.h` and `ipt_TTL.h` exclude each other.
fn includes(part: Part) -> String {
    let mut text =
        "#include <stddef.h>\n#include <stdio.h>\n#include <limits.h>\n#include <netinet/in.h>\n\
                    #include <linux/if.h>\n#include <linux/netfilter/x_tables.h>\n\
                    #include <linux/netfilter/nf_nat.h>\n"
            .to_owned();
    for (folder, start) in [
        ("netfilter", "xt_"),
        ("netfilter_ipv4", "ip"),
        ("netfilter_ipv6", "ip6"),
    ] {
        let path = Path::new("/usr/include/linux").join(folder);
        let is_of = |name: &String| {
            let end = name.split('_').nth(1).unwrap_or_default();
            let of_target = end.starts_with(|c: char| c.is_ascii_uppercase());
            name.starts_with(start) && of_target == (part == Part::Target)
        };
        let mut names: Vec<String> = std::fs::read_dir(&path)
            .unwrap_or_else(|e| panic!("{}: {e}; {}", path.display(), c::REMEDY))
            .map(|f| f.unwrap().file_name().into_string().unwrap())
            .filter(is_of)
            .collect();
        names.sort();
        let lines = names
            .iter()
            .map(|name| format!("#include <linux/{folder}/{name}>\n"));
        text += &lines.collect::<String>();
    }
    text
}

fn compare(part: Part) {
    let mut ours: Vec<(String, usize)> = Vec::new();
    let rows = ROWS.iter().flat_map(|rows| rows.iter());
    for row in rows.filter(|row| row.part == part) {
        let of = |(name, revision, family, ..): &&(&str, u8, Option<XtFamily>, &str, &str)| {
            (row.name, row.revision, row.family) == (name, *revision, *family)
        };
        let Some((.., structure, fields)) = LAYOUTS.iter().find(of) else {
            let name = (row.name, row.revision);
            assert!(WITHOUT.contains(&name), "{name:?}");
            continue;
        };
        // The rules pad a structure to 8 bytes.
        let size = format!("((sizeof(struct {structure}) + 7) & ~7)");
        ours.push((size, row.size.next_multiple_of(8)));
        let mut known = Vec::new();
        for field in fields.split(' ') {
            let (at, field) = field.split_once(':').unwrap();
            let at = at.parse().unwrap();
            ours.push((format!("offsetof(struct {structure}, {field})"), at));
            known.push(at);
        }
        for at in row.places() {
            assert!(known.contains(&at), "{} {}: {at}", row.name, row.revision);
        }
    }
    let names: Vec<&str> = ours.iter().map(|(name, _)| name.as_str()).collect();
    let theirs = c::values_in_c(&includes(part), &names);
    let wrong: Vec<String> = ours
        .iter()
        .filter(|(name, n)| theirs[name] != i64::try_from(*n).unwrap())
        .map(|(name, n)| format!("{name}: {n}, the header says {}", theirs[name]))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn layouts_are_those_of_the_headers() {
    let rows: usize = ROWS.iter().map(|rows| rows.len()).sum();
    assert_eq!(LAYOUTS.len() + WITHOUT.len(), rows);
    compare(Part::Match);
    compare(Part::Target);
}
