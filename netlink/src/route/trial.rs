//! Links and filters as plain as the kernel lets them be: to find out whether it has them.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{InfoData, InfoGeneve, InfoKind, InfoVxlan};
use rtnetlink::packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcMessage, TcOption,
};
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use super::Routing;
use crate::{Error, Result};

/// A kind of link, with no more of its own than it cannot be made without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialLink {
    /// `type bridge`
    Bridge,
    /// `type dummy`
    Dummy,
    /// `type geneve id 1 remote 192.0.2.1`
    Geneve,
    /// `type ipvlan`, on a lower link
    Ipvlan,
    /// `type macvlan`, on a lower link
    Macvlan,
    /// `type netkit`
    Netkit,
    /// `type veth`
    Veth,
    /// `type vxlan id 1 remote 192.0.2.1`
    Vxlan,
}

impl TrialLink {
    /// The word of `IFLA_INFO_KIND`.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Dummy => "dummy",
            Self::Geneve => "geneve",
            Self::Ipvlan => "ipvlan",
            Self::Macvlan => "macvlan",
            Self::Netkit => "netkit",
            Self::Veth => "veth",
            Self::Vxlan => "vxlan",
        }
    }

    fn info(self) -> (InfoKind, Option<InfoData>) {
        // TEST-NET-1: nobody has it.
        let remote = Ipv4Addr::new(192, 0, 2, 1);
        match self {
            Self::Geneve => (
                InfoKind::Geneve,
                Some(InfoData::Geneve(vec![
                    InfoGeneve::Id(1),
                    InfoGeneve::Remote(remote),
                ])),
            ),
            Self::Vxlan => (
                InfoKind::Vxlan,
                Some(InfoData::Vxlan(vec![
                    InfoVxlan::Id(1),
                    InfoVxlan::Group(remote),
                ])),
            ),
            other => (InfoKind::Other(other.kind().to_owned()), None),
        }
    }
}

impl Routing {
    /// `ip link add NAME [link LOWER] type KIND`. The other end of a pair is named by the
    /// kernel.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the kernel has no such kind. Where it has loadable modules it looks for
    /// `rtnl-link-KIND` first.
    pub fn add_trial_link(&self, name: &str, kind: TrialLink, lower: Option<u32>) -> Result<()> {
        let (info_kind, data) = kind.info();
        let mut link = LinkMessageBuilder::<LinkUnspec>::new_with_info_kind(info_kind).name(name);
        if let Some(data) = data {
            link = link.set_info_data(data);
        }
        if let Some(lower) = lower {
            link = link.link(lower);
        }
        let object = format!("link {name} of kind {}", kind.kind());
        self.create(RouteNetlinkMessage::NewLink(link.build()), "add", &object)
    }

    /// `tc qdisc add dev LINK clsact`
    ///
    /// # Errors
    ///
    /// `ENOENT`: the kernel has no such qdisc; `EEXIST`: it is there.
    pub fn add_clsact(&self, link: u32) -> Result<()> {
        let object = format!("clsact on link number {link}");
        let mut message = TcMessage::with_index(index(link, &object)?);
        message.header.handle = TcHandle {
            major: 0xffff,
            minor: 0,
        };
        message.header.parent = TcHandle::CLSACT;
        message
            .attributes
            .push(TcAttribute::Kind("clsact".to_owned()));
        self.create(
            RouteNetlinkMessage::NewQueueDiscipline(message),
            "add",
            &object,
        )
    }

    /// `tc filter add dev LINK ingress bpf direct-action fd PROGRAM`
    ///
    /// # Errors
    ///
    /// `ENOENT`: the kernel has no such classifier; `EINVAL`: no clsact qdisc is there, or it is
    /// a program of another type.
    pub fn add_bpf_filter(&self, link: u32, program: BorrowedFd<'_>) -> Result<()> {
        /// `TC_H_MIN_INGRESS` (`linux/pkt_sched.h`)
        const TC_H_MIN_INGRESS: u16 = 0xfff2;
        let object = format!("bpf filter on link number {link}");
        let fd = u32::try_from(program.as_raw_fd())
            .map_err(|_| Error::kernel("add", &object, libc::EBADF))?;
        let mut message = TcMessage::with_index(index(link, &object)?);
        message.header.parent = TcHandle {
            major: 0xffff,
            minor: TC_H_MIN_INGRESS,
        };
        // Priority 1, all protocols: the protocol is in network order.
        let protocol = u16::try_from(libc::ETH_P_ALL).unwrap_or(3).to_be();
        message.header.info = 1 << 16 | u32::from(protocol);
        message.attributes.push(TcAttribute::Kind("bpf".to_owned()));
        message.attributes.push(TcAttribute::Options(vec![
            TcOption::Bpf(TcFilterBpfOption::ProgFd(fd)),
            TcOption::Bpf(TcFilterBpfOption::ProgName("weir".to_owned())),
            TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
        ]));
        self.create(
            RouteNetlinkMessage::NewTrafficFilter(message),
            "add",
            &object,
        )
    }
}

fn index(link: u32, object: &str) -> Result<i32> {
    i32::try_from(link).map_err(|_| Error::kernel("add", object, libc::ENODEV))
}
