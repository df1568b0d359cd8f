//! The attributes of nf_tables messages (`linux/netfilter/nf_tables.h`), one declaration per object.
//!
//! Wire level: public for tests and for tools that read what the kernel was sent.
//!
//! ```text
//! NFT_MSG_NEWTABLE    TableAttrs
//! NFT_MSG_NEWCHAIN    ChainAttrs > HookAttrs
//! NFT_MSG_NEWSET      SetAttrs > SetDescAttrs
//! NFT_MSG_NEWSETELEM  ElemListAttrs > [ElemAttrs > DataAttrs]
//! NFT_MSG_NEWRULE     RuleAttrs > [ExprElem > attributes of the expression]
//! ```

use super::expr::{DataAttrs, ExprElem};
use weir_netlink::attr::{
    AttrKind, AttrSet, Attrs, Be16, Be32, Be64, Bytes, I32Be, ListOf, Ne32, Nest, NumberedListOf,
    RawNest, Str, U8, Writer,
};

/// `attrs!(TableAttrs { name: id.1.clone() })`: these attributes only.
macro_rules! attrs {
    ($kind:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $kind {
            $($field: $crate::nft::expr::expr!(@ $field $(, $value)?).into(),)*
            ..Default::default()
        }
    };
}
pub(crate) use attrs;

