//! A kernel without IPv6: not built in, or switched off at boot (`ipv6.disable=1`).

use super::scheme::SIDECAR;
use crate::compile::{Compiled, RoutingItem, Rules};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};
use weir_netfilter::xtables::XtFamily;
use weir_netlink::route::{self, Address, LOOPBACK_IFINDEX};

/// The part of the redirection that this kernel supports. Without IPv6 there are no IPv6 packets to redirect, and the
/// kernel refuses IPv6 addresses and has no legacy tables for them; it accepts IPv6 rules in `inet` tables.
pub(super) fn possible<'a>(desired: &'a Compiled, addresses: &[Address]) -> Cow<'a, Compiled> {
    if !has_ipv6() {
        return Cow::Owned(without_ipv6(desired));
    }
    // A sidecar's redirection over IPv6 needs its own IPv6 address, and must fail if that is not possible.
    match desired.scheme() == &SIDECAR || has_ipv6_on_lo(addresses) {
        true => Cow::Borrowed(desired),
        false => Cow::Owned(without_routes_of_ipv6(desired)),
    }
}

/// True if `lo` has IPv6 in a namespace with these addresses. Otherwise the kernel refuses IPv6 routes over it: see
/// `net.ipv6.conf.lo.disable_ipv6`.
#[must_use]
pub fn has_ipv6_on_lo(addresses: &[Address]) -> bool {
    let loopback = IpAddr::from(Ipv6Addr::LOCALHOST);
    let is_it = |a: &Address| a.index == LOOPBACK_IFINDEX && a.net.addr() == loopback;
    addresses.iter().any(is_it)
}

/// Removes IPv6 routes, for an `lo` without IPv6: it is switched off (`net.ipv6.conf.lo.disable_ipv6`), or `lo` is down.
/// The kernel refuses IPv6 routes over such an interface, and it receives no IPv6 packets.
fn without_routes_of_ipv6(desired: &Compiled) -> Compiled {
    let mut rest = desired.clone();
    rest.routing.retain(|item| {
        !(matches!(item, RoutingItem::LocalDefault(_)) && item.family() == route::AddressFamily::V6)
    });
    rest
}

/// True if this kernel has IPv6: it is built in and not disabled at boot (`ipv6.disable=1`).
///
/// The kernel is asked for a socket, and only its answer `EAFNOSUPPORT` means that it has no IPv6. A file in `/proc` does
/// not tell: it can be missing for other reasons, and IPv6 traffic would then not be captured.
#[must_use]
pub fn has_ipv6() -> bool {
    let flags = SockFlag::SOCK_CLOEXEC;
    let opened = socket(AddressFamily::Inet6, SockType::Datagram, flags, None);
    !matches!(opened, Err(Errno::EAFNOSUPPORT))
}

fn without_ipv6(desired: &Compiled) -> Compiled {
    let mut rest = desired.clone();
    rest.routing
        .retain(|item| item.family() == route::AddressFamily::V4);
    if let Rules::Xtables(ruleset) = &mut rest.rules {
        ruleset.tables.retain(|t| t.family == XtFamily::Ip);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Engine, compile};
    use crate::config::{Inbound, Intent, texts};

    #[test]
    fn what_is_for_ipv6_goes_and_the_rest_stays() {
        let intent = Intent {
            mode: texts::tproxy(),
            inbound: Inbound::All,
            enable_ipv6: true,
            ..Intent::default()
        };
        for engine in [Engine::Nft, Engine::Xtables] {
            let desired = compile(&intent, engine);
            let text = desired.to_string();
            assert!(text.contains("::6/128"), "{text}");
            let rest = without_ipv6(&desired);
            assert!(rest.routing.len() < desired.routing.len() && !rest.routing.is_empty());
            assert!(!rest.to_string().contains("::6/128"));
            match (&rest.rules, &desired.rules) {
                (Rules::Xtables(rest), _) => {
                    assert!(!rest.tables.is_empty());
                    assert!(rest.tables.iter().all(|t| t.family == XtFamily::Ip));
                }
                (rest, desired) => assert_eq!(rest, desired),
            }
            assert_eq!(without_ipv6(&rest), rest);
        }
    }

    /// Compares the result with the kernel that runs this test.
    #[test]
    fn the_kernel_is_asked() {
        assert_eq!(
            has_ipv6(),
            std::path::Path::new("/proc/sys/net/ipv6")
                .try_exists()
                .unwrap()
        );
    }
}
