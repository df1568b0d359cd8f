//! The log: lines of text or JSON, filtered by scope and level.

mod levels;
pub mod lines;
mod sink;
mod subscriber;
mod target;

pub use levels::Levels;
pub use sink::Log;
pub use subscriber::Lines;

/// The origin of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The agent itself.
    Agent,
    /// The plugin, through the log socket.
    Plugin,
}

impl Scope {
    /// Returns the name used in `--log_output_level`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "cni-agent",
            Self::Plugin => "cni-plugin",
        }
    }
}
