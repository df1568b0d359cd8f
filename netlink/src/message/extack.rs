//! Acknowledgements: an errno and the extended ack.

use super::number::{NLM_F_ACK_TLVS, NLM_F_CAPPED, NLMSG_DONE, NLMSG_HDRLEN};
use super::u32_at;
use crate::attr::{AttrSet, Bytes, Ne32, Ne64, Nest, Str, Target};
use std::fmt;

crate::attributes! {
    /// `enum nlmsgerr_attrs`: the extended ack that is added to an errno (`NETLINK_EXT_ACK`, since 4.12).
    pub(crate) struct ErrorAttrs {
        /// the text
        msg: Str = NLMSGERR_ATTR_MSG 1,
        /// offset of the attribute from the start of the request
        offs: Ne32 = NLMSGERR_ATTR_OFFS 2,
        /// defined by the subsystem
        cookie: Bytes = NLMSGERR_ATTR_COOKIE 3,
        /// the policy that the attribute violates; since 5.10
        policy: Nest<PolicyAttrs> = NLMSGERR_ATTR_POLICY 4,
        /// number of the attribute that is missing; since 6.1
        miss_type: Ne32 = NLMSGERR_ATTR_MISS_TYPE 5,
        /// offset of the nested attribute in which it is missing; since 6.1
        miss_nest: Ne32 = NLMSGERR_ATTR_MISS_NEST 6,
    }
    /// `enum netlink_policy_type_attr` (`linux/netlink.h`): the values that the kernel accepts for an attribute.
    pub struct PolicyAttrs {
        /// `NL_ATTR_TYPE_*`
        kind: Ne32 = NL_POLICY_TYPE_ATTR_TYPE 1,
        /// minimum of a signed number
        min_s: Ne64 = NL_POLICY_TYPE_ATTR_MIN_VALUE_S 2,
        /// maximum of a signed number
        max_s: Ne64 = NL_POLICY_TYPE_ATTR_MAX_VALUE_S 3,
        /// minimum of an unsigned number
        min_u: Ne64 = NL_POLICY_TYPE_ATTR_MIN_VALUE_U 4,
        /// maximum of an unsigned number
        max_u: Ne64 = NL_POLICY_TYPE_ATTR_MAX_VALUE_U 5,
        /// minimum length in bytes
        min_len: Ne32 = NL_POLICY_TYPE_ATTR_MIN_LENGTH 6,
        /// maximum length in bytes
        max_len: Ne32 = NL_POLICY_TYPE_ATTR_MAX_LENGTH 7,
        /// index of the policy of nested attributes, in a dump of policies
        policy_idx: Ne32 = NL_POLICY_TYPE_ATTR_POLICY_IDX 8,
        /// the highest attribute number of that policy
        policy_maxtype: Ne32 = NL_POLICY_TYPE_ATTR_POLICY_MAXTYPE 9,
        /// bits that may be set in a bit field
        bitfield32_mask: Ne32 = NL_POLICY_TYPE_ATTR_BITFIELD32_MASK 10,
        /// bits that may be set in an unsigned number
        mask: Ne64 = NL_POLICY_TYPE_ATTR_MASK 12,
    }
}

/// The names of `enum netlink_attribute_type`, from 0, without `NL_ATTR_TYPE_`.
pub const NL_ATTR_TYPES: [&str; 18] = [
    "INVALID",
    "FLAG",
    "U8",
    "U16",
    "U32",
    "U64",
    "S8",
    "S16",
    "S32",
    "S64",
    "BINARY",
    "STRING",
    "NUL_STRING",
    "NESTED",
    "NESTED_ARRAY",
    "BITFIELD32",
    "SINT",
    "UINT",
];

impl fmt::Display for PolicyAttrs {
    /// `TYPE from MIN to MAX`: the values that the kernel accepts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.and_then(|n| usize::try_from(n).ok());
        let name = kind.and_then(|n| NL_ATTR_TYPES.get(n));
        write!(f, "NL_ATTR_TYPE_{}", name.unwrap_or(&"UNKNOWN"))?;
        if let (Some(min), Some(max)) = (self.min_u, self.max_u) {
            write!(f, " from {min} to {max}")?;
        }
        if let (Some(min), Some(max)) = (self.min_s, self.max_s) {
            write!(f, " from {} to {}", min.cast_signed(), max.cast_signed())?;
        }
        match (self.min_len, self.max_len) {
            (Some(min), Some(max)) => write!(f, ", {min} to {max} bytes")?,
            (Some(min), None) => write!(f, ", at least {min} bytes")?,
            (None, Some(max)) => write!(f, ", at most {max} bytes")?,
            (None, None) => {}
        }
        match self.mask.or(self.bitfield32_mask.map(u64::from)) {
            Some(mask) => write!(f, ", bits {mask:#x}"),
            None => Ok(()),
        }
    }
}

/// C names and values, for the comparison with the system's headers.
pub(crate) fn constants() -> impl Iterator<Item = (&'static str, u16)> {
    let sets = [ErrorAttrs::CONSTANTS, PolicyAttrs::CONSTANTS];
    sets.into_iter().flatten().copied()
}

