//! The CNI verbs.

use serde_json::Value;

use super::KUBECONFIG;
use super::enrol::Plugin;
use crate::api;
use crate::protocol::{Call, CniArgs, CniError, Handler, NetConf, PrevResult, code, empty};

impl Handler for Plugin<'_> {
    /// Enrols the pod and passes the previous result on.
    fn add(&mut self, call: &Call) -> Result<Value, CniError> {
        let previous = PrevResult::read(&call.config, &call.version)?;
        // Convert before any change: a version that cannot express the result must not leave rules behind.
        let result = match &previous {
            Some(previous) => previous.clone().into_result(&call.version)?,
            None => empty(&call.version)?,
        };
        match self.enrol(call, previous.as_ref()).map(|()| result) {
            Ok(result) => Ok(result),
            Err(error) => {
                self.log.error(&format!("ADD failed: {error}"));
                Err(error)
            }
        }
    }

    fn result_lost(&mut self, error: &std::io::Error) {
        self.log.error(&format!(
            "ADD succeeded, but the runtime cannot be told: cannot write to stdout: {error}; a redirection that it made stays until the \
             runtime deletes the namespace or repeats ADD"
        ));
    }

    /// Compares the rules in the namespace with those that the pod requests. Succeeds for pods that request none.
    /// For ambient pods asks the node agent.
    fn check(&mut self, call: &Call) -> Result<(), CniError> {
        let conf = NetConf::read(call)?;
        let args = CniArgs::parse(&call.env.args)?;
        let Some(candidate) = self.candidate(call, conf, args)? else {
            return Ok(());
        };
        // The runtime waits, and an unknown answer is no failure.
        self.limits.ambient_strict_attempts = self.limits.check_attempts;
        let compared = match self.is_ambient(&candidate) {
            Ok(true) => self.check_enrolled(call, &candidate),
            Ok(false) => self.compare(call, &candidate),
            Err(error) => self.not_compared(&error),
        };
        if let Err(error) = &compared {
            self.log.error(&format!("CHECK failed: {error}"));
        }
        compared
    }

    /// Always succeeds: the kernel deletes the rules with the namespace, and state on the node belongs to the agent, which
    /// learns of the deletion from the API server.
    fn del(&mut self, call: &Call) -> Result<(), CniError> {
        self.log.debug(&format!(
            "DEL of container {}: nothing to undo",
            call.env.container_id
        ));
        Ok(())
    }

    /// Always succeeds, regardless of the listed attachments: there is no state on the node to collect.
    fn gc(&mut self, _: &Call) -> Result<(), CniError> {
        self.log.debug("GC: nothing to collect");
        Ok(())
    }

    /// Checks whether the kernel accepts rules from this process. If ambient mode is enabled, a kernel without any engine
    /// for rules is sufficient: the node agent redirects ambient pods, and can use eBPF for that.
    ///
    /// A missing kubeconfig is only logged: the node agent writes it, and the runtime would not start the agent's pod while
    /// a plugin reports that it is not available.
    fn status(&mut self, call: &Call) -> Result<(), CniError> {
        let unavailable = |reason: String| {
            CniError::new(
                code::PLUGIN_NOT_AVAILABLE,
                format!("plugin not available: {reason}"),
            )
        };
        let conf = NetConf::read(call)?;
        if let Err(error) = api::check(&conf.run_file(KUBECONFIG)) {
            self.log.warn(&format!(
                "pods other than the node agent's cannot start yet: {error}"
            ));
        }
        match self.backend.probe().map_err(unavailable)? {
            Some(reason) if conf.ambient_enabled => {
                let text = format!("pods with a sidecar cannot be redirected here: {reason}");
                self.log.warn(&text);
                Ok(())
            }
            Some(reason) => Err(unavailable(reason)),
            None => Ok(()),
        }
    }
}
