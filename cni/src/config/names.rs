//! Resolves names of users and groups from local files only: no name service is queried.

use super::InputError;
use std::path::{Path, PathBuf};

/// The files in which names of users and groups are looked up (`passwd(5)`, `group(5)`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFiles {
    /// `name:password:uid:...`
    pub passwd: PathBuf,
    /// `name:password:gid:...`
    pub group: PathBuf,
}

impl Default for NameFiles {
    fn default() -> Self {
        Self {
            passwd: "/etc/passwd".into(),
            group: "/etc/group".into(),
        }
    }
}

/// Looks up the id of `name` in a file of colon-separated lines: the third field of the first matching line.
///
/// # Errors
/// The file cannot be read. A file that does not exist has no names.
pub fn lookup(file: &Path, name: &str) -> Result<Option<u32>, InputError> {
    let bytes = match crate::files::read(file) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            let reason = format!("cannot be read: {e}");
            return Err(InputError::whole(
                file.display().to_string(),
                reason,
                "a readable file",
            ));
        }
    };
    let number = String::from_utf8_lossy(&bytes).lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1).and_then(super::text::decimal))?
    });
    Ok(number)
}
