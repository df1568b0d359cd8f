//! Concatenations: `ipv4_addr . inet_service`. Their type consists of the types of the fields, six bits each, the
//! first one in the highest bits; each field of a value occupies whole registers of four bytes.

use super::ruleset::type_name;
use super::value::{hex, value};
use crate::nft::model::{Data, DataType};
use crate::nft::set::is_host_order_type;

/// `TYPE_BITS` of nft's `include/datatype.h`
const TYPE_BITS: u32 = 6;
const TYPE_MASK: u32 = (1 << TYPE_BITS) - 1;

/// The types of the fields; empty if it is not a concatenation.
pub(super) fn fields(t: DataType) -> Vec<DataType> {
    let mut fields = Vec::new();
    let mut rest = t.0;
    while t.0 > TYPE_MASK && rest != 0 {
        fields.insert(0, DataType(rest & TYPE_MASK));
        rest >>= TYPE_BITS;
    }
    fields
}

/// Length of a value of the type in bytes; `None` if the type does not determine it.
fn len(t: DataType) -> Option<usize> {
    Some(match t {
        DataType::NF_PROTO
        | DataType::INET_PROTO
        | DataType::ICMP_TYPE
        | DataType::ICMPV6_TYPE
        | DataType::ICMP_CODE
        | DataType::ICMPV6_CODE
        | DataType::IGMP_TYPE
        | DataType::MH_TYPE
        | DataType::DCCP_PKTTYPE
        | DataType::DSCP
        | DataType::ECN
        | DataType::TCP_FLAG
        | DataType::CT_DIR
        | DataType::PKT_TYPE
        | DataType::BOOLEAN => 1,
        DataType::INET_SERVICE | DataType::ETHER_TYPE | DataType::ARP_OP | DataType::ARPHRD => 2,
        DataType::IPV4_ADDR
        | DataType::MARK
        | DataType::TIME
        | DataType::REALM
        | DataType::CLASSID
        | DataType::DEVGROUP
        | DataType::CT_EVENT
        | DataType::IFINDEX
        | DataType::UID
        | DataType::GID
        | DataType::CT_STATE
        | DataType::CT_STATUS
        | DataType::FIB_ADDR => 4,
        DataType::ETHER_ADDR => 6,
        DataType::CGROUPV2 => 8,
        DataType::IPV6_ADDR | DataType::IFNAME => 16,
        _ => return None,
    })
}

/// The fields of a value, each with its type; `None` if their lengths do not add up.
fn split(d: &Data, types: &[DataType]) -> Option<Vec<(DataType, Data)>> {
    let mut rest = d.0.as_slice();
    let mut fields = Vec::new();
    for t in types {
        let len = len(*t)?;
        let (field, tail) = rest.split_at_checked(len.next_multiple_of(4))?;
        fields.push((*t, Data::from(field.get(..len)?)));
        rest = tail;
    }
    rest.is_empty().then_some(fields)
}

/// `1.2.3.4 . 80`, or a range of such values `1.2.3.4-1.2.3.9 . 80`.
pub(super) fn text(first: &Data, last: &Data, t: DataType) -> String {
    let types = fields(t);
    let (Some(from), Some(to)) = (split(first, &types), split(last, &types)) else {
        return match first == last {
            true => hex(&first.0),
            false => format!("{}-{}", hex(&first.0), hex(&last.0)),
        };
    };
    let texts: Vec<String> = from.iter().zip(&to).map(|(a, b)| field(a, b)).collect();
    texts.join(" . ")
}

fn field((t, first): &(DataType, Data), (_, last): &(DataType, Data)) -> String {
    let one = |d: &Data| value(d, *t, is_host_order_type(*t));
    if first == last {
        return one(first);
    }
    match super::value::prefix_len(first, last, false) {
        Some(len) if matches!(*t, DataType::IPV4_ADDR | DataType::IPV6_ADDR) => {
            format!("{}/{len}", one(first))
        }
        _ => format!("{}-{}", one(first), one(last)),
    }
}

/// `ipv4_addr . inet_service`
pub(super) fn name(t: DataType) -> String {
    let names: Vec<String> = fields(t).into_iter().map(type_name).collect();
    names.join(" . ")
}
