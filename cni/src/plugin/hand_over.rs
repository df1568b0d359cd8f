//! Hands an ambient pod over to the node agent, whose answer is the plugin's result.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::enrol::{Candidate, Plugin};
use super::{CHECK_PATH, EVENT_SOCKET};
use crate::http::post_for_status;
use crate::protocol::{Call, CniArgs, CniError, PrevResult, ResultAddress, code};

impl Plugin<'_> {
    /// Sends `POST /cmdadd` to the agent; the status of the answer is the result. Does not retry: after a failure the
    /// runtime creates a new sandbox.
    pub(super) fn hand_over(
        &self,
        call: &Call,
        candidate: &Candidate,
        previous: Option<&PrevResult>,
    ) -> Result<(), CniError> {
        let addresses = previous.map(PrevResult::addresses).transpose()?;
        let refused = self.tell_agent(call, candidate, "/cmdadd", addresses.as_deref())?;
        let Some((_, refused)) = refused else {
            self.log
                .info("an ambient pod: the node agent has enrolled it");
            return Ok(());
        };
        Err(CniError::internal(format!(
            "the node agent did not enrol the ambient pod: {refused}; its log says more"
        )))
    }

    /// Asks the agent whether the pod is enrolled. Earlier versions of the agent and Istio's agent do not support the request.
    /// An unknown state does not count as a difference: some runtimes kill pods whose CHECK fails, and an agent may be
    /// replaced at any time.
    pub(super) fn check_enrolled(
        &self,
        call: &Call,
        candidate: &Candidate,
    ) -> Result<(), CniError> {
        let unknown = match self.tell_agent(call, candidate, CHECK_PATH, None) {
            Ok(None) => return Ok(()),
            Ok(Some((404, _))) => format!("the node agent does not know {CHECK_PATH}"),
            Ok(Some((500, why))) => {
                let why = format!("the ambient pod is not enrolled: {why}");
                return Err(CniError::new(code::REDIRECTION_DIFFERS, why));
            }
            Ok(Some((_, why))) => why,
            Err(error) => error.msg,
        };
        self.log.warn(&format!(
            "whether the ambient pod is enrolled is not known: {unknown}"
        ));
        Ok(())
    }

    /// Posts the pod to the agent. Returns `None` for status 200, else the status and a text with the agent's message.
    fn tell_agent(
        &self,
        call: &Call,
        candidate: &Candidate,
        path: &str,
        addresses: Option<&[ResultAddress]>,
    ) -> Result<Option<(u16, String)>, CniError> {
        let body = body(&call.env.netns, &candidate.args, addresses).to_string();
        let socket = candidate.conf.run_file(EVENT_SOCKET);
        let limit = self.limits.hand_over;
        let response = post_for_status(&socket, path, &body, limit).map_err(|error| {
            CniError::internal(format!(
                "cannot ask the node agent at {} about the ambient pod: {error}; check that the \
                 agent's pod runs on this node",
                socket.display()
            ))
        })?;
        let (status, said) = (response.status, response.body.trim());
        let said = (status != 200).then(|| format!("status {status}: {said}"));
        Ok(said.map(|said| (status, said)))
    }
}

/// Builds the body of the hand-over: capitalised keys, the mask as base64. `addresses` is `None` if there was no
/// previous result.
///
/// Agents of other versions read it, too: the format must not change.
#[must_use]
pub fn body(netns: &str, args: &CniArgs, addresses: Option<&[ResultAddress]>) -> Value {
    let ips = addresses.map(|list| {
        list.iter()
            .map(|address| {
                json!({
                    "Interface": address.interface,
                    "Address": {
                        // As `net.IP` of Go prints an IPv4-mapped address.
                        "IP": address.address.addr().to_canonical().to_string(),
                        "Mask": mask_base64(&address.address),
                    },
                    "Gateway": address.gateway,
                })
            })
            .collect::<Vec<_>>()
    });
    json!({
        "Netns": netns,
        "PodName": args.pod_name,
        "PodNamespace": args.pod_namespace,
        "IPs": ips,
    })
}

/// The bytes of a network mask as base64 (RFC 4648, with padding).
fn mask_base64(net: &IpNet) -> String {
    match net.netmask() {
        IpAddr::V4(mask) => STANDARD.encode(mask.octets()),
        IpAddr::V6(mask) => STANDARD.encode(mask.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_other_versions_read() {
        let args = CniArgs {
            pod_name: "p".into(),
            pod_namespace: "ns".into(),
            ..CniArgs::default()
        };
        let address = |text: &str, gateway: &str, interface| ResultAddress {
            address: text.parse().unwrap(),
            gateway: gateway.into(),
            interface,
        };
        let list = [
            address("10.1.0.5/24", "10.1.0.1", Some(0)),
            address("fd00::5/64", "", None),
            address("::ffff:1.2.3.4/120", "", None),
        ];
        assert_eq!(
            body("/run/netns/x", &args, Some(&list)),
            json!({
                "Netns": "/run/netns/x", "PodName": "p", "PodNamespace": "ns",
                "IPs": [
                    {"Interface": 0, "Gateway": "10.1.0.1",
                     "Address": {"IP": "10.1.0.5", "Mask": "////AA=="}},
                    {"Interface": null, "Gateway": "",
                     "Address": {"IP": "fd00::5", "Mask": "//////////8AAAAAAAAAAA=="}},
                    {"Interface": null, "Gateway": "",
                     "Address": {"IP": "1.2.3.4", "Mask": "////////////////////AA=="}},
                ],
            })
        );
        assert_eq!(body("n", &args, None)["IPs"], Value::Null);
    }
}
