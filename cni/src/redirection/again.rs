//! A redirection that was in force before, written again as far as it can be.
//!
//! A pod that was never captured gets all of it or nothing. One that was would send past the proxy without its rules, for as long
//! as something foreign blocks its routing.

use super::scheme::Desired;
use super::write::Writer;
use super::{AppliedRedirection, Failure, Visit, apply, routing};
use crate::compile::Engine;

impl Visit<'_> {
    /// As [`Visit::apply_intent`]. Where something foreign blocks a policy rule or a route, and the namespace has owned objects,
    /// so that it was redirected before, the rules are written all the same, and the rest of the routing is added.
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
                return apply::apply(&desired, found, &self.routing, &before).map(Ok);
            };
            // What iptables-nft left may be another program's, and is no sign.
            let was_captured = found.nft_holds() || found.legacy_holds;
            if !was_captured && before.ours().is_empty() {
                return Err(Failure::from(blocked));
            }
            let mut writer = Writer::open(&desired, found)?;
            writer.write()?;
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
