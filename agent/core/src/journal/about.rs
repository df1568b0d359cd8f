//! What is said of an event: to people, to programs, to those who watch the cluster.

use super::PodRef;
use weir_cni::log::Level;

/// Level, name, fields and sentence of an event.
#[derive(Debug)]
pub struct About {
    /// `None`: no line of the log is about it.
    pub level: Option<Level>,
    /// In snake_case, stable.
    pub name: &'static str,
    /// Keys are stable too.
    pub fields: Vec<(&'static str, String)>,
    /// The sentence for people.
    pub text: String,
    /// What `kubectl describe pod` shows of it, if anything.
    pub notice: Option<Notice>,
}

/// A Kubernetes event of type Warning.
#[derive(Debug)]
pub struct Notice {
    pub about: Subject,
    /// In CamelCase.
    pub reason: &'static str,
    pub message: String,
}

/// Whom a Kubernetes event is about.
#[derive(Debug)]
pub enum Subject {
    Pod(PodRef),
    /// The agent's own pod.
    Agent,
}

impl About {
    /// An event without fields.
    pub(super) fn new(
        level: impl Into<Option<Level>>,
        name: &'static str,
        text: impl Into<String>,
    ) -> Self {
        Self {
            level: level.into(),
            name,
            fields: Vec::new(),
            text: text.into(),
            notice: None,
        }
    }

    /// One that is only counted or shown.
    pub(super) fn silent(name: &'static str) -> Self {
        Self::new(None, name, name)
    }

    /// One of a pod; the sentence begins with the pod's name, and a Kubernetes event for this reason leaves that out.
    pub(super) fn of_pod(
        level: impl Into<Option<Level>>,
        name: &'static str,
        pod: &PodRef,
        does: impl Into<String>,
        reason: Option<&'static str>,
    ) -> Self {
        let does = does.into();
        let mut about = Self::new(level, name, format!("pod {pod} {does}")).pod(pod);
        about.notice = reason.map(|reason| Notice {
            about: Subject::Pod(pod.clone()),
            reason,
            message: does,
        });
        about
    }

    /// One more field.
    pub(super) fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.fields.push((key, value.to_string()));
        self
    }

    /// Which pod it is about.
    pub(super) fn pod(self, pod: &PodRef) -> Self {
        self.with("pod", pod).with("uid", &pod.uid)
    }

    /// A Kubernetes event about the agent says the same.
    pub(super) fn notice_of_agent(mut self, reason: &'static str) -> Self {
        self.notice = Some(Notice {
            about: Subject::Agent,
            reason,
            message: self.text.clone(),
        });
        self
    }
}
