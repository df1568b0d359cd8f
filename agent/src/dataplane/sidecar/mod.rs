//! Pods with a sidecar: the redirection that the plugin writes at ADD, compared and repaired in place.
//!
//! This dataplane also handles pods that do not ask for redirection. Another agent may have taken the network namespace of
//! such a pod for that of another one, and its traffic goes to a proxy that does not exist: see `ask`.

mod ask;

pub(crate) use ask::asks;

use super::{Dataplane, Hindrance, Spent, hindrance};
use std::time::Instant;
use weir_cni::compile::Engine;
use weir_cni::config::{InboundMode, Intent};
use weir_cni::log::count;
use weir_cni::plugin::{Phase, named_engine};
use weir_cni::pod::{NodeEnvironment, PodFacts, PodRedirect, redirect_from};
use weir_cni::redirection::{
    AppliedRedirection, Change, Desired as _, Fingerprint, SIDECAR, Scheme, Visit,
};
use weir_core::pods::PodView;
use weir_rules::{Strays, strays};

/// The sidecar's redirection, for pods that the plugin would redirect.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sidecar {
    /// `NATIVE_NFTABLES`: rules are written to nf_tables, regardless of what the network namespace uses.
    pub(crate) native_nftables: bool,
    /// Settings that the plugin reads from its environment, that of the container runtime, and the agent from its own.
    pub(crate) environment: NodeEnvironment,
    /// Ambient mode is on: rules without a request may belong to it, and it maintains them itself.
    pub(crate) ambient: bool,
    /// Namespaces whose pods the plugin ignores.
    pub(crate) exclude_namespaces: Vec<String>,
}

/// The desired state of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Desired {
    /// This redirection.
    Redirection {
        redirect: Box<PodRedirect>,
        /// The engine that the plugin's configuration names, if any.
        engine: Option<Engine>,
    },
    /// No redirection. Owned objects that exist may be removed, or may not, for this reason.
    Nothing(Result<(), String>),
}

impl Desired {
    /// Returns how inbound traffic is redirected to the sidecar.
    pub(crate) fn mode(&self) -> Option<InboundMode> {
        match self {
            Self::Redirection { redirect, .. } => Some(redirect.annotations.mode),
            Self::Nothing(_) => None,
        }
    }
}

/// The actual state of a network namespace.
#[derive(Debug)]
pub(crate) struct Observed {
    /// Read first, so that the next visit detects a change during the comparison. `None`: it cannot be read, and so
    /// nothing is assumed unchanged.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// The engine that held owned rules.
    pub(crate) engine: Option<Engine>,
    pub(crate) found: Found,
}

/// The result of the comparison with the desired state.
#[derive(Debug)]
pub(crate) enum Found {
    /// The differences from the redirection for the addresses of the network namespace.
    Compared {
        intent: Box<Intent>,
        changes: Vec<Change>,
    },
    /// Owned objects in a network namespace that should have none.
    Unasked(Option<Strays>),
}

/// The plan for a network namespace.
#[derive(Debug, PartialEq)]
pub(crate) enum Plan {
    /// Nothing has to change.
    InSync,
    /// Differences are left: a write would not change them, or must not.
    Leave(String),
    /// The redirection is written, with this engine if one is named.
    Write(Option<Engine>),
    /// Owned objects are removed.
    Remove,
}

/// What was written.
#[derive(Debug)]
pub(crate) struct Applied {
    /// `None`: owned objects were removed.
    pub(crate) engine: Option<Engine>,
    pub(crate) summary: String,
    /// Fingerprint of the verified state, if it detects every later change.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// What still keeps packets from the redirection, so that it does not count as verified.
    pub(crate) hindered: Option<String>,
}

impl Sidecar {
    /// Returns the redirection for a pod, without checking whether the plugin would write one.
    ///
    /// # Errors
    /// The pod uses the host network, or its configuration is invalid.
    pub(crate) fn demand(&self, view: &PodView) -> Result<Desired, String> {
        let facts = PodFacts::of(&view.pod);
        match facts.host_network {
            true => Err(
                "it lives in the node's own network namespace, which is never redirected".into(),
            ),
            false => self.redirection(&facts),
        }
    }

    fn redirection(&self, facts: &PodFacts) -> Result<Desired, String> {
        Ok(Desired::Redirection {
            redirect: Box::new(redirect_from(facts).map_err(|e| e.to_string())?),
            engine: named_engine(self.native_nftables),
        })
    }
}

impl Dataplane for Sidecar {
    const SCHEME: &'static Scheme = &SIDECAR;

    type Desired = Desired;
    type Observed = Observed;
    type Plan = Plan;
    type Applied = Applied;

    fn desire(&self, view: &PodView) -> Result<Option<Desired>, String> {
        match asks(view) {
            Some(facts) if self.exclude_namespaces.contains(&facts.namespace) => Ok(None),
            Some(facts) => self.redirection(&facts).map(Some),
            None if self.ambient => Ok(None),
            None => Ok(ask::nothing(view).map(Desired::Nothing)),
        }
    }

