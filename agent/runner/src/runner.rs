//! The CNI verbs for a whole plugin chain.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::attachment::Attachment;
use super::cache::{Cache, Entry};
use super::error::{Error, Result};
use super::invoke::{Invoker, derive};
use super::list::NetworkList;
use weir_cni::protocol::{Command, Version};

/// Default directory of results; empty after a reboot, like the
/// namespaces.
pub const DEFAULT_CACHE_DIR: &str = "/run/weir/cni";

/// Default time limit of one chain: container runtimes give a sandbox about
/// two minutes.
const DEFAULT_LIMIT: Duration = Duration::from_secs(120);

/// Gives a result that names no version that of the configuration, as libcni does.
fn versioned(mut result: Value, list: &NetworkList) -> Value {
    let version = result.get("cniVersion").and_then(Value::as_str);
    if version.is_none_or(str::is_empty)
        && let Some(result) = result.as_object_mut()
    {
        result.insert("cniVersion".into(), list.cni_version.clone().into());
    }
    result
}

/// Runs plugin chains.
#[derive(Debug, Clone)]
pub struct Runner {
    invoker: Invoker,
    pub(crate) cache: Cache,
}

impl Runner {
    /// A runner that searches plugins in `bin_dirs`, in that order, and stores
    /// results in `cache_dir`, which is created when it is first needed.
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

    /// Sets the time limit for one whole chain. DEL after a failure has the same
    /// limit again.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.invoker.limit = limit;
        self
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.invoker.limit
    }

    /// ADD: calls the chain, each plugin with the result of the one before;
    /// the last result is stored and returned.
    ///
    /// # Errors
    /// [`Error::Attached`] if the container already has this attachment. The attachment
    /// is not changed, because a roll-back would remove an interface that is in use.
    /// Otherwise the error of the first plugin that fails; DEL is then called for the
    /// whole chain, and its errors follow in [`Error::Chain`].
    pub fn add(&self, list: &NetworkList, attachment: &Attachment) -> Result<Value> {
        self.add_as(false, list, attachment)
    }

    /// As [`Runner::add`], for a network that a pod selected, or for its default network.
    pub(crate) fn add_as(
        &self,
        selected: bool,
        list: &NetworkList,
        attachment: &Attachment,
    ) -> Result<Value> {
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
                Ok(result) => previous = Some(versioned(result, list)),
                Err(error) => return Err(self.roll_back(list, attachment, error)),
            }
        }
        let result = previous
            .ok_or_else(|| Error::NotPossible(format!("network {:?} has no plugins", list.name)))?;
        let entry = Entry {
            network: list.name.clone(),
            attachment: attachment.clone(),
            result: result.clone(),
            selected,
        };
        match self.cache.store(&entry) {
            Ok(()) => Ok(result),
            Err(error) => Err(self.roll_back(list, attachment, error)),
        }
    }

    /// Finds all programs before any plugin is called, so that a missing one needs no roll-back.
    pub(crate) fn find_all(&self, list: &NetworkList) -> Result<()> {
        let mut plugins = list.plugins.iter();
        plugins.try_for_each(|plugin| self.invoker.find(&plugin.kind).map(drop))
    }

    fn roll_back(&self, list: &NetworkList, attachment: &Attachment, first: Error) -> Error {
        first.and(self.del(list, attachment).err())
    }

    /// CHECK: calls every plugin, in order, with the stored result. With
    /// `disableCheck` it succeeds without calling any.
    ///
    /// # Errors
    /// The error of the first plugin that fails; [`Error::NotPossible`] without
    /// an earlier ADD or before 0.4.0.
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
                "no stored result of an ADD of container {:?} to network {:?}; run ADD first",
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

    /// DEL: calls the chain from its end. Every plugin is called, also after a
    /// failure; if none fails the stored result is deleted.
    ///
    /// # Errors
    /// The errors of all plugins that failed.
    pub fn del(&self, list: &NetworkList, attachment: &Attachment) -> Result<()> {
        attachment.validate()?;
        // Before 0.4.0 DEL does not get the result.
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

    /// GC: calls DEL for every stored attachment of the network that is not in
    /// `valid`, then passes `valid` to the plugins (1.1.0). With `disableGC` it
    /// succeeds without doing anything.
    ///
    /// # Errors
    /// All errors.
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

    /// STATUS: checks that every plugin can serve ADD. Before 1.1.0 plugins have
    /// no STATUS, and it succeeds.
    ///
    /// # Errors
    /// The error of the first plugin that cannot; its code is 50 or 51.
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

    /// VERSION: the specification versions that a plugin supports.
    ///
    /// # Errors
    /// The plugin is missing or returns no answer.
    pub fn versions(&self, plugin: &str) -> Result<Vec<String>> {
        self.invoker.versions(plugin, self.deadline())
    }

    /// Checks that every plugin exists and supports the list's version.
    ///
    /// # Errors
    /// All plugins that are missing or do not support it.
    pub fn validate(&self, list: &NetworkList) -> Result<()> {
        let mut errors = Vec::new();
        for plugin in &list.plugins {
            match self.versions(&plugin.kind) {
                Err(error) => errors.push(error),
                Ok(versions) if versions.contains(&list.cni_version) => {}
                Ok(versions) => errors.push(Error::NotPossible(format!(
                    "plugin {:?} supports versions [{}], not cniVersion {} of network {:?}",
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
