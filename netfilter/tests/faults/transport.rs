//! A transport that fails, loses or changes what it is told to.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use weir_netfilter::nft::Engine;
use weir_netlink::nfnetlink::{Kernel, NFNL_MSG_BATCH_BEGIN, Socket, Transport};

/// The bytes of the begin and the end of a batch.
const NOTHING: usize = 2 * 20;

/// What a call is replaced by, or followed by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// The call is not made.
    Instead(i32),
    /// The call is made; what it received is lost.
    After(i32),
}

/// Changes a datagram; the number says how many came before.
pub(crate) type Change = dyn FnMut(usize, &mut Vec<u8>);

/// What all transports of a test count and do.
pub(crate) struct Plan {
    pub(crate) calls: Cell<usize>,
    fault: Option<(usize, Fault)>,
    /// The types of the messages that datagrams began with.
    pub(crate) sent: RefCell<Vec<u16>>,
    /// Called before a batch that changes something is sent, with how many were sent before.
    pub(crate) before_batch: RefCell<Box<dyn FnMut(usize)>>,
    pub(crate) batches: Cell<usize>,
    /// Changes what was received, with how many datagrams were received before.
    pub(crate) received: RefCell<Box<Change>>,
    pub(crate) datagrams: Cell<usize>,
}

impl Plan {
    pub(crate) fn new(fault: Option<(usize, Fault)>) -> Self {
        Self {
            calls: Cell::new(0),
            fault,
            sent: RefCell::default(),
            before_batch: RefCell::new(Box::new(|_| ())),
            batches: Cell::new(0),
            received: RefCell::new(Box::new(|_, _| ())),
            datagrams: Cell::new(0),
        }
    }

    fn next(&self) -> Option<Fault> {
        let n = self.calls.replace(self.calls.get() + 1);
        self.fault
            .filter(|(at, _)| *at == n)
            .map(|(_, fault)| fault)
    }
}

/// The kernel, with faults.
pub(crate) struct Faulty {
    kernel: Kernel,
    plan: Rc<Plan>,
}

pub(crate) fn errno(n: i32) -> io::Error {
    io::Error::from_raw_os_error(n)
}

impl Transport for Faulty {
    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        let kind = u16::from_ne_bytes([datagram[4], datagram[5]]);
        self.plan.sent.borrow_mut().push(kind);
        if kind == NFNL_MSG_BATCH_BEGIN && datagram.len() > NOTHING {
            let n = self.plan.batches.replace(self.plan.batches.get() + 1);
            (self.plan.before_batch.borrow_mut())(n);
        }
        match self.plan.next() {
            Some(Fault::Instead(n)) => return Err(errno(n)),
            Some(Fault::After(n)) => {
                self.kernel.send(datagram)?;
                return Err(errno(n));
            }
            None => {}
        }
        self.kernel.send(datagram)
    }

    fn receive(&self, buf: &mut [u8], wait: bool) -> io::Result<usize> {
        match self.plan.next() {
            Some(Fault::Instead(n)) => return Err(errno(n)),
            Some(Fault::After(n)) => {
                let _ = self.kernel.receive(buf, false);
                return Err(errno(n));
            }
            None => {}
        }
        let n = self.kernel.receive(buf, wait)?;
        let mut datagram = buf[..n].to_vec();
        let count = self.plan.datagrams.replace(self.plan.datagrams.get() + 1);
        (self.plan.received.borrow_mut())(count, &mut datagram);
        buf[..datagram.len()].copy_from_slice(&datagram);
        Ok(datagram.len())
    }

    fn reserve(&self, bytes: usize) -> io::Result<()> {
        self.kernel.reserve(bytes)
    }
}

pub(crate) fn faulty(plan: &Rc<Plan>) -> Engine<Faulty> {
    let kernel = Kernel::open().unwrap();
    Engine::with_socket(Socket::with_transport(Faulty {
        kernel,
        plan: Rc::clone(plan),
    }))
}
