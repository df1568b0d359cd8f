//! A fake kernel that records the desired state.

use std::sync::Mutex;

use std::path::PathBuf;
use weir_cni::compile::Engine;
use weir_cni::plugin::{Backend, DesiredRedirection, Deviation};

/// A desired redirection and its namespace.
#[derive(Clone, Debug)]
pub struct Seen {
    pub netns: PathBuf,
    pub engine: Option<Engine>,
    pub dry_run_file: Option<PathBuf>,
}

/// Records every call; returns configured answers.
#[derive(Default)]
pub struct FakeBackend {
    pub applied: Mutex<Vec<Seen>>,
    pub apply_error: Option<String>,
    pub differences: Vec<Deviation>,
    pub probe_error: Option<String>,
    /// The kernel has no engine for rules.
    pub lacks_engines: Option<String>,
}

impl FakeBackend {
    pub fn applied(&self) -> Vec<Seen> {
        self.applied.lock().expect("applied").clone()
    }
}

impl Backend for FakeBackend {
    fn apply(&self, desired: &DesiredRedirection<'_>) -> Result<String, String> {
        self.applied.lock().expect("applied").push(Seen {
            netns: desired.netns.to_owned(),
            engine: desired.engine,
            dry_run_file: desired.dry_run_file.map(Into::into),
        });
        match &self.apply_error {
            Some(error) => Err(error.clone()),
            None => Ok("redirected".into()),
        }
    }

    fn verify(&self, _desired: &DesiredRedirection<'_>) -> Result<Vec<Deviation>, String> {
        Ok(self.differences.clone())
    }

    fn probe(&self) -> Result<Option<String>, String> {
        let lacking = self.lacks_engines.clone();
        self.probe_error.clone().map_or(Ok(lacking), Err)
    }
}
