//! `-j LOG`: `struct xt_log_info` (`linux/netfilter/xt_LOG.h`), 32 bytes.

use super::super::structs::XtLogInfo;
use super::super::{Context, Encoded, Form, Kind, Quoted, forms};
use crate::xtables::raw::*;
use crate::xtables::structs::{name_field, name_of, read, written};
use crate::xtables::text::{Complaint, Given};
use std::fmt;

/// A line in the kernel's log; the packet continues with the next rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_log_info")]
pub struct Log {
    /// `--log-level`, 0 (`emerg`) to 7 (`debug`).
    pub level: u8,
    /// `--log-prefix`: at most 29 bytes.
    pub prefix: String,
    /// `XT_LOG_*`: additional information to log.
    pub flags: u8,
}

/// `warning`
const DEFAULT: u8 = 4;
const LEVELS: [&str; 8] = [
    "emerg", "alert", "crit", "error", "warning", "notice", "info", "debug",
];
const FLAGS: &[(&str, u8)] = &[
    ("--log-tcp-sequence", XT_LOG_TCPSEQ),
    ("--log-tcp-options", XT_LOG_TCPOPT),
    ("--log-ip-options", XT_LOG_IPOPT),
    ("--log-uid", XT_LOG_UID),
    ("--log-macdecode", XT_LOG_MACDECODE),
];

impl Default for Log {
    /// `-j LOG` without options.
    fn default() -> Self {
        Self {
            level: DEFAULT,
            prefix: String::new(),
            flags: 0,
        }
    }
}

pub(crate) const KIND: Kind<Log> = Kind {
    name: "LOG",
    forms: |_| forms!["LOG" 0],
    encode,
    decode,
    options: &[
        ("--log-level", 1),
        ("--log-prefix", 1),
        ("--log-tcp-sequence", 0),
        ("--log-tcp-options", 0),
        ("--log-ip-options", 0),
        ("--log-uid", 0),
        ("--log-macdecode", 0),
    ],
    parse,
};

fn encode(v: &Log, _: Form, _: &Context<'_>) -> Encoded {
    let known = FLAGS.iter().fold(0, |all, (_, bit)| all | bit);
    if v.level > 7 || v.flags & !known != 0 {
        return Err("a level is 0 to 7, and flags are those of XT_LOG_*".into());
    }
    Ok(Some(written(&XtLogInfo {
        level: v.level,
        logflags: v.flags,
        prefix: name_field(&v.prefix).ok_or("a prefix has at most 29 bytes; shorten it")?,
    })))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Log> {
    let w: XtLogInfo = read(b)?;
    Some(Log {
        level: w.level,
        flags: w.logflags,
        prefix: name_of(&w.prefix)?,
    })
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.prefix.is_empty() {
            write!(f, " --log-prefix {}", Quoted(&self.prefix))?;
        }
        if self.level != DEFAULT {
            write!(f, " --log-level {}", self.level)?;
        }
        let mut set = FLAGS.iter().filter(|(_, bit)| self.flags & bit != 0);
        set.try_for_each(|(option, _)| write!(f, " {option}"))
    }
}

fn parse(given: &mut Given) -> Result<Log, Complaint> {
    let mut v = Log::default();
    if let Some(o) = given.take(&["--log-level"]) {
        let word = o.plain()?.word(0);
        let word = match word {
            "err" => "error",
            "warn" => "warning",
            "panic" => "emerg",
            other => other,
        };
        let named = LEVELS
            .iter()
            .position(|name| *name == word)
            .and_then(|n| u8::try_from(n).ok());
        let why = format!("is no level; give 0 to 7, or {}", LEVELS.join(", "));
        v.level = match named {
            Some(level) => level,
            None => o.number_in(word, &why)?,
        };
        if v.level > 7 {
            return Err(o.wrong(&why));
        }
    }
    if let Some(o) = given.take(&["--log-prefix"]) {
        o.plain()?.word(0).clone_into(&mut v.prefix);
        if v.prefix.len() > 29 {
            return Err(o.wrong("is longer than 29 bytes; shorten it"));
        }
    }
    for (option, bit) in FLAGS {
        v.flags |= if given.flag(option)? { *bit } else { 0 };
    }
    Ok(v)
}
