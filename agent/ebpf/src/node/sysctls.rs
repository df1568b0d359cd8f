//! Numbers of sysctls: what they are, and what they were before.

use super::plan::Observed;
use super::{contents, desired};
use std::collections::BTreeSet;
use std::path::Path;
use weir_cni::sysctl;
use weir_netlink::route::Routing;
use weir_netlink::{Error, Result};

/// Keys of what was changed: an index of a link for its `rp_filter`, or these of [`desired::switched_off`].
const SWITCHED_OFF: [u32; 4] = [u32::MAX, u32::MAX - 1, u32::MAX - 2, u32::MAX - 3];

/// A number of a sysctl; `None` where this kernel or namespace does not have it.
pub(super) fn read_number(key: &str) -> Result<Option<u32>> {
    match sysctl::read(key) {
        Ok(text) => Ok(text.parse().ok()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", format!("sysctl net/{key}"), &e)),
    }
}

pub(super) fn write_number(key: &str, value: u32) -> Result<()> {
    sysctl::write(key, &value.to_string()).map_err(|e| {
        let object = format!("sysctl net/{key}");
        match e.kind() {
            std::io::ErrorKind::ReadOnlyFilesystem => {
                Error::refused("write", object, sysctl::describe(&e))
            }
            _ => Error::io("write", object, &e),
        }
    })
}

/// The sysctl of a key in `weir_sysctls`, in this namespace.
pub(super) fn sysctl_of(
    key: u32,
    observed: &Observed,
    interface: Option<&str>,
) -> Option<(String, u32)> {
    match SWITCHED_OFF.iter().position(|k| *k == key) {
        Some(place) => {
            let name = desired::switched_off(interface?).into_iter().nth(place)?;
            Some((name, 0))
        }
        None => Some((
            desired::rp_filter(observed.links.get(&key)?),
            desired::LOOSE,
        )),
    }
}

/// Writes down what a sysctl is before it is changed. What is known of links that are gone is forgotten: each proxy has another one.
pub(super) fn remember(folder: &Path, routing: &Routing, key: &str) -> Result<()> {
    let mut parts = key.split('/').rev();
    let (last, name) = (parts.next(), parts.next().unwrap_or_default());
    let number = match last {
        Some("rp_filter") => {
            let links: BTreeSet<u32> = routing.links()?.iter().map(|link| link.index).collect();
            let is_known = |key: u32| SWITCHED_OFF.contains(&key) || links.contains(&key);
            contents::forget(folder, |key| !is_known(key))?;
            routing.link(name)?.index
        }
        Some("src_valid_mark") if name == "all" => SWITCHED_OFF[2],
        Some("src_valid_mark") => SWITCHED_OFF[3],
        _ if key.starts_with("ipv4/") => SWITCHED_OFF[0],
        _ => SWITCHED_OFF[1],
    };
    match read_number(key)? {
        Some(value) => contents::remember(folder, number, value),
        None => Ok(()),
    }
}
