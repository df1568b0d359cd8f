//! Loads from, stores into or removes an IPv6 extension header, an option of IPv4, TCP or DCCP, or an SCTP chunk
//! (`NFTA_EXTHDR_*`). Since 3.13, TCP options since 4.11, stores since 4.14, IPv4 options since 5.3, SCTP since 5.14,
//! removal since 5.18, DCCP since 6.5.

use super::prelude::*;
use crate::nft::context::Implied;

weir_netlink::attributes! {
    /// `enum nft_exthdr_attributes`
    #[doc(alias = "nft_exthdr")]
    pub struct Exthdr {
        /// destination register of a load
        dreg: Be32 = NFTA_EXTHDR_DREG 1,
        /// number of the header, option or chunk
        kind: U8 = NFTA_EXTHDR_TYPE 2,
        /// first byte
        offset: Be32 = NFTA_EXTHDR_OFFSET 3,
        /// number of bytes
        len: Be32 = NFTA_EXTHDR_LEN 4,
        /// `NFT_EXTHDR_F_PRESENT`: loads whether it exists
        flags: Be32 = NFTA_EXTHDR_FLAGS 5,
        /// `enum nft_exthdr_op`
        op: Be32 = NFTA_EXTHDR_OP 6,
        /// source register of a store
        sreg: Be32 = NFTA_EXTHDR_SREG 7,
    }
}

/// A field: first bit, number of bits, name.
type Field = (u32, u32, &'static str);

/// A header, an option or a chunk that has a name.
struct Header {
    number: u8,
    name: &'static str,
    fields: &'static [&'static [Field]],
}

