//! Checks that the configuration is still as the installer wrote it.

use super::config;
use super::copy;
use super::desired::Desired;
use super::entry::is_ours;
use super::json::Json;
use super::listing::{self, Listing};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The configuration that the installer wrote last.
#[derive(Debug, Clone)]
pub struct Remembered {
    /// The file.
    pub path: PathBuf,
    /// Our entry in it; `None` if only the path is known: any entry of our type is accepted.
    pub entry: Option<Json>,
    /// The primary configuration of which it is a copy, in owned mode.
    pub copy_of: Option<PathBuf>,
}

/// The result of a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Why a pass is needed; `None` if the configuration is in sync.
    pub invalid: Option<String>,
    /// Why runtimes may use another configuration; a pass would not change that.
    pub warning: Option<String>,
}

impl Check {
    fn invalid(why: impl Into<String>) -> Self {
        Self {
            invalid: Some(why.into()),
            warning: None,
        }
    }
}

/// Checks the directory and the configuration that was written last.
///
/// # Errors
/// The directory cannot be read.
pub fn check(desired: &Desired, remembered: Option<&Remembered>) -> io::Result<Check> {
    let listing = listing::list(&desired.net_dir)?;
    let Some((first, in_force)) = listing.valid.first() else {
        return Ok(Check::invalid(format!(
            "{} holds no valid CNI configuration{}",
            desired.net_dir.display(),
            listing.reasons()
        )));
    };
    if let Some(owned) = desired.owned.as_deref()
        && first.file_name().is_none_or(|n| n != owned)
    {
        let after = first
            .file_name()
            .is_some_and(|n| n.as_bytes() <= owned.as_bytes());
        let hint = if after {
            ", which sorts first: give our own file a name before it"
        } else {
            ""
        };
        return Ok(Check::invalid(format!(
            "{owned} is not in force, but {}{hint}",
            first.display()
        )));
    }
    let mut warning = None;
    let path = remembered.map(|r| r.path.as_path());
    if path != Some(first) {
        if desired.conf_name.is_none() && desired.chained {
            return Ok(Check::invalid(match path {
                None => format!("{} is in force and was not examined yet", first.display()),
                Some(path) => format!(
                    "{} is in force now, and no longer {}",
                    first.display(),
                    path.display()
                ),
            }));
        }
        // Either the owner of the named configuration wrote its file again, and a runtime reads that one; or an agent left a file
        // with our entry alone, which is to be removed.
        let named = desired.conf_name.as_ref().map(|n| desired.net_dir.join(n));
        let named = named.and_then(|path| config::named(&path).ok());
        let is_named = named.is_some_and(|(path, _)| path == *first);
        if desired.chained && (is_named || listing::is_only_ours(in_force)) {
            return Ok(Check::invalid(format!(
                "{} is in force and was not examined yet",
                first.display()
            )));
        }
        warning = path.map(|path| {
            let how = match copy::has_ours(in_force) {
                true => "with an entry of the plugin that no agent updates",
                false => "without the plugin there",
            };
            let why = match listing.get(path) {
                Some(_) => "which sorts before",
                None => "as it does not load",
            };
            format!(
                "the runtime uses {}, {why} {}: pods start {how}",
                first.display(),
                path.display()
            )
        });
    }
    let Some(remembered) = remembered else {
        return Ok(Check::invalid("nothing was written yet"));
    };
    let invalid = content(desired, remembered, &listing).err();
    let skipped = listing.invalid.iter().filter(|(path, _)| path < first);
    let skipped = skipped.map(|(path, why)| {
        let path = path.display();
        format!("{path} {why}: it is skipped here, but it sorts first, so a runtime may load it or fail because of it")
    });
    let warnings: Vec<String> = warning.into_iter().chain(skipped).collect();
    let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
    Ok(Check { invalid, warning })
}

/// Checks the content of the file. The error describes what is wrong with it.
fn content(desired: &Desired, remembered: &Remembered, listing: &Listing) -> Result<(), String> {
    let path = &remembered.path;
    let name = path.display();
    if !path.exists() {
        return Err(format!("{name} is gone"));
    }
    let json = match listing.get(path) {
        Some(json) => json.clone(),
        None => listing::read_object(path).map_err(|why| format!("{name} {why}"))?,
    };
    if !desired.chained {
        let same = remembered.entry.as_ref().is_none_or(|e| *e == json);
        return match (is_ours(&json), same) {
            (true, true) => Ok(()),
            (true, false) => Err(format!("{name} was changed")),
            (false, _) => Err(format!("{name} is another plugin's")),
        };
    }
    let plugins = json
        .get("plugins")
        .and_then(Json::as_array)
        .unwrap_or_default();
    if !plugins.iter().all(listing::has_type) {
        return Err(format!("{name} has a plugin without a type"));
    }
    let ours: Vec<&Json> = plugins.iter().filter(|p| is_ours(p)).collect();
    match (ours.as_slice(), &remembered.entry) {
        ([], _) => return Err(format!("our entry is missing in {name}")),
        (_, None) => {}
        ([one], Some(entry)) if (*one).clone().sorted() == *entry => {}
        ([_], _) => return Err(format!("our entry in {name} was changed")),
        _ => return Err(format!("our entry is in {name} more than once")),
    }
    match desired.owned {
        Some(_) => is_copy(desired, remembered, listing, plugins),
        None => Ok(()),
    }
}

/// Checks that our own list is still a copy of the configuration that would be in force without it. The error names the
/// difference.
fn is_copy(
    desired: &Desired,
    remembered: &Remembered,
    listing: &Listing,
    plugins: &[Json],
) -> Result<(), String> {
    let name = remembered.path.display();
    let found = match &desired.conf_name {
        Some(named) => config::named(&desired.net_dir.join(named)),
        None => {
            let first = copy::primary(desired, listing).map_err(|e| e.to_string())?;
            first
                .cloned()
                .ok_or_else(|| format!("there is no other{}", listing.reasons()))
        }
    };
    let (primary, json) = match (found, &remembered.copy_of) {
        (Ok(found), _) => found,
        // Whether a primary configuration ever existed is unknown.
        (Err(_), None) if desired.conf_name.is_none() => return Ok(()),
        (Err(why), of) => {
            let named = desired.conf_name.as_ref().map(PathBuf::from);
            let of = of.clone().or(named).unwrap_or_default();
            let of = of.display();
            return Err(format!("{name} is a copy of {of}, which is gone: {why}"));
        }
    };
    match &remembered.copy_of {
        Some(of) if *of != primary => Err(format!(
            "{name} is a copy of {}, and {} is the primary one now",
            of.display(),
            primary.display()
        )),
        _ => copy::types_occur(&json, plugins)
            .map_err(|t| format!("{name} lacks plugin {t} of {}", primary.display())),
    }
}
