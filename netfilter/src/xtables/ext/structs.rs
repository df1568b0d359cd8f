//! The structures of the extensions with a value type, as the headers in `linux/netfilter` declare them. The other extensions
//! are rows ([`super::rows`]).

use crate::xtables::raw::{XT_MAX_COMMENT_LEN, XT_MULTI_PORTS};
use crate::xtables::structs::{InetAddr, structs};
use zerocopy::network_endian::U16 as Be16;

structs! {
    XtTcp = "struct xt_tcp" {
        spts: [u16; 2], dpts: [u16; 2], option: u8, flg_mask: u8, flg_cmp: u8, invflags: u8,
    }
    XtUdp = "struct xt_udp" { spts: [u16; 2], dpts: [u16; 2], invflags: u8, _gap: u8 }
    XtMultiport = "struct xt_multiport" { flags: u8, count: u8, ports: [u16; XT_MULTI_PORTS] }
    XtMultiportV1 = "struct xt_multiport_v1" {
        flags: u8, count: u8, ports: [u16; XT_MULTI_PORTS], pflags: [u8; XT_MULTI_PORTS], invert: u8,
    }
    XtOwnerMatchInfo = "struct xt_owner_match_info" {
        uid: [u32; 2] = "uid_min", gid: [u32; 2] = "gid_min", match_: u8 = "match", invert: u8, _gap: [u8; 2],
    }
    XtMarkMtinfo1 = "struct xt_mark_mtinfo1", "struct xt_connmark_mtinfo1" {
        mark: u32, mask: u32, invert: u8, _gap: [u8; 3],
    }
    XtConntrackMtinfo1 = "struct xt_conntrack_mtinfo1" {
        addresses: [[InetAddr; 2]; 4] = "origsrc_addr", expires_min: u32, expires_max: u32, l4proto: u16,
        ports: [Be16; 4] = "origsrc_port", match_flags: u16, invert_flags: u16, state_mask: u8,
        status_mask: u8,
    }
    XtConntrackMtinfo2 = "struct xt_conntrack_mtinfo2" {
        addresses: [[InetAddr; 2]; 4] = "origsrc_addr", expires_min: u32, expires_max: u32, l4proto: u16,
        ports: [Be16; 4] = "origsrc_port", match_flags: u16, invert_flags: u16, state_mask: u16,
        status_mask: u16, _gap: [u8; 2],
    }
    XtConntrackMtinfo3 = "struct xt_conntrack_mtinfo3" {
        addresses: [[InetAddr; 2]; 4] = "origsrc_addr", expires_min: u32, expires_max: u32, l4proto: u16,
        ports: [u16; 4] = "origsrc_port", match_flags: u16, invert_flags: u16, state_mask: u16,
        status_mask: u16, ports_high: [u16; 4] = "origsrc_port_high", _gap: [u8; 2],
    }
    XtStateInfo = "struct xt_state_info" { statemask: u32 }
    XtSetInfo = "struct xt_set_info", "struct xt_set_info_match_v1" { index: u16, dim: u8, flags: u8 }
    XtSetInfoMatchV0 = "struct xt_set_info_match_v0" {
        index: u16 = "match_set.index", _gap: [u8; 2], flags: [u32; 7] = "match_set.u.flags",
    }
    IpSetCounterMatch0 = "struct ip_set_counter_match0" { op: u8, _gap: [u8; 7], value: u64 }
    IpSetCounterMatch = "struct ip_set_counter_match" { value: u64, op: u8, _gap: [u8; 7] }
    XtSetInfoMatchV3 = "struct xt_set_info_match_v3" {
        match_set: XtSetInfo, _gap: [u8; 4], packets: IpSetCounterMatch0, bytes: IpSetCounterMatch0,
        flags: u32, _gap2: [u8; 4],
    }
    XtSetInfoMatchV4 = "struct xt_set_info_match_v4" {
        match_set: XtSetInfo, _gap: [u8; 4], packets: IpSetCounterMatch, bytes: IpSetCounterMatch, flags: u32,
        _gap2: [u8; 4],
    }
    XtCommentInfo = "struct xt_comment_info" { comment: [u8; XT_MAX_COMMENT_LEN] }
    NfNatIpv4MultiRangeCompat = "struct nf_nat_ipv4_multi_range_compat" {
        rangesize: u32, flags: u32 = "range[0].flags", ip: [[u8; 4]; 2] = "range[0].min_ip",
        proto: [Be16; 2] = "range[0].min",
    }
    NfNatRange = "struct nf_nat_range" {
        flags: u32, addr: [InetAddr; 2] = "min_addr", proto: [Be16; 2] = "min_proto",
    }
    NfNatRange2 = "struct nf_nat_range2" {
        flags: u32, addr: [InetAddr; 2] = "min_addr", proto: [Be16; 2] = "min_proto", base_proto: Be16,
        _gap: [u8; 2],
    }
    XtMarkTginfo2 = "struct xt_mark_tginfo2" { mark: u32, mask: u32 }
    XtConnmarkTginfo1 = "struct xt_connmark_tginfo1" {
        ctmark: u32, ctmask: u32, nfmask: u32, mode: u8, _gap: [u8; 3],
    }
    XtConnmarkTginfo2 = "struct xt_connmark_tginfo2" {
        ctmark: u32, ctmask: u32, nfmask: u32, shift_dir: u8, shift_bits: u8, mode: u8, _gap: u8,
    }
    XtTproxyTargetInfo = "struct xt_tproxy_target_info" {
        mark_mask: u32, mark_value: u32, laddr: [u8; 4], lport: Be16, _gap: [u8; 2],
    }
    XtTproxyTargetInfoV1 = "struct xt_tproxy_target_info_v1" {
        mark_mask: u32, mark_value: u32, laddr: InetAddr, lport: Be16, _gap: [u8; 2],
    }
    XtCtTargetInfo = "struct xt_ct_target_info" {
        flags: u16, zone: u16, ct_events: u32, exp_events: u32, helper: [u8; 16], _gap: [u8; 4], ct: u64,
    }
    XtCtTargetInfoV1 = "struct xt_ct_target_info_v1" {
        flags: u16, zone: u16, ct_events: u32, exp_events: u32, helper: [u8; 16], timeout: [u8; 32],
        _gap: [u8; 4], ct: u64,
    }
    XtSetInfoTargetV1 = "struct xt_set_info_target_v1" { add_set: XtSetInfo, del_set: XtSetInfo }
    XtSetInfoTargetV2 = "struct xt_set_info_target_v2" {
        add_set: XtSetInfo, del_set: XtSetInfo, flags: u32, timeout: u32,
    }
    XtSetInfoTargetV3 = "struct xt_set_info_target_v3" {
        add_set: XtSetInfo, del_set: XtSetInfo, map_set: XtSetInfo, flags: u32, timeout: u32,
    }
}
