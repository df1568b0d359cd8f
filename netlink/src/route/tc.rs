//! Traffic control: `tc qdisc`, `tc filter`.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::Routing;
use super::chosen::{Chosen, chosen};
use super::exchange::IN_PLACE;
use super::number::{
    RTM_DELQDISC, RTM_DELTFILTER, RTM_GETQDISC, RTM_GETTFILTER, RTM_NEWQDISC, RTM_NEWTFILTER,
};
use crate::attr::{Bytes, DecodeError, EncodeError, Ne32, Str, Unknown};
use crate::message::{Message, TcMsg};
use crate::{Error, Result};

crate::attributes! {
    /// `TCA_*` (`linux/rtnetlink.h`)
    pub(super) struct TcAttrs {
        /// name of the qdisc or classifier
        kind: Str = TCA_KIND 1,
        /// attributes of that kind
        options: Chosen<FilterKind> = TCA_OPTIONS 2,
        /// chain of a filter
        chain: Ne32 = TCA_CHAIN 11,
    }
    /// `tc filter add ... bpf`: `TCA_BPF_*` (`linux/pkt_cls.h`).
    #[doc(alias = "tc-bpf")]
    pub struct BpfFilter {
        /// actions, opaque
        act: Bytes = TCA_BPF_ACT 1,
        /// the class that packets are assigned to
        classid: Ne32 = TCA_BPF_CLASSID 3,
        /// descriptor of the program, only in a request
        fd: Ne32 = TCA_BPF_FD 6,
        /// name of the program
        name: Str = TCA_BPF_NAME 7,
        /// `TCA_BPF_FLAG_ACT_DIRECT` 1: the return value of the program is the action
        flags: Ne32 = TCA_BPF_FLAGS 8,
        /// `TCA_CLS_FLAGS_*`: hardware offload
        flags_gen: Ne32 = TCA_BPF_FLAGS_GEN 9,
        /// hash of the program, read only
        tag: Bytes = TCA_BPF_TAG 10,
        /// id of the program, read only
        id: Ne32 = TCA_BPF_ID 11,
    }
    /// `tc filter add ... matchall`: `TCA_MATCHALL_*` (`linux/pkt_cls.h`).
    #[doc(alias = "tc-matchall")]
    pub struct Matchall {
        /// the class that packets are assigned to
        classid: Ne32 = TCA_MATCHALL_CLASSID 1,
        /// actions, opaque
        act: Bytes = TCA_MATCHALL_ACT 2,
        /// `TCA_CLS_FLAGS_*`: hardware offload
        flags: Ne32 = TCA_MATCHALL_FLAGS 3,
    }
}

chosen! {
    /// A classifier (`TCA_KIND`), with its own attributes (`TCA_OPTIONS`).
    pub enum FilterKind by 1 {
        /// An eBPF program classifies.
        Bpf(BpfFilter) = "bpf",
        /// Matches every packet.
        Matchall(Matchall) = "matchall",
    }
}

impl FilterKind {
    /// `bpf direct-action fd PROGRAM name NAME`. The value holds only the number of the descriptor: keep the descriptor open
    /// until the filter is added.
    #[must_use]
    pub fn bpf(program: BorrowedFd<'_>, name: &str) -> Self {
        Self::Bpf(BpfFilter {
            // A borrowed descriptor is not negative.
            fd: Some(program.as_raw_fd().cast_unsigned()),
            name: Some(name.to_owned()),
            flags: Some(1),
            ..BpfFilter::default()
        })
    }
}

/// A handle: major number in the upper 16 bits, minor in the lower. `tc` prints both in hexadecimal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[doc(alias = "TC_H_MAKE")]
pub struct TcHandle(pub u32);

impl TcHandle {
    /// `TC_H_ROOT`
    #[doc(alias = "TC_H_ROOT")]
    pub const ROOT: Self = Self(0xffff_ffff);
    /// `TC_H_INGRESS`, and `TC_H_CLSACT`
    #[doc(alias = "TC_H_INGRESS")]
    #[doc(alias = "TC_H_CLSACT")]
    pub const INGRESS_QDISC: Self = Self(0xffff_fff1);
    /// Parent of the filters of a clsact qdisc for incoming packets: `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`
    #[doc(alias = "TC_H_MIN_INGRESS")]
    pub const INGRESS: Self = Self(0xffff_fff2);
    /// Parent of the filters for outgoing packets: `TC_H_MIN_EGRESS`
    #[doc(alias = "TC_H_MIN_EGRESS")]
    pub const EGRESS: Self = Self(0xffff_fff3);
}

