//! Keeps or removes the installation at shutdown.

use super::owner::Verdict;
use super::passes::{Agent, End};
use super::{Removed, remove_everything};
use weir_core::journal::install::Event;

impl Agent {
    /// Handles the end of the agent after a signal.
    pub(crate) fn end(&mut self) -> End {
        self.journal.record(Event::EndAsked);
        let (why, account) = match self.owner.verdict() {
            Verdict::Stays {
                why,
                service_account,
            } => (why, service_account),
            Verdict::Goes { why } => return self.remove(why),
        };
        self.journal.record(Event::Stays { why });
        // The entry that calls the plugin may have been written by an earlier agent.
        if self.installer.wrote_kubeconfig() {
            self.hand_over(account.as_deref());
        }
        End::Well
    }

    /// Gives the plugin a token that does not expire with this agent's pod, so that it works without the agent.
    fn hand_over(&self, account: Option<&str>) {
        let made = match account {
            Some(account) => self.owner.token(account),
            None => {
                let why = "none was requested, because the service account of the next agent is not known";
                Err(why.to_owned())
            }
        };
        let written = made.and_then(|(token, until)| {
            self.installer.hand_over(&token)?;
            Ok(until)
        });
        self.journal.record(match written {
            Ok(until) => Event::HandedOver { until },
            Err(why) => Event::NotHandedOver { why },
        });
    }

    fn remove(&mut self, why: String) -> End {
        self.journal.record(Event::Goes { why });
        let removed = match self.installer.written() {
            // The configuration is an earlier agent's, whose kubeconfig is removed too.
            None if self.owner.can_ask() => remove_everything(self.installer.desired()),
            _ => self.installer.remove(),
        };
        let (removed, unknown) = match removed {
            Ok(Removed { done, unknown }) => (Ok(done), unknown),
            Err(why) => (Err(why), Vec::new()),
        };
        // A failure does not prevent the other removal.
        let beside = self
            .beside
            .take()
            .map_or_else(|| Ok(Vec::new()), |remove| remove());
        let mut end = End::Well;
        let unknown = unknown.into_iter().map(Err);
        for removed in [removed, beside].into_iter().chain(unknown) {
            match removed {
                Ok(done) => {
                    let removed = done.into_iter().map(|what| Event::Removed { what });
                    removed.for_each(|event| self.journal.record(event));
                }
                Err(why) => {
                    self.journal.record(Event::NotRemoved { why });
                    end = End::NotRemoved;
                }
            }
        }
        end
    }
}
