//! What is done about the installation when a signal asks to end.

use super::owner::Verdict;
use super::passes::{Agent, End};
use super::remove_everything;
use weir_core::journal::install::Event;

impl Agent {
    /// After a signal.
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
        // An entry that calls the plugin may be of the agent before this one.
        if self.installer.wrote_kubeconfig() {
            self.hand_over(account.as_deref());
        }
        End::Well
    }

    /// The plugin works by itself from now on, with a token that does not end with this agent's pod.
    fn hand_over(&self, account: Option<&str>) {
        let made = match account {
            Some(account) => self.owner.token(account),
            None => Err("the API server was not asked".into()),
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
            // Of the agent before this one, whose kubeconfig goes.
            None if self.owner.can_ask() => remove_everything(self.installer.desired()),
            _ => self.installer.remove(),
        };
        // What failed does not keep the rest.
        let beside = self
            .beside
            .take()
            .map_or_else(|| Ok(Vec::new()), |remove| remove());
        let mut end = End::Well;
        for removed in [removed, beside] {
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
