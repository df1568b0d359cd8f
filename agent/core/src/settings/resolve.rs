//! Determines the text and the origin of each setting.

use super::parse::{comma_list, go_bool, go_int};
use super::table::{Setting, SettingKind, TABLE};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// The source of a setting's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// This environment variable.
    Env(&'static str),
    /// The answer of the container runtime.
    Runtime,
    /// The mounted service account.
    Account,
    /// The default.
    Default,
}

/// The effective value of a setting.
#[derive(Debug, Clone)]
pub struct Effective {
    /// Its declaration.
    pub setting: &'static Setting,
    /// Its text, unparsed.
    pub text: String,
    /// The origin of the text.
    pub origin: Origin,
    /// A hint for the operator, such as that the text does not mean what it seems to.
    pub note: Option<String>,
}

/// The effective values of all settings, in the order of [`TABLE`].
#[derive(Debug, Clone)]
pub struct Resolved(Vec<Effective>);

/// Resolves every setting: from `flags` by flag name, else from the environment, else its default.
///
/// In texts that are not UTF-8, invalid sequences become the replacement character: such a text is rejected where it
/// is used, and can be printed.
pub fn resolve(flags: &BTreeMap<&str, String>, env: &dyn Fn(&str) -> Option<OsString>) -> Resolved {
    let one = |setting: &'static Setting| {
        let variable = |name: &'static str| {
            let value = (!name.is_empty()).then(|| env(name)).flatten()?;
            // Upstream reads an empty number as 0. For weir's own settings, an empty text comes from a template without a value.
            let is_ours = setting.kind == SettingKind::Int && name.starts_with("WEIR_");
            if is_ours && value.is_empty() {
                return None;
            }
            Some((value.to_string_lossy().into_owned(), Origin::Env(name)))
        };
        let flag = (!setting.flag.is_empty())
            .then(|| flags.get(setting.flag))
            .flatten();
        let (text, origin) = flag
            .map(|text| (text.clone(), Origin::Flag))
            .or_else(|| variable(setting.env))
            .or_else(|| variable(setting.alias))
            .unwrap_or_else(|| (setting.default.to_owned(), Origin::Default));
        let note = note(setting, &text, origin);
        Effective {
            setting,
            text,
            origin,
            note,
        }
    };
    let mut all = Resolved(TABLE.iter().map(one).collect());
    let forced = "FORCE_IPTABLES_BINARY";
    let is_native = all.bool("AMBIENT_ENABLED") && all.bool("NATIVE_NFTABLES");
    if is_native && !all.text(forced).is_empty() {
        let why = "it has no effect: NATIVE_NFTABLES is true and decides; leave one of them out";
        all.note(forced, why.to_owned());
    }
    all
}

fn note(setting: &Setting, text: &str, origin: Origin) -> Option<String> {
    let by_alias = matches!(origin, Origin::Env(name) if name == setting.alias);
    // The chart always sets the alias, so an empty text needs no hint.
    if by_alias && !text.is_empty() {
        return Some(format!(
            "{} decides, because {} is not set",
            setting.alias, setting.env
        ));
    }
    match setting.kind {
        SettingKind::Bool if !text.is_empty() && go_bool(text).is_none() => Some(format!(
            "{text:?} is not a boolean and counts as false; use true or false"
        )),
        SettingKind::Int if setting.env == "KUBECONFIG_MODE" && looks_decimal(text) => Some(
            format!("{text} is a decimal number; octal is written with a leading zero: 0{text}"),
        ),
        _ => None,
    }
}

/// Returns true for a mode that seems to lack its leading zero.
fn looks_decimal(text: &str) -> bool {
    text.len() == 3 && !text.starts_with('0') && text.bytes().all(|b| (b'0'..=b'7').contains(&b))
}

impl Resolved {
    /// Iterates over all settings.
    pub fn iter(&self) -> impl Iterator<Item = &Effective> {
        self.0.iter()
    }

    /// Returns the text of the setting with this variable or flag. The text of an unknown name is empty: a test reads every
    /// name that the agent uses.
    pub fn text(&self, name: &str) -> &str {
        let named = |e: &&Effective| e.setting.env == name || e.setting.flag == name;
        let found = self.0.iter().find(named);
        debug_assert!(found.is_some(), "{name} is not in the table");
        found.map_or("", |e| e.text.as_str())
    }

    /// Returns true if the value is the default.
    pub fn is_default(&self, name: &str) -> bool {
        let of = |e: &Effective| e.setting.env == name && e.origin == Origin::Default;
        self.0.iter().any(of)
    }

    /// Replaces the default by a value of this machine.
    pub fn fall_back(&mut self, name: &str, text: &OsStr) {
        let of = |e: &&mut Effective| e.setting.env == name && e.origin == Origin::Default;
        for e in self.0.iter_mut().filter(of) {
            e.text = text.to_string_lossy().into_owned();
        }
    }

