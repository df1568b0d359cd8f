//! Answers: objects of a dump, acknowledgements and errors.

use super::message::{NFGENMSG_LEN, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLMSG_HDRLEN, u32_at};
use crate::attr::{AttrSet, DecodeError};

crate::attributes! {
    /// `enum nlmsgerr_attrs`: what the kernel adds to an errno (`NETLINK_EXT_ACK`, since 4.12).
    pub(crate) struct ErrorAttrs {
        /// the kernel's own words
        msg: crate::attr::Str = NLMSGERR_ATTR_MSG 1,
        /// offset of the attribute from the start of the request
        offs: crate::attr::Ne32 = NLMSGERR_ATTR_OFFS 2,
        /// number of the attribute that is missing; since 6.0
        miss_type: crate::attr::Ne32 = NLMSGERR_ATTR_MISS_TYPE 5,
    }
}

/// C names and values, for the comparison with the system's headers.
pub(super) const CONSTANTS: &[(&str, u16)] = ErrorAttrs::CONSTANTS;

/// `offsetof(struct nlmsgerr, msg)`: the errno, then the header of the message that was refused.
pub(super) const NLMSGERR_MSG: usize = 4;

/// One object of a dump, or the answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// `nlmsg_type`
    pub kind: u16,
    /// `nfgen_family`
    pub family: u8,
    /// `res_id`: for nf_tables the low 16 bits of the generation.
    pub res_id: u16,
    /// The attributes.
    pub attrs: Vec<u8>,
}

impl Reply {
    /// Reads what follows `struct nlmsghdr`; `None` when it is too short for `struct nfgenmsg`.
    pub(crate) fn parse(kind: u16, payload: &[u8]) -> Option<Self> {
        let (head, attrs) = payload.split_first_chunk::<NFGENMSG_LEN>()?;
        let [family, _version, hi, lo] = *head;
        Some(Self {
            kind,
            family,
            res_id: u16::from_be_bytes([hi, lo]),
            attrs: attrs.to_vec(),
        })
    }

    /// The attributes as a declared set.
    ///
    /// # Errors
    /// They are not what the declaration says.
    pub fn decode<A: AttrSet>(&self) -> Result<A, DecodeError> {
        A::decode(&self.attrs)
    }
}

/// The content of an `NLMSG_ERROR`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ack {
    /// Positive; 0 is success.
    pub(crate) errno: i32,
    /// `NLMSGERR_ATTR_MSG`
    pub(crate) message: Option<String>,
    /// `NLMSGERR_ATTR_OFFS`
    pub(crate) offset: Option<usize>,
    /// `NLMSGERR_ATTR_MISS_TYPE`
    pub(crate) missing: Option<u32>,
}

impl Ack {
    /// Reads `struct nlmsgerr` and what follows. Extended text that cannot be read is left out:
    /// the errno is what counts.
    pub(crate) fn parse(flags: u16, payload: &[u8]) -> Option<Self> {
        let errno = u32_at(payload, 0)?.cast_signed().checked_neg()?;
        let mut ack = Self {
            errno,
            ..Self::default()
        };
        if flags & NLM_F_ACK_TLVS == 0 {
            return Some(ack);
        }
        let echoed = match flags & NLM_F_CAPPED {
            0 => usize::try_from(u32_at(payload, NLMSGERR_MSG)?).ok()?,
            _ => NLMSG_HDRLEN,
        };
        let attrs = payload
            .get(NLMSGERR_MSG + echoed.checked_next_multiple_of(4)?..)
            .unwrap_or_default();
        if let Ok(attrs) = ErrorAttrs::decode(attrs) {
            ack.message = attrs.msg;
            ack.offset = attrs.offs.and_then(|n| usize::try_from(n).ok());
            ack.missing = attrs.miss_type;
        }
        Some(ack)
    }
}
