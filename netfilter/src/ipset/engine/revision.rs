//! Revisions of a type: the options that each adds, and the newest that the kernel and this version support.

use super::IpsetEngine;
use crate::ipset::model::{Header, NEVER, SetFamily, SetType};
use crate::ipset::options::options;
use crate::ipset::question::{ask_type, is_lacking};
use std::ops::RangeInclusive;
use weir_netlink::{Error, Result, Transport};

impl<T: Transport> IpsetEngine<T> {
    /// The revisions of a type that the kernel supports (`IPSET_CMD_TYPE`). The request makes the kernel load the type's
    /// module.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](weir_netlink::ErrorKind::Unsupported) if the kernel lacks the type or the family. Any other
    /// error, such as a lost answer or `EPERM`, does not depend on the type.
    pub fn revisions(
        &mut self,
        set_type: &SetType,
        family: SetFamily,
    ) -> Result<RangeInclusive<u8>> {
        if let Some((min, max)) = self.revisions.get(&(set_type.clone(), family)) {
            return Ok(*min..=*max);
        }
        let what = format!("set type {set_type} family {family}");
        let about = (set_type.name(), family.number());
        let answer = ask_type(&mut self.socket, self.version, about, &what);
        let range = answer.map_err(|e| match is_lacking(&e) {
            true => lacking(&what, set_type),
            false => e,
        })?;
        self.revisions
            .insert((set_type.clone(), family), (*range.start(), *range.end()));
        Ok(range)
    }

    /// Checks that the kernel supports the type and every option of a set before it is created. The request makes the kernel
    /// load the type's module; nothing else changes.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](weir_netlink::ErrorKind::Unsupported) names the type or the option that the kernel lacks; a
    /// refusal names an option that the type does not have.
    pub fn check_header(&mut self, h: &Header) -> Result<()> {
        self.revision_for(h).map(drop)
    }

    /// The newest revision that the kernel and this version support, if it has every option of this set.
    pub(super) fn revision_for(&mut self, h: &Header) -> Result<u8> {
        let what = format!("set {}", h.name);
        let Some(since) = h.kind.since() else {
            let reason = format!("{} is not a known type: use one of the known types", h.kind);
            return Err(Error::refused("create", what, reason));
        };
        let range = self.revisions(&h.kind, h.family)?;
        let (min, max) = (*range.start(), *range.end());
        if min > since.newest {
            let remedy = format!(
                "the kernel's {} begins at revision {min}, the newest supported one is {}",
                h.kind, since.newest
            );
            return Err(Error::unsupported("create", what, remedy));
        }
        let revision = max.min(since.newest);
        for option in options(&h.kind).filter(|o| (o.is_given)(h)) {
            let Some((from, release)) = option.since else {
                continue;
            };
            let (from, name) = (from(&h.kind, since), option.name);
            if from == NEVER {
                let reason = format!("{} has no {name} ({release}): leave it out", h.kind);
                return Err(Error::refused("create", what, reason));
            }
            if revision < from {
                let remedy = format!(
                    "this kernel's {} is revision {revision}; {name} ({release}) came with {from}",
                    h.kind
                );
                return Err(Error::unsupported("create", what, remedy));
            }
        }
        Ok(revision)
    }
}

fn lacking(what: &str, set_type: &SetType) -> Error {
    let remedy = match set_type {
        SetType::Other(_) => "this kernel lacks it; check the name".to_owned(),
        known => format!("this kernel lacks it: {}", known.module()),
    };
    Error::unsupported("use", what, remedy)
}
