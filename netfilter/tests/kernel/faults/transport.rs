//! A transport that fails, loses or changes messages on request.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use weir_netfilter::nft::NftEngine;
use weir_netlink::Error;
use weir_netlink::message::Netfilter;
use weir_netlink::nfnetlink::{NFNL_MSG_BATCH_BEGIN, Socket};
use weir_netlink::{NetlinkSocket, Transport};

/// The length of the begin and end messages of a batch.
const NOTHING: usize = 2 * 20;

/// A fault that replaces a call, or follows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// The call is not made.
    Instead(i32),
    /// The call is made, and what it received is lost.
    After(i32),
}

/// Changes a datagram; the number is that of earlier datagrams.
pub(crate) type Change = dyn FnMut(usize, &mut Vec<u8>);

/// Counters and faults that all transports of a test share.
pub(crate) struct Plan {
    pub(crate) calls: Cell<usize>,
    fault: Option<(usize, Fault)>,
    /// The type of the first message of each datagram.
    pub(crate) sent: RefCell<Vec<u16>>,
    /// Called before a batch that changes something is sent, with the number of earlier ones.
    pub(crate) before_batch: RefCell<Box<dyn FnMut(usize)>>,
    pub(crate) batches: Cell<usize>,
    /// The number of the call that sent the last batch; `answered` is the number of datagrams received before its answer.
    pub(crate) batch_at: Cell<Option<usize>>,
    pub(crate) answered: Cell<Option<usize>>,
    /// Changes what was received; the number is that of earlier datagrams.
    pub(crate) received: RefCell<Box<Change>>,
    pub(crate) datagrams: Cell<usize>,
    /// Whether opening a new socket fails.
    pub(crate) is_last: Cell<bool>,
}

impl Plan {
    pub(crate) fn new(fault: Option<(usize, Fault)>) -> Self {
        Self {
            calls: Cell::new(0),
            fault,
            sent: RefCell::default(),
            before_batch: RefCell::new(Box::new(|_| ())),
            batches: Cell::new(0),
            batch_at: Cell::new(None),
            answered: Cell::new(None),
            received: RefCell::new(Box::new(|_, _| ())),
            datagrams: Cell::new(0),
            is_last: Cell::new(false),
        }
    }

    fn next(&self) -> Option<Fault> {
        let n = self.calls.replace(self.calls.get() + 1);
        self.fault
            .filter(|(at, _)| *at == n)
            .map(|(_, fault)| fault)
    }
}

/// The kernel with faults.
pub(crate) struct Faulty {
    kernel: NetlinkSocket,
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
            self.plan.batch_at.set(Some(self.plan.calls.get()));
            self.plan.answered.set(Some(self.plan.datagrams.get()));
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

    fn receive(&self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        match self.plan.next() {
            Some(Fault::Instead(n)) => return Err(errno(n)),
            Some(Fault::After(n)) => {
                let _ = self.kernel.receive(buf, Duration::ZERO);
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

    fn reopen(&self) -> weir_netlink::Result<Self> {
        if self.plan.is_last.get() {
            return Err(Error::io("open", "a socket", &errno(libc::EMFILE)));
        }
        Ok(Self {
            kernel: self.kernel.reopen()?,
            plan: Rc::clone(&self.plan),
        })
    }
}

pub(crate) fn socket(plan: &Rc<Plan>) -> Socket<Faulty> {
    Socket::with_transport(Faulty {
        kernel: NetlinkSocket::open::<Netfilter>().unwrap(),
        plan: Rc::clone(plan),
    })
}

pub(crate) fn faulty(plan: &Rc<Plan>) -> NftEngine<Faulty> {
    NftEngine::with_socket(socket(plan))
}