impl fmt::Display for TcHandle {
    /// As `tc` prints it: `ffff:`, `1:10`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = (self.0 >> 16, self.0 & 0xffff);
        match (*self, minor) {
            (Self::ROOT, _) => f.write_str("root"),
            (_, 0) => write!(f, "{major:x}:"),
            _ => write!(f, "{major:x}:{minor:x}"),
        }
    }
}

/// A queueing discipline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[doc(alias = "tc-qdisc")]
pub struct Qdisc {
    /// The link's index.
    pub link: u32,
    /// Its own handle; 0 in a request lets the kernel choose.
    pub handle: TcHandle,
    /// The handle to which it is attached, such as [`TcHandle::ROOT`].
    pub parent: TcHandle,
    /// `TCA_KIND`: "clsact", "ingress", "fq_codel".
    pub kind: String,
    /// `TCA_OPTIONS`, opaque.
    pub options: Option<Vec<u8>>,
    /// Attributes without a field here, such as counters. Not sent.
    pub other: Vec<Unknown>,
}

impl Qdisc {
    /// `tc qdisc add dev LINK clsact`: a qdisc that only holds filters for both directions. Since 4.5
    #[must_use]
    pub fn clsact(link: u32) -> Self {
        Self {
            link,
            handle: TcHandle(0xffff_0000),
            parent: TcHandle::INGRESS_QDISC,
            kind: "clsact".to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn build(&self) -> (TcMsg, TcAttrs) {
        let header = TcMsg {
            index: self.link,
            handle: self.handle.0,
            parent: self.parent.0,
            ..TcMsg::default()
        };
        let attrs = TcAttrs {
            kind: Some(self.kind.clone()),
            options: self.options.clone(),
            ..TcAttrs::default()
        };
        (header, attrs)
    }
}

impl fmt::Display for Qdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind, handle, link, ..
        } = self;
        write!(f, "{kind} {handle} on link number {link}")
    }
}

/// A filter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "tc-filter")]
pub struct Filter {
    /// The link's index.
    pub link: u32,
    /// Its parent: [`TcHandle::INGRESS`], [`TcHandle::EGRESS`], or the handle of a qdisc or class.
    pub parent: TcHandle,
    /// Filters with lower numbers are evaluated first; 0 lets the kernel choose.
    pub priority: u16,
    /// `ETH_P_*` in host order: the protocol of the packets; `ETH_P_ALL` is 3.
    pub protocol: u16,
    /// Its handle, unique within one priority; 0 lets the kernel choose.
    pub handle: u32,
    /// `TCA_CHAIN`: the number of its chain; `None` is chain 0. Since 4.13
    pub chain: Option<u32>,
    /// The classifier.
    pub kind: FilterKind,
    /// Attributes without a field here, such as counters. Not sent.
    pub other: Vec<Unknown>,
}

impl Filter {
    /// A filter for all packets, `ETH_P_ALL`, with this priority.
    #[must_use]
    pub fn new(link: u32, parent: TcHandle, priority: u16, kind: FilterKind) -> Self {
        Self {
            link,
            parent,
            priority,
            protocol: libc::ETH_P_ALL as u16,
            handle: 0,
            chain: None,
            kind,
            other: Vec::new(),
        }
    }

    pub(super) fn build(&self) -> Result<(TcMsg, TcAttrs), EncodeError> {
        let header = TcMsg {
            index: self.link,
            handle: self.handle,
            parent: self.parent.0,
            // TC_H_MAKE(priority << 16, htons(protocol))
            info: u32::from(self.priority) << 16 | u32::from(self.protocol.to_be()),
            ..TcMsg::default()
        };
        let attrs = TcAttrs {
            kind: Some(self.kind.word().to_owned()),
            options: self.kind.data()?,
            chain: self.chain,
            ..TcAttrs::default()
        };
        Ok((header, attrs))
    }

    fn about(&self, operation: &str) -> Result<(TcMsg, TcAttrs)> {
        let fail = |e: EncodeError| Error::malformed(operation, self.to_string(), e.to_string());
        self.build().map_err(fail)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, at, link) = (self.kind.word(), self.parent, self.link);
        write!(
            f,
            "filter {kind} pref {} at {at} of link number {link}",
            self.priority
        )
    }
}

