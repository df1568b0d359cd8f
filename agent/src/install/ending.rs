//! What is done about the installation when a signal asks to end.

use super::owner::Verdict;
use super::passes::Agent;
use super::remove_everything;

impl Agent {
    /// After a signal. Whether all went well.
    pub(crate) fn end(&mut self) -> bool {
        self.log.info("a signal asks to end");
        let (why, account) = match self.owner.verdict() {
            Verdict::Stays {
                why,
                service_account,
            } => (why, service_account),
            Verdict::Goes { why } => return self.remove(&why),
        };
        self.log.info(&format!("the installation stays: {why}"));
        if self.installer.written().is_some() {
            self.hand_over(account.as_deref());
        }
        true
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
        match written {
            Ok(until) => self.log.info(&format!(
                "the plugin's kubeconfig has a token of its own, good until {until}"
            )),
            Err(why) => self.log.warn(&format!(
                "the plugin's kubeconfig keeps the token of this pod, and with the pod that ends: until another agent \
                 writes a new one, pods whose plugin has to ask the API server do not start. There is no other token: \
                 {why}"
            )),
        }
    }

    fn remove(&self, why: &str) -> bool {
        self.log
            .info(&format!("the installation is removed: {why}"));
        let removed = match self.installer.written() {
            None if self.owner.is_a_pod() => remove_everything(self.installer.desired()),
            _ => self.installer.remove(),
        };
        match removed {
            Ok(done) => done.iter().for_each(|line| self.log.info(line)),
            Err(e) => {
                let line =
                    format!("the installation is not removed: {e}; weir uninstall tries again");
                self.log.error(&line);
                return false;
            }
        }
        true
    }
}
