//! `--log_output_level`: levels by scope.

use super::Scope;
use weir_cni::log::Level;

/// The minimum level of each scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// Level of the agent's own lines.
    pub agent: Level,
    /// Level of lines of the plugin.
    pub plugin: Level,
}

impl Default for Levels {
    fn default() -> Self {
        Self {
            agent: Level::Info,
            plugin: Level::Info,
        }
    }
}

impl Levels {
    /// Parses `SCOPE:LEVEL,...`. A bare level applies to scope `default`, which no line has here;
    /// `all` overrides the level of every scope. Returns the levels, and the names of unknown scopes, such as those that only
    /// `install-cni` has.
    ///
    /// # Errors
    /// An item without a valid level.
    pub fn parse(text: &str) -> Result<(Self, Vec<String>), String> {
        let (mut levels, mut all, mut unknown) = (Self::default(), None, Vec::new());
        for item in text.split(',').map(str::trim).filter(|i| !i.is_empty()) {
            let (scope, word) = item.split_once(':').unwrap_or(("default", item));
            let level = Level::parse(word).ok_or_else(|| {
                format!("{item:?} has no level; levels are debug, info, warn, error, fatal, none")
            })?;
            match scope {
                "all" => all = Some(level),
                "default" => {}
                "cni-agent" => levels.agent = level,
                "cni-plugin" => levels.plugin = level,
                other => unknown.push(other.to_owned()),
            }
        }
        if let Some(level) = all {
            levels = Self {
                agent: level,
                plugin: level,
            };
        }
        Ok((levels, unknown))
    }

    pub(super) fn of(self, scope: Scope) -> Level {
        match scope {
            Scope::Agent => self.agent,
            Scope::Plugin => self.plugin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(text: &str) -> (Level, Level) {
        let (levels, _) = Levels::parse(text).unwrap();
        (levels.agent, levels.plugin)
    }

    #[test]
    fn scopes() {
        use Level::{Debug, Error, Info, Warn};
        assert_eq!(levels(""), (Info, Info));
        assert_eq!(levels("info"), (Info, Info));
        assert_eq!(levels("debug"), (Info, Info));
        assert_eq!(levels("cni-agent:debug, cni-plugin:error"), (Debug, Error));
        assert_eq!(levels("all:warn,cni-agent:debug"), (Warn, Warn));
        let (_, unknown) = Levels::parse("default:info,repair:debug").unwrap();
        assert_eq!(unknown, ["repair"]);
    }

    #[test]
    fn nonsense() {
        for text in ["loud", "cni-agent:", "cni-agent:DEBUG", ":", "a:b:c"] {
            assert!(Levels::parse(text).is_err(), "{text}");
        }
    }
}
