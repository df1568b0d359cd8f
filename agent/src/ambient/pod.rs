//! The state of one pod and its next task. Pure: nothing here queries the kernel or the proxy.

use super::REDIRECTION;
use super::by_plugin::ByPlugin;
use super::decision::{Decision, Why};
use super::hands::Captured;
use super::keeper::Sandbox;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use weir_ambient::PodOverrides;
use weir_core::journal::PodRef;
use weir_core::journal::ambient::{Member, State};
use weir_core::journal::cut;
use weir_core::journal::pod::Writer;
use weir_core::pods::{NamespaceView, PodView};
use weir_core::sandboxes::place::Identity;
use weir_drift::heals::Heals;
use weir_live::Proof;
use weir_netlink::NetnsId;

/// The state of one pod, keyed by its UID, until nothing of the pod is left.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) view: Arc<PodView>,
    /// The pod's reference; clones share their text.
    reference: PodRef,
    pub(super) namespace: Option<Arc<NamespaceView>>,
    /// The API server no longer has the pod.
    pub(super) gone: bool,
    pub(super) decision: Decision,
    /// The error forbids writes: another pod claims its address or UID.
    pub(super) claimed: Result<(), String>,
    /// Its addresses as reported by the plugin.
    pub(super) by_plugin: Option<ByPlugin>,
    /// The path of its network namespace as reported by the plugin, until an enrolment succeeded there.
    pub(super) netns: Option<PathBuf>,
    /// Its network namespace, with its rules as last verified.
    pub(super) captured: Option<Captured>,
    /// Writing or comparing its rules has failed since; some rules may be present.
    pub(super) suspected: bool,
    /// The overrides from its annotations when this agent first verified its rules; later changes have no effect. `None`: not verified.
    pub(super) overrides: Option<PodOverrides>,
    /// The proxy connection that has taken it, and the network namespace that was sent.
    pub(super) taken: Option<(u64, NetnsId)>,
    /// The proxy has not answered the request to take it yet.
    pub(super) waits: bool,
    /// The proxy may know it.
    pub(super) announced: bool,
    /// It existed before this agent: an earlier agent may have written rules and ended before it set the annotation.
    pub(super) inherited: bool,
    /// It had the annotation when this agent started: an earlier agent wrote it, it does not come from a manifest.
    pub(super) is_known: bool,
    /// Its addresses that may be in the host's rules.
    pub(super) probed: Vec<IpAddr>,
    /// The host's rules have all of them.
    pub(super) probes_pass: bool,
    /// The annotation as last written, and the resource version of the pod that has it; `None`: the view of the API server is current.
    pub(super) annotated: Option<(Option<Annotation>, String)>,
    /// The annotation to write.
    pub(super) annotate: Option<Option<Annotation>>,
    /// Why the last write of the annotation failed: a retry compares the rules first.
    pub(super) not_annotated: Option<String>,
    /// Recent writes of the annotation: a webhook may change the pod at each one, and a changed pod is examined at once.
    pub(super) writes: Heals,
    /// When the running or last job was due.
    pub(super) at: Instant,
    /// The addresses that the running job adds to the host's rules, once it knows them; empty for a pod that leaves.
    pub(super) in_flight: Option<Arc<OnceLock<Vec<IpAddr>>>>,
    pub(super) state: Option<State>,
    pub(super) since: SystemTime,
    pub(super) why: Option<String>,
    pub(super) verified_at: Option<SystemTime>,
    /// The result of the connection test after its rules were last written: whether connections reached the proxy.
    pub(super) proved: Option<Proof>,
    /// Set if its rules were changed, with the writer if it is known.
    pub(super) drifted: Option<Option<Writer>>,
    /// The writer that changed them before the running job started; later changes are left to the next job.
    pub(super) writer: Option<Writer>,
    pub(super) heals: Heals,
}

/// Values of [`REDIRECTION`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Annotation {
    Enabled,
    Pending,
}

impl Annotation {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Pending => "pending",
        }
    }

    /// Returns the annotation of a pod; other values are not ours.
    pub(super) fn of(view: &PodView) -> Option<Self> {
        let found = view.pod.metadata.annotations.get(REDIRECTION)?;
        [Self::Enabled, Self::Pending]
            .into_iter()
            .find(|value| value.text() == found)
    }
}

/// The next task for a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Nothing until something changes; with the state and the reason if the pod is not in sync.
    Nothing(Option<(State, String)>),
    /// Nothing before this time has passed.
    Later(Duration),
    /// Its rules are compared and written, and the proxy and the host's rules are updated.
    Enrol,
    /// Everything is removed; the rules in its network namespace only if the pod keeps running.
    Leave { running: bool },
    /// The annotation is written.
    Annotate(Option<Annotation>),
    /// Nothing of the pod is left.
    Forget,
}

