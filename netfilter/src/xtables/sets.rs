//! Names of sets: rules hold the kernel's indexes of sets, texts hold names.

use super::XtFamily;
use super::raw::{
    IP_SET_OP_GET_BYINDEX, IP_SET_OP_GET_FNAME, IP_SET_OP_VERSION, IPSET_INVALID_ID, SO_IP_SET,
};
use super::structs::{
    IpSetReqGetSet, IpSetReqGetSetFamily, IpSetReqVersion, name_field, name_of, read, zeroed,
};
use std::cell::RefCell;
use std::collections::HashMap;
use weir_netlink::xtables::RawSocket;
use weir_netlink::{Error, Result};
use zerocopy::IntoBytes as _;

/// Resolves names and indexes of sets.
pub trait Sets {
    /// The index of a set.
    ///
    /// # Errors
    /// There is no set of this name, or the kernel has no ipset.
    fn index(&self, family: XtFamily, name: &str) -> Result<u16>;

    /// The name of the set with this index; `None` if there is none.
    ///
    /// # Errors
    /// The request to the kernel failed.
    fn name(&self, index: u16) -> Result<Option<String>>;
}

/// Requests names and indexes from the kernel (`getsockopt(SO_IP_SET)`), in the network namespace in which the socket was
/// opened.
#[derive(Debug)]
pub struct SocketSets {
    socket: RawSocket,
}

impl SocketSets {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`.
    pub fn open() -> Result<Self> {
        let socket = RawSocket::open(false)
            .map_err(|e| Error::io("open", "a raw socket (CAP_NET_RAW)", &e))?;
        Ok(Self { socket })
    }

    fn ask(&self, object: &str, request: &mut [u8]) -> Result<()> {
        let asked = self.socket.get(SO_IP_SET, request);
        asked.map(|_| ()).map_err(|e| match e.raw_os_error() {
            Some(libc::ENOPROTOOPT) => Error::unsupported(
                "look up",
                object,
                "this kernel has no ipset (CONFIG_IP_SET, module ip_set)",
            ),
            _ => Error::io("look up", object, &e),
        })
    }

    /// The kernel requires its own protocol version in requests.
    fn version(&self) -> Result<u32> {
        let mut request = IpSetReqVersion {
            op: IP_SET_OP_VERSION,
            version: 0,
        };
        self.ask("the version of ipset", request.as_mut_bytes())?;
        Ok(request.version)
    }
}

impl Sets for SocketSets {
    fn index(&self, family: XtFamily, name: &str) -> Result<u16> {
        let object = format!("the set {name}");
        let refused = |why| Error::refused("look up", &object, why);
        let mut request = IpSetReqGetSetFamily {
            op: IP_SET_OP_GET_FNAME,
            version: self.version()?,
            set: name_field(name).ok_or_else(|| refused("a name has at most 31 bytes"))?,
            ..zeroed()
        };
        self.ask(&object, request.as_mut_bytes())?;
        // A set without addresses has no family.
        let other = match family {
            XtFamily::Ip => libc::AF_INET6,
            XtFamily::Ip6 => libc::AF_INET,
        };
        match read(&request.set) {
            None | Some(IPSET_INVALID_ID) => Err(refused("there is no such set; create it first")),
            Some(_) if i32::try_from(request.family) == Ok(other) => Err(refused(
                "it has addresses of the other family and would match nothing; name a set of this one",
            )),
            Some(index) => Ok(index),
        }
    }

    fn name(&self, index: u16) -> Result<Option<String>> {
        let mut request = IpSetReqGetSet {
            op: IP_SET_OP_GET_BYINDEX,
            version: self.version()?,
            ..zeroed()
        };
        let [first, second, ..] = &mut request.set;
        [*first, *second] = index.to_ne_bytes();
        let object = format!("the set with number {index}");
        self.ask(&object, request.as_mut_bytes())?;
        Ok(name_of(&request.set).filter(|name| !name.is_empty()))
    }
}

/// Assigns indexes in the order in which names occur: for comparing values without a kernel.
#[derive(Debug, Default)]
pub(super) struct Interned(RefCell<Vec<String>>);

impl Sets for Interned {
    fn index(&self, _: XtFamily, name: &str) -> Result<u16> {
        let mut names = self.0.borrow_mut();
        let at = names.iter().position(|n| n == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        u16::try_from(at).map_err(|_| Error::refused("count", "sets", "there are more than 65535"))
    }

    fn name(&self, index: u16) -> Result<Option<String>> {
        Ok(self.0.borrow().get(usize::from(index)).cloned())
    }
}

/// Resolves each set once while one table is read or written.
pub(super) struct Cached<'a> {
    sets: &'a dyn Sets,
    known: RefCell<HashMap<u16, String>>,
}

impl<'a> Cached<'a> {
    pub(super) fn new(sets: &'a dyn Sets) -> Self {
        Self {
            sets,
            known: RefCell::default(),
        }
    }
}

impl Sets for Cached<'_> {
    fn index(&self, family: XtFamily, name: &str) -> Result<u16> {
        let known = self
            .known
            .borrow()
            .iter()
            .find(|(_, n)| *n == name)
            .map(|(i, _)| *i);
        let index = known.map_or_else(|| self.sets.index(family, name), Ok)?;
        self.known.borrow_mut().insert(index, name.to_owned());
        Ok(index)
    }

    fn name(&self, index: u16) -> Result<Option<String>> {
        if let Some(name) = self.known.borrow().get(&index) {
            return Ok(Some(name.clone()));
        }
        let name = self.sets.name(index)?;
        if let Some(name) = &name {
            self.known.borrow_mut().insert(index, name.clone());
        }
        Ok(name)
    }
}
