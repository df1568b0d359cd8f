//! Which text a setting has, and who said so.

use super::parse::{comma_list, go_bool, go_int};
use super::table::{Setting, SettingKind, TABLE};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// The environment: this variable.
    Env(&'static str),
    /// The container runtime, which was asked.
    Runtime,
    /// Nobody.
    Default,
}

/// One setting as it is in force.
#[derive(Debug, Clone)]
pub struct Effective {
    /// Its declaration.
    pub setting: &'static Setting,
    /// Its text, as it was given.
    pub text: String,
    /// Who decided.
    pub origin: Origin,
    /// What a person should know about the text: it is not what it looks like.
    pub note: Option<String>,
}

/// All settings as they are in force, in the order of [`TABLE`].
#[derive(Debug, Clone)]
pub struct Resolved(Vec<Effective>);

/// Finds every setting: in `flags` by flag name, else in the environment, else its default.
///
/// Texts that are not UTF-8 have the replacement character where they are broken: they fail where they
/// are used, and can be shown.
pub fn resolve(flags: &BTreeMap<&str, String>, env: &dyn Fn(&str) -> Option<OsString>) -> Resolved {
    let one = |setting: &'static Setting| {
        let variable = |name: &'static str| {
            let value = (!name.is_empty()).then(|| env(name)).flatten()?;
            // Upstream reads an empty number as 0. Of ours it is a value that a template did not have.
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
    // The chart sets it always, and empty says nothing.
    if by_alias && !text.is_empty() {
        return Some(format!(
            "{} decides, because {} is not set",
            setting.alias, setting.env
        ));
    }
    match setting.kind {
        SettingKind::Bool if !text.is_empty() && go_bool(text).is_none() => Some(format!(
            "{text:?} is no boolean and counts as false; use true or false"
        )),
        SettingKind::Int if setting.env == "KUBECONFIG_MODE" && looks_decimal(text) => Some(
            format!("{text} is a decimal number; octal is written with a leading zero: 0{text}"),
        ),
        _ => None,
    }
}

/// A mode that was written without its leading zero.
fn looks_decimal(text: &str) -> bool {
    text.len() == 3 && !text.starts_with('0') && text.bytes().all(|b| (b'0'..=b'7').contains(&b))
}

impl Resolved {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Effective> {
        self.0.iter()
    }

    /// The setting with this variable or flag. A name that is in no row is empty text: a test reads every
    /// name that the agent asks for.
    pub fn text(&self, name: &str) -> &str {
        let named = |e: &&Effective| e.setting.env == name || e.setting.flag == name;
        let found = self.0.iter().find(named);
        debug_assert!(found.is_some(), "{name} is not in the table");
        found.map_or("", |e| e.text.as_str())
    }

    /// Whether nobody set it.
    pub fn is_default(&self, name: &str) -> bool {
        let of = |e: &Effective| e.setting.env == name && e.origin == Origin::Default;
        self.0.iter().any(of)
    }

    /// Puts what only this machine knows in the place of a default that is empty.
    pub fn fall_back(&mut self, name: &str, text: &OsStr) {
        let of = |e: &&mut Effective| e.setting.env == name && e.origin == Origin::Default;
        for e in self.0.iter_mut().filter(of) {
            e.text = text.to_string_lossy().into_owned();
        }
    }

    /// Puts what the container runtime says in the place of a default.
    pub fn by_runtime(&mut self, name: &str, text: String) {
        for e in self.0.iter_mut().filter(|e| e.setting.env == name) {
            e.text.clone_from(&text);
            e.origin = Origin::Runtime;
        }
    }

    /// What a person should know about a setting.
    pub fn note(&mut self, name: &str, note: String) {
        for e in self.0.iter_mut().filter(|e| e.setting.env == name) {
            e.note = Some(note.clone());
        }
    }

    /// As a boolean: what is none is false.
    pub fn bool(&self, name: &str) -> bool {
        go_bool(self.text(name)).unwrap_or(false)
    }

    /// As an integer: empty is 0, `None` for what is none.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.text(name) {
            "" => Some(0),
            text => go_int(text),
        }
    }

    /// As a list.
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
