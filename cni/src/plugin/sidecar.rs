//! Pods with a sidecar: reads the pod, decides whether to redirect it, and applies or checks the redirection.

use std::path::Path;

use super::backend::{DesiredRedirection, named_engine};
use super::enrol::{Candidate, Plugin, is_agent, netns};
use super::phases::{Phase, Phases};
use crate::log::count;
use crate::pod::{Pod, PodFacts, PodRedirect, Skip, redirect_from};
use crate::protocol::{Call, CniError, code};

impl Plugin<'_> {
    /// Redirects the pod if it requests a redirection.
    pub(super) fn redirect(
        &self,
        call: &Call,
        candidate: &Candidate,
        phases: &Phases,
    ) -> Result<(), CniError> {
        let attempts = self.limits.sidecar_attempts;
        let Some(redirect) = self.requested(candidate, attempts, phases)? else {
            return Ok(());
        };
        let desired = self.desired(call, candidate, &redirect, phases);
        // Only legacy tables can be printed as text instead.
        let file = (self.lookup)("DRY_RUN_FILE_PATH").filter(|file| !file.is_empty());
        let dry_run_file = file.filter(|_| !candidate.conf.native_nftables);
        let desired = DesiredRedirection {
            dry_run_file: dry_run_file.as_deref().map(Path::new),
            ..desired
        };
        let applied = self.backend.apply(&desired).map_err(CniError::internal)?;
        self.log.info(&applied);
        Ok(())
    }

    /// Compares the namespace with the redirection that the pod requests.
    pub(super) fn compare(&self, call: &Call, candidate: &Candidate) -> Result<(), CniError> {
        let (attempts, phases) = (self.limits.check_attempts, Phases::default());
        let pod = match self.pod(candidate, attempts, &phases) {
            Ok(Some(pod)) => pod,
            Ok(None) => return Ok(()),
            Err(error) => return self.not_compared(&error),
        };
        let Some(redirect) = self.decide(&pod)? else {
            return Ok(());
        };
        let desired = self.desired(call, candidate, &redirect, &phases);
        let differences = self.backend.verify(&desired).map_err(CniError::internal)?;
        let Some(first) = differences.first() else {
            return Ok(());
        };
        let lines: Vec<String> = differences.iter().map(ToString::to_string).collect();
        Err(CniError::new(
            code::REDIRECTION_DIFFERS,
            format!(
                "the redirection of pod {}/{} is not in sync: {first} ({} in \
                 all); delete the pod, or let the node agent repair it",
                candidate.args.pod_namespace,
                candidate.args.pod_name,
                count(differences.len(), "difference")
            ),
        )
        .with_details(lines.join("\n")))
    }

    /// The result of CHECK if neither the agent nor the API server says what the pod requests. An unknown state does not
    /// count as a difference: some runtimes kill pods whose CHECK fails.
    pub(super) fn not_compared(&self, error: &CniError) -> Result<(), CniError> {
        let why = &error.msg;
        self.log.warn(&format!(
            "CHECK compares nothing: what the pod requests is not known: {why}"
        ));
        Ok(())
    }

    fn desired<'w>(
        &'w self,
        call: &'w Call,
        candidate: &Candidate,
        redirect: &'w PodRedirect,
        phases: &'w Phases,
    ) -> DesiredRedirection<'w> {
        DesiredRedirection {
            netns: netns(call),
            redirect,
            engine: named_engine(candidate.conf.native_nftables),
            dry_run_file: None,
            lookup: self.lookup,
            log: self.log,
            phases,
        }
    }

    /// Reads the pod and returns the redirection that it requests; `None`: no redirection.
    fn requested(
        &self,
        candidate: &Candidate,
        attempts: u32,
        phases: &Phases,
    ) -> Result<Option<PodRedirect>, CniError> {
        let Some(pod) = self.pod(candidate, attempts, phases)? else {
            return Ok(None);
        };
        phases.measure(Phase::Decide, || self.decide(&pod))
    }

    /// Reads the pod; `None`: it is let through.
    fn pod(
        &self,
        candidate: &Candidate,
        attempts: u32,
        phases: &Phases,
    ) -> Result<Option<Pod>, CniError> {
        // The agent's own pod is let through: while it is being replaced, there may be no valid token.
        let give_up = || is_agent(&candidate.conf, &candidate.args);
        let ask = |until| self.read_pod(candidate, until);
        let read = || self.attempts(candidate).run(attempts, &give_up, ask);
        phases.measure(Phase::Facts, read)
    }

    /// Returns the redirection that this pod requests; `None`: no redirection.
    fn decide(&self, pod: &Pod) -> Result<Option<PodRedirect>, CniError> {
        let facts = PodFacts::of(pod);
        if let Some(reason) = Skip::of(&facts) {
            self.log.info(&format!("not redirected: {reason}"));
            return Ok(None);
        }
        let redirect = redirect_from(&facts).map_err(CniError::internal)?;
        for warning in &redirect.warnings {
            self.log.warn(warning);
        }
        Ok(Some(redirect))
    }
}
