//! `-j NFLOG`: `struct xt_nflog_info` (`linux/netfilter/xt_NFLOG.h`), 76 bytes.

use super::super::structs::XtNflogInfo;
use super::super::{Context, Encoded, Form, Kind, Quoted, forms};
use crate::xtables::raw::*;
use crate::xtables::structs::{name_field, name_of, read, written};
use crate::xtables::text::{Complaint, Given};
use std::fmt;

/// A copy to the listeners of an nfnetlink_log group; the packet continues with the next rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_nflog_info")]
pub struct Nflog {
    /// `--nflog-group`
    pub group: u16,
    /// `--nflog-prefix`: at most 63 bytes.
    pub prefix: String,
    /// `--nflog-size`: number of bytes of the packet that are copied (Linux 4.9).
    pub size: Option<u32>,
    /// `--nflog-range`: the older form of the same, which the kernel ignores; 0 without it.
    pub range: u32,
    /// `--nflog-threshold`: number of packets that are collected before sending.
    pub threshold: u16,
}

pub(crate) const KIND: Kind<Nflog> = Kind {
    name: "NFLOG",
    forms: |_| forms!["NFLOG" 0],
    encode,
    decode,
    options: &[
        ("--nflog-group", 1),
        ("--nflog-prefix", 1),
        ("--nflog-size", 1),
        ("--nflog-range", 1),
        ("--nflog-threshold", 1),
    ],
    parse,
};

fn encode(v: &Nflog, _: Form, _: &Context<'_>) -> Encoded {
    let flags = if v.size.is_some() {
        XT_NFLOG_F_COPY_LEN
    } else {
        0
    };
    Ok(Some(written(&XtNflogInfo {
        len: v.size.unwrap_or(v.range),
        group: v.group,
        threshold: v.threshold,
        flags,
        pad: 0,
        prefix: name_field(&v.prefix).ok_or("a prefix has at most 63 bytes; shorten it")?,
    })))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Nflog> {
    let w: XtNflogInfo = read(b)?;
    let is_size = w.flags & XT_NFLOG_F_COPY_LEN != 0;
    Some(Nflog {
        group: w.group,
        prefix: name_of(&w.prefix)?,
        size: is_size.then_some(w.len),
        range: if is_size { 0 } else { w.len },
        threshold: w.threshold,
    })
}

impl fmt::Display for Nflog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.prefix.is_empty() {
            write!(f, " --nflog-prefix {}", Quoted(&self.prefix))?;
        }
        if self.group != 0 {
            write!(f, " --nflog-group {}", self.group)?;
        }
        self.size
            .iter()
            .try_for_each(|size| write!(f, " --nflog-size {size}"))?;
        if self.range != 0 {
            write!(f, " --nflog-range {}", self.range)?;
        }
        if self.threshold == XT_NFLOG_DEFAULT_THRESHOLD {
            return Ok(());
        }
        write!(f, " --nflog-threshold {}", self.threshold)
    }
}

fn parse(given: &mut Given) -> Result<Nflog, Complaint> {
    let mut v = Nflog::default();
    if let Some(o) = given.take(&["--nflog-group"]) {
        v.group = o.plain()?.number(0)?;
    }
    if let Some(o) = given.take(&["--nflog-prefix"]) {
        o.plain()?.word(0).clone_into(&mut v.prefix);
        if v.prefix.len() > 63 {
            return Err(o.wrong("is longer than 63 bytes; shorten it"));
        }
    }
    if let Some(o) = given.take(&["--nflog-size"]) {
        v.size = Some(o.plain()?.number(0)?);
    }
    if let Some(o) = given.take(&["--nflog-range"]) {
        v.range = o.plain()?.number(0)?;
    }
    if let Some(o) = given.take(&["--nflog-threshold"]) {
        v.threshold = o.plain()?.number(0)?;
    }
    Ok(v)
}
