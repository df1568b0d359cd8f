//! Parses the parts of an intent that the plugin reads as text.

use super::{OwnerGroups, Ranges};
use crate::config::{InputError, text, values};
use ipnet::{IpNet, Ipv4Net};
use std::path::Path;

impl OwnerGroups {
    /// Parses the list of captured groups, `*` for all, and the list of groups excluded from all; each is given with the
    /// name of its field. Looks up names of groups in `file`.
    ///
    /// # Errors
    /// An element is invalid; the error names it, the reason and the accepted values.
    pub fn parse(
        include: (&str, &str),
        exclude: (&str, &str),
        file: &Path,
    ) -> Result<Self, InputError> {
        let list = |(field, list): (&str, &str)| values::ids(field, list, file);
        match include.1 {
            "*" => list(exclude).map(Self::AllBut),
            _ => list(include).map(Self::Only),
        }
    }
}

impl Ranges {
    /// Parses a list of networks.
    ///
    /// # Errors
    /// The first element that is not a network, and the reason.
    pub fn parse<'a>(list: impl Iterator<Item = &'a str>) -> Result<Self, (&'a str, &'static str)> {
        let mut ranges = Self::default();
        for element in list {
            match text::cidr(element).map_err(|reason| (element, reason))? {
                IpNet::V4(net) => ranges.v4.push(net),
                IpNet::V6(net) => ranges.v6.push(net),
            }
        }
        Ok(ranges)
    }
}

/// Parses the IPv4 network that counts as loopback.
///
/// # Errors
/// It is not an IPv4 network.
pub fn loopback(field: &str, network: &str) -> Result<Ipv4Net, InputError> {
    let reason = match text::cidr(network.trim()) {
        Ok(IpNet::V4(net)) => return Ok(net),
        Ok(IpNet::V6(_)) => "is not IPv4",
        Err(reason) => reason,
    };
    let accepted = "an IPv4 network, such as 127.0.0.1/32";
    Err(InputError::value(field, network, reason, accepted))
}
