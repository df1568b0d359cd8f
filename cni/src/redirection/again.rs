//! Restores a redirection that was in force before, as completely as possible.
//!
//! A pod that was never captured gets the complete redirection or nothing. A pod that was captured would bypass the proxy
//! without its rules for as long as a foreign object blocks its routing, so its rules are written nevertheless. If another
//! writer flushed all rules, only a [`Sandbox`] that a caller has kept still shows that the pod was captured.

use super::scheme::Desired;
use super::write::Writer;
use super::{AppliedRedirection, Failure, Sandbox, Visit, apply, routing};
use crate::compile::Engine;
use std::sync::atomic::Ordering::Relaxed;

impl Visit<'_> {
    /// Applies as [`Visit::apply_intent`] does. If a foreign object blocks a policy rule or a route, and the namespace has
    /// owned objects or this [`Sandbox`] has observed a redirection in force, writes the rules nevertheless, and adds the
    /// rest of the routing.
    ///
    /// # Errors
    /// As [`Visit::apply_intent`]; also if an item is blocked although the rules are in force.
    pub fn apply_again<D: Desired>(
        &self,
        intent: &D,
        engine: Option<Engine>,
    ) -> Result<AppliedRedirection, String> {
        let written = self.write(intent, engine, |desired, found| {
            let desired = self.possible(desired);
            let before = self.held_to_write(&desired)?;
            let missing = before.missing(&desired.routing);
            let Err(blocked) = routing::refuse_blocked(&missing, desired.scheme()) else {
                let applied = apply::apply(&desired, found, &self.routing, &before)?;
                self.sandbox().note(true);
                return Ok(Ok(applied));
            };
            // Leftovers of iptables-nft may belong to another program, so they do not count.
            let holds = found.nft_holds() || found.legacy_holds || !before.ours().is_empty();
            if !holds && !self.sandbox().was_captured.load(Relaxed) {
                return Err(Failure::from(blocked));
            }
            let mut writer = Writer::open(&desired, found)?;
            writer.write()?;
            self.sandbox().note(true);
            let mut failures = routing::add_rest(&self.routing, &missing);
            let rest = match failures.is_empty() {
                true => ", and so is the rest of the routing",
                false => "",
            };
            failures.extend(writer.take_over().1);
            let text = format!("{blocked}; the rules are in force{rest}");
            let with = |text, e| format!("{text}; besides: {e}");
            Ok(Err(failures.iter().fold(text, with)))
        });
        written.map_err(|e| e.to_string())?
    }
}

impl Sandbox {
    /// Takes over the state of another sandbox of the same namespace.
    pub fn remember(&self, other: &Self) {
        if self.netns().id() == other.netns().id() && other.was_captured.load(Relaxed) {
            self.note(true);
        }
    }

    /// Records whether a redirection is in force.
    pub(super) fn note(&self, is_captured: bool) {
        self.was_captured.store(is_captured, Relaxed);
    }
}
