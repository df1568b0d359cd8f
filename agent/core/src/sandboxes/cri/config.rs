//! containerd's `info["config"]`: the configuration of its CRI plugin as JSON.

use super::Directories;
use serde::Deserialize;
use std::collections::BTreeMap;
use weir_cni::json;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    #[serde(deserialize_with = "json::object")]
    cni: Cni,
}

/// containerd's `CniConfig`: `binDir` up to 2.0, `binDirs` in later releases.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Cni {
    bin_dir: String,
    bin_dirs: Option<Vec<String>>,
    conf_dir: String,
}

/// Returns the CNI directories of the configuration.
///
/// # Errors
/// It is not containerd's, or the values are not usable as directories.
pub(crate) fn directories(info: &BTreeMap<String, String>) -> Result<Directories, String> {
    let text = info
        .get("config")
        .ok_or("it does not tell its configuration as containerd does")?;
    let config: Config = json::from_str(text)
        .map_err(|e| format!("it tells its configuration not as containerd does: {e}"))?;
    let mut bin = config.cni.bin_dirs.unwrap_or_default();
    if bin.is_empty() {
        bin.push(config.cni.bin_dir);
    }
    let net = config.cni.conf_dir;
    for dir in bin.iter().chain([&net]) {
        // The directory is joined to another path, and logged.
        let is_plain = dir.starts_with('/')
            && dir.split('/').all(|part| part != "..")
            && !dir.contains(char::is_control);
        if !is_plain {
            return Err(format!(
                "its CNI directories are bin {bin:?} and conf {net:?}, which is not to be used"
            ));
        }
    }
    Ok(Directories { bin, net })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(config: &str) -> Result<Directories, String> {
        directories(&[("config".to_owned(), config.to_owned())].into())
    }

    #[test]
    fn both_forms() {
        let wanted = |bin: &[&str]| Directories {
            bin: bin.iter().map(|b| (*b).to_owned()).collect(),
            net: "/c".into(),
        };
        let old = r#"{"containerd":{},"cni":{"binDir":"/b","confDir":"/c","maxConfNum":1}}"#;
        assert_eq!(of(old), Ok(wanted(&["/b"])));
        let new = r#"{"cni":{"binDir":"","binDirs":["/b","/d"],"confDir":"/c"}}"#;
        assert_eq!(of(new), Ok(wanted(&["/b", "/d"])));
        let both = r#"{"cni":{"binDir":"/b","binDirs":null,"confDir":"/c"}}"#;
        assert_eq!(of(both), Ok(wanted(&["/b"])));
    }

    #[test]
    fn others() {
        assert!(directories(&BTreeMap::new()).is_err());
        for config in [
            "",
            "[plugins]",
            "{}",
            "null",
            r#"{"cni":{}}"#,
            r#"{"cni":{"binDir":"/b"}}"#,
            r#"{"cni":{"binDir":"b","confDir":"/c"}}"#,
            r#"{"cni":{"binDir":"/b","confDir":"/c/../../etc"}}"#,
            r#"{"cni":{"binDir":"/b\n","confDir":"/c"}}"#,
            r#"{"cni":{"binDirs":[1],"confDir":"/c"}}"#,
        ] {
            assert!(of(config).is_err(), "{config}");
        }
    }
}
