//! A network configuration list.

use serde_json::{Map, Value};

use super::error::{Error, Result};
use weir_cni::protocol::{IMPLEMENTED, Version, is_supported, validate_network_name};

/// One entry of a list's `plugins`.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginConfig {
    /// `type`: the name of the program.
    pub kind: String,
    /// The complete entry.
    pub config: Map<String, Value>,
}

/// A network and its plugin chain.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkList {
    /// `name`.
    pub name: String,
    /// The version used with every plugin.
    pub cni_version: String,
    /// CHECK succeeds without calling a plugin.
    pub disable_check: bool,
    /// GC succeeds without calling a plugin.
    pub disable_gc: bool,
    /// Plugins are read from the list's own file only.
    pub load_only_inlined_plugins: bool,
    /// The chain, in the order of ADD.
    pub plugins: Vec<PluginConfig>,
}

impl NetworkList {
    /// Parses a `.conflist`. The chain may be empty: plugins may also be read
    /// from files beside the list, see [`NetworkList::load`].
    ///
    /// # Errors
    /// [`Error::Config`], naming `source` and the key.
    pub fn from_list(text: &str, source: &str) -> Result<Self> {
        let object = object(text, source)?;
        let bad = |reason: String| Error::config(source, reason);
        let name = name(&object, source)?;
        let cni_version = negotiate(&object, source)?;
        let load_only_inlined_plugins = flag(&object, "loadOnlyInlinedPlugins", source)?;
        let mut plugins = Vec::new();
        match object.get("plugins") {
            None if load_only_inlined_plugins => {
                return Err(bad(
                    "loadOnlyInlinedPlugins is true, but there is no \"plugins\"".into(),
                ));
            }
            None => {}
            Some(Value::Array(entries)) if entries.is_empty() => {
                return Err(bad(
                    "\"plugins\" is empty; a list needs at least one plugin".into(),
                ));
            }
            Some(Value::Array(entries)) => {
                for (index, entry) in entries.iter().enumerate() {
                    let Value::Object(entry) = entry else {
                        return Err(bad(format!("plugin {index} must be an object")));
                    };
                    plugins.push(plugin(entry.clone(), source, &format!("plugin {index}"))?);
                }
            }
            Some(_) => return Err(bad("\"plugins\" must be an array of objects".into())),
        }
        Ok(Self {
            name,
            cni_version,
            disable_check: flag(&object, "disableCheck", source)?,
            disable_gc: flag(&object, "disableGC", source)?,
            load_only_inlined_plugins,
            plugins,
        })
    }

    /// Parses a `.conf` of a single plugin to a list of one.
    ///
    /// # Errors
    /// [`Error::Config`], naming `source` and the key.
    pub fn from_single(text: &str, source: &str) -> Result<Self> {
        let object = object(text, source)?;
        if object.contains_key("plugins") {
            let reason = "it has \"plugins\": the name of its file must end in .conflist";
            return Err(Error::config(source, reason));
        }
        Ok(Self {
            name: name(&object, source)?,
            cni_version: negotiate(&object, source)?,
            disable_check: false,
            disable_gc: false,
            load_only_inlined_plugins: true,
            plugins: vec![plugin(object, source, "the configuration")?],
        })
    }

    /// The version as a comparable value.
    pub(crate) fn version(&self) -> Version {
        Version::parse(&self.cni_version).unwrap_or(Version {
            major: 0,
            minor: 1,
            micro: 0,
        })
    }
}

pub(crate) fn object(text: &str, source: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text)
        .map_err(|error| Error::config(source, format!("it must be a JSON object: {error}")))
}

pub(crate) fn plugin(
    config: Map<String, Value>,
    source: &str,
    which: &str,
) -> Result<PluginConfig> {
    let bad = |reason: &str| Error::config(source, format!("{which}: {reason}"));
    let kind = match config.get("type") {
        Some(Value::String(kind)) if !kind.is_empty() => kind.clone(),
        _ => {
            return Err(bad(
                "\"type\" is missing; it is the name of the plugin's program",
            ));
        }
    };
    if kind.contains('/') || kind == "." || kind == ".." {
        return Err(bad("\"type\" must be a file name, not a path"));
    }
    if let Some(key) = weir_cni::json::no_object(&config, &["capabilities", "ipam", "dns", "args"])
    {
        return Err(bad(&format!("{key:?} must be an object")));
    }
    Ok(PluginConfig { kind, config })
}

fn name(object: &Map<String, Value>, source: &str) -> Result<String> {
    let name = object
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    validate_network_name(name).map_err(|error| Error::config(source, error.msg))?;
    Ok(name.to_owned())
}

/// Parses a boolean, which may also be text.
fn flag(object: &Map<String, Value>, key: &str, source: &str) -> Result<bool> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err(Error::config(
            source,
            format!("{key:?} must be true or false"),
        )),
    }
}

/// The version to use with the plugins: of `cniVersions` and `cniVersion`
/// together the newest that the runner supports; without `cniVersions`,
/// `cniVersion` unchanged.
fn negotiate(object: &Map<String, Value>, source: &str) -> Result<String> {
    let bad = |reason: String| Error::config(source, reason);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let single = match object.get("cniVersion") {
        None | Some(Value::Null) => None,
        Some(value) => Some(text(value).ok_or(bad("\"cniVersion\" must be a string".into()))?),
    };
    let mut candidates = Vec::new();
    match object.get("cniVersions") {
        None => {
            let version = single
                .filter(|v| !v.is_empty())
                .unwrap_or_else(|| "0.1.0".into());
            if !is_supported(&version) {
                return Err(bad(format!(
                    "cniVersion {version:?} is not supported; the newest is {IMPLEMENTED}"
                )));
            }
            return Ok(version);
        }
        Some(Value::Array(list)) => {
            for value in list {
                let version = text(value)
                    .ok_or_else(|| bad("\"cniVersions\" must be an array of strings".into()))?;
                candidates.push(version);
            }
        }
        Some(_) => return Err(bad("\"cniVersions\" must be an array of strings".into())),
    }
    candidates.extend(single.filter(|v| !v.is_empty()));
    let mut best: Option<(Version, String)> = None;
    for text in candidates {
        let version = Version::parse(&text)
            .ok_or_else(|| bad(format!("{text:?} is not a CNI version like 1.0.0")))?;
        if is_supported(&text) && best.as_ref().is_none_or(|(b, _)| version > *b) {
            best = Some((version, text));
        }
    }
    best.map(|(_, text)| text).ok_or_else(|| {
        bad(format!(
            "none of its versions is supported; the newest is {IMPLEMENTED}"
        ))
    })
}
