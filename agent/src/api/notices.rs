//! Events about the agent's own pod, for operators who watch the cluster and not this node's log.

use super::actions::Actions;
use super::connection::Connection;
use crate::install::Access;
use crate::log::Log;
use crate::pods::{PodView, Pods};
use crate::settings::Settings;
use crate::thread::privilege;
use crate::thread::runtime;
use std::sync::Arc;

/// As it is called in events.
const COMPONENT: &str = "install-cni";

/// Where events go and whom they are about.
pub(crate) struct Notices {
    access: Access,
    node: String,
    /// Namespace and name of the agent's pod.
    pod: (String, String),
    pods: Pods,
    log: Log,
}

impl Notices {
    /// The agent's pod is one of those that are watched.
    pub(crate) fn new(settings: &Settings, access: &Access, pods: Pods, log: &Log) -> Self {
        Self {
            access: access.clone(),
            node: settings.node_name.clone(),
            pod: (settings.pod_namespace.clone(), settings.pod_name.clone()),
            pods,
            log: log.clone(),
        }
    }

    /// The pods that are watched.
    pub(crate) fn pods(&self) -> Pods {
        self.pods.clone()
    }

    /// Sends an event of type Warning, from a thread of its own: nothing waits for it, and what fails is a line in the
    /// log.
    pub(crate) fn warn(&self, reason: &'static str, message: &str) {
        let (namespace, name) = &self.pod;
        let Some(view) = self.pods.get(namespace, name) else {
            return self.log.debug(&format!(
                "no event {reason}: POD_NAMESPACE and POD_NAME name no pod of this node, {namespace:?}/{name:?}"
            ));
        };
        let (access, node, log) = (self.access.clone(), self.node.clone(), self.log.clone());
        let message = message.to_owned();
        let thread = std::thread::Builder::new().name("event".into()).spawn({
            let log = log.clone();
            move || {
                privilege::drop_all_of_thread(&log);
                if let Err(e) = send(&access, &node, &view, reason, &message) {
                    log.warn(&format!("event {reason} cannot be sent: {e}"));
                }
            }
        });
        if let Err(e) = thread {
            log.warn(&format!("event {reason} cannot be sent: {e}"));
        }
    }
}

fn send(
    access: &Access,
    node: &str,
    view: &Arc<PodView>,
    reason: &str,
    message: &str,
) -> Result<(), String> {
    let connection = Connection::new(access)?;
    let runtime = runtime::of_one_thread().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let actions = Actions::new(&connection, node, COMPONENT);
        actions.event(&view.reference(), reason, message).await
    })
}