weir_netlink::attributes! {
    /// `enum nft_gen_attributes`
    pub struct GenAttrs {
        /// generation of the ruleset
        id: Be32 = NFTA_GEN_ID 1,
        /// id in the initial pid namespace of the thread that sends the request or committed the generation; since 4.12
        proc_pid: Be32 = NFTA_GEN_PROC_PID 2,
        /// name of that thread, `comm`; since 4.12
        proc_name: Str = NFTA_GEN_PROC_NAME 3,
    }

    /// `enum nft_table_attributes`
    pub struct TableAttrs {
        name: Str = NFTA_TABLE_NAME 1,
        /// `NFT_TABLE_F_*`
        flags: Be32 = NFTA_TABLE_FLAGS 2,
        /// number of its chains, sets, objects and flowtables
        uses: Be32 = NFTA_TABLE_USE 3,
        handle: Be64 = NFTA_TABLE_HANDLE 4,
        /// comment and other entries; since 5.10
        userdata: Bytes = NFTA_TABLE_USERDATA 6,
        /// port id of the socket that owns it; since 5.12
        owner: Be32 = NFTA_TABLE_OWNER 7,
    }

    /// `enum nft_chain_attributes`
    pub struct ChainAttrs {
        table: Str = NFTA_CHAIN_TABLE 1,
        name: Str = NFTA_CHAIN_NAME 3,
        /// id by which later messages of the batch refer to it; since 5.9
        id: Be32 = NFTA_CHAIN_ID 11,
        /// `filter`, `nat`, `route`
        kind: Str = NFTA_CHAIN_TYPE 7,
        /// `NF_ACCEPT` or `NF_DROP`
        policy: Be32 = NFTA_CHAIN_POLICY 5,
        /// where the kernel calls it
        hook: Nest<HookAttrs> = NFTA_CHAIN_HOOK 4,
        handle: Be64 = NFTA_CHAIN_HANDLE 2,
        /// number of references
        uses: Be32 = NFTA_CHAIN_USE 6,
        /// `NFT_CHAIN_*`
        flags: Be32 = NFTA_CHAIN_FLAGS 10,
        /// comment and other entries; since 5.10
        userdata: Bytes = NFTA_CHAIN_USERDATA 12,
    }

    /// `enum nft_hook_attributes`
    pub struct HookAttrs {
        /// `enum nf_inet_hooks`
        hooknum: Be32 = NFTA_HOOK_HOOKNUM 1,
        /// chains with lower numbers are called earlier
        priority: I32Be = NFTA_HOOK_PRIORITY 2,
        /// name of the device of a `netdev` or ingress chain
        dev: Str = NFTA_HOOK_DEV 3,
        /// names of several devices; since 5.5
        devs: RawNest = NFTA_HOOK_DEVS 4,
    }

    /// `enum nft_rule_attributes`
    pub struct RuleAttrs {
        table: Str = NFTA_RULE_TABLE 1,
        chain: Str = NFTA_RULE_CHAIN 2,
        /// id of a chain that is created in the same batch; since 5.9
        chain_id: Be32 = NFTA_RULE_CHAIN_ID 11,
        handle: Be64 = NFTA_RULE_HANDLE 3,
        /// expressions in the order of evaluation, at most 128
        expressions: ListOf<ExprElem> = NFTA_RULE_EXPRESSIONS 4,
        /// handle of the rule that this one goes before or, with `NLM_F_APPEND`, after
        position: Be64 = NFTA_RULE_POSITION 6,
        /// protocol that a compat match or target requires (`enum nft_rule_compat_attributes`), written by iptables-nft
        compat: RawNest = NFTA_RULE_COMPAT 5,
        /// comment and other entries
        userdata: Bytes = NFTA_RULE_USERDATA 7,
    }

    /// `enum nft_set_attributes`
    pub struct SetAttrs {
        table: Str = NFTA_SET_TABLE 1,
        /// name; `__set%d` lets the kernel number it
        name: Str = NFTA_SET_NAME 2,
        /// `NFT_SET_*`
        flags: Be32 = NFTA_SET_FLAGS 3,
        /// type of the key, in nft's numbering
        key_type: Be32 = NFTA_SET_KEY_TYPE 4,
        /// length of the key in bytes
        key_len: Be32 = NFTA_SET_KEY_LEN 5,
        /// type of a map's value; `NFT_DATA_VERDICT` for verdicts
        data_type: Be32 = NFTA_SET_DATA_TYPE 6,
        /// length of a map's value in bytes
        data_len: Be32 = NFTA_SET_DATA_LEN 7,
        /// `enum nft_set_policies`
        policy: Be32 = NFTA_SET_POLICY 8,
        /// id by which later messages of the batch refer to it
        id: Be32 = NFTA_SET_ID 10,
        /// size and fields
        desc: Nest<SetDescAttrs> = NFTA_SET_DESC 9,
        /// default timeout in milliseconds; since 4.1
        timeout: Be64 = NFTA_SET_TIMEOUT 11,
        /// garbage collection interval in milliseconds; since 4.1
        gc_interval: Be32 = NFTA_SET_GC_INTERVAL 12,
        /// comment, byte order and other entries; since 4.1
        userdata: Bytes = NFTA_SET_USERDATA 13,
        /// `NFT_OBJECT_*`: type of the objects to which a map refers; since 4.10
        obj_type: Be32 = NFTA_SET_OBJ_TYPE 15,
        handle: Be64 = NFTA_SET_HANDLE 16,
    }

    /// `enum nft_set_desc_attributes`
    pub struct SetDescAttrs {
        /// maximum number of elements
        size: Be32 = NFTA_SET_DESC_SIZE 1,
        /// fields of a concatenation; since 5.6
        concat: RawNest = NFTA_SET_DESC_CONCAT 2,
    }

    /// `enum nft_object_attributes`. Since 4.10
    pub struct ObjAttrs {
        table: Str = NFTA_OBJ_TABLE 1,
        name: Str = NFTA_OBJ_NAME 2,
        /// `NFT_OBJECT_*`
        kind: Be32 = NFTA_OBJ_TYPE 3,
        /// the attributes of its type
        data: RawNest = NFTA_OBJ_DATA 4,
        /// number of references
        uses: Be32 = NFTA_OBJ_USE 5,
        handle: Be64 = NFTA_OBJ_HANDLE 6,
        /// comment and other entries; since 5.10
        userdata: Bytes = NFTA_OBJ_USERDATA 8,
    }

    /// `enum nft_ct_helper_attributes`. Since 4.12
    pub struct CtHelperAttrs {
        /// name of the helper
        name: Str = NFTA_CT_HELPER_NAME 1,
        /// `NFPROTO_*`
        l3proto: Be16 = NFTA_CT_HELPER_L3PROTO 2,
        /// `IPPROTO_*`
        l4proto: U8 = NFTA_CT_HELPER_L4PROTO 3,
    }

    /// `enum nft_ct_timeout_timeout_attributes`. Since 4.19
    pub struct CtTimeoutAttrs {
        /// `NFPROTO_*`
        l3proto: Be16 = NFTA_CT_TIMEOUT_L3PROTO 1,
        /// `IPPROTO_*`
        l4proto: U8 = NFTA_CT_TIMEOUT_L4PROTO 2,
        /// seconds by state of the protocol
        data: RawNest = NFTA_CT_TIMEOUT_DATA 3,
    }

    /// `enum nft_ct_expectation_attributes`. Since 5.3
    pub struct CtExpectAttrs {
        /// `NFPROTO_*`
        l3proto: Be16 = NFTA_CT_EXPECT_L3PROTO 1,
        /// `IPPROTO_*`
        l4proto: U8 = NFTA_CT_EXPECT_L4PROTO 2,
        /// destination port
        dport: Be16 = NFTA_CT_EXPECT_DPORT 3,
        /// lifetime in milliseconds, in host order
        timeout: Ne32 = NFTA_CT_EXPECT_TIMEOUT 4,
        /// maximum number of expectations
        size: U8 = NFTA_CT_EXPECT_SIZE 5,
    }

    /// `enum nft_secmark_attributes`. Since 4.20
    pub struct SecmarkAttrs {
        /// security context
        ctx: Str = NFTA_SECMARK_CTX 1,
    }

    /// `enum nft_flowtable_attributes`. Since 4.16
    pub struct FlowtableAttrs {
        table: Str = NFTA_FLOWTABLE_TABLE 1,
        name: Str = NFTA_FLOWTABLE_NAME 2,
        /// the hook at which packets enter it
        hook: Nest<FlowtableHookAttrs> = NFTA_FLOWTABLE_HOOK 3,
        /// number of references
        uses: Be32 = NFTA_FLOWTABLE_USE 4,
        handle: Be64 = NFTA_FLOWTABLE_HANDLE 5,
        /// `NFT_FLOWTABLE_*`; since 5.7
        flags: Be32 = NFTA_FLOWTABLE_FLAGS 7,
    }

    /// `enum nft_flowtable_hook_attributes`
    pub struct FlowtableHookAttrs {
        /// `NF_NETDEV_INGRESS`
        num: Be32 = NFTA_FLOWTABLE_HOOK_NUM 1,
        /// hooks with lower numbers are called earlier
        priority: I32Be = NFTA_FLOWTABLE_HOOK_PRIORITY 2,
        /// devices
        devs: RawNest = NFTA_FLOWTABLE_HOOK_DEVS 3,
    }

    /// `enum nft_set_elem_list_attributes`
    pub struct ElemListAttrs {
        table: Str = NFTA_SET_ELEM_LIST_TABLE 1,
        set: Str = NFTA_SET_ELEM_LIST_SET 2,
        /// id of a set that is created in the same batch
        set_id: Be32 = NFTA_SET_ELEM_LIST_SET_ID 4,
        elements: NumberedListOf<ElemAttrs> = NFTA_SET_ELEM_LIST_ELEMENTS 3,
    }

    /// `enum nft_set_elem_attributes`
    pub struct ElemAttrs {
        /// `NFT_SET_ELEM_*`
        flags: Be32 = NFTA_SET_ELEM_FLAGS 3,
        /// lifetime in milliseconds; since 4.1
        timeout: Be64 = NFTA_SET_ELEM_TIMEOUT 4,
        /// remaining lifetime in milliseconds; since 4.1
        expiration: Be64 = NFTA_SET_ELEM_EXPIRATION 5,
        key: Nest<DataAttrs> = NFTA_SET_ELEM_KEY 1,
        /// end of a range in a concatenation; since 5.6
        key_end: Nest<DataAttrs> = NFTA_SET_ELEM_KEY_END 10,
        /// a map's value
        data: Nest<DataAttrs> = NFTA_SET_ELEM_DATA 2,
        /// comment; since 4.1
        userdata: Bytes = NFTA_SET_ELEM_USERDATA 6,
    }
}

