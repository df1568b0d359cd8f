//! The engine: one method for every verb of `ipset`, and `apply` for whole sets.
//!
//! ipset has no transactions. Many entries are sent per message; the first refused entry ends its message, and those
//! before it are in force. A set that has to change atomically is built under
//! another name and swapped in.

mod apply;
mod elements;
mod plan;
mod read;
mod revision;

pub use apply::IpsetApplied;
pub(super) use elements::Pipeline;
pub use plan::{IpsetOp, plan};
pub use read::{Listed, Part};

use super::error::{Class, explain};
use super::model::{Header, SetFamily, SetType};
use super::wire::CommandAttrs;
use super::{codec, raw};
use std::collections::HashMap;
use weir_netlink::contention::{Attempts, CONTENTION};
use weir_netlink::message::NLM_F_EXCL;
use weir_netlink::nfnetlink::{NFNL_SUBSYS_IPSET, Refusal, Requests, Socket, message_type};
use weir_netlink::{Error, InForce, NetlinkSocket, Result, Transport};

/// How an existing object (or, when deleting, a missing one) is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "NLM_F_EXCL")]
pub enum Existing {
    /// It is an error (`NLM_F_EXCL`), as without `-exist`.
    Refuse,
    /// It is success, as with `-exist`; an entry's comment, timeout and counters are replaced.
    Accept,
}

impl Existing {
    fn flags(self) -> u16 {
        match self {
            Self::Refuse => NLM_F_EXCL,
            Self::Accept => 0,
        }
    }
}

/// The versions of ipset's protocol that the kernel supports (`IPSET_CMD_PROTOCOL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "IPSET_CMD_PROTOCOL")]
pub struct Protocol {
    /// The newest version: 6, or 7 since 4.20.
    pub version: u8,
    /// The oldest version.
    pub minimum: u8,
}

/// A connection to ipset in one network namespace.
#[derive(Debug)]
#[doc(alias = "NFNL_SUBSYS_IPSET")]
pub struct IpsetEngine<T: Transport = NetlinkSocket> {
    socket: Socket<T>,
    /// The protocol version in every message.
    version: u8,
    protocol: Protocol,
    revisions: HashMap<(SetType, SetFamily), (u8, u8)>,
    read_limit: usize,
}

impl IpsetEngine<NetlinkSocket> {
    /// Opens a netlink socket (`NETLINK_NETFILTER`) in the network namespace of the calling thread.
    ///
    /// # Errors
    /// As [`IpsetEngine::with_socket`]; `EPROTONOSUPPORT` if the kernel has no nfnetlink.
    pub fn open() -> Result<Self> {
        Self::with_socket(Socket::open()?)
    }
}

/// The netlink message type of a message of ipset.
fn kind(message: u16) -> u16 {
    message_type(NFNL_SUBSYS_IPSET, message)
}