    /// Sets a value that was found on this machine.
    pub fn found(&mut self, name: &str, text: String, origin: Origin) {
        for e in self.0.iter_mut().filter(|e| e.setting.env == name) {
            e.text.clone_from(&text);
            e.origin = origin;
        }
    }

    /// Sets the hint about a setting.
    pub fn note(&mut self, name: &str, note: String) {
        for e in self.0.iter_mut().filter(|e| e.setting.env == name) {
            e.note = Some(note.clone());
        }
    }

    /// Returns the setting as a boolean; a text that is not a boolean is false.
    pub fn bool(&self, name: &str) -> bool {
        go_bool(self.text(name)).unwrap_or(false)
    }

    /// Returns the setting as an integer; an empty text is 0, and `None` means not an integer.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.text(name) {
            "" => Some(0),
            text => go_int(text),
        }
    }

    /// Returns the setting as a list.
    pub fn list(&self, name: &str) -> Vec<String> {
        comma_list(self.text(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(flags: &[(&'static str, &str)], env: &[(&str, &str)]) -> Resolved {
        let flags = flags.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        let lookup = |name: &str| {
            let found = env.iter().find(|(k, _)| *k == name);
            found.map(|(_, v)| OsString::from(*v))
        };
        resolve(&flags, &lookup)
    }

    fn origin(r: &Resolved, env: &str) -> Origin {
        r.iter().find(|e| e.setting.env == env).unwrap().origin
    }

    #[test]
    fn a_flag_beats_the_environment_beats_the_default() {
        let name = "CHAINED_CNI_PLUGIN";
        assert!(resolved(&[], &[]).bool(name));
        let env = resolved(&[], &[(name, "false")]);
        assert!(!env.bool(name));
        assert_eq!(origin(&env, name), Origin::Env(name));
        let flag = resolved(&[("chained-cni-plugin", "true")], &[(name, "false")]);
        assert!(flag.bool(name));
        assert_eq!(origin(&flag, name), Origin::Flag);
    }

    #[test]
    fn empty_counts_as_set() {
        let r = resolved(&[], &[("CHAINED_CNI_PLUGIN", ""), ("MONITORING_PORT", "")]);
        assert!(!r.bool("CHAINED_CNI_PLUGIN"));
        assert_eq!(r.int("MONITORING_PORT"), Some(0));
    }

    #[test]
    fn an_empty_number_of_ours_counts_as_not_set() {
        let name = "WEIR_VERIFY_INTERVAL";
        let r = resolved(&[], &[(name, "")]);
        assert_eq!((r.int(name), origin(&r, name)), (Some(60), Origin::Default));
    }

    #[test]
    fn the_name_that_the_chart_sets_comes_after_the_real_one() {
        let (real, chart) = (
            "ISTIO_OWNED_CNI_CONFIG_FILENAME",
            "ISTIO_OWNED_CNI_CONF_FILENAME",
        );
        let r = resolved(&[], &[(chart, "a")]);
        assert_eq!((r.text(real), origin(&r, real)), ("a", Origin::Env(chart)));
        let effective = r.iter().find(|e| e.setting.env == real).unwrap();
        assert!(effective.note.as_ref().unwrap().contains(chart));
        let r = resolved(&[], &[(chart, "")]);
        assert!(r.iter().all(|e| e.note.is_none()));
        let r = resolved(&[], &[(chart, "a"), (real, "b")]);
        assert_eq!((r.text(real), origin(&r, real)), ("b", Origin::Env(real)));
    }

    #[test]
    fn a_forced_binary_beside_native_nftables_is_noted() {
        let force = ("FORCE_IPTABLES_BINARY", "legacy");
        let (native, ambient) = (("NATIVE_NFTABLES", "true"), ("AMBIENT_ENABLED", "true"));
        for (env, noted) in [
            (&[force, native, ambient][..], true),
            (&[force, native], false),
            (&[force, ambient], false),
            (&[native, ambient], false),
        ] {
            let r = resolved(&[], env);
            let found = r.iter().find(|e| e.note.is_some());
            assert_eq!(found.map(|e| e.setting.env), noted.then_some(force.0));
        }
    }

    #[test]
    fn a_number_that_is_too_large_is_a_number() {
        let name = "WEIR_VERIFY_INTERVAL";
        for (text, why) in [
            ("18446744073709551615", "64 bits"),
            ("-9223372036854775809", "64 bits"),
            ("1.5", "not a whole number"),
            ("09", "not a whole number"),
            ("-", "not a whole number"),
        ] {
            let error = resolved(&[], &[(name, text)]).seconds(name).unwrap_err();
            assert!(error.reason.contains(why), "{error}");
        }
    }

    #[test]
    fn misleading_texts_are_noted() {
        let r = resolved(
            &[],
            &[("SKIP_TLS_VERIFY", "yes"), ("KUBECONFIG_MODE", "640")],
        );
        let notes: Vec<_> = r.iter().filter_map(|e| e.note.as_deref()).collect();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes.iter().any(|n| n.contains("0640")), "{notes:?}");
    }
}