impl Memory {
    pub(super) fn new(view: Arc<PodView>) -> Self {
        Self {
            // The proxy may know a pod that an earlier agent announced.
            announced: Annotation::of(&view).is_some(),
            reference: view.reference(),
            view,
            inherited: false,
            is_known: false,
            namespace: None,
            gone: false,
            decision: Decision::Unknown,
            claimed: Ok(()),
            by_plugin: None,
            netns: None,
            captured: None,
            suspected: false,
            overrides: None,
            taken: None,
            waits: false,
            probed: Vec::new(),
            probes_pass: false,
            annotated: None,
            annotate: None,
            not_annotated: None,
            writes: Heals::default(),
            at: Instant::now(),
            in_flight: None,
            state: None,
            since: SystemTime::now(),
            why: None,
            verified_at: None,
            proved: None,
            drifted: None,
            writer: None,
            heals: Heals::default(),
        }
    }

    pub(super) fn reference(&self) -> PodRef {
        self.reference.clone()
    }

    pub(super) fn identity(&self) -> Identity {
        let identity = Identity::of(&self.view).with_addresses(self.addresses());
        match self.was_captured() {
            true => identity.with_any_of_addresses(),
            false => identity,
        }
    }

    /// True if it was captured in its present network namespace, by this agent or an earlier one: it may have rules, it would have no
    /// network without a proxy, and its network namespace was identified by more than an address before it was captured.
    pub(super) fn was_captured(&self) -> bool {
        // After a failure without a known network namespace, the overrides are still set.
        self.captured.is_some()
            || self.overrides.is_some()
            || (self.by_plugin.is_none() && self.is_known && self.annotation().is_some())
    }

