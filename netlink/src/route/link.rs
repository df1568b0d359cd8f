//! Links: `ip link`.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::chosen::Chosen;
use super::exchange::NEW;
use super::number::{IFF_UP, RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK};
use super::{LinkKind, Routing};
use crate::attr::{Bytes, DecodeError, Ne32, Nest, Str, Unknown, bytes_of};
use crate::message::{IfInfoMsg, Message};
use crate::netns::Netns;
use crate::{Error, Result};

crate::attributes! {
    /// `IFLA_*` (`linux/if_link.h`)
    pub struct LinkAttrs {
        /// hardware address
        address: Bytes = IFLA_ADDRESS 1,
        /// name, at most 15 bytes
        name: Str = IFLA_IFNAME 3,
        /// MTU in bytes
        mtu: Ne32 = IFLA_MTU 4,
        /// index of the underlying link, or of the peer
        link: Ne32 = IFLA_LINK 5,
        /// index of its bridge or bond; 0 for none
        master: Ne32 = IFLA_MASTER 10,
        /// its kind
        info: Nest<LinkInfoAttrs> = IFLA_LINKINFO 18,
        /// in a request: move the link into the namespace of this process
        netns_pid: Ne32 = IFLA_NET_NS_PID 19,
        /// in a request: move the link into the namespace of this descriptor
        netns_fd: Ne32 = IFLA_NET_NS_FD 28,
        /// the namespace of `link`, by its id in this namespace; signed
        link_netnsid: Ne32 = IFLA_LINK_NETNSID 37,
        /// in a request: move the link into, or act in, the namespace with this id; since 4.20
        target_netnsid: Ne32 = IFLA_TARGET_NETNSID 46,
    }
    /// Of [`LinkAttrs`], what names a link in a request.
    struct LinkName {
        /// name, at most 15 bytes
        name: Str = IFLA_IFNAME 3,
    }
    /// `IFLA_INFO_*`
    pub struct LinkInfoAttrs {
        /// name of the kind
        kind: Str = IFLA_INFO_KIND 1,
        /// attributes of the kind
        data: Chosen<LinkKind> = IFLA_INFO_DATA 2,
    }
}

/// `IFNAMSIZ` of `linux/if.h`, without the terminating NUL.
const NAME_MAX: usize = 15;

/// `LOOPBACK_IFINDEX` of the kernel's `include/net/flow.h`: `lo` has this index in every namespace
/// (`loopback_net_init()`, since Linux 3.7).
pub const LOOPBACK_IFINDEX: u32 = 1;

/// A network interface, as it was read or as [`Routing::add_link`] creates it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[doc(alias = "ip-link")]
pub struct Link {
    /// Its index in this namespace, from 1.
    pub index: u32,
    /// `IFLA_IFNAME`, at most 15 bytes.
    pub name: String,
    /// `IFF_UP`: administratively up, which does not imply a carrier. One end of a new veth pair cannot be up before the
    /// other exists (`ENOTCONN`).
    pub up: bool,
    /// `IFLA_ADDRESS`, if it has a hardware address of six bytes.
    pub mac: Option<[u8; 6]>,
    /// `IFLA_MTU`, in bytes.
    pub mtu: Option<u32>,
    /// `IFLA_LINK`: the index of the underlying link, or of the peer of a pair.
    pub lower: Option<u32>,
    /// `IFLA_LINK_NETNSID`: the namespace of `lower`, by its id in this namespace; `None` if `lower` is in this namespace.
    pub lower_nsid: Option<i32>,
    /// `IFLA_MASTER`: the index of its bridge or bond.
    pub master: Option<u32>,
    /// Its kind; `None` for `lo` and hardware.
    pub kind: Option<LinkKind>,
    /// Attributes without a field here, such as counters. Not sent.
    pub other: Vec<Unknown>,
}

/// The network namespace into which a link is moved.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum InNetns<'a> {
    /// `IFLA_NET_NS_FD`: the namespace of this descriptor.
    #[doc(alias = "IFLA_NET_NS_FD")]
    Fd(BorrowedFd<'a>),
    /// `IFLA_NET_NS_PID`: the namespace of this process, by its id in the pid namespace of the caller.
    #[doc(alias = "IFLA_NET_NS_PID")]
    Pid(u32),
    /// `IFLA_TARGET_NETNSID`: the namespace with this id, see [`Routing::set_nsid`].
    #[doc(alias = "IFLA_TARGET_NETNSID")]
    Nsid(i32),
}

impl<'a> From<&'a Netns> for InNetns<'a> {
    fn from(netns: &'a Netns) -> Self {
        Self::Fd(netns.as_fd())
    }
}

impl Link {
    /// A link with this name and kind and nothing else.
    #[must_use]
    pub fn new(name: &str, kind: LinkKind) -> Self {
        Self {
            name: name.to_owned(),
            kind: Some(kind),
            ..Self::default()
        }
    }

