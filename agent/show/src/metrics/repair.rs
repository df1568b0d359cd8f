//! Pods whose rules differ from the desired ones, and their repairs.

use super::{Label, Labels2, Metrics, counter, counters, gauge};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use weir_cni::compile::Engine;
use weir_core::journal::api;
use weir_core::journal::pod::{Event, PodState, Repaired};

/// Actions on pods that meet Istio's criteria.
const ACTIONS: [&str; 3] = ["delete", "repair", "label"];
/// Causes of a repair in place.
const CAUSES: [&str; 2] = ["criteria", "state"];
const RESULTS: [&str; 3] = ["success", "skip", "fail"];
const EVENTS: [&str; 3] = ["sent", "failed", "dropped"];
const DRIFT: [&str; 2] = ["missing", "changed"];
const ENGINES: [Engine; 2] = [Engine::Nft, Engine::Xtables];

fn result(of: Repaired) -> &'static str {
    match of {
        Repaired::Success => "success",
        Repaired::Skip => "skip",
        Repaired::Fail => "fail",
    }
}

#[derive(Clone)]
pub(super) struct Repair {
    pods: Family<Labels2, Counter>,
    repairs: Family<Labels2, Counter>,
    drift: Family<Label, Counter>,
    contention: Counter,
    events: Family<Label, Counter>,
    expected: Gauge,
    verified: Gauge,
    ratio: Gauge<f64, AtomicU64>,
    engines: Family<Label, Gauge>,
    unasked: Gauge,
    unseen: Gauge,
    unasked_removed: Counter,
}

impl Repair {
    pub(super) fn register(r: &mut Registry) -> Self {
        let (pods, repairs) = (Family::<Labels2, Counter>::default(), Family::default());
        for result in RESULTS {
            for action in ACTIONS {
                drop(pods.get_or_create(&[("type", action), ("result", result)]));
            }
            for cause in CAUSES {
                drop(repairs_of(&repairs, cause, result));
            }
        }
        r.register(
            "istio_cni_repair_pods_repaired",
            "Broken pods, by type of repair and result",
            pods.clone(),
        );
        r.register(
            "weir_repairs",
            "Repairs in place, by cause and result",
            repairs.clone(),
        );
        let (ratio, engines) = (Gauge::<f64, AtomicU64>::default(), Family::default());
        // NaN until the first pass.
        ratio.set(f64::NAN);
        for engine in ENGINES {
            drop(engines_of(&engines, engine));
        }
        r.register(
            "weir_pods_verified_ratio",
            "Share of the expected pods that are verified; 1 when none is expected, NaN while nothing is known",
            ratio.clone(),
        );
        r.register(
            "weir_engine_info",
            "Verified pods, by engine",
            engines.clone(),
        );
        Self {
            ratio,
            engines,
            pods,
            repairs,
            drift: counters(
                r,
                "weir_drift",
                "Pods whose rules were not in sync, by cause",
                "cause",
                &DRIFT,
            ),
            contention: counter(
                r,
                "weir_contention",
                "Repairs of pods that were delayed because another writer keeps reverting them",
            ),
            events: counters(
                r,
                "weir_events",
                "Kubernetes events about repaired pods, by result",
                "result",
                &EVENTS,
            ),
            unasked: gauge(
                r,
                "weir_pods_unasked",
                "Pods that do not request redirection and have owned rules",
            ),
            unseen: gauge(
                r,
                "weir_pods_unasked_unseen",
                "Pods that do not request redirection and could not be checked",
            ),
            unasked_removed: counter(
                r,
                "weir_unasked_removed",
                "Redirections that were removed from pods that do not request one",
            ),
            expected: gauge(
                r,
                "weir_pods_expected",
                "Pods of this node that request redirection",
            ),
            verified: gauge(
                r,
                "weir_pods_verified",
                "Pods that request redirection and whose rules were read and are in sync",
            ),
        }
    }
}

/// Returns the share of verified pods; 1 if none is expected.
pub(crate) fn ratio(expected: usize, verified: usize) -> f64 {
    let number = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    match expected {
        0 => 1.0,
        _ => number(verified) / number(expected),
    }
}

