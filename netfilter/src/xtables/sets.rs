//! Names of sets: rules hold the kernel's indexes of sets, texts hold names.

use super::XtFamily;
use super::bytes::{Build, Bytes};
use super::raw::{
    IP_SET_OP_GET_BYINDEX, IP_SET_OP_GET_BYNAME, IP_SET_OP_VERSION, IPSET_INVALID_ID,
    IPSET_MAXNAMELEN, SO_IP_SET, layout,
};
use std::cell::RefCell;
use std::collections::HashMap;
use weir_netlink::xtables::RawSocket;
use weir_netlink::{Error, Result};

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

/// Asks the kernel with `getsockopt(SO_IP_SET)`, in the namespace that the socket was opened in.
#[derive(Debug)]
pub struct SocketSets {
    socket: RawSocket,
}

impl SocketSets {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_RAW.
    pub fn open() -> Result<Self> {
        let socket =
            RawSocket::open(false).map_err(|e| Error::io("open", "a raw IPv4 socket", &e))?;
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
        let mut request = Build::new().u32(IP_SET_OP_VERSION).u32(0).done();
        request.resize(layout::SET_VERSION_SIZE, 0);
        self.ask("the version of ipset", &mut request)?;
        Ok(Bytes(&request).u32(4).unwrap_or(0))
    }
}

impl Sets for SocketSets {
    fn index(&self, _: XtFamily, name: &str) -> Result<u16> {
        let object = format!("the set {name}");
        let head = Build::new().u32(IP_SET_OP_GET_BYNAME).u32(self.version()?);
        let request = head.name(name, IPSET_MAXNAMELEN).map(Build::done);
        let mut request = request
            .ok_or_else(|| Error::refused("look up", &object, "a name has at most 31 bytes"))?;
        self.ask(&object, &mut request)?;
        match Bytes(&request).u16(8) {
            Some(index) if index != IPSET_INVALID_ID => Ok(index),
            _ => Err(Error::refused(
                "look up",
                object,
                "there is no such set; create it first",
            )),
        }
    }

    fn name(&self, index: u16) -> Result<Option<String>> {
        let head = Build::new().u32(IP_SET_OP_GET_BYINDEX).u32(self.version()?);
        let mut request = head.u16(index).zeros(IPSET_MAXNAMELEN - 2).done();
        self.ask(&format!("the set with number {index}"), &mut request)?;
        Ok(Bytes(&request)
            .name(8, IPSET_MAXNAMELEN)
            .filter(|name| !name.is_empty()))
    }
}

/// Assigns indexes in the order in which names are seen: for comparing values without a kernel.
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
