//! Collects all parts in order.

use super::files::head;
use super::running::Running;
use super::secrets::Secrets;
use super::{Part, node, rules};
use weir_cni::plugin::KUBECONFIG;
use weir_core::settings::Resolved;
use weir_netlink::Netns;
use weir_preflight::{JOBS, Job, Verdict};

/// Maximum size of a file with credentials; a token or kubeconfig has a few KiB.
const CREDENTIAL: u64 = 1 << 20;

/// Returns all parts, and the known secrets.
pub(super) fn collect(
    own: &Resolved,
    netns: Option<Result<Netns, String>>,
    progress: impl Fn(&str) + Sync,
) -> (Vec<Part>, Secrets) {
    let running = Running::ask(own);
    let secrets = secrets(&running);
    let mut parts = running.parts();
    parts.extend(node::parts(&running));
    parts.extend(rules::parts(&running, netns));
    parts.extend(preflight(progress));
    (parts, secrets)
}

fn preflight(progress: impl Fn(&str) + Sync) -> [Part; 2] {
    let survey = weir_preflight::survey(progress);
    let verdicts: Vec<(&Job, Verdict)> = JOBS.iter().map(|job| (job, job.judge(&survey))).collect();
    let json = weir_preflight::json(&survey, &verdicts);
    [
        Part::new(
            "preflight.txt",
            Ok(weir_preflight::text(&survey, &verdicts, false)),
        ),
        Part::new("preflight.json", Ok(format!("{json:#}\n"))),
    ]
}

/// Returns the secrets of the node that this process can read. A secret that it cannot read cannot be in a part either, except
/// in a log, which is searched for the formats of secrets.
fn secrets(running: &Running) -> Secrets {
    let mut secrets = Secrets::default();
    let variables = std::env::vars_os();
    secrets.know_environment(variables.map(|(name, value)| {
        (
            name.to_string_lossy().into_owned(),
            value.to_string_lossy().into_owned(),
        )
    }));
    let token = running.dir("WEIR_SERVICE_ACCOUNT_DIR").join("token");
    if let Ok(token) = head(&token, CREDENTIAL) {
        secrets.know(&token);
    }
    let mut kubeconfigs = vec![running.dir("CNI_AGENT_RUN_DIR").join(KUBECONFIG)];
    kubeconfigs.extend(node::kubeconfigs(&running.dir("MOUNTED_CNI_NET_DIR")));
    for path in kubeconfigs {
        if let Ok(text) = head(&path, CREDENTIAL) {
            secrets.know_those_in(&text);
        }
    }
    secrets
}
