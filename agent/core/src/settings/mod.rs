//! The settings of the agent: flags, environment and defaults.
//!
//! [`TABLE`] declares every setting once; flags, help, parsing and `--explain-settings` are derived from it. A flag
//! overrides the environment, and the environment overrides the default. A variable that is set but empty counts
//! as set, except for numeric settings of weir's own. [`Resolved`] has the text of each setting with its origin; each part
//! of the agent reads its own settings from it.

mod explain;
mod parse;
mod resolve;
mod table;
mod value;

pub use explain::{json, origin, text, text_of, without_flags};
pub use parse::{go_bool, go_int};
pub use resolve::{Effective, Origin, Resolved, resolve};
pub use table::{Setting, SettingKind, TABLE, Usage};
pub use value::SettingError;
