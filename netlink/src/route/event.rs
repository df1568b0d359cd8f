//! Notifications of `NETLINK_ROUTE`.

use super::{
    Address, Filter, Link, Neighbour, PolicyRule, Qdisc, Route, address, link, neigh, nsid,
    number as n, routes, rule, tc,
};
use crate::attr::DecodeError;
use crate::events::Notifies;
use crate::message::{self, Message};

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed<T> {
    /// `RTM_NEW*`: the object is new, or has changed.
    New(T),
    /// `RTM_DEL*`: the object was deleted.
    Gone(T),
}

/// One notification of `NETLINK_ROUTE`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteEvent {
    /// `RTNLGRP_LINK`
    Link(Changed<Link>),
    /// `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV6_IFADDR`
    Address(Changed<Address>),
    /// `RTNLGRP_IPV4_ROUTE`, `RTNLGRP_IPV6_ROUTE`
    Route(Changed<Route>),
    /// `RTNLGRP_IPV4_RULE`, `RTNLGRP_IPV6_RULE`
    Rule(Changed<PolicyRule>),
    /// `RTNLGRP_NEIGH`
    Neighbour(Changed<Neighbour>),
    /// `RTNLGRP_TC`
    Qdisc(Changed<Qdisc>),
    /// `RTNLGRP_TC`
    Filter(Changed<Filter>),
    /// `RTNLGRP_NSID`
    Nsid(Changed<i32>),
    /// Any other message, as `nlmsg_type` and the payload after the header.
    Other(u16, Vec<u8>),
}

impl Notifies for message::Rtnetlink {
    type Event = RouteEvent;

    fn event(kind: u16, flags: u16, payload: &[u8]) -> Result<RouteEvent, DecodeError> {
        macro_rules! read {
            ($variant:ident, $read:path) => {{
                let value = $read(&Message::of(kind, flags, payload)?)?;
                value.map(|value| {
                    // Of the four message types of an object, RTM_NEW* is the first and RTM_DEL* the second.
                    RouteEvent::$variant(match kind % 4 {
                        0 => Changed::New(value),
                        _ => Changed::Gone(value),
                    })
                })
            }};
        }
        let known = match kind {
            n::RTM_NEWLINK | n::RTM_DELLINK => read!(Link, link::read),
            n::RTM_NEWADDR | n::RTM_DELADDR => read!(Address, address::read),
            n::RTM_NEWROUTE | n::RTM_DELROUTE => read!(Route, routes::read),
            n::RTM_NEWRULE | n::RTM_DELRULE => read!(Rule, rule::read),
            n::RTM_NEWNEIGH | n::RTM_DELNEIGH => read!(Neighbour, neigh::read),
            n::RTM_NEWQDISC | n::RTM_DELQDISC => read!(Qdisc, tc::read_qdisc),
            n::RTM_NEWTFILTER | n::RTM_DELTFILTER => read!(Filter, tc::read_filter),
            n::RTM_NEWNSID | n::RTM_DELNSID => read!(Nsid, nsid::read),
            _ => None,
        };
        Ok(known.unwrap_or_else(|| RouteEvent::Other(kind, payload.to_vec())))
    }
}