/// The names in a list of devices (`NFTA_DEVICE_NAME`).
pub(crate) fn device_names(list: &[u8]) -> Vec<String> {
    Attrs::new(list)
        .filter_map(|a| Str::decode(a.ok()?.payload).ok())
        .collect()
}

/// `NFTA_DEVICE_NAME`
pub(crate) const NFTA_DEVICE_NAME: u16 = 1;

/// A list of devices.
pub(crate) fn device_list(names: &[String]) -> Vec<u8> {
    let mut w = Writer::new();
    for name in names {
        w.attr(NFTA_DEVICE_NAME, false, |w| Str::encode(name, w));
    }
    // Names are no longer than 15 bytes here.
    w.finish().unwrap_or_default()
}

/// C names and numbers of every attribute of every message, for a test that compares them with the system's headers.
#[must_use]
pub fn constants() -> Vec<(&'static str, u16)> {
    [
        GenAttrs::CONSTANTS,
        TableAttrs::CONSTANTS,
        ChainAttrs::CONSTANTS,
        HookAttrs::CONSTANTS,
        RuleAttrs::CONSTANTS,
        SetAttrs::CONSTANTS,
        SetDescAttrs::CONSTANTS,
        ObjAttrs::CONSTANTS,
        CtHelperAttrs::CONSTANTS,
        CtTimeoutAttrs::CONSTANTS,
        CtExpectAttrs::CONSTANTS,
        SecmarkAttrs::CONSTANTS,
        FlowtableAttrs::CONSTANTS,
        FlowtableHookAttrs::CONSTANTS,
        ElemListAttrs::CONSTANTS,
        ElemAttrs::CONSTANTS,
    ]
    .concat()
}
