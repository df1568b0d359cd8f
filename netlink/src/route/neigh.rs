//! Neighbours: `ip neigh`.

use std::fmt;
use std::net::IpAddr;

use super::number::{NUD_PERMANENT, RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWNEIGH};
use super::{AddressFamily, Routing};
use crate::Result;
use crate::attr::{Bytes, DecodeError, Ip, Unknown};
use crate::message::{Message, NLM_F_CREATE, NLM_F_REPLACE, NdMsg};

crate::attributes! {
    /// `NDA_*` (`linux/neighbour.h`)
    pub(super) struct NeighbourAttrs {
        /// its address
        dst: Ip = NDA_DST 1,
        /// its hardware address
        lladdr: Bytes = NDA_LLADDR 2,
    }
}

/// A neighbour on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "ip-neighbour")]
pub struct Neighbour {
    /// The link's index.
    pub link: u32,
    /// Its address.
    pub ip: IpAddr,
    /// Its hardware address, if it is known and has six bytes.
    pub mac: Option<[u8; 6]>,
    /// `NUD_*` (`linux/neighbour.h`), such as [`NUD_PERMANENT`].
    pub state: u16,
    /// `NTF_*` (`linux/neighbour.h`).
    pub flags: u8,
    /// Attributes without a field here, such as ages. Not sent.
    pub other: Vec<Unknown>,
}

impl Neighbour {
    /// `ADDRESS lladdr MAC dev LINK nud permanent`: an entry that does not expire.
    #[must_use]
    pub fn permanent(link: u32, ip: IpAddr, mac: [u8; 6]) -> Self {
        Self {
            link,
            ip,
            mac: Some(mac),
            state: NUD_PERMANENT,
            flags: 0,
            other: Vec::new(),
        }
    }

    pub(super) fn build(&self) -> (NdMsg, NeighbourAttrs) {
        let header = NdMsg {
            family: AddressFamily::of_address(self.ip).number(),
            index: self.link,
            state: self.state,
            flags: self.flags,
            ..NdMsg::default()
        };
        let attrs = NeighbourAttrs {
            dst: Some(self.ip),
            lladdr: self.mac.map(|mac| mac.to_vec()),
            ..NeighbourAttrs::default()
        };
        (header, attrs)
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "neighbour {} on link number {}", self.ip, self.link)
    }
}

impl Routing {
    /// `ip neigh show` and `ip -6 neigh show`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Exhausted`] if neighbours kept changing.
    pub fn neighbours(&self) -> Result<Vec<Neighbour>> {
        let all = (NdMsg::default(), NeighbourAttrs::default());
        self.list(RTM_GETNEIGH, all, "the neighbours", read)
    }

    /// `ip neigh replace`: adds the neighbour, or changes the one with this address on this link.
    ///
    /// # Errors
    /// `ENODEV` if there is no such link; `EINVAL` for links without neighbours, such as `lo`; `EPERM` without
    /// `CAP_NET_ADMIN`.
    pub fn replace_neighbour(&self, neighbour: &Neighbour) -> Result<()> {
        let (about, object) = (neighbour.build(), neighbour.to_string());
        let replace = (RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE);
        self.change(replace, about, "replace", &object)
    }

    /// `ip neigh delete`. False if the link has no neighbour with this address.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn delete_neighbour(&self, neighbour: &Neighbour) -> Result<bool> {
        self.delete(RTM_DELNEIGH, neighbour.build(), &neighbour.to_string())
    }
}

/// `None` if it is not a neighbour of IPv4 or IPv6, such as an entry of a bridge's forwarding database.
pub(super) fn read(message: &Message<NdMsg>) -> Result<Option<Neighbour>, DecodeError> {
    let header = &message.header;
    if AddressFamily::of(header.family).is_none() {
        return Ok(None);
    }
    let attrs: NeighbourAttrs = message.decode()?;
    Ok(attrs.dst.map(|ip| Neighbour {
        link: header.index,
        ip,
        mac: attrs.lladdr.and_then(|bytes| bytes.try_into().ok()),
        state: header.state,
        flags: header.flags,
        other: attrs.unknown,
    }))
}