const fn header(number: u8, name: &'static str, fields: &'static [&'static [Field]]) -> Header {
    Header {
        number,
        name,
        fields,
    }
}

const NEXT: &[Field] = &[(0, 8, "nexthdr")];
const LENGTH: &[Field] = &[(8, 8, "hdrlength")];
const ROUTING: &[Field] = &[(16, 8, "type"), (24, 8, "seg-left")];
/// Fields of a segment routing header; their names include that of the header.
const SEGMENTS: &[Field] = &[
    (32, 8, "srh last-entry"),
    (40, 8, "srh flags"),
    (48, 16, "srh tag"),
    (64, 128, "srh sid[1]"),
    (192, 128, "srh sid[2]"),
    (32, 32, "rt0 reserved"),
];
const FRAGMENT: &[Field] = &[
    (8, 8, "reserved"),
    (16, 13, "frag-off"),
    (29, 2, "reserved2"),
    (31, 1, "more-fragments"),
    (32, 32, "id"),
];
const MOBILITY: &[Field] = &[(16, 8, "type"), (24, 8, "reserved"), (32, 16, "checksum")];

/// By `IPPROTO_*`
const IPV6: &[Header] = &[
    header(0, "hbh", &[NEXT, LENGTH]),
    header(43, "rt", &[NEXT, LENGTH, ROUTING, SEGMENTS]),
    header(44, "frag", &[NEXT, FRAGMENT]),
    header(60, "dst", &[NEXT, LENGTH]),
    header(135, "mh", &[NEXT, LENGTH, MOBILITY]),
];

const OPTION: &[Field] = &[(0, 8, "kind"), (8, 8, "length")];
const SIZE: &[Field] = &[(16, 16, "size")];
const WINDOW: &[Field] = &[(16, 8, "count")];
/// Fields of the blocks, which `nft` numbers.
#[rustfmt::skip]
const SACK: &[Field] = &[
    (16, 32, "left"), (48, 32, "right"), (80, 32, "sack1 left"), (112, 32, "sack1 right"),
    (144, 32, "sack2 left"), (176, 32, "sack2 right"), (208, 32, "sack3 left"), (240, 32, "sack3 right"),
];
const TIMESTAMP: &[Field] = &[(16, 32, "tsval"), (48, 32, "tsecr")];
const MPTCP: &[Field] = &[(16, 4, "subtype")];

/// By `TCPOPT_*`
const TCP: &[Header] = &[
    header(0, "eol", &[&[(0, 8, "kind")]]),
    header(1, "nop", &[&[(0, 8, "kind")]]),
    header(2, "maxseg", &[OPTION, SIZE]),
    header(3, "window", &[OPTION, WINDOW]),
    header(4, "sack-perm", &[OPTION]),
    header(5, "sack", &[OPTION, SACK]),
    header(8, "timestamp", &[OPTION, TIMESTAMP]),
    header(19, "md5sig", &[OPTION]),
    header(30, "mptcp", &[OPTION, MPTCP]),
    header(34, "fastopen", &[OPTION]),
];

const ROUTE: &[Field] = &[
    (0, 8, "type"),
    (8, 8, "length"),
    (16, 8, "ptr"),
    (24, 32, "addr"),
];
const ALERT: &[Field] = &[(0, 8, "type"), (8, 8, "length"), (16, 16, "value")];

/// By `IPOPT_*`
const IPV4: &[Header] = &[
    header(7, "rr", &[ROUTE]),
    header(131, "lsrr", &[ROUTE]),
    header(137, "ssrr", &[ROUTE]),
    header(148, "ra", &[ALERT]),
];

const CHUNK: &[Field] = &[(0, 8, "type"), (8, 8, "flags"), (16, 16, "length")];
const DATA: &[Field] = &[
    (32, 32, "tsn"),
    (64, 16, "stream"),
    (80, 16, "ssn"),
    (96, 32, "ppid"),
];
const INIT: &[Field] = &[
    (32, 32, "init-tag"),
    (64, 32, "a-rwnd"),
    (96, 16, "num-outbound-streams"),
    (112, 16, "num-inbound-streams"),
    (128, 32, "initial-tsn"),
];
const SELECTIVE: &[Field] = &[
    (32, 32, "cum-tsn-ack"),
    (64, 32, "a-rwnd"),
    (96, 16, "num-gap-ack-blocks"),
    (112, 16, "num-dup-tsns"),
];

/// By `SCTP_CID_*`
const SCTP: &[Header] = &[
    header(0, "data", &[CHUNK, DATA]),
    header(1, "init", &[CHUNK, INIT]),
    header(2, "init-ack", &[CHUNK, INIT]),
    header(3, "sack", &[CHUNK, SELECTIVE]),
    header(4, "heartbeat", &[CHUNK]),
    header(5, "heartbeat-ack", &[CHUNK]),
    header(6, "abort", &[CHUNK]),
    header(7, "shutdown", &[CHUNK, &[(32, 32, "cum-tsn-ack")]]),
    header(8, "shutdown-ack", &[CHUNK]),
    header(9, "error", &[CHUNK]),
    header(10, "cookie-echo", &[CHUNK]),
    header(11, "cookie-ack", &[CHUNK]),
    header(12, "ecne", &[CHUNK, &[(32, 32, "lowest-tsn")]]),
    header(13, "cwr", &[CHUNK, &[(32, 32, "lowest-tsn")]]),
    header(14, "shutdown-complete", &[CHUNK]),
    header(0x80, "asconf-ack", &[CHUNK, &[(32, 32, "seqno")]]),
    header(0xc0, "forward-tsn", &[CHUNK, &[(32, 32, "new-cum-tsn")]]),
    header(0xc1, "asconf", &[CHUNK, &[(32, 32, "seqno")]]),
];

/// The field that nft's userdata of a set names by numbers (`typeof frag id`): its text, its type and its number of bits.
/// `of` is nft's own number for headers of IPv6, and the kernel's number otherwise.
pub(crate) fn noted(op: u32, of: u32, field: u32) -> Option<(String, DataType, u32)> {
    let number = usize::try_from(field).ok()?;
    let (kind, place) = match (op, of) {
        (raw::NFT_EXTHDR_OP_IPV6, 1) => (0, number.checked_sub(1)?),
        (raw::NFT_EXTHDR_OP_IPV6, 2) => (43, number.checked_sub(1)?),
        (raw::NFT_EXTHDR_OP_IPV6, 3) if field == 2 => {
            return Some(("rt0 addr[1]".to_owned(), DataType::IPV6_ADDR, 128));
        }
        // These fields come after the four fields of every routing header.
        (raw::NFT_EXTHDR_OP_IPV6, 5) => (43, number.checked_add(3)?),
        (raw::NFT_EXTHDR_OP_IPV6, 6) => (44, number.checked_sub(1)?),
        (raw::NFT_EXTHDR_OP_IPV6, 7) => (60, number.checked_sub(1)?),
        (raw::NFT_EXTHDR_OP_IPV6, 8) => (135, number.checked_sub(1)?),
        (raw::NFT_EXTHDR_OP_IPV6, _) => return None,
        // An option has a value or a pointer and addresses.
        (raw::NFT_EXTHDR_OP_IPV4, kind) if number > 3 => (kind, number - 2),
        (raw::NFT_EXTHDR_OP_IPV4, kind) => (kind, number.checked_sub(1)?),
        (_, kind) => (kind, number),
    };
    let header = Exthdr {
        kind: Some(u8::try_from(kind).ok()?),
        op: Some(op),
        ..Exthdr::default()
    };
    let mut fields = header.header()?.fields.iter().copied().flatten();
    let (offset, len, _) = *fields.nth(place)?;
    let (text, data_type) = header.text(Some((offset, len)))?;
    Some((text, data_type, len))
}

impl Exthdr {
    fn operation(&self) -> u32 {
        self.op.unwrap_or(raw::NFT_EXTHDR_OP_IPV6)
    }

    fn header(&self) -> Option<&'static Header> {
        let headers = match self.operation() {
            raw::NFT_EXTHDR_OP_IPV6 => IPV6,
            raw::NFT_EXTHDR_OP_TCPOPT => TCP,
            raw::NFT_EXTHDR_OP_IPV4 => IPV4,
            raw::NFT_EXTHDR_OP_SCTP => SCTP,
            _ => return None,
        };
        headers.iter().find(|h| Some(h.number) == self.kind)
    }

    fn word(&self) -> Option<&'static str> {
        Some(match self.operation() {
            raw::NFT_EXTHDR_OP_IPV6 => "",
            raw::NFT_EXTHDR_OP_TCPOPT => "tcp option ",
            raw::NFT_EXTHDR_OP_IPV4 => "ip option ",
            raw::NFT_EXTHDR_OP_SCTP => "sctp chunk ",
            raw::NFT_EXTHDR_OP_DCCP => "dccp option ",
            _ => return None,
        })
    }

    /// The matches that a load implies. As in nft, matches before a chunk of SCTP, or before a statement, remain.
    pub(crate) fn implies(&self) -> &'static [Implied] {
        match self.operation() {
            raw::NFT_EXTHDR_OP_IPV6 | raw::NFT_EXTHDR_OP_IPV4 => &[Implied::Network],
            raw::NFT_EXTHDR_OP_TCPOPT => &[Implied::Transport, Implied::Protocol],
            _ => &[],
        }
    }

    /// Its name alone, `tcp option maxseg`.
    fn name(&self) -> Option<String> {
        let word = self.word()?;
        match self.header() {
            Some(h) => Some(format!("{word}{}", h.name)),
            None if word.is_empty() => None,
            None => Some(format!("{word}{}", self.kind?)),
        }
    }

    /// The name and type of the field of these bits; without bits, of all loaded bits.
    pub(crate) fn text(&self, bits: Option<(u32, u32)>) -> Option<(String, DataType)> {
        if self.flags.unwrap_or(0) & raw::NFT_EXTHDR_F_PRESENT != 0 {
            let exthdr = match self.operation() {
                raw::NFT_EXTHDR_OP_IPV6 => "exthdr ",
                _ => "",
            };
            return Some((format!("{exthdr}{}", self.name()?), DataType::BOOLEAN));
        }
        let (offset, len) = match bits {
            Some(bits) => bits,
            None => (
                self.offset.unwrap_or(0).checked_mul(8)?,
                self.len?.checked_mul(8)?,
            ),
        };
        let word = self.word()?;
        let of = self.header().and_then(|h| {
            let mut fields = h.fields.iter().copied().flatten();
            let (.., name) = fields.find(|(o, l, _)| (*o, *l) == (offset, len))?;
            Some((h.name, *name))
        });
        let Some((header, name)) = of else {
            let is_tcp = self.operation() == raw::NFT_EXTHDR_OP_TCPOPT && bits.is_none();
            let text = format!("tcp option @{},{offset},{len}", self.kind?);
            return is_tcp.then_some((text, DataType::INTEGER));
        };
        let data_type = match (self.operation(), header, name) {
            (raw::NFT_EXTHDR_OP_IPV6, _, "nexthdr") => DataType::INET_PROTO,
            (raw::NFT_EXTHDR_OP_IPV6, "mh", "type") => DataType::MH_TYPE,
            (raw::NFT_EXTHDR_OP_IPV6, ..) if len == 128 => DataType::IPV6_ADDR,
            _ => DataType::INTEGER,
        };
        // Some names begin with another name of the header.
        let text = match name.contains(' ') {
            true => format!("{word}{name}"),
            false => format!("{word}{header} {name}"),
        };
        Some((text, data_type))
    }

    /// The address whose first bytes are loaded, and its length in bytes: a comparison with a value is one with a prefix.
    pub(crate) fn front(&self) -> Option<(String, usize)> {
        let (offset, len) = (self.offset?.checked_mul(8)?, self.len?.checked_mul(8)?);
        let address = (offset, 128);
        let (text, data_type) = self.text(Some(address))?;
        (data_type == DataType::IPV6_ADDR && len < 128).then_some((text, 16))
    }

    /// The number of bits to the right of those that a mask selects, and the name of the selected bits.
    pub(crate) fn masked(&self, mask: &Data) -> Option<(u32, String)> {
        let bits = u32::try_from(mask.0.len()).ok()?.checked_mul(8)?;
        let n = mask.to_be().filter(|n| *n != 0)?;
        let (left, right) = (
            (n.leading_zeros() + bits).checked_sub(64)?,
            n.trailing_zeros(),
        );
        let len = bits.checked_sub(left + right)?;
        let first = self.offset.unwrap_or(0).checked_mul(8)?.checked_add(left)?;
        (n.count_ones() == len).then_some(())?;
        Some((right, self.text(Some((first, len)))?.0))
    }
}

impl Instruction for Exthdr {
    fn normalize(&mut self) {
        super::drop_if(&mut self.flags, 0);
        super::drop_if(&mut self.op, raw::NFT_EXTHDR_OP_IPV6);
        // Without registers the kernel lists these attributes, and refuses them in a request.
        if self.dreg.is_none() && self.sreg.is_none() {
            super::drop_if(&mut self.offset, 0);
            super::drop_if(&mut self.len, 0);
        }
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        if self.dreg.is_none() && self.sreg.is_none() {
            return l.say(format!("reset {}", self.name()?));
        }
        let data_type = self.text(None).map_or(DataType::INTEGER, |(_, t)| t);
        // A load may have no name as a whole, while a mask selects bits that have one.
        self.word()?;
        let term = Term {
            kind: Kind::Exthdr(Box::new(self.clone())),
            data_type,
            host_order: false,
            len: match data_type {
                DataType::BOOLEAN => 1,
                _ => self.len?,
            },
        };
        let Some(register) = self.sreg else {
            return l.load(self.dreg, term);
        };
        let (name, _) = self.text(None)?;
        let source = l.term(Some(register))?.typed(data_type, false);
        let source = l.text(&source);
        l.say(format!("{name} set {source}"))
    }
}
