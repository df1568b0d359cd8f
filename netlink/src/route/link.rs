//! Links: `ip link`.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd};

use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{
    InfoData, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVeth};

use super::Routing;
use crate::netns::Netns;
use crate::{Error, Result};

/// `IFNAMSIZ` of `linux/if.h`, less the closing NUL.
const NAME_MAX: usize = 15;

/// `LOOPBACK_IFINDEX` of the kernel's `include/net/flow.h`: `lo` has this index in every namespace
/// (`loopback_net_init()`, since Linux 3.7).
pub const LOOPBACK_IFINDEX: u32 = 1;

/// One network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its number in this namespace, from 1.
    pub index: u32,
    /// `IFLA_IFNAME`.
    pub name: String,
    /// `IFF_UP`: switched on. Whether it carries traffic is another question.
    pub up: bool,
    /// `IFLA_ADDRESS`, when it has a hardware address of six bytes.
    pub mac: Option<[u8; 6]>,
    /// `IFLA_INFO_KIND`: "veth", "bridge"; absent for `lo` and hardware.
    pub kind: Option<String>,
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
    ///
    /// [`crate::ErrorKind::Exhausted`] when links kept changing.
    pub fn links(&self) -> Result<Vec<Link>> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        Ok(self
            .dump(&request, "the links")?
            .into_iter()
            .filter_map(read)
            .collect())
    }

    /// `ip link show dev NAME`.
    ///
    /// # Errors
    ///
    /// `ENODEV` ([`Error::is_not_found`]) when there is none.
    pub fn link(&self, name: &str) -> Result<Link> {
        check_name("find", name)?;
        self.one(
            LinkMessageBuilder::<LinkUnspec>::new().name(name).build(),
            &object(name),
        )
    }

    /// The link with this index.
    ///
    /// # Errors
    ///
    /// `ENODEV` ([`Error::is_not_found`]) when there is none.
    pub fn link_by_index(&self, index: u32) -> Result<Link> {
        let request = LinkMessageBuilder::<LinkUnspec>::new().index(index).build();
        self.one(request, &numbered(index))
    }

    /// `ip link set dev NAME up`.
    ///
    /// # Errors
    ///
    /// `ENODEV`, or what the driver answers.
    pub fn set_up(&self, index: u32) -> Result<()> {
        let change = LinkMessageBuilder::<LinkUnspec>::new()
            .index(index)
            .up()
            .build();
        let request = RouteNetlinkMessage::NewLink(change);
        self.request(request, 0, "set up", &numbered(index))
            .map(drop)
    }

    /// `ip link add NAME type veth peer name PEER netns NETNS`: both ends are
    /// down, the peer is made inside the other namespace.
    ///
    /// # Errors
    ///
    /// `EEXIST` when either name is taken; `EPERM`; `EOPNOTSUPP` without the
    /// `veth` module.
    pub fn add_veth(&self, name: &str, peer_name: &str, peer_netns: &Netns) -> Result<()> {
        check_name("add", name)?;
        check_name("add", peer_name)?;
        let peer = LinkMessageBuilder::<LinkUnspec>::new()
            .name(peer_name)
            .setns_by_fd(peer_netns.as_fd().as_raw_fd())
            .build();
        let pair = LinkMessageBuilder::<LinkVeth>::new(name, peer_name)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .build();
        let object = format!(
            "veth pair {name} and {peer_name} in {}",
            peer_netns.origin().display()
        );
        self.create(RouteNetlinkMessage::NewLink(pair), "add", &object)
    }

    /// `ip link set dev NAME netns NETNS`. Its addresses are lost, its index may
    /// change.
    ///
    /// # Errors
    ///
    /// `EEXIST` when the name is taken there; `EINVAL` for links that may not
    /// move, as `lo`.
    pub fn move_link(&self, index: u32, netns: &Netns) -> Result<()> {
        let change = LinkMessageBuilder::<LinkUnspec>::new()
            .index(index)
            .setns_by_fd(netns.as_fd().as_raw_fd())
            .build();
        let object = format!("{} to {}", numbered(index), netns.origin().display());
        self.request(RouteNetlinkMessage::NewLink(change), 0, "move", &object)
            .map(drop)
    }

    /// `ip link delete`; with one end of a veth pair goes the other. False when
    /// it is not there.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for links that cannot be deleted, as `lo`.
    pub fn delete_link(&self, index: u32) -> Result<bool> {
        let request = LinkMessageBuilder::<LinkUnspec>::new().index(index).build();
        self.remove(
            RouteNetlinkMessage::DelLink(request),
            "delete",
            &numbered(index),
        )
    }

    /// A lookup that is no dump, so it cannot be interrupted.
    fn one(&self, request: LinkMessage, object: &str) -> Result<Link> {
        let replies = self.request(RouteNetlinkMessage::GetLink(request), 0, "find", object)?;
        let found = replies.into_iter().find_map(read);
        found.ok_or_else(|| Error::malformed("find", object, "the kernel's answer has no link"))
    }
}

fn object(name: &str) -> String {
    format!("link {name}")
}

fn numbered(index: u32) -> String {
    format!("link number {index}")
}

/// What the kernel's `dev_valid_name` asks for, with a reason instead of an errno.
fn check_name(operation: &str, name: &str) -> Result<()> {
    let bad = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace();
    let reason = if name.is_empty() || name == "." || name == ".." || name.contains(bad) {
        "is no link name; give one without spaces, '/' and ':'".to_owned()
    } else if name.len() > NAME_MAX {
        format!(
            "has {} bytes; a link name has at most {NAME_MAX}",
            name.len()
        )
    } else {
        return Ok(());
    };
    Err(Error::refused(operation, format!("link {name:?}"), reason))
}

fn read(message: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else {
        return None;
    };
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        up: message.header.flags.contains(LinkFlags::Up),
        mac: None,
        kind: None,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(bytes) => link.mac = bytes.try_into().ok(),
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.into_iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some(link)
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
