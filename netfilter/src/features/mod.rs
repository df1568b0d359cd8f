//! What each extension, expression and module of the kernel is called where it is built: by which option, in which module, since
//! which kernel. Errors, probes and the report on a kernel read the same tables.
//!
//! Below the engines: nothing here asks the kernel for anything that could load a module.

pub(crate) mod expressions;
pub(crate) mod extensions;
mod kernel;
pub(crate) mod modules;

pub use kernel::{Loading, RunningKernel};

use weir_netlink::Error;

/// What these modules are called in a message: `CONFIG_NFT_TPROXY (module nft_tproxy)`. Empty if none is known.
pub(crate) fn given_by(needs: &str) -> String {
    let (options, modules) = names(needs);
    let modules = match modules.is_empty() {
        true => String::new(),
        false => format!(" (module {})", modules.join(" ")),
    };
    format!("{}{modules}", options.join(" "))
}

/// The options that provide these modules, and those of them that are modules of their own.
pub(crate) fn names(needs: &str) -> (Vec<String>, Vec<String>) {
    let given = needs.split_whitespace();
    let mut options: Vec<String> = given.clone().map(modules::option).collect();
    options.dedup();
    // A module that has been merged into a larger one cannot be loaded.
    let own = given.filter(|m| modules::exception(m).is_none_or(|e| e.merged == (0, 0)));
    (options, own.map(str::to_owned).collect())
}

/// The three answers. The text holds the revisions, the kernel's error, or the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel did it.
    Have(String),
    /// The kernel lacks the feature.
    Lack(String),
    /// It could not be determined.
    Unknown(String),
}

impl Answer {
    /// Whether the kernel did it.
    #[must_use]
    pub fn is_have(&self) -> bool {
        matches!(self, Self::Have(_))
    }

    /// Whether the kernel lacks the feature.
    #[must_use]
    pub fn is_lack(&self) -> bool {
        matches!(self, Self::Lack(_))
    }

    /// `have`, `lack`, `could not tell`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Have(_) => "have",
            Self::Lack(_) => "lack",
            Self::Unknown(_) => "could not tell",
        }
    }

    /// The text of the answer.
    #[must_use]
    pub fn detail(&self) -> &str {
        match self {
            Self::Have(text) | Self::Lack(text) | Self::Unknown(text) => text,
        }
    }

    /// The answer of a trial: an errno in `absent` is [`Answer::Lack`]; any other failure is [`Answer::Unknown`].
    #[must_use]
    pub fn of(trial: Result<String, Error>, absent: &[i32]) -> Self {
        match trial {
            Ok(detail) => Self::Have(detail),
            Err(e) if e.errno().is_some_and(|n| absent.contains(&n)) => Self::Lack(e.to_string()),
            Err(e) => Self::Unknown(e.to_string()),
        }
    }
}