impl Routing {
    /// `tc qdisc show`: the qdiscs of every link.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Exhausted`] if qdiscs kept changing.
    pub fn qdiscs(&self) -> Result<Vec<Qdisc>> {
        let all = (TcMsg::default(), TcAttrs::default());
        self.list(RTM_GETQDISC, all, "the qdiscs", read_qdisc)
    }

    /// `tc qdisc add`. False if the parent already has a qdisc.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has no such qdisc; `EPERM` without `CAP_NET_ADMIN`.
    pub fn add_qdisc(&self, qdisc: &Qdisc) -> Result<bool> {
        self.add(RTM_NEWQDISC, qdisc.build(), &format!("qdisc {qdisc}"))
    }

    /// `tc qdisc delete`: deletes the qdisc and its filters. False if it does not exist.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn delete_qdisc(&self, qdisc: &Qdisc) -> Result<bool> {
        match self.delete(RTM_DELQDISC, qdisc.build(), &format!("qdisc {qdisc}")) {
            // qdisc_get() of net/sched/sch_api.c: nothing is attached to that parent.
            Err(e) if e.errno() == Some(libc::EINVAL) && !self.has_qdisc(qdisc)? => Ok(false),
            other => other,
        }
    }

    fn has_qdisc(&self, qdisc: &Qdisc) -> Result<bool> {
        let key = |q: &Qdisc| (q.link, q.parent, q.kind.clone());
        Ok(self.qdiscs()?.iter().any(|q| key(q) == key(qdisc)))
    }

    /// `tc filter show dev LINK parent PARENT`. The list is also empty if the link or the parent does not exist: the kernel
    /// does not report that (`tc_dump_tfilter()`, net/sched/cls_api.c).
    ///
    /// # Errors
    /// [`crate::ErrorKind::Exhausted`] if filters kept changing.
    pub fn filters(&self, link: u32, parent: TcHandle) -> Result<Vec<Filter>> {
        let header = TcMsg {
            index: link,
            parent: parent.0,
            ..TcMsg::default()
        };
        let object = format!("the filters at {parent} of link number {link}");
        let about = (header, TcAttrs::default());
        self.list(RTM_GETTFILTER, about, &object, read_filter)
    }

    /// `tc filter add`. False if a filter with this priority and handle exists.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has no such classifier; `EINVAL` if the parent does not exist, or the program has another type;
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn add_filter(&self, filter: &Filter) -> Result<bool> {
        self.add(RTM_NEWTFILTER, filter.about("add")?, &filter.to_string())
    }

    /// `tc filter replace`: adds the filter, or atomically replaces the one with this priority and handle.
    ///
    /// # Errors
    /// As [`Routing::add_filter`].
    pub fn replace_filter(&self, filter: &Filter) -> Result<()> {
        let (kind, flags) = (RTM_NEWTFILTER, IN_PLACE);
        let about = filter.about("replace")?;
        self.change((kind, flags), about, "replace", &filter.to_string())
    }

    /// `tc filter delete`: deletes the filter with this priority and handle, or with handle 0 all filters of the priority.
    /// False if there is none.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`; `EINVAL` if the parent does not exist.
    pub fn delete_filter(&self, filter: &Filter) -> Result<bool> {
        let (header, mut attrs) = filter.about("delete")?;
        attrs.options = None;
        self.delete(RTM_DELTFILTER, (header, attrs), &filter.to_string())
    }
}

pub(super) fn read_qdisc(message: &Message<TcMsg>) -> Result<Option<Qdisc>, DecodeError> {
    let (header, attrs) = (&message.header, message.decode::<TcAttrs>()?);
    Ok(Some(Qdisc {
        link: header.index,
        handle: TcHandle(header.handle),
        parent: TcHandle(header.parent),
        kind: attrs.kind.unwrap_or_default(),
        options: attrs.options,
        other: attrs.unknown,
    }))
}

pub(super) fn read_filter(message: &Message<TcMsg>) -> Result<Option<Filter>, DecodeError> {
    let (header, attrs) = (&message.header, message.decode::<TcAttrs>()?);
    let protocol = u16::try_from(header.info & 0xffff).unwrap_or_default();
    Ok(Some(Filter {
        link: header.index,
        parent: TcHandle(header.parent),
        priority: u16::try_from(header.info >> 16).unwrap_or_default(),
        protocol: u16::from_be(protocol),
        handle: header.handle,
        chain: attrs.chain,
        kind: FilterKind::read(attrs.kind.unwrap_or_default(), attrs.options),
        other: attrs.unknown,
    }))
}
