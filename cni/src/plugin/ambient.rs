//! Decides whether a pod is enrolled in ambient mode.

use std::collections::BTreeMap;

use super::enrol::{Candidate, Plugin};
use super::selector::LabelSelector;
use crate::annotation::STATUS;
use crate::pod::Pod;
use crate::protocol::{CniError, NetConf};

impl Plugin<'_> {
    /// Reads the pod and its namespace and decides. A failure is an error, except
    /// with `enable_ambient_detection_retry: false`, where the pod is treated as
    /// not ambient.
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
        let selectors = compile(&candidate.conf)?;
        let ask = |limit| self.read_pod_and_namespace(candidate, limit);
        // Never `None`: `give_up` is always false here.
        let Some((pod, namespace)) = self.attempts(candidate).run(attempts, &|| false, ask)? else {
            return Ok(false);
        };
        Ok(is_enabled(
            &selectors,
            &pod,
            &namespace.metadata.labels.unwrap_or_default(),
        ))
    }
}

type Pair = (LabelSelector, LabelSelector);

fn compile(conf: &NetConf) -> Result<Vec<Pair>, CniError> {
    let compile = |which: &str, value| {
        LabelSelector::compile(value).map_err(|reason| {
            CniError::internal(format!(
                "enablement_selectors: {which}: {reason}; correct the node agent's setting \
                 AMBIENT_ENABLEMENT_SELECTOR"
            ))
        })
    };
    conf.enablement_selectors
        .iter()
        .map(|pair| {
            let pod = compile("podSelector", &pair.pod)?;
            Ok((pod, compile("namespaceSelector", &pair.namespace)?))
        })
        .collect()
}

/// True for a pod that is not on the host's network, has no sidecar, and matches a pair.
fn is_enabled(selectors: &[Pair], pod: &Pod, namespace: &BTreeMap<String, String>) -> bool {
    if pod.spec.host_network || pod.metadata.annotations.contains_key(STATUS) {
        return false;
    }
    selectors.iter().any(|(of_pod, of_namespace)| {
        of_pod.matches(&pod.metadata.labels) && of_namespace.matches(namespace)
    })
}
