//! The plugin's log: JSON lines to stderr, to a file on the node, and to the node agent.
//!
//! A [`Logger`] starts with stderr at level info. Once the configuration is read, [`Logger::open_sinks`] adds the other
//! two sinks. Logging never fails a call: a sink that does not work is skipped.
//!
//! ```text
//! {"level":"info","time":"2026-11-20T21:15:02.000001Z","msg":"...","pod":"ns/name"}
//! ```

mod agent;
mod level;
mod line;
mod logger;
mod rolling;

pub use agent::SEND_LIMIT;
pub use level::Level;
pub use line::{Line, count, escaped, is_deceptive, json_quoted, timestamp};
pub use logger::Logger;
pub use rolling::{KEEP_BACKUP, RollingFile, SIZE_LIMIT};