    /// Returns its known addresses.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.addresses_by(&self.view)
    }

    /// Returns its known addresses given this view of the API server.
    pub(super) fn addresses_by(&self, view: &PodView) -> Vec<IpAddr> {
        let by_plugin = self.by_plugin.as_ref();
        by_plugin.map_or_else(|| view.addresses(), |by| by.addresses(view))
    }

    /// True if its rules were in sync when last compared.
    pub(super) fn is_verified(&self) -> bool {
        self.captured.is_some() && !self.suspected
    }

    /// Returns those of its addresses that only the API server reports and nothing else has confirmed.
    pub(super) fn addresses_of_hearsay(&self, view: &PodView) -> Vec<IpAddr> {
        if self.was_captured() {
            return Vec::new();
        }
        let by_plugin = self.by_plugin.as_ref();
        by_plugin.map_or_else(|| view.addresses(), |by| by.hearsay(view))
    }

    /// Returns the addresses that the running job adds to the host's rules, if it knows them already.
    pub(super) fn adds(&self) -> Option<&Vec<IpAddr>> {
        self.in_flight.as_ref()?.get()
    }

    pub(super) fn annotation(&self) -> Option<Annotation> {
        match &self.annotated {
            Some((written, _)) => *written,
            None => Annotation::of(&self.view),
        }
    }

    /// Takes a new view of the API server. It replaces the annotation written last if it has the same value, or from the written
    /// resource version on: another writer may have changed the annotation before the written version was seen.
    pub(super) fn saw(&mut self, view: Arc<PodView>) {
        let number = |version: &str| version.parse::<u128>().ok();
        let is_since = |version: &str| {
            let numbers = number(&view.resource_version).zip(number(version));
            numbers.is_some_and(|(seen, written)| seen >= written)
        };
        let is_newer = |(written, version): &mut (Option<Annotation>, String)| {
            *written == Annotation::of(&view) || view.ended() || is_since(version)
        };
        _ = self.annotated.take_if(is_newer);
        if let Some(by_plugin) = &mut self.by_plugin {
            by_plugin.saw(&view);
        }
        self.reference = view.reference();
        self.view = view;
    }

    /// True if something of the pod has to be removed: rules, the proxy's entry or host entries.
    pub(super) fn has_traces(&self) -> bool {
        let has_rules = self.captured.is_some() || self.suspected;
        has_rules || self.announced || !self.probed.is_empty()
    }

    /// True if an earlier agent captured it and this one has not verified it yet: its host entries are not known here and must stay.
    pub(super) fn is_of_earlier_agent(&self) -> bool {
        let may_leave = self.gone || matches!(self.decision, Decision::No(_));
        let is_verified = self.captured.is_some() && self.overrides.is_some();
        !may_leave && !is_verified && self.annotation().is_some()
    }

    /// Returns the next task. `proxy` is the newest connection of the proxy; `look` demands a comparison of its rules
    /// regardless of their known state.
    pub(super) fn task(&self, proxy: Option<u64>, look: bool, now: Instant) -> Task {
        if self.gone {
            return match self.has_traces() {
                true => Task::Leave { running: false },
                false => Task::Forget,
            };
        }
        match self.decision {
            Decision::No(why) => self.leaves(why),
            Decision::Member => self.enrols(proxy, look, now),
            // It stays captured: its rules are maintained, and a new proxy receives it.
            Decision::Unknown if self.was_captured() => self.enrols(proxy, look, now),
            Decision::Unknown => {
                let namespace = self.view.namespace();
                let why = format!("the labels of its namespace {namespace} are not known yet");
                Task::Nothing(Some((State::Waiting, why)))
            }
        }
    }

    fn leaves(&self, why: Why) -> Task {
        // In the host's network namespace, no rules are a pod's. Its annotation comes from a manifest.
        let running = why != Why::Ended && !self.view.pod.spec.host_network;
        let is_unseen = self.inherited && running && !self.view.addresses().is_empty();
        if self.has_traces() || is_unseen {
            return Task::Leave { running };
        }
        match (self.annotation(), self.writes.pause(self.at)) {
            (Some(_), None) => Task::Annotate(None),
            (Some(_), Some(pause)) => Task::Later(pause),
            (None, _) => Task::Forget,
        }
    }

    fn enrols(&self, proxy: Option<u64>, look: bool, now: Instant) -> Task {
        if self.by_plugin.is_none() && self.view.addresses().is_empty() {
            return Task::Nothing(Some((State::Waiting, "it has no address yet".to_owned())));
        }
        if let Err(why) = &self.claimed {
            return Task::Nothing(Some((State::Failed, why.clone())));
        }
        let is_drifted = self.drifted.is_some();
        let is_refused = self.not_annotated.is_some();
        let pause = self.writes.pause(self.at);
        let comes_first = !is_refused && !is_drifted && pause.is_none();
        if let Some(due) = self.annotate.filter(|_| comes_first) {
            return Task::Annotate(due);
        }
        // If only a new proxy or the host's rules lack the pod, its own rules are not in doubt.
        let is_doubted = (look && self.is_complete(proxy)) || is_drifted || self.suspected;
        if let Some(until_healed) = self.heals.pause(now).filter(|_| is_doubted) {
            return Task::Later(until_healed);
        }
        if look || is_drifted || !self.is_complete(proxy) {
            return Task::Enrol;
        }
        let target = Some(Annotation::Enabled);
        let is_other = self.annotation() != target;
        let due = self.annotate.or(is_other.then_some(target));
        match (due, pause) {
            (None, _) => Task::Nothing(None),
            (Some(due), None) => Task::Annotate(due),
            (Some(_), Some(pause)) => Task::Later(pause),
        }
    }

    /// Resets the state for a new sandbox: what is known of rules, proxy and repairs belongs to the previous one.
    pub(super) fn handed_over(&mut self, sandbox: Sandbox) {
        let by_plugin = ByPlugin::new(sandbox.addresses, sandbox.before, &self.view);
        let is_said = !sandbox.netns.as_os_str().is_empty();
        (self.by_plugin, self.netns) = (Some(by_plugin), is_said.then_some(sandbox.netns));
        (self.captured, self.taken, self.annotate) = (None, None, None);
        // The annotation is that of the previous sandbox.
        (self.waits, self.is_known) = (false, false);
        (self.overrides, self.proved, self.verified_at) = (None, None, None);
        self.heals.begin_anew();
    }

    /// True if its rules, the newest proxy and the host's rules are up to date.
    pub(super) fn is_complete(&self, proxy: Option<u64>) -> bool {
        let netns = self.captured.as_ref().map(|captured| captured.netns);
        let is_taken = match (self.taken, proxy, netns) {
            (Some((by, of)), Some(newest), Some(netns)) => by == newest && of == netns,
            _ => false,
        };
        is_taken && self.is_verified() && self.probes_pass && self.probed == self.addresses()
    }

    /// Returns its public state; `None` if it is unrelated to the mesh.
    pub(super) fn member(&self) -> Option<Member> {
        let (state, why) = self.shown()?;
        Some(Member {
            pod: self.reference(),
            state,
            since: self.since,
            engine: self.captured.as_ref().and_then(|c| c.engine),
            verified_at: self.verified_at,
            proved: self.proved.as_ref().map(Proof::answer),
            why: why.as_deref().map(|why| cut(why).into()),
        })
    }

    /// Returns its state with the reason. Other nodes choose the protocol by the annotation: a pod is enrolled, or has left, when that
    /// is written.
    fn shown(&self) -> Option<(State, Option<String>)> {
        let to_write = match self.state? {
            State::Enrolled if self.annotation() != Some(Annotation::Enabled) => {
                Some((State::Pending, "written"))
            }
            State::Leaving if self.why.is_none() && self.annotation().is_some() => {
                Some((State::Leaving, "removed"))
            }
            _ => None,
        };
        let Some((state, done)) = to_write else {
            return Some((self.state?, self.why.clone()));
        };
        let pause = match self.writes.pause(self.at) {
            None => "",
            Some(_) => {
                ": it was written more than five times within a minute, and is written again after a pause of at most 30 s"
            }
        };
        let why = format!("its annotation {REDIRECTION} is not {done} yet{pause}");
        Some((state, Some(why)))
    }
}
