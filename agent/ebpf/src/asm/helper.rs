//! Helpers of the kernel that programs call.

/// `enum bpf_func_id` (`linux/bpf.h`). None of these is reserved for programs under the GPL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "bpf-helpers")]
pub enum Helper {
    /// `bpf_map_lookup_elem(map, key)`: address of the value or null.
    MapLookup = 1,
    /// `bpf_map_update_elem(map, key, value, flags)`
    MapUpdate = 2,
    /// `bpf_map_delete_elem(map, key)`
    MapDelete = 3,
    /// `bpf_ktime_get_ns()`: time since boot. Not reserved for the GPL since 5.8
    KtimeGetNs = 5,
    /// `bpf_skb_store_bytes(skb, offset, from, length, flags)`
    StoreBytes = 9,
    /// `bpf_l3_csum_replace(skb, offset, from, to, size)`
    L3Checksum = 10,
    /// `bpf_l4_csum_replace(skb, offset, from, to, flags)`
    L4Checksum = 11,
    /// `bpf_skb_vlan_push(skb, protocol, tag)`. Since 4.3; tests use it to send tagged frames
    VlanPush = 18,
    /// `bpf_redirect(index, flags)`. Since 4.4
    Redirect = 23,
    /// `bpf_skb_change_type(skb, type)`. Since 4.8
    ChangeType = 32,
    /// `bpf_skb_load_bytes_relative(skb, offset, to, length, start)`. Since 4.18
    LoadBytesRelative = 68,
    /// `bpf_sk_release(sk)`. Since 4.20
    SkRelease = 86,
    /// `bpf_sk_fullsock(sk)`. Since 5.1
    SkFullsock = 95,
    /// `bpf_skc_lookup_tcp(skb, tuple, size, netns, flags)`. Since 5.2
    SkcLookupTcp = 99,
    /// `bpf_sk_storage_get(map, sk, value, flags)`. Since 5.2
    SkStorageGet = 107,
    /// `bpf_sk_assign(skb, sk, flags)`, at the ingress hook. Since 5.7
    SkAssign = 124,
    /// `bpf_ringbuf_output(map, data, size, flags)`. Since 5.8
    RingbufOutput = 130,
    /// `bpf_redirect_peer(index, flags)`: to the ingress of the other end of a veth or netkit pair, in its namespace; at the
    /// ingress hook. Since 5.10
    RedirectPeer = 155,
}

impl Helper {
    /// Every helper with its name in C.
    pub const ALL: [(Self, &'static str); 18] = [
        (Self::MapLookup, "BPF_FUNC_map_lookup_elem"),
        (Self::MapUpdate, "BPF_FUNC_map_update_elem"),
        (Self::MapDelete, "BPF_FUNC_map_delete_elem"),
        (Self::KtimeGetNs, "BPF_FUNC_ktime_get_ns"),
        (Self::StoreBytes, "BPF_FUNC_skb_store_bytes"),
        (Self::L3Checksum, "BPF_FUNC_l3_csum_replace"),
        (Self::L4Checksum, "BPF_FUNC_l4_csum_replace"),
        (Self::VlanPush, "BPF_FUNC_skb_vlan_push"),
        (Self::Redirect, "BPF_FUNC_redirect"),
        (Self::ChangeType, "BPF_FUNC_skb_change_type"),
        (Self::LoadBytesRelative, "BPF_FUNC_skb_load_bytes_relative"),
        (Self::SkRelease, "BPF_FUNC_sk_release"),
        (Self::SkFullsock, "BPF_FUNC_sk_fullsock"),
        (Self::SkcLookupTcp, "BPF_FUNC_skc_lookup_tcp"),
        (Self::SkStorageGet, "BPF_FUNC_sk_storage_get"),
        (Self::SkAssign, "BPF_FUNC_sk_assign"),
        (Self::RingbufOutput, "BPF_FUNC_ringbuf_output"),
        (Self::RedirectPeer, "BPF_FUNC_redirect_peer"),
    ];
}
