//! What programs are told of an event.

use super::PodRef;
use weir_cni::log::Level;

/// Level, name and fields of an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// `None`: no line of the log is about it.
    pub(crate) level: Option<Level>,
    /// In snake_case, stable.
    pub(crate) name: &'static str,
    /// Keys are stable too.
    pub(crate) fields: Vec<(&'static str, String)>,
}

impl About {
    /// An event without fields.
    pub(crate) fn new(level: impl Into<Option<Level>>, name: &'static str) -> Self {
        Self {
            level: level.into(),
            name,
            fields: Vec::new(),
        }
    }

    /// One more field.
    pub(crate) fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.fields.push((key, value.to_string()));
        self
    }

    /// Which pod it is about.
    pub(crate) fn pod(self, pod: &PodRef) -> Self {
        self.with("pod", pod).with("uid", &pod.uid)
    }
}