    fn observe(
        &self,
        visit: &Visit<'_>,
        desired: &Desired,
        spent: &mut Spent,
    ) -> Result<Observed, String> {
        let fingerprint = visit.fingerprint().ok();
        let Desired::Redirection {
            redirect,
            engine: named,
        } = desired
        else {
            return Ok(Observed {
                fingerprint,
                engine: None,
                found: Found::Unasked(strays(visit).map_err(text)?),
            });
        };
        let intent = spent.measure(Phase::Decide, || {
            let found = visit.addresses(&redirect.addresses);
            redirect.intent(&self.environment, &found)
        });
        let intent = Box::new(intent.map_err(text)?);
        let choose = || visit.engine_to_compare(*named);
        let (engine, in_use) = spent.measure(Phase::Facts, choose).map_err(text)?;
        let compiled = intent.compile_for(*named, engine);
        let compare = || {
            let mut changes = visit.differences(&compiled).map_err(text)?;
            // A repair does not wait for foreign tables, which may be large, busy or unreadable.
            if changes.iter().all(Change::stays) {
                let found = visit.hindrances(&compiled)?;
                changes.extend(found.into_iter().map(Change::Hindrance));
            }
            Ok::<_, String>(changes)
        };
        let changes = spent.measure(Phase::Verify, compare)?;
        Ok(Observed {
            fingerprint,
            engine: in_use.engine(),
            found: Found::Compared { intent, changes },
        })
    }

    fn plan(&self, desired: &Desired, observed: &Observed) -> Plan {
        match (&observed.found, desired) {
            (Found::Compared { changes, .. }, _) if changes.is_empty() => Plan::InSync,
            // Objects of another writer in an owned table, such as a counter, may be needed and are not removed. A
            // write would change nothing and be reported as a repair each time.
            (Found::Compared { changes, .. }, _) if changes.iter().all(Change::stays) => {
                Plan::Leave(format!(
                    "it differs in what is not taken away ({} in all), {}; find out who made it, and delete it",
                    changes.len(),
                    changes.first().map(difference).unwrap_or_default()
                ))
            }
            (Found::Compared { .. }, Desired::Redirection { engine, .. }) => Plan::Write(*engine),
            (Found::Compared { .. }, Desired::Nothing(_)) => Plan::Write(None),
            (Found::Unasked(None), _) => Plan::InSync,
            (Found::Unasked(Some(_)), Desired::Nothing(Err(why))) => Plan::Leave(why.clone()),
            (Found::Unasked(Some(unasked)), _) if !unasked.certain => Plan::Leave(
                "not all of it is what this program writes, so another one may have written it"
                    .into(),
            ),
            (Found::Unasked(Some(_)), _) => Plan::Remove,
        }
    }

    fn is_empty(plan: &Plan) -> bool {
        matches!(plan, Plan::InSync | Plan::Leave(_))
    }

    fn apply(
        &self,
        visit: &Visit<'_>,
        desired: &Desired,
        observed: &Observed,
        plan: &Plan,
        spent: &mut Spent,
    ) -> Result<Applied, String> {
        match (plan, &observed.found) {
            (Plan::Write(engine), Found::Compared { intent, .. }) => {
                let begun = Instant::now();
                let done = visit.apply_again(&**intent, *engine)?;
                let took = begun.elapsed();
                let compiled = intent.compile_for(*engine, done.engine);
                let read_back = done.read_back.unwrap_or_default();
                spent.add(Phase::Apply, took.saturating_sub(read_back));
                spent.add(Phase::Verify, read_back);
                done.lock_wait
                    .into_iter()
                    .for_each(|waited| spent.add(Phase::LockWait, waited));
                // Read first, so that the next visit detects a foreign rule added in the meantime.
                let fingerprint = visit.fingerprint_of(&done);
                let find = || hindrance(visit, &compiled);
                let hindered = spent.measure(Phase::Verify, find).map(|found| match found {
                    Hindrance::Foreign(why) | Hindrance::Unknown(why) => why,
                });
                // With a hindrance, the next visit compares everything.
                let fingerprint = fingerprint.filter(|_| hindered.is_none());
                Ok(Applied {
                    engine: Some(done.engine),
                    hindered,
                    fingerprint,
                    summary: summary(&done, visit),
                })
            }
            (Plan::Remove, _) => Ok(Applied {
                engine: None,
                hindered: None,
                fingerprint: None,
                summary: match self.remove(visit, Some(desired))? {
                    1 => "1 object was removed".to_owned(),
                    n => format!("{n} objects were removed"),
                },
            }),
            _ => Err("nothing of it can be written".into()),
        }
    }

    fn remove(&self, visit: &Visit<'_>, _: Option<&Desired>) -> Result<usize, String> {
        let removed = visit.clean(None).map_err(text)?;
        Ok(removed.len())
    }
}

fn summary(done: &AppliedRedirection, visit: &Visit<'_>) -> String {
    let (engine, netns) = (done.engine, visit.sandbox().netns().id());
    format!(
        "redirected by {engine} in {netns}: {}, verified",
        count(done.changes.len(), "change")
    )
}

/// Formats as `missing: table inet istio-proxy-nat`.
pub(crate) fn difference(change: &Change) -> String {
    format!("{}: {}", change.difference(), change.object())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unasked(certain: bool) -> Observed {
        Observed {
            fingerprint: None,
            engine: None,
            found: Found::Unasked(Some(Strays {
                changes: Vec::new(),
                certain,
            })),
        }
    }

    /// Objects that are not certainly ours, or may have been requested, stay.
    #[test]
    fn only_what_is_surely_ours_is_removed() {
        let plan =
            |desired, observed| Sidecar::default().plan(&Desired::Nothing(desired), &observed);
        assert_eq!(plan(Ok(()), unasked(true)), Plan::Remove);
        assert!(matches!(plan(Ok(()), unasked(false)), Plan::Leave(_)));
        let why = "it was injected by Istio".to_owned();
        assert_eq!(plan(Err(why.clone()), unasked(true)), Plan::Leave(why));
        let none = Observed {
            found: Found::Unasked(None),
            ..unasked(true)
        };
        assert_eq!(plan(Ok(()), none), Plan::InSync);
    }
}