impl<T: Transport> IpsetEngine<T> {
    /// Uses an open socket. Requests the protocol version first (`IPSET_CMD_PROTOCOL`).
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN` over the network namespace; [`Error::is_unsupported`] if the kernel has no ipset, or
    /// supports neither version 6 nor 7 of the protocol.
    pub fn with_socket(mut socket: Socket<T>) -> Result<Self> {
        let what = "the version of ipset's protocol";
        let ask = CommandAttrs {
            protocol: Some(raw::IPSET_PROTOCOL),
            ..CommandAttrs::default()
        };
        let reply = socket.get(kind(raw::IPSET_CMD_PROTOCOL), raw::NFPROTO_IPV4, &ask, what);
        let reply = reply.map_err(|e| explain(e, Class::Any))?;
        let answer: CommandAttrs = reply
            .decode()
            .map_err(|e| Error::malformed("read", what, e))?;
        let version = answer.protocol.unwrap_or(0);
        let protocol = Protocol {
            version,
            minimum: answer.minimum.unwrap_or(version),
        };
        let ours = version.min(raw::IPSET_PROTOCOL);
        if ours < raw::IPSET_PROTOCOL_MIN.max(protocol.minimum) {
            let remedy = format!(
                "the kernel speaks versions {} to {version}, this library {} to {}",
                protocol.minimum,
                raw::IPSET_PROTOCOL_MIN,
                raw::IPSET_PROTOCOL
            );
            return Err(Error::unsupported("use", what, remedy));
        }
        Ok(Self {
            socket,
            version: ours,
            protocol,
            revisions: HashMap::new(),
            read_limit: read::READ_LIMIT,
        })
    }

    /// Sets the limit of the sets that are held at once, in bytes of the kernel's answers. 64 MiB by default.
    #[must_use]
    pub fn read_limit(mut self, bytes: usize) -> Self {
        self.read_limit = bytes;
        self
    }

    /// The versions of the protocol that the kernel supports.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// `ipset create`, with the newest revision of the type that the kernel and this version support (`IPSET_CMD_CREATE`).
    ///
    /// # Errors
    /// `EEXIST` if a set of this name exists and existing sets are refused, or it has other options; a refusal if it has
    /// another type or family, which the kernel alone would accept; [`Error::is_unsupported`] if the kernel lacks the type,
    /// or its revision lacks an option.
    pub fn create(&mut self, header: &Header, existing: Existing) -> Result<()> {
        codec::check_header("create", header)?;
        let revision = self.revision_for(header)?;
        let attrs = CommandAttrs {
            type_name: Some(header.kind.name().to_owned()),
            revision: Some(revision),
            family: Some(header.family.number()),
            data: Some(codec::to_options(header)),
            ..self.about(&header.name)
        };
        let what = format!("set {}", header.name);
        let class = Class::of(&header.kind);
        self.command(
            raw::IPSET_CMD_CREATE,
            existing.flags(),
            &attrs,
            ("create", &what),
            class,
        )?;
        if existing == Existing::Accept {
            let found = self.type_of(&header.name);
            let (kind, family) = found.map_err(|e| e.with_in_force(InForce::Unknown))?;
            if (&kind, family) != (&header.kind, header.family) {
                let reason = format!(
                    "a set of that name is there with type {kind} and family {family}: destroy it or \
                     take another name"
                );
                return Err(Error::refused("create", what, reason));
            }
        }
        Ok(())
    }

    /// `ipset destroy NAME`
    ///
    /// # Errors
    /// `ENOENT` if there is no such set; `IPSET_ERR_BUSY` while a rule or a list refers to it.
    pub fn destroy(&mut self, name: &str) -> Result<()> {
        self.on_set(raw::IPSET_CMD_DESTROY, name, "destroy")
    }

    /// As [`IpsetEngine::destroy`], for a set whose last rule a transaction of nf_tables has just deleted, as of `-m set` of
    /// `iptables-nft`.
    ///
    /// The kernel releases the reference later, in a worker (`nf_tables_trans_destroy_work`). So `IPSET_ERR_BUSY` is retried
    /// for at most [`CONTENTION`].
    ///
    /// # Errors
    /// As [`IpsetEngine::destroy`]: `IPSET_ERR_BUSY` if another rule or a list refers to the set.
    pub fn destroy_after_commit(&mut self, name: &str) -> Result<()> {
        let mut attempts = Attempts::begin(CONTENTION);
        loop {
            match self.destroy(name) {
                Err(e) if e.errno() == Some(raw::IPSET_ERR_BUSY) && attempts.again() => {}
                other => return other,
            }
        }
    }

    /// `ipset destroy` without a name: every set of the namespace, owned or foreign.
    ///
    /// # Errors
    /// `IPSET_ERR_BUSY` if one of them is in use; then none is destroyed.
    pub fn destroy_all(&mut self) -> Result<()> {
        self.on_all(raw::IPSET_CMD_DESTROY, "destroy")
    }

    /// `ipset flush NAME`: deletes every entry.
    ///
    /// # Errors
    /// `ENOENT` if there is no such set.
    pub fn flush(&mut self, name: &str) -> Result<()> {
        self.on_set(raw::IPSET_CMD_FLUSH, name, "flush")
    }

    /// `ipset flush` without a name: deletes the entries of every set of the namespace, owned or foreign.
    ///
    /// # Errors
    /// As the kernel answers.
    pub fn flush_all(&mut self) -> Result<()> {
        self.on_all(raw::IPSET_CMD_FLUSH, "flush")
    }

    /// `ipset rename FROM TO`
    ///
    /// # Errors
    /// `ENOENT` if there is no set `from`; `IPSET_ERR_EXIST_SETNAME2` if `to` exists; `IPSET_ERR_REFERENCED` while a rule or a
    /// list refers to the set.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        self.on_two(raw::IPSET_CMD_RENAME, from, to, "rename")
    }

    /// `ipset swap A B`: exchanges the content of two sets atomically; rules keep referring to the same names.
    ///
    /// # Errors
    /// `ENOENT` if there is no set `a`, `IPSET_ERR_EXIST_SETNAME2` if there is no set `b`; `IPSET_ERR_TYPE_MISMATCH` if their
    /// types differ.
    pub fn swap(&mut self, a: &str, b: &str) -> Result<()> {
        self.on_two(raw::IPSET_CMD_SWAP, a, b, "swap")
    }

    fn on_all(&mut self, message: u16, operation: &str) -> Result<()> {
        let attrs = self.about_all();
        self.command(message, 0, &attrs, (operation, "all sets"), Class::Any)
    }

    fn on_set(&mut self, message: u16, name: &str, operation: &str) -> Result<()> {
        codec::check_name(operation, name)?;
        let attrs = self.about(name);
        // Without NLM_F_EXCL, newer kernels accept a missing set.
        self.command(
            message,
            NLM_F_EXCL,
            &attrs,
            (operation, &format!("set {name}")),
            Class::Any,
        )
    }

    fn on_two(&mut self, message: u16, from: &str, to: &str, operation: &str) -> Result<()> {
        codec::check_name(operation, from)?;
        codec::check_name(operation, to)?;
        let attrs = CommandAttrs {
            type_name: Some(to.to_owned()),
            ..self.about(from)
        };
        let what = match message {
            raw::IPSET_CMD_RENAME => format!("set {from} to {to}"),
            _ => format!("sets {from} and {to}"),
        };
        self.command(message, 0, &attrs, (operation, &what), Class::Any)
    }

    /// The attributes of every message about all sets.
    fn about_all(&self) -> CommandAttrs {
        CommandAttrs {
            protocol: Some(self.version),
            ..CommandAttrs::default()
        }
    }

    /// The attributes of every message about one set.
    fn about(&self, name: &str) -> CommandAttrs {
        CommandAttrs {
            name: Some(name.to_owned()),
            ..self.about_all()
        }
    }

    fn command(
        &mut self,
        message: u16,
        flags: u16,
        attrs: &CommandAttrs,
        (operation, what): (&str, &str),
        class: Class,
    ) -> Result<()> {
        let mut requests = Requests::new(NFNL_SUBSYS_IPSET);
        requests.push(message, flags, raw::NFPROTO_IPV4, attrs);
        match self.socket.exchange(requests, what)?.pop() {
            Some(refusal) => Err(refused(operation, what, refusal, class)),
            None => Ok(()),
        }
    }
}

/// The error for a refused request.
fn refused(operation: &str, what: &str, refusal: Refusal, class: Class) -> Error {
    explain(refusal.into_error(operation, what), class)
}
