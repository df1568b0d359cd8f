//! The verbs of a container runtime, for a whole plugin chain.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::attachment::Attachment;
use super::cache::{Cache, Entry};
use super::error::{Error, Result};
use super::invoke::{Invoker, derive};
use super::list::NetworkList;
use crate::protocol::{Command, Version};

/// Where results are kept unless said otherwise; gone after a reboot, like
/// the namespaces.
pub const DEFAULT_CACHE_DIR: &str = "/run/weir/cni";

/// How long one chain may take unless said otherwise: container runtimes give
/// a sandbox about two minutes.
const DEFAULT_LIMIT: Duration = Duration::from_secs(120);

/// Runs plugin chains.
#[derive(Debug, Clone)]
pub struct Runner {
    invoker: Invoker,
    cache: Cache,
}

impl Runner {
    /// A runner that looks for plugins in `bin_dirs`, in that order, and keeps
    /// results in `cache_dir`, which is made when it is first needed.
    #[must_use]
    pub fn new(bin_dirs: Vec<PathBuf>, cache_dir: impl Into<PathBuf>) -> Self {
        Self {
            invoker: Invoker {
                bin_dirs,
                limit: DEFAULT_LIMIT,
            },
            cache: Cache::new(cache_dir.into()),
        }
    }

    /// Another limit for one whole chain. What is taken back after a failure
    /// has the same time again.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.invoker.limit = limit;
        self
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.invoker.limit
    }

    /// ADD: calls the chain, each plugin with the result of the one before;
    /// the last result is kept and returned.
    ///
    /// # Errors
    /// [`Error::Attached`] when the container has this attachment, which is not
    /// touched: a roll-back would take away what is in use. Else the first plugin
    /// that fails; the whole chain has then been called with
    /// DEL, and what failed there is in [`Error::Chain`] after it.
    pub fn add(&self, list: &NetworkList, attachment: &Attachment) -> Result<Value> {
        attachment.validate()?;
        let _alone = self.cache.reserve(&list.name, attachment)?;
        if self.cache.load(&list.name, attachment)?.is_some() {
            return Err(Error::Attached {
                container: attachment.container_id.clone(),
                ifname: attachment.ifname.clone(),
                network: list.name.clone(),
            });
        }
        self.find_all(list)?;
        let deadline = self.deadline();
        let mut previous = None;
        for plugin in &list.plugins {
            let config = derive(list, plugin, previous.as_ref(), &attachment.capability_args);
            let answer = self.invoker.call(
                Command::Add,
                &plugin.kind,
                &config,
                Some(attachment),
                deadline,
            );
            match answer {
                Ok(result) => previous = Some(result),
                Err(error) => return Err(self.roll_back(list, attachment, error)),
            }
        }
        let result = previous
            .ok_or_else(|| Error::NotPossible(format!("network {:?} has no plugins", list.name)))?;
        let entry = Entry {
            network: list.name.clone(),
            attachment: attachment.clone(),
            result: result.clone(),
        };
        match self.cache.store(&entry) {
            Ok(()) => Ok(result),
            Err(error) => Err(self.roll_back(list, attachment, error)),
        }
    }

    /// Before any plugin is called: what is missing is said once, and nothing has to be taken back.
    pub(super) fn find_all(&self, list: &NetworkList) -> Result<()> {
        let mut plugins = list.plugins.iter();
        plugins.try_for_each(|plugin| self.invoker.find(&plugin.kind).map(drop))
    }

    fn roll_back(&self, list: &NetworkList, attachment: &Attachment, first: Error) -> Error {
        first.and(self.del(list, attachment).err())
    }

    /// CHECK: asks every plugin, in order, whether the kept result still holds.
    /// With `disableCheck` it succeeds without asking.
    ///
    /// # Errors
    /// The first plugin that disagrees; [`Error::NotPossible`] without an
    /// earlier ADD or before 0.4.0.
    pub fn check(&self, list: &NetworkList, attachment: &Attachment) -> Result<()> {
        attachment.validate()?;
        if list.version() < Version::V0_4_0 {
            return Err(Error::NotPossible(format!(
                "network {:?} has cniVersion {}; CHECK needs 0.4.0 or newer",
                list.name, list.cni_version
            )));
        }
        if list.disable_check {
            return Ok(());
        }
        let Some(entry) = self.cache.load(&list.name, attachment)? else {
            return Err(Error::NotPossible(format!(
                "no result of an ADD of container {:?} to network {:?} is kept; run ADD first",
                attachment.container_id, list.name
            )));
        };
        let deadline = self.deadline();
        for plugin in &list.plugins {
            let args = &attachment.capability_args;
            let config = derive(list, plugin, Some(&entry.result), args);
            let kind = &plugin.kind;
            self.invoker
                .call(Command::Check, kind, &config, Some(attachment), deadline)?;
        }
        Ok(())
    }

    /// DEL: calls the chain from its end. Every plugin is called, also after
    /// a failure; when none failed the kept result is forgotten.
    ///
    /// # Errors
    /// All plugins that failed.
    pub fn del(&self, list: &NetworkList, attachment: &Attachment) -> Result<()> {
        attachment.validate()?;
        // Before 0.4.0 DEL is not given the result.
        let entry = match list.version() >= Version::V0_4_0 {
            true => self.cache.load(&list.name, attachment)?,
            false => None,
        };
        let deadline = self.deadline();
        let mut errors = Vec::new();
        for plugin in list.plugins.iter().rev() {
            let previous = entry.as_ref().map(|entry| &entry.result);
            let config = derive(list, plugin, previous, &attachment.capability_args);
            let kind = &plugin.kind;
            let answer = self
                .invoker
                .call(Command::Del, kind, &config, Some(attachment), deadline);
            errors.extend(answer.err());
        }
        if errors.is_empty() {
            errors.extend(self.cache.remove(&list.name, attachment).err());
        }
        Error::all(errors)
    }

    /// GC: removes every kept attachment of the network that is not among
    /// `valid` by DEL, then tells the plugins (1.1.0) which ones are. With
    /// `disableGC` it succeeds without doing anything.
    ///
    /// # Errors
    /// All that failed.
    pub fn gc(&self, list: &NetworkList, valid: &[Attachment]) -> Result<()> {
        if list.disable_gc {
            return Ok(());
        }
        let same = |a: &Attachment, b: &Attachment| {
            a.container_id == b.container_id && a.ifname == b.ifname
        };
        let mut errors = Vec::new();
        for entry in self.cache.of_network(&list.name)? {
            if !valid
                .iter()
                .any(|attachment| same(attachment, &entry.attachment))
            {
                errors.extend(self.del(list, &entry.attachment).err());
            }
        }
        if list.version() >= Version::V1_1_0 {
            let attachments: Vec<_> = valid
                .iter()
                .map(|a| json!({"containerID": a.container_id, "ifname": a.ifname}))
                .collect();
            let deadline = self.deadline();
            for plugin in &list.plugins {
                let mut config = derive(list, plugin, None, &Map::new());
                if let Some(config) = config.as_object_mut() {
                    config.insert(
                        "cni.dev/valid-attachments".into(),
                        attachments.clone().into(),
                    );
                    config.insert("cni.dev/attachments".into(), attachments.clone().into());
                }
                let answer = self
                    .invoker
                    .call(Command::Gc, &plugin.kind, &config, None, deadline);
                errors.extend(answer.err());
            }
        }
        Error::all(errors)
    }

    /// STATUS: asks every plugin whether it can serve ADD. Before 1.1.0 there
    /// is nobody to ask, and the answer is yes.
    ///
    /// # Errors
    /// The first plugin that cannot; its code is 50 or 51.
    pub fn status(&self, list: &NetworkList) -> Result<()> {
        if list.version() < Version::V1_1_0 {
            return Ok(());
        }
        let deadline = self.deadline();
        for plugin in &list.plugins {
            let config = derive(list, plugin, None, &Map::new());
            self.invoker
                .call(Command::Status, &plugin.kind, &config, None, deadline)?;
        }
        Ok(())
    }

    /// VERSION: the specification versions a plugin speaks.
    ///
    /// # Errors
    /// The plugin is missing or gives no answer.
    pub fn versions(&self, plugin: &str) -> Result<Vec<String>> {
        self.invoker.versions(plugin, self.deadline())
    }

    /// Whether every plugin is there and speaks the list's version.
    ///
    /// # Errors
    /// All that are missing or do not.
    pub fn validate(&self, list: &NetworkList) -> Result<()> {
        let mut errors = Vec::new();
        for plugin in &list.plugins {
            match self.versions(&plugin.kind) {
                Err(error) => errors.push(error),
                Ok(versions) if versions.contains(&list.cni_version) => {}
                Ok(versions) => errors.push(Error::NotPossible(format!(
                    "plugin {:?} speaks [{}], not cniVersion {} of network {:?}",
                    plugin.kind,
                    versions.join(", "),
                    list.cni_version,
                    list.name
                ))),
            }
        }
        Error::all(errors)
    }
}
