//! Decides whether a pod is enrolled in ambient mode.

use std::collections::BTreeMap;
use std::fmt;

use super::enrol::{Candidate, Plugin};
use super::selector::Compiled;
use crate::annotation::STATUS;
use crate::pod::Pod;
use crate::protocol::{CniError, LabelSelector, Selector};

impl Plugin<'_> {
    /// Reads the pod and its namespace, and returns whether the pod is ambient. A failure is an error, except
    /// with `enable_ambient_detection_retry: false`: then the pod counts as not ambient.
    pub(super) fn is_ambient(&self, candidate: &Candidate) -> Result<bool, CniError> {
        if !candidate.conf.ambient_enabled {
            return Ok(false);
        }
        // Absent counts as true: a pod must not start outside the mesh because
        // the API server could not be reached.
        let strict = candidate.conf.enable_ambient_detection_retry != Some(false);
        let attempts = if strict {
            self.limits.ambient_strict_attempts
        } else {
            self.limits.ambient_attempts
        };
        match self.decide_ambient(candidate, attempts) {
            Err(error) if !strict => {
                self.log.error(&format!(
                    "cannot decide whether the pod is ambient, going on as if it were not: {error}"
                ));
                Ok(false)
            }
            decided => decided,
        }
    }

    fn decide_ambient(&self, candidate: &Candidate, attempts: u32) -> Result<bool, CniError> {
        let enablement = Enablement::compile(&candidate.conf.enablement_selectors)
            .map_err(CniError::internal)?;
        let ask = |until| self.read_pod_and_namespace(candidate, until);
        // Never `None`: `give_up` is always false here.
        let Some((pod, namespace)) = self.attempts(candidate).run(attempts, &|| false, ask)? else {
            return Ok(false);
        };
        let labels = namespace.metadata.labels.unwrap_or_default();
        Ok(enablement.decide(&pod, &labels).is_ok())
    }
}

/// The selectors of ambient pods: the pairs of `AMBIENT_ENABLEMENT_SELECTOR`. The plugin and the node agent decide by
/// the same rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Enablement(Vec<(Compiled, Compiled)>);

/// Why a pod is not ambient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotAmbient {
    /// `spec.hostNetwork`
    HostNetwork,
    /// It has the annotation `sidecar.istio.io/status`.
    Sidecar,
    /// No pair of selectors matches its labels and those of its namespace.
    NotSelected,
}

impl Enablement {
    /// Compiles pairs of selectors; an absent selector matches everything, and no pair selects nothing.
    ///
    /// # Errors
    /// The selector that does not compile, and why.
    pub fn compile(pairs: &[Selector]) -> Result<Self, String> {
        let compile = |n: usize, which: &str, selector: &LabelSelector| {
            Compiled::of(selector).map_err(|reason| {
                format!(
                    "enablement_selectors[{n}].{which}.{reason}; correct the node agent's setting \
                     AMBIENT_ENABLEMENT_SELECTOR"
                )
            })
        };
        let pair = |(n, pair): (usize, &Selector)| {
            let pod = compile(n, "podSelector", &pair.pod_selector)?;
            Ok((
                pod,
                compile(n, "namespaceSelector", &pair.namespace_selector)?,
            ))
        };
        let pairs = pairs.iter().enumerate();
        pairs.map(pair).collect::<Result<_, _>>().map(Self)
    }

    /// Decides whether a pod in a namespace with these labels is ambient.
    ///
    /// # Errors
    /// The first reason why it is not.
    pub fn decide(
        &self,
        pod: &Pod,
        namespace: &BTreeMap<String, String>,
    ) -> Result<(), NotAmbient> {
        if pod.spec.host_network {
            return Err(NotAmbient::HostNetwork);
        }
        if pod.metadata.annotations.contains_key(STATUS) {
            return Err(NotAmbient::Sidecar);
        }
        let matches = |(of_pod, of_namespace): &(Compiled, Compiled)| {
            of_pod.matches(&pod.metadata.labels) && of_namespace.matches(namespace)
        };
        let selected = self.0.iter().any(matches);
        selected.then_some(()).ok_or(NotAmbient::NotSelected)
    }
}

impl fmt::Display for NotAmbient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostNetwork => "it has the network of its node",
            Self::Sidecar => "it has a sidecar",
            Self::NotSelected => "no selector matches its labels and those of its namespace",
        })
    }
}
