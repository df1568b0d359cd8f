//! A redirection that was in force before, written again as far as it can be.
//!
//! A pod that was never captured gets all of it or nothing. One that was would send past the proxy without its rules, for as long
//! as something foreign blocks its routing. Where all of it was flushed meanwhile, the [`Sandbox`] remembers: for who keeps it.

use super::scheme::Desired;
use super::write::Writer;
use super::{AppliedRedirection, Failure, Sandbox, Visit, apply, routing};
use crate::compile::Engine;
use std::sync::atomic::Ordering::Relaxed;

impl Visit<'_> {
    /// As [`Visit::apply_intent`]. Where something foreign blocks a policy rule or a route, and the namespace has owned objects, or
    /// was seen in force by this [`Sandbox`], the rules are written all the same, and the rest of the routing is added.
    ///
    /// # Errors
    /// As there; what is blocked, though the rules are in force.
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
            // What iptables-nft left may be another program's, and is no sign.
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
    /// Takes over what another one remembers, if that is of the same namespace.
    pub fn remember(&self, other: &Self) {
        if self.netns().id() == other.netns().id() && other.was_captured.load(Relaxed) {
            self.note(true);
        }
    }

    /// Whether a redirection is in force.
    pub(super) fn note(&self, is_captured: bool) {
        self.was_captured.store(is_captured, Relaxed);
    }
}
