//! What is known of one pod, and what is to be done for it next. Pure: nothing here asks the kernel or the proxy.

use super::REDIRECTION;
use super::by_plugin::ByPlugin;
use super::decision::{Decision, Why};
use super::hands::Captured;
use super::keeper::Sandbox;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use weir_ambient::PodOverrides;
use weir_core::journal::PodRef;
use weir_core::journal::ambient::{Member, State};
use weir_core::journal::cut;
use weir_core::journal::pod::Writer;
use weir_core::pods::{NamespaceView, PodView};
use weir_core::sandboxes::place::Identity;
use weir_drift::heals::Heals;
use weir_live::Answer;
use weir_netlink::NetnsId;

/// What is known of one pod, by its UID, until nothing of it is left.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) view: Arc<PodView>,
    /// Of it; clones share their text.
    reference: PodRef,
    pub(super) namespace: Option<Arc<NamespaceView>>,
    /// The API server has no such pod any more.
    pub(super) gone: bool,
    pub(super) decision: Decision,
    /// Why nothing may be written: another pod claims its address or UID.
    pub(super) claimed: Result<(), String>,
    /// Its addresses by the plugin.
    pub(super) by_plugin: Option<ByPlugin>,
    /// The namespace by the plugin, until it was looked at.
    pub(super) netns: Option<PathBuf>,
    /// Where it is, with its rules as they were verified the last time.
    pub(super) captured: Option<Captured>,
    /// Making or comparing its rules failed since, and some may be there.
    pub(super) suspected: bool,
    /// What its annotations asked for when this agent verified its rules first; what they say later has no effect. `None`: it has not.
    pub(super) overrides: Option<PodOverrides>,
    /// The connection of the proxy that has taken it, and the namespace.
    pub(super) taken: Option<(u64, NetnsId)>,
    /// The proxy was asked to take it, and has not answered yet.
    pub(super) waits: bool,
    /// The proxy may know it.
    pub(super) announced: bool,
    /// It was there before this agent: an earlier one may have made rules, and ended before it said so anywhere.
    pub(super) inherited: bool,
    /// It had the annotation when this agent began: another agent wrote that, and no manifest.
    pub(super) is_known: bool,
    /// Its addresses that the host's rules may know.
    pub(super) probed: Vec<IpAddr>,
    /// They know them all.
    pub(super) probes_pass: bool,
    /// The annotation as it was written last, and the version of the pod that has it; `None`: as the API server has it.
    pub(super) annotated: Option<(Option<Annotation>, String)>,
    /// The annotation that is to be written.
    pub(super) annotate: Option<Option<Annotation>>,
    /// Why it was not written the last time: the rules come first.
    pub(super) not_annotated: Option<String>,
    /// When it was written lately: a webhook may change the pod each time, and what changes is looked at at once.
    pub(super) writes: Heals,
    /// When the job that runs, or ran last, was due.
    pub(super) at: Instant,
    /// What the job that runs makes the host's rules know; of a pod that leaves nothing.
    pub(super) in_flight: Option<Vec<IpAddr>>,
    pub(super) state: Option<State>,
    pub(super) since: SystemTime,
    pub(super) why: Option<String>,
    pub(super) verified_at: Option<SystemTime>,
    /// Whether a connection of it landed at the proxy, when its rules were written last.
    pub(super) proved: Option<Answer>,
    /// Something changed its rules, as far as is known.
    pub(super) drifted: Option<Option<Writer>>,
    /// What did so before the job that runs began; what comes later is looked at in the next one.
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

    /// Another value is none of ours.
    pub(super) fn of(view: &PodView) -> Option<Self> {
        let found = view.pod.metadata.annotations.get(REDIRECTION)?;
        [Self::Enabled, Self::Pending]
            .into_iter()
            .find(|value| value.text() == found)
    }
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Nothing, until something changes; why, if it is not as it should be.
    Nothing(Option<(State, String)>),
    /// Nothing before this time has gone by.
    Later(Duration),
    /// Its rules are compared and made, and the proxy and the host are told.
    Enrol,
    /// What was made is removed; its rules only from a pod that goes on running.
    Leave { running: bool },
    /// The annotation is written.
    Annotate(Option<Annotation>),
    /// Nothing of it is left.
    Forget,
}