    /// Builds the request; the kernel chooses the index and the attributes in `other`.
    pub(super) fn build(
        &self,
        operation: &str,
        netns: Option<InNetns<'_>>,
    ) -> Result<(IfInfoMsg, LinkAttrs)> {
        if !self.name.is_empty() {
            check_name(operation, &self.name)?;
        }
        let flags = if self.up { IFF_UP } else { 0 };
        let header = IfInfoMsg {
            flags,
            change: flags,
            ..IfInfoMsg::default()
        };
        let too_large = |e: crate::attr::EncodeError| {
            Error::malformed(operation, object(&self.name), e.to_string())
        };
        let info = |kind: &LinkKind| {
            Ok(LinkInfoAttrs {
                kind: Some(kind.word().to_owned()),
                data: kind.data().map_err(too_large)?,
                ..LinkInfoAttrs::default()
            })
        };
        let mut attrs = LinkAttrs {
            address: self.mac.map(|mac| mac.to_vec()),
            name: (!self.name.is_empty()).then(|| self.name.clone()),
            mtu: self.mtu,
            link: self.lower,
            link_netnsid: self.lower_nsid.map(i32::cast_unsigned),
            master: self.master,
            info: self.kind.as_ref().map(info).transpose()?,
            ..LinkAttrs::default()
        };
        attrs.put_into(netns);
        Ok((header, attrs))
    }
}

impl LinkAttrs {
    fn put_into(&mut self, netns: Option<InNetns<'_>>) {
        match netns {
            // A borrowed descriptor is not negative.
            Some(InNetns::Fd(fd)) => self.netns_fd = Some(fd.as_raw_fd().cast_unsigned()),
            Some(InNetns::Pid(pid)) => self.netns_pid = Some(pid),
            Some(InNetns::Nsid(id)) => self.target_netnsid = Some(id.cast_unsigned()),
            None => {}
        }
    }

    fn named(name: &str) -> Self {
        Self {
            name: Some(name.to_owned()),
            ..Self::default()
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.up { "up" } else { "down" };
        write!(f, "{}: {} {state}", self.index, self.name)
    }
}

impl Routing {
    /// `ip link show`: all links, by index.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Exhausted`] if links kept changing.
    pub fn links(&self) -> Result<Vec<Link>> {
        let all = (IfInfoMsg::default(), LinkAttrs::default());
        self.list(RTM_GETLINK, all, "the links", read)
    }

    /// `ip link show dev NAME`.
    ///
    /// # Errors
    /// `ENODEV` ([`Error::is_not_found`]) if there is no such link. Refused: it cannot be the name of a link.
    pub fn link(&self, name: &str) -> Result<Link> {
        check_name("find", name)?;
        let about = (IfInfoMsg::default(), LinkAttrs::named(name));
        self.find(RTM_GETLINK, about, &object(name), read)
    }

    /// True if the link with this name is administratively up (`IFF_UP`). Of the answer only the header is read: a program that needs no
    /// more does not contain the decoders of all kinds of links.
    ///
    /// # Errors
    /// As of [`Routing::link`].
    pub fn is_up(&self, name: &str) -> Result<bool> {
        check_name("find", name)?;
        let named = LinkName {
            name: Some(name.to_owned()),
            ..LinkName::default()
        };
        let about = (IfInfoMsg::default(), named);
        self.find(RTM_GETLINK, about, &object(name), |message| {
            let is_whole = i32::from(message.header.family) == libc::AF_UNSPEC;
            Ok(is_whole.then_some(message.header.flags & IFF_UP != 0))
        })
    }

    /// The link with this index (`RTM_GETLINK`).
    ///
    /// # Errors
    /// `ENODEV` ([`Error::is_not_found`]) if there is no such link.
    pub fn link_by_index(&self, index: u32) -> Result<Link> {
        let about = (at(index), LinkAttrs::default());
        self.find(RTM_GETLINK, about, &numbered(index), read)
    }

    /// `ip link set dev NAME up`.
    ///
    /// # Errors
    /// `ENODEV` if there is no such link; `EPERM` without `CAP_NET_ADMIN`; the errno of the driver.
    pub fn set_up(&self, index: u32) -> Result<()> {
        let header = IfInfoMsg {
            flags: IFF_UP,
            change: IFF_UP,
            ..at(index)
        };
        let about = (header, LinkAttrs::default());
        self.change((RTM_NEWLINK, 0), about, "set up", &numbered(index))
    }

    /// `ip link set dev NAME master MASTER`; 0 removes it from its master.
    ///
    /// # Errors
    /// `ENODEV` if there is no such link; `EINVAL` if the master cannot have other links, as a bridge or bond can; `EPERM`
    /// without `CAP_NET_ADMIN`.
    pub fn set_master(&self, index: u32, master: u32) -> Result<()> {
        let attrs = LinkAttrs {
            master: Some(master),
            ..LinkAttrs::default()
        };
        let object = format!("{} in link number {master}", numbered(index));
        self.change((RTM_NEWLINK, 0), (at(index), attrs), "put", &object)
    }

