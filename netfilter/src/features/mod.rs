//! Tables of the kernel's extensions, expressions and modules: the option that builds each, its module, the first kernel that
//! has it. Errors, probes and the report on a kernel read the same tables.
//!
//! This module is below the engines: it sends the kernel no request that could load a module.

pub(crate) mod extensions;
pub(crate) mod families;
mod kernel;
pub(crate) mod modules;

pub use kernel::{Loading, RunningKernel};

use weir_netlink::Error;

/// The options and modules as the text of a message: `CONFIG_NFT_TPROXY (module nft_tproxy)`. Empty without a module.
pub(crate) fn given_by(needs: &str) -> String {
    let (options, modules) = names(needs);
    let modules = match modules.is_empty() {
        true => String::new(),
        false => format!(" (module {})", modules.join(" ")),
    };
    format!("{}{modules}", options.join(" "))
}

/// The options that provide these modules, and which of them can be loaded as modules.
pub(crate) fn names(needs: &str) -> (Vec<String>, Vec<String>) {
    let given = needs.split_whitespace();
    let mut options: Vec<String> = given.clone().map(modules::option).collect();
    options.dedup();
    // A module that has been merged into a larger one cannot be loaded.
    let own = given.filter(|m| modules::exception(m).is_none_or(|e| e.merged == (0, 0)));
    (options, own.map(str::to_owned).collect())
}

/// The substitute for what weir also does with legacy tables.
pub(crate) const LEGACY: &str = "legacy tables (--engine xtables)";
pub(crate) const NONE: &str = "nothing: only where the feature is asked for";

/// What the kernel must have for a feature of nf_tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feature {
    /// Its name, unique in its table.
    pub(crate) feature: &'static str,
    /// The first kernel that has it.
    pub(crate) since: &'static str,
    /// Its modules; empty if it is part of nf_tables.
    pub(crate) needs: &'static str,
    /// The substitute if it is missing.
    pub(crate) instead: &'static str,
}

impl Feature {
    pub(crate) const fn of(
        feature: &'static str,
        since: &'static str,
        needs: &'static str,
        instead: &'static str,
    ) -> Self {
        Self {
            feature,
            since,
            needs,
            instead,
        }
    }

    /// The row of this name.
    pub(crate) const fn find(table: &'static [Self], feature: &str) -> Option<&'static Self> {
        let mut rest = table;
        while let [first, more @ ..] = rest {
            if is_same(first.feature.as_bytes(), feature.as_bytes()) {
                return Some(first);
            }
            rest = more;
        }
        None
    }

    /// The option and module that provide it: `CONFIG_NFT_TPROXY (module nft_tproxy)`. `None` if it is part of nf_tables.
    pub(crate) fn given_by(&self) -> Option<String> {
        (!self.needs.is_empty()).then(|| given_by(self.needs))
    }
}

const fn is_same(mut a: &[u8], mut b: &[u8]) -> bool {
    while let ([x, more_a @ ..], [y, more_b @ ..]) = (a, b) {
        if *x != *y {
            return false;
        }
        (a, b) = (more_a, more_b);
    }
    a.is_empty() && b.is_empty()
}

/// Whether the kernel has a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel accepted the trial. The text names the supported revisions; empty where a feature has none.
    Have(String),
    /// The kernel lacks the feature. The text is the kernel's error, or the reason.
    Lack(String),
    /// The trial was not possible, or failed for another reason, which the text gives.
    Unknown(String),
}

impl Answer {
    /// Whether it is [`Answer::Have`].
    #[must_use]
    pub fn is_have(&self) -> bool {
        matches!(self, Self::Have(_))
    }

    /// Whether it is [`Answer::Lack`].
    #[must_use]
    pub fn is_lack(&self) -> bool {
        matches!(self, Self::Lack(_))
    }

    /// `have`, `lack`, `unknown`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Have(_) => "have",
            Self::Lack(_) => "lack",
            Self::Unknown(_) => "unknown",
        }
    }

    /// The text of the answer.
    #[must_use]
    pub fn detail(&self) -> &str {
        match self {
            Self::Have(text) | Self::Lack(text) | Self::Unknown(text) => text,
        }
    }

    /// Converts the outcome of a trial: an errno in `absent` is [`Answer::Lack`]; any other failure is [`Answer::Unknown`].
    #[must_use]
    pub fn of(trial: Result<String, Error>, absent: &[i32]) -> Self {
        match trial {
            Ok(detail) => Self::Have(detail),
            Err(e) if e.errno().is_some_and(|n| absent.contains(&n)) => Self::Lack(e.to_string()),
            Err(e) => Self::Unknown(e.to_string()),
        }
    }
}
