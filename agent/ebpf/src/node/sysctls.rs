//! Values of sysctls: reads, writes, and storage of the previous values.

use super::maps::{BEFORE_MAP, RP_FILTERS_MAP};
use super::{contents, desired};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weir_netlink::route::Routing;
use weir_netlink::{Error, Result};
use weir_rules::sysctl;

/// Keys of stored values: the index of a link for its `rp_filter`, or these for [`desired::switched_off`].
const SWITCHED_OFF: [u32; 4] = [u32::MAX, u32::MAX - 1, u32::MAX - 2, u32::MAX - 3];
/// The `rp_filter` of all links, and that of new ones.
pub(super) const ALL: u32 = u32::MAX - 4;
const DEFAULT: u32 = u32::MAX - 5;
/// Key of the index of the proxy's interface, which the first and the last of [`SWITCHED_OFF`] belong to. It outlives the pins of the
/// interface's hooks.
pub(super) const INTERFACE: u32 = u32::MAX - 6;

/// Reads a sysctl; `None` if this kernel or namespace does not have it.
pub(super) fn read_number(key: &str) -> Result<Option<u32>> {
    Ok(sysctl::find(key)?.and_then(|text| text.parse().ok()))
}

/// Writes a sysctl; a missing one is no error, because a link may disappear at any time, with its sysctls.
pub(super) fn write_number(key: &str, value: u32) -> Result<()> {
    let written = sysctl::write(key, &value.to_string());
    let object = || format!("sysctl net/{key}");
    written.or_else(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        std::io::ErrorKind::ReadOnlyFilesystem => {
            Err(Error::refused("write", object(), sysctl::describe(&e)))
        }
        _ => Err(Error::io("write", object(), &e)),
    })
}

/// Returns the sysctl of a stored key in this namespace, and the values that weir sets.
pub(super) fn sysctl_of(
    key: u32,
    links: &BTreeMap<u32, String>,
    interface: Option<&str>,
) -> Option<(String, Vec<u32>)> {
    if let Some(place) = SWITCHED_OFF.iter().position(|k| *k == key) {
        let name = desired::switched_off(interface?).into_iter().nth(place)?;
        return Some((name, vec![0]));
    }
    let name = match key {
        ALL => "all",
        DEFAULT => "default",
        index => links.get(&index)?,
    };
    Some((desired::rp_filter(name), vec![0, desired::LOOSE]))
}

/// Deletes the stored values of links that are gone, because each proxy has a new link.
pub(super) fn forget_links_that_are_gone(folder: &Path, routing: &Routing) -> Result<()> {
    let links: BTreeSet<u32> = routing.links()?.iter().map(|link| link.index).collect();
    let interface = contents::before(folder)?.get(&INTERFACE).copied();
    let is_gone = interface.is_some_and(|index| !links.contains(&index));
    contents::forget(folder, |key| match key {
        INTERFACE => is_gone,
        ALL | DEFAULT => false,
        key if key == SWITCHED_OFF[0] || key == SWITCHED_OFF[3] => is_gone,
        key => !SWITCHED_OFF.contains(&key) && !links.contains(&key),
    })
}

/// Stores the value of a sysctl before it is changed.
pub(super) fn remember(folder: &Path, routing: &Routing, key: &str) -> Result<()> {
    let mut parts = key.split('/').rev();
    let (last, name) = (parts.next(), parts.next().unwrap_or_default());
    let of_interface = |number| {
        let index = routing.link(name)?.index;
        remember_number(folder, INTERFACE, index).map(|()| number)
    };
    let number = match (last, name) {
        (Some("rp_filter"), "all") => ALL,
        (Some("rp_filter"), "default") => DEFAULT,
        (Some("rp_filter"), name) => match routing.link(name) {
            Err(e) if e.is_not_found() => return Ok(()),
            link => link?.index,
        },
        (Some("src_valid_mark"), "all") => SWITCHED_OFF[2],
        (Some("src_valid_mark"), _) => of_interface(SWITCHED_OFF[3])?,
        _ if key.starts_with("ipv4/") => of_interface(SWITCHED_OFF[0])?,
        _ => SWITCHED_OFF[1],
    };
    match read_number(key)? {
        Some(value) => remember_number(folder, number, value),
        None => Ok(()),
    }
}

/// Stores a value by key.
pub(super) fn remember_number(folder: &Path, key: u32, value: u32) -> Result<()> {
    let spec = match SWITCHED_OFF.contains(&key) || key == INTERFACE {
        true => &BEFORE_MAP,
        false => &RP_FILTERS_MAP,
    };
    contents::remember(folder, spec, key, value)
}