    /// `ip link add NAME type KIND ...`, in another namespace if one is given. Without a name the kernel chooses one.
    ///
    /// # Errors
    /// `EEXIST` if a name is in use; `EOPNOTSUPP` if the kernel has no such kind (it has tried to load the module
    /// `rtnl-link-KIND`); `EPERM` without `CAP_NET_ADMIN`; the errno of the kind.
    pub fn add_link(&self, link: &Link, netns: Option<InNetns<'_>>) -> Result<()> {
        let about = link.build("add", netns)?;
        let kind = link.kind.as_ref().map_or("none", LinkKind::word);
        let object = format!("{} of kind {kind}", object(&link.name));
        self.change((RTM_NEWLINK, NEW), about, "add", &object)
    }

    /// `ip link add NAME type veth peer name PEER netns NETNS`: both ends are down, and the peer is created in the other
    /// namespace.
    ///
    /// # Errors
    /// `EEXIST` if either name is in use; `EPERM` without `CAP_NET_ADMIN` over both namespaces; `EOPNOTSUPP` without the `veth`
    /// module.
    pub fn add_veth(&self, name: &str, peer_name: &str, peer_netns: &Netns) -> Result<()> {
        let peer = Link {
            name: peer_name.to_owned(),
            ..Link::default()
        };
        let pair = Link::new(name, LinkKind::veth(&peer, Some(peer_netns.into()))?);
        self.add_link(&pair, None)
    }

    /// `ip link set dev NAME netns NETNS`. The link loses its addresses; its index may change.
    ///
    /// # Errors
    /// `EEXIST` if the name is in use there; `EINVAL` for links that cannot be moved, such as `lo`.
    pub fn move_link(&self, index: u32, netns: &Netns) -> Result<()> {
        let mut attrs = LinkAttrs::default();
        attrs.put_into(Some(netns.into()));
        let object = format!("{} to {}", numbered(index), netns.origin().display());
        self.change((RTM_NEWLINK, 0), (at(index), attrs), "move", &object)
    }

    /// `ip link delete`; deleting one end of a veth pair deletes the other. False if the link does not exist.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for links that cannot be deleted, such as `lo`.
    pub fn delete_link(&self, index: u32) -> Result<bool> {
        let about = (at(index), LinkAttrs::default());
        self.delete(RTM_DELLINK, about, &numbered(index))
    }
}

fn at(index: u32) -> IfInfoMsg {
    IfInfoMsg {
        index,
        ..IfInfoMsg::default()
    }
}

fn object(name: &str) -> String {
    format!("link {name}")
}

fn numbered(index: u32) -> String {
    format!("link number {index}")
}

/// The checks of the kernel's `dev_valid_name`, with a reason instead of an errno.
fn check_name(operation: &str, name: &str) -> Result<()> {
    let bad = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace();
    let reason = if name.is_empty() || name == "." || name == ".." || name.contains(bad) {
        "is no link name; give one without spaces, '/' and ':'".to_owned()
    } else if bytes_of(name).len() > NAME_MAX {
        format!(
            "has {} bytes; a link name has at most {NAME_MAX}",
            bytes_of(name).len()
        )
    } else {
        return Ok(());
    };
    Err(Error::refused(operation, format!("link {name:?}"), reason))
}

/// `None` if the message is about one protocol's part of a link. A port that leaves its bridge is reported as `RTM_DELLINK`
/// with `AF_BRIDGE` (`br_ifinfo_notify()`, net/bridge/br_netlink.c); the link still exists.
pub(super) fn read(message: &Message<IfInfoMsg>) -> Result<Option<Link>, DecodeError> {
    if i32::from(message.header.family) != libc::AF_UNSPEC {
        return Ok(None);
    }
    let attrs: LinkAttrs = message.decode()?;
    let info = attrs.info.unwrap_or_default();
    Ok(Some(Link {
        index: message.header.index,
        name: attrs.name.unwrap_or_default(),
        up: message.header.flags & IFF_UP != 0,
        mac: attrs.address.and_then(|bytes| bytes.try_into().ok()),
        mtu: attrs.mtu,
        lower: attrs.link,
        lower_nsid: attrs.link_netnsid.map(u32::cast_signed),
        master: attrs.master,
        kind: info.kind.map(|word| LinkKind::read(word, info.data)),
        other: attrs.unknown,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_with_a_reason() {
        for bad in [
            "",
            ".",
            "..",
            "a b",
            "a/b",
            "a:b",
            "a\0b",
            "sixteen-letters-",
        ] {
            assert!(check_name("find", bad).is_err(), "{bad:?}");
        }
        for good in ["lo", "eth0", "fifteen-letters", "veth1234.5"] {
            assert!(check_name("find", good).is_ok(), "{good:?}");
        }
    }
}
