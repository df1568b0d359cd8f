//! A pod with a sidecar: read, decided, redirected or compared.

use super::backend::Desired;
use super::enrol::{Candidate, Plugin, netns};
use super::phases::{Phase, Phases};
use crate::config::SidecarConfig;
use crate::pod::{Placement, Pod, PodFacts, SidecarDecision, redirect_from};
use crate::protocol::{Call, CniError, code};

impl Plugin<'_> {
    /// Redirects the pod if it wants that.
    pub(super) fn redirect(
        &self,
        call: &Call,
        candidate: &Candidate,
        phases: &Phases,
    ) -> Result<(), CniError> {
        let attempts = self.limits.sidecar_attempts;
        let Some(config) = self.wanted(call, candidate, attempts, phases)? else {
            return Ok(());
        };
        let applied = self
            .backend
            .apply(&self.desired(call, &config, phases))
            .map_err(CniError::internal)?;
        self.log.info(&applied.summary);
        Ok(())
    }

    /// Compares the namespace with what the pod wants.
    pub(super) fn compare(&self, call: &Call, candidate: &Candidate) -> Result<(), CniError> {
        let (attempts, phases) = (self.limits.check_attempts, Phases::default());
        let Some(config) = self.wanted(call, candidate, attempts, &phases)? else {
            return Ok(());
        };
        let differences = self
            .backend
            .verify(&self.desired(call, &config, &phases))
            .map_err(CniError::internal)?;
        let Some(first) = differences.first() else {
            return Ok(());
        };
        Err(CniError::new(
            code::REDIRECTION_DIFFERS,
            format!(
                "the redirection of pod {}/{} is not as it should be: {first} ({} differences in \
                 all); delete the pod, or let the node agent repair it",
                candidate.args.pod_namespace,
                candidate.args.pod_name,
                differences.len()
            ),
        )
        .with_details(differences.join("\n")))
    }

    fn desired<'w>(
        &'w self,
        call: &'w Call,
        config: &'w SidecarConfig,
        phases: &'w Phases,
    ) -> Desired<'w> {
        Desired {
            netns: netns(call),
            config,
            lookup: self.lookup,
            log: self.log,
            phases,
        }
    }

    /// What the pod wants; `None`: nothing.
    fn wanted(
        &self,
        call: &Call,
        candidate: &Candidate,
        attempts: u32,
        phases: &Phases,
    ) -> Result<Option<SidecarConfig>, CniError> {
        // The agent's pod may lack a valid token while it is replaced.
        let give_up = || candidate.is_agent();
        let ask = |limit| self.read_pod(candidate, limit);
        let read = || self.attempts(candidate).run(attempts, &give_up, ask);
        let Some(pod) = phases.measure(Phase::Facts, read)? else {
            return Ok(None);
        };
        phases.measure(Phase::Decide, || self.decide(call, candidate, &pod))
    }

    /// What this pod wants; `None`: nothing.
    fn decide(
        &self,
        call: &Call,
        candidate: &Candidate,
        pod: &Pod,
    ) -> Result<Option<SidecarConfig>, CniError> {
        let facts = PodFacts::of(pod);
        if let SidecarDecision::Skip(reason) = SidecarDecision::of(&facts) {
            self.log.info(&format!("not redirected: {reason}"));
            return Ok(None);
        }
        let dry_run_file = (self.lookup)("DRY_RUN_FILE_PATH").unwrap_or_default();
        let placement = Placement {
            network_namespace: &call.env.netns,
            native_nftables: candidate.conf.native_nftables,
            dry_run_file: &dry_run_file,
        };
        let wanted = redirect_from(&facts, &placement).map_err(CniError::internal)?;
        for warning in &wanted.warnings {
            self.log.warn(warning);
        }
        Ok(Some(wanted.config))
    }
}
