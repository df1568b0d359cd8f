//! Watches, and their initial lists.

use super::state::{Shared, on_node, refusal};
use super::wire::{Asked, begin, end, event, whole};
use serde_json::{Value, json};
use std::io::{Result, Write};

/// How the server answers requests for a streaming list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streaming {
    /// As in Kubernetes 1.32 and later.
    Served,
    /// As in 1.20: the parameters are rejected.
    Invalid,
    /// As in 1.36 on etcd 3.4: status 200, then an ERROR event.
    ErrorEvent,
    /// A `Status` object in several lines instead of events.
    StatusObject,
    /// The watch starts, but the bookmark that ends the list is not sent.
    Ignored,
}

impl Shared {
    pub(super) fn watch(&self, stream: &mut impl Write, asked: &Asked) -> Result<()> {
        let streaming = self.state().streaming;
        match streaming {
            Streaming::Invalid if asked.streams() => {
                let (code, status) = refusal(422, "sendInitialEvents is forbidden for watch");
                whole(stream, code, &status.to_string())
            }
            Streaming::StatusObject if asked.streams() => {
                let (_, status) = refusal(400, "unknown");
                whole(stream, 200, &format!("{status:#}"))
            }
            Streaming::ErrorEvent if asked.streams() => {
                begin(stream)?;
                let why = "the required storage feature RequestWatchProgress is disabled";
                event(stream, "ERROR", &refusal(500, why).1)?;
                end(stream)
            }
            _ => self.events(stream, asked, streaming == Streaming::Served),
        }
    }

    fn events(&self, stream: &mut impl Write, asked: &Asked, marks: bool) -> Result<()> {
        let mut seen: u64 = asked.get("resourceVersion").parse().unwrap_or(0);
        let (ended, is_gone) = {
            let state = self.state();
            let later = state.events.iter().filter(|(version, ..)| *version > seen);
            // Each version is that of one event.
            let is_gone = later.count() as u64 != state.version.saturating_sub(seen);
            (state.ended.0, is_gone)
        };
        begin(stream)?;
        if is_gone && !asked.streams() && seen > 0 {
            event(stream, "ERROR", &refusal(410, "too old resource version").1)?;
            return end(stream);
        }
        if asked.streams() || seen == 0 {
            let (version, all) = {
                let state = self.state();
                (state.version, state.listed(asked))
            };
            for object in &all {
                event(stream, "ADDED", object)?;
            }
            if asked.streams() && marks {
                let mark = json!({"k8s.io/initial-events-end": "true"});
                let metadata = json!({"resourceVersion": version.to_string(), "annotations": mark});
                let bookmark = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata});
                event(stream, "BOOKMARK", &bookmark)?;
            }
            seen = version;
        }
        loop {
            let state = self.state();
            if state.stopped {
                return Ok(());
            }
            if state.ended.0 != ended {
                let gone = state.ended.1;
                drop(state);
                if gone {
                    event(stream, "ERROR", &refusal(410, "too old resource version").1)?;
                }
                return end(stream);
            }
            let events = state.events.iter();
            let of_us = |e: &&(u64, &str, String, Value)| {
                e.0 > seen && e.2 == asked.path && on_node(&e.3, asked)
            };
            let new: Vec<_> = events.filter(of_us).cloned().collect();
            if new.is_empty() {
                drop(self.changed.wait(state).unwrap());
                continue;
            }
            drop(state);
            for (version, kind, _, object) in new {
                event(stream, kind, &object)?;
                seen = version;
            }
        }
    }
}