/// `offsetof(struct nlmsgerr, msg)`: the errno, followed by the header of the refused message.
pub(crate) const NLMSGERR_MSG: usize = 4;

/// The content of an `NLMSG_ERROR`, or of an `NLMSG_DONE` that ends a dump early.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ack {
    /// Positive; 0 is success.
    pub(crate) errno: i32,
    /// The extended ack.
    pub(crate) attrs: Box<ErrorAttrs>,
}

impl Ack {
    /// Reads `struct nlmsgerr` and the extended ack. An extended ack that cannot be decoded is dropped: the errno is
    /// authoritative.
    ///
    /// ```text
    /// struct nlmsgerr { int error; struct nlmsghdr msg; }   NLMSG_DONE: only the int
    ///   payload of the request                              unless NLM_F_CAPPED
    ///   attributes                                          if NLM_F_ACK_TLVS
    /// ```
    pub(crate) fn parse(flags: u16, kind: u16, payload: &[u8]) -> Option<Self> {
        let errno = u32_at(payload, 0)?.cast_signed().checked_neg()?;
        let mut ack = Self {
            errno,
            ..Self::default()
        };
        if flags & NLM_F_ACK_TLVS == 0 {
            return Some(ack);
        }
        let echoed = match flags & NLM_F_CAPPED {
            _ if kind == NLMSG_DONE => 0,
            0 => usize::try_from(u32_at(payload, NLMSGERR_MSG)?).ok()?,
            _ => NLMSG_HDRLEN,
        };
        let start = echoed
            .checked_next_multiple_of(4)?
            .checked_add(NLMSGERR_MSG)?;
        if let Ok(attrs) = ErrorAttrs::decode(payload.get(start..).unwrap_or_default()) {
            *ack.attrs = attrs;
        }
        Some(ack)
    }

    /// The location that the extended ack refers to, relative to the start of the request.
    pub(crate) fn target(&self) -> Target {
        let missing = self.attrs.miss_type;
        let offset = match missing {
            Some(_) => self.attrs.miss_nest,
            None => self.attrs.offs,
        };
        Target {
            offset: offset.and_then(|n| usize::try_from(n).ok()),
            missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Writer;

    fn refusal(attrs: &ErrorAttrs, echoed: &[u8]) -> Vec<u8> {
        let mut w = Writer::new();
        w.put(&(-22_i32).to_ne_bytes());
        let length = u32::try_from(NLMSG_HDRLEN + echoed.len()).unwrap();
        w.put(&length.to_ne_bytes());
        w.put(&[0; 12]);
        w.put(echoed);
        w.align();
        attrs.encode(&mut w);
        w.finish().unwrap()
    }

    #[test]
    fn the_attributes_are_found_behind_the_repeated_request() {
        let attrs = ErrorAttrs {
            msg: Some("No such thing".into()),
            offs: Some(20),
            ..ErrorAttrs::default()
        };
        let whole = refusal(&attrs, &[0xa5; 7]);
        let ack = Ack::parse(NLM_F_ACK_TLVS, 2, &whole).unwrap();
        assert_eq!((ack.errno, &*ack.attrs), (22, &attrs));
        let mut capped = refusal(&attrs, &[]);
        // The header repeats the length of the request, whose payload is omitted.
        capped[4..8].copy_from_slice(&23_u32.to_ne_bytes());
        let flags = NLM_F_ACK_TLVS | NLM_F_CAPPED;
        assert_eq!(*Ack::parse(flags, 2, &capped).unwrap().attrs, attrs);
        let plain = Ack::parse(NLM_F_CAPPED, 2, &capped).unwrap();
        assert_eq!(
            *plain.attrs,
            ErrorAttrs::default(),
            "no attributes announced"
        );
        // The end of a dump does not repeat the request.
        let done = [&whole[..4], &whole[4 + 24..]].concat();
        assert_eq!(
            *Ack::parse(NLM_F_ACK_TLVS, NLMSG_DONE, &done).unwrap().attrs,
            attrs
        );
    }

    #[test]
    fn torn_attributes_are_no_text_and_no_panic() {
        for bytes in [vec![], vec![1, 2, 3]] {
            assert_eq!(Ack::parse(NLM_F_ACK_TLVS, 2, &bytes), None);
        }
        let mut endless = refusal(&ErrorAttrs::default(), &[]);
        endless[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        let _ = Ack::parse(NLM_F_ACK_TLVS, 2, &endless);
        for length in 0..8_u16 {
            let torn = [length.to_ne_bytes(), 7_u16.to_ne_bytes()].concat();
            let bytes = [refusal(&ErrorAttrs::default(), &[]), torn].concat();
            let ack = Ack::parse(NLM_F_ACK_TLVS | NLM_F_CAPPED, 2, &bytes).unwrap();
            assert_eq!(ack.attrs.msg, None);
        }
    }

    #[test]
    fn a_policy_says_what_the_kernel_takes() {
        let policy = PolicyAttrs {
            kind: Some(4),
            min_u: Some(68),
            max_u: Some(65_535),
            ..PolicyAttrs::default()
        };
        assert_eq!(policy.to_string(), "NL_ATTR_TYPE_U32 from 68 to 65535");
    }
}
