//! What the agent was told: by flags, by the environment, by defaults.
//!
//! [`TABLE`] declares every setting once; flags, help, parsing and `--explain-settings` are made from it. A flag
//! beats the environment, the environment beats the default, and a variable that is set but empty counts
//! as set, but for the numbers of weir's own. [`Resolved`] is the text of each setting with its origin. Each room reads from it
//! what is its own.

mod explain;
mod parse;
mod resolve;
mod table;
mod value;

pub use explain::{json, text, text_of, without_flags};
pub use parse::{go_bool, go_int};
pub use resolve::{Effective, Origin, Resolved, resolve};
pub use table::{Setting, SettingKind, TABLE, Usage};
pub use value::SettingError;
