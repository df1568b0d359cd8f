//! Checked values of settings. The part of the agent that reads a value knows its purpose.

use super::Resolved;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Seconds of a year.
const YEAR: u64 = 365 * 86_400;

/// A setting with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError {
    /// Its variable or flag.
    pub name: &'static str,
    /// Its text.
    pub text: String,
    /// Why it is invalid, and which values are valid.
    pub reason: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "setting {} is {:?}: {}",
            self.name, self.text, self.reason
        )
    }
}

impl std::error::Error for SettingError {}

impl Resolved {
    /// Returns an error about this setting.
    pub fn refused(&self, name: &'static str, reason: impl Into<String>) -> SettingError {
        SettingError {
            name,
            text: self.text(name).to_owned(),
            reason: reason.into(),
        }
    }

    /// Returns the setting as a whole number.
    ///
    /// # Errors
    /// The text is not a whole number of 64 bits.
    pub fn number(&self, name: &'static str) -> Result<i64, SettingError> {
        let digits = self.text(name).trim_start_matches(['-', '+']);
        let is_digit = |c: char| c.is_ascii_digit();
        let is_decimal =
            digits.starts_with(|c| matches!(c, '1'..='9')) && digits.chars().all(is_digit);
        let why = match is_decimal {
            true => "it is a number of more than 64 bits; give a smaller one",
            false => "it is not a whole number; give one",
        };
        self.int(name).ok_or_else(|| self.refused(name, why))
    }

    /// Returns an interval in seconds; 0 is a year. More than a year is rejected: the clock may not represent such times.
    ///
    /// # Errors
    /// The text is not a whole number from 0 to a year.
    pub fn seconds(&self, name: &'static str) -> Result<Duration, SettingError> {
        match u64::try_from(self.number(name)?) {
            Ok(0) => Ok(Duration::from_secs(YEAR)),
            Ok(seconds) if seconds <= YEAR => Ok(Duration::from_secs(seconds)),
            _ => {
                let why = "it is not a time up to a year; give seconds from 1 to 31536000, or 0 for no rounds";
                Err(self.refused(name, why))
            }
        }
    }

    /// Returns the setting as a port on which a server can listen.
    ///
    /// # Errors
    /// The text is not a number from 1 to 65535.
    pub fn port(&self, name: &'static str) -> Result<u16, SettingError> {
        u16::try_from(self.number(name)?)
            .ok()
            .filter(|p| *p > 0)
            .ok_or_else(|| self.refused(name, "it is not a port; give a number from 1 to 65535"))
    }

    /// Returns the setting as a file mode for `chmod(2)`.
    ///
    /// # Errors
    /// The text is not a number from 0 to 07777.
    pub fn mode(&self, name: &'static str) -> Result<u32, SettingError> {
        u32::try_from(self.number(name)?)
            .ok()
            .filter(|m| *m <= 0o7777)
            .ok_or_else(|| self.refused(name, "it is not a file mode; give one like 0600"))
    }

    /// Returns the setting as the path of a directory.
    ///
    /// # Errors
    /// The text is empty or has a zero byte.
    pub fn path(&self, name: &'static str) -> Result<PathBuf, SettingError> {
        match self.text(name) {
            "" => Err(self.refused(name, "it is empty; give a directory, or leave it out")),
            text if text.contains('\0') => {
                Err(self.refused(name, "no path has a zero byte; remove it"))
            }
            text => Ok(PathBuf::from(text)),
        }
    }

    /// Returns the setting as the name of a file in a directory of the node, without any path outside of it.
    ///
    /// # Errors
    /// The text is a path or the name of a directory.
    pub fn file_name(&self, name: &'static str) -> Result<&str, SettingError> {
        match self.text(name) {
            "." | ".." => Err(self.refused(name, "it is a directory; give the name of a file")),
            text if text.contains(['/', '\0']) => Err(self.refused(
                name,
                "it is a path; give the name of a file in MOUNTED_CNI_NET_DIR",
            )),
            text => Ok(text),
        }
    }
}