fn engines_of(family: &Family<Label, Gauge>, engine: Engine) -> Gauge {
    let name = match engine {
        Engine::Nft => "nft",
        Engine::Xtables => "xtables",
    };
    family.get_or_create_owned(&[("engine", name)])
}

fn repairs_of(
    family: &Family<Labels2, Counter>,
    cause: &'static str,
    result: &'static str,
) -> Counter {
    family.get_or_create_owned(&[("cause", cause), ("result", result)])
}

impl Metrics {
    pub(super) fn of_pods(&self, event: &Event) {
        let repair = &self.repair;
        let healed = |of| _ = repairs_of(&repair.repairs, "state", result(of)).inc();
        match event {
            Event::RoundsBegin { interval } => self.came_round(*interval),
            Event::Seen { expected } => self.expected(expected),
            Event::RoundEnded {
                interval,
                unasked,
                unseen,
            } => {
                let left = unasked.iter().filter(|found| !found.removed).count();
                let number = |n| i64::try_from(n).unwrap_or(i64::MAX);
                repair.unasked.set(number(left));
                repair.unseen.set(number(unseen.0));
                self.came_round(*interval);
            }
            Event::Measured { by, phases } => self.phases(by, phases),
            Event::Repaired(of) => {
                let label = [("cause", of.repair.cause.name())];
                repair.drift.get_or_create(&label).inc();
                healed(Repaired::Success);
            }
            Event::Contention(_) => _ = repair.contention.inc(),
            Event::NotVerified { .. } => healed(Repaired::Fail),
            Event::Unasked { found, .. } => {
                repair.unasked_removed.inc_by(u64::from(found.removed));
            }
            Event::Criteria { action, done, .. } => {
                let result = result(done.result());
                let labels = [("type", *action), ("result", result)];
                repair.pods.get_or_create(&labels).inc();
                if *action == "repair" {
                    repairs_of(&repair.repairs, "criteria", result).inc();
                }
            }
            _ => {}
        }
    }

    pub(super) fn of_events(&self, event: &api::Event) {
        let result = match event {
            api::Event::Sent { .. } => "sent",
            api::Event::Failed { .. } => "failed",
            api::Event::Dropped { .. } => "dropped",
            api::Event::Off { .. } | api::Event::NoOwnPod { .. } => return,
        };
        let label = [("result", result)];
        self.repair.events.get_or_create(&label).inc();
    }

    /// Counts the pods that request redirection.
    fn expected(&self, pods: &[PodState]) {
        let number = |n| i64::try_from(n).unwrap_or(i64::MAX);
        let verified = || pods.iter().filter(|p| p.verified);
        let (all, good) = (pods.len(), verified().count());
        self.repair.expected.set(number(all));
        self.repair.verified.set(number(good));
        self.repair.ratio.set(ratio(all, good));
        for engine in ENGINES {
            let of = verified().filter(|p| p.engine == Some(engine)).count();
            engines_of(&self.repair.engines, engine).set(number(of));
        }
    }

    /// Resets the number of verified pods when it is outdated. The next pass sets it again.
    pub(super) fn none_is_verified(&self) {
        self.repair.verified.set(0);
        self.repair.ratio.set(f64::NAN);
        for engine in ENGINES {
            engines_of(&self.repair.engines, engine).set(0);
        }
    }

    /// Returns the repairs in place so far: cause, result, count.
    pub(crate) fn repairs(&self) -> Vec<(&'static str, &'static str, u64)> {
        let pairs = CAUSES.into_iter().flat_map(|c| RESULTS.map(|r| (c, r)));
        pairs
            .map(|(c, r)| (c, r, repairs_of(&self.repair.repairs, c, r).get()))
            .collect()
    }

    /// Returns the differences found so far: cause, count.
    pub(crate) fn drifts(&self) -> Vec<(&'static str, u64)> {
        let count = |cause| self.repair.drift.get_or_create(&[("cause", cause)]).get();
        DRIFT.map(|cause| (cause, count(cause))).to_vec()
    }
}