impl Memory {
    pub(super) fn new(view: Arc<PodView>) -> Self {
        Self {
            // What an earlier agent announced may be known to the proxy.
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

    /// It was captured where it is, by this agent or an earlier one: it may have rules, without a proxy it would have no network,
    /// and its namespace was found by more than an address before it was captured.
    pub(super) fn was_captured(&self) -> bool {
        // After a failure that tells no place, what was asked for there is still known.
        self.captured.is_some()
            || self.overrides.is_some()
            || (self.by_plugin.is_none() && self.is_known && self.annotation().is_some())
    }

    /// The addresses that are known of it.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.addresses_by(&self.view)
    }

    /// The same when this is what the API server says.
    pub(super) fn addresses_by(&self, view: &PodView) -> Vec<IpAddr> {
        let by_plugin = self.by_plugin.as_ref();
        by_plugin.map_or_else(|| view.addresses(), |by| by.addresses(view))
    }

    /// Its rules were right when they were looked at last.
    pub(super) fn is_verified(&self) -> bool {
        self.captured.is_some() && !self.suspected
    }

    /// Of those, the ones that the API server alone knows, and that nothing else has borne out.
    pub(super) fn addresses_of_hearsay(&self, view: &PodView) -> Vec<IpAddr> {
        if self.was_captured() {
            return Vec::new();
        }
        let by_plugin = self.by_plugin.as_ref();
        by_plugin.map_or_else(|| view.addresses(), |by| by.hearsay(view))
    }

    pub(super) fn annotation(&self) -> Option<Annotation> {
        match &self.annotated {
            Some((written, _)) => *written,
            None => Annotation::of(&self.view),
        }
    }

    /// The API server's word may be newer than what was written: it is where it says the same, and in every version since. Another
    /// writer may have changed it before it was seen.
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

    /// Something was made for it that has to be removed.
    pub(super) fn has_traces(&self) -> bool {
        let has_rules = self.captured.is_some() || self.suspected;
        has_rules || self.announced || !self.probed.is_empty()
    }

    /// An earlier agent captured it, and this one has not managed to yet: what the host has for it is not known here, and stays.
    pub(super) fn is_of_earlier_agent(&self) -> bool {
        let may_leave = self.gone || matches!(self.decision, Decision::No(_));
        let is_verified = self.captured.is_some() && self.overrides.is_some();
        !may_leave && !is_verified && self.annotation().is_some()
    }

    /// What is to be done. `proxy` is the newest connection of the proxy, `look` that its rules are to be compared
    /// whatever is known.
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
            // It stays so: its rules are looked after, and a new proxy is told of it.
            Decision::Unknown if self.was_captured() => self.enrols(proxy, look, now),
            Decision::Unknown => {
                let namespace = self.view.namespace();
                let why = format!("the labels of its namespace {namespace} are not known yet");
                Task::Nothing(Some((State::Waiting, why)))
            }
        }
    }

    fn leaves(&self, why: Why) -> Task {
        let has_own_network = !self.view.pod.spec.host_network && !self.view.addresses().is_empty();
        let is_unseen = self.inherited && has_own_network && why != Why::Ended;
        if self.has_traces() || is_unseen {
            return Task::Leave {
                running: why != Why::Ended,
            };
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
        // Nothing is known to be wrong with the rules of one that only a new proxy or the host is to learn of.
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

    /// The plugin made another sandbox: what is known of the rules, the proxy and the repairs is of the one before.
    pub(super) fn handed_over(&mut self, sandbox: Sandbox) {
        let by_plugin = ByPlugin::new(sandbox.addresses, sandbox.before, &self.view);
        let is_said = !sandbox.netns.as_os_str().is_empty();
        (self.by_plugin, self.netns) = (Some(by_plugin), is_said.then_some(sandbox.netns));
        (self.captured, self.taken, self.annotate) = (None, None, None);
        self.waits = false;
        (self.overrides, self.proved, self.verified_at) = (None, None, None);
        self.heals.begin_anew();
    }

    /// Rules, proxy and host have it as it is.
    pub(super) fn is_complete(&self, proxy: Option<u64>) -> bool {
        let netns = self.captured.as_ref().map(|captured| captured.netns);
        let is_taken = match (self.taken, proxy, netns) {
            (Some((by, of)), Some(newest), Some(netns)) => by == newest && of == netns,
            _ => false,
        };
        is_taken && self.is_verified() && self.probes_pass && self.probed == self.addresses()
    }

    /// `None`: it is no matter of the mesh.
    pub(super) fn member(&self) -> Option<Member> {
        Some(Member {
            pod: self.reference(),
            state: self.state?,
            since: self.since,
            engine: self.captured.as_ref().and_then(|c| c.engine),
            verified_at: self.verified_at,
            proved: self.proved,
            why: self.why.as_deref().map(|why| cut(why).into()),
        })
    }
}
