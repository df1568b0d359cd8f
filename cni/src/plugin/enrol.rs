//! The steps of ADD, in order: which pods are redirected, handed over or let through.

use std::cell::OnceCell;
use std::path::Path;
use std::time::{Duration, Instant};

use super::attempts::{Attempts, Limits};
use super::backend::Backend;
use super::look_up::{NetnsOfPod, Patience};
use super::phases::{Phase, Phases};
use super::{AGENT_POD_PREFIX, KUBECONFIG, LOG_FILE, LOG_SOCKET};
use crate::api::{self, Client};
use crate::log::Logger;
use crate::protocol::{
    Call, CniArgs, CniError, Command, NetConf, PrevResult, validate_path_segment,
};

/// The plugin, which implements the CNI verbs; see the module.
pub struct Plugin<'a> {
    /// Writes to the kernel.
    pub backend: &'a dyn Backend,
    /// The log.
    pub log: &'a Logger,
    /// `getenv(3)`.
    pub lookup: &'a dyn Fn(&str) -> Option<String>,
    /// Numbers of attempts and time limits.
    pub limits: Limits,
}

/// A pod that may be redirected or enrolled.
pub(super) struct Candidate {
    pub(super) conf: NetConf,
    pub(super) args: CniArgs,
    /// The pod's network namespace, passed to the node agent.
    pub(super) netns: Option<NetnsOfPod>,
    client: OnceCell<Client>,
    pub(super) deadline: Instant,
    /// Time limit of one request to the API server.
    request: Duration,
    pub(super) patience: Patience,
}

impl Candidate {
    /// The client for the API server, created on first use: a pod that the node agent knows starts without it, even while
    /// the kubeconfig cannot be used.
    pub(super) fn client(&self) -> Result<&Client, api::Error> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::new(&self.conf.run_file(KUBECONFIG))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// The time limit of a request to the API server that has to end before `until`.
    pub(super) fn limit(&self, until: Instant) -> Duration {
        let left = until.saturating_duration_since(Instant::now());
        self.request.min(left)
    }
}

/// True for the node agent's own pod: its name begins with that of the DaemonSet, and it is in the agent's namespace.
pub(super) fn is_agent(conf: &NetConf, args: &CniArgs) -> bool {
    args.pod_name.starts_with(AGENT_POD_PREFIX) && args.pod_namespace == conf.pod_namespace
}

impl Plugin<'_> {
    /// Performs ADD without producing its result: redirects the pod, hands it over, or lets it through.
    ///
    /// # Errors
    /// Code 999 with the reason; the namespace is unchanged.
    pub fn enrol(&self, call: &Call, previous: Option<&PrevResult>) -> Result<(), CniError> {
        let conf = NetConf::read(call)?;
        let args = CniArgs::parse(&call.env.args)?;
        let Some(candidate) = self.candidate(call, conf, args)? else {
            return Ok(());
        };
        let phases = Phases::default();
        let ambient = phases.measure(Phase::Facts, || self.is_ambient(&candidate))?;
        match ambient {
            true => self.hand_over(call, &candidate, previous)?,
            false => self.redirect(call, &candidate, &phases)?,
        }
        self.log.measured(Phases::MESSAGE, || phases.labels());
        Ok(())
    }

    /// Makes the decisions that need no request to the API server. `None`: the pod is let through.
    pub(super) fn candidate(
        &self,
        call: &Call,
        conf: NetConf,
        args: CniArgs,
    ) -> Result<Option<Candidate>, CniError> {
        if is_agent(&conf, &args) {
            self.log.info(&format!(
                "{}/{} is the node agent's own pod: let through",
                args.pod_namespace, args.pod_name
            ));
            return Ok(None);
        }
        self.log.open_sinks(
            &conf.plugin_log_level,
            &conf.run_file(LOG_FILE),
            &conf.run_file(LOG_SOCKET),
        );
        let candidate = Candidate {
            conf,
            args,
            netns: NetnsOfPod::at(netns(call)),
            client: OnceCell::new(),
            deadline: Instant::now() + self.limits.total,
            request: self.limits.request,
            patience: Patience::default(),
        };
        let Candidate { conf, args, .. } = &candidate;
        // Upstream's plugin creates its client first, so ADD reports an unusable kubeconfig for these pods, too.
        let let_through = |why: &str| {
            if call.command == Command::Add {
                candidate.client().map_err(CniError::internal)?;
            }
            self.log.info(why);
            Ok(None)
        };
        if !args.is_kubernetes_pod() {
            return let_through("CNI_ARGS names no pod: not a Kubernetes pod, let through");
        }
        self.log
            .label("pod", format!("{}/{}", args.pod_namespace, args.pod_name));
        self.log.label("if", call.env.ifname.clone());
        if conf.exclude_namespaces.contains(&args.pod_namespace) {
            return let_through("the namespace is excluded in the CNI configuration: let through");
        }
        validate_path_segment("K8S_POD_NAMESPACE", &args.pod_namespace)?;
        validate_path_segment("K8S_POD_NAME", &args.pod_name)?;
        Ok(Some(candidate))
    }

    pub(super) fn attempts(&self, candidate: &Candidate) -> Attempts<'_> {
        Attempts {
            limits: &self.limits,
            log: self.log,
            deadline: candidate.deadline,
        }
    }
}

/// `CNI_NETNS` as a path.
pub(super) fn netns(call: &Call) -> &Path {
    Path::new(&call.env.netns)
}
