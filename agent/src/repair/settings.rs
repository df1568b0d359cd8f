//! The settings of repair.

use super::criteria::Criteria;
use std::time::Duration;
use weir_cni::config::NameFiles;
use weir_cni::pod::NodeEnvironment;
use weir_core::pods::selector::Filter;
use weir_core::settings::{Resolved, SettingError};

/// The action on a pod that meets the criteria.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Its rules are written in place.
    Repair,
    /// It is deleted, and its controller creates a new one.
    Delete,
    /// It gets a label for another controller to act on.
    Label,
}

impl Action {
    /// Returns the value of the label `type` of Istio's metric.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Repair => "repair",
            Self::Delete => "delete",
            Self::Label => "label",
        }
    }
}

/// The settings `REPAIR_*`, validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairSettings {
    /// The first enabled one of repair, delete, label.
    pub action: Option<Action>,
    /// Interval between rounds over all pods; `None`: pods are not repaired in place, and the state of their namespaces is not compared.
    pub interval: Option<Duration>,
    /// The criteria for broken pods.
    pub(crate) criteria: Criteria,
    /// `REPAIR_NODE_NAME`: the criteria apply only to the pods of this node.
    pub(crate) node: String,
    /// The selectors of pods to which the criteria apply.
    pub(crate) filter: Filter,
    /// Key and value of the label for broken pods.
    pub(crate) label: (String, String),
    /// Rules are written to nf_tables, regardless of what the network namespace uses.
    pub(crate) native_nftables: bool,
    /// Further settings that the plugin reads from its environment.
    pub(crate) environment: NodeEnvironment,
    /// Ambient mode is on: pods without a sidecar may have its rules.
    pub(crate) ambient: bool,
    /// Namespaces whose pods the plugin ignores.
    pub(crate) exclude_namespaces: Vec<String>,
}

impl RepairSettings {
    /// Reads and validates the settings; `None`: repair is off.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn of(r: &Resolved) -> Result<Option<Self>, SettingError> {
        let exit_code = r.number("REPAIR_INIT_CONTAINER_EXIT_CODE")?;
        let interval = r.seconds("WEIR_VERIFY_INTERVAL")?;
        let labels = "REPAIR_LABEL_SELECTORS";
        let fields = "REPAIR_FIELD_SELECTORS";
        let filter = Filter {
            labels: Filter::labels(r.text(labels)).map_err(|e| r.refused(labels, e))?,
            fields: Filter::fields(r.text(fields)).map_err(|e| r.refused(fields, e))?,
        };
        let environment = environment(r)?;
        if !r.bool("REPAIR_ENABLED") {
            return Ok(None);
        }
        let actions = [
            ("REPAIR_REPAIR_PODS", Action::Repair),
            ("REPAIR_DELETE_PODS", Action::Delete),
            ("REPAIR_LABEL_PODS", Action::Label),
        ];
        let enabled = actions.iter().find(|(name, _)| r.bool(name));
        let action = enabled.map(|(_, action)| *action);
        let text = |name: &'static str| r.text(name).to_owned();
        Ok(Some(Self {
            action,
            interval: (action == Some(Action::Repair)).then_some(interval),
            criteria: Criteria {
                annotation: text("REPAIR_SIDECAR_ANNOTATION"),
                container: text("REPAIR_INIT_CONTAINER_NAME"),
                message: text("REPAIR_INIT_CONTAINER_TERMINATION_MESSAGE"),
                exit_code,
            },
            node: text("REPAIR_NODE_NAME"),
            filter,
            label: (
                text("REPAIR_BROKEN_POD_LABEL_KEY"),
                text("REPAIR_BROKEN_POD_LABEL_VALUE"),
            ),
            native_nftables: r.bool("NATIVE_NFTABLES"),
            environment,
            ambient: r.bool("AMBIENT_ENABLED"),
            exclude_namespaces: r.list("EXCLUDE_NAMESPACES"),
        }))
    }
}

/// Reads the variables that the plugin also reads; errors name their origin.
fn environment(r: &Resolved) -> Result<NodeEnvironment, SettingError> {
    const NAMES: [&str; 3] = [
        "ISTIO_OUTBOUND_OWNER_GROUPS",
        "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE",
        "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR",
    ];
    let text = |name: &str| NAMES.contains(&name).then(|| r.text(name).to_owned());
    NodeEnvironment::read(&text, &NameFiles::default().group).map_err(|e| {
        let [all, exclude, loopback] = NAMES;
        let name = [exclude, loopback]
            .into_iter()
            .find(|name| e.input == *name);
        r.refused(name.unwrap_or(all), e.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ambient::AmbientSettings;
    use std::collections::BTreeMap;
    use weir_core::settings::resolve;

    /// The interval is added to the current time, which could overflow; one year is the limit.
    #[test]
    fn an_interval_that_no_clock_has_is_refused() {
        let refused = |text: &'static str| {
            let lookup = |name: &str| match name {
                "WEIR_VERIFY_INTERVAL" => Some(text.into()),
                "REPAIR_ENABLED" | "AMBIENT_ENABLED" => Some("true".into()),
                _ => None,
            };
            let resolved = resolve(&BTreeMap::new(), &lookup);
            [
                RepairSettings::of(&resolved).err(),
                AmbientSettings::of(&resolved).err(),
            ]
        };
        for good in ["", "0", "60", "31536000"] {
            assert_eq!(refused(good), [None, None], "{good}");
        }
        for bad in ["-1", "31536001", "9223372036854775807"] {
            for error in refused(bad) {
                let error = error.expect(bad);
                assert_eq!((error.name, &*error.text), ("WEIR_VERIFY_INTERVAL", bad));
            }
        }
    }
}
