//! A stand-in for the kernel: remembers what was desired.

use std::sync::Mutex;

use weir_cni::config::SidecarConfig;
use weir_cni::plugin::{Applied, Backend, Desired};

/// Notes every call; answers what it was told.
#[derive(Default)]
pub struct FakeBackend {
    pub applied: Mutex<Vec<SidecarConfig>>,
    pub apply_error: Option<String>,
    pub differences: Vec<String>,
    pub probe_error: Option<String>,
}

impl FakeBackend {
    pub fn applied(&self) -> Vec<SidecarConfig> {
        self.applied.lock().expect("applied").clone()
    }
}

impl Backend for FakeBackend {
    fn apply(&self, desired: &Desired<'_>) -> Result<Applied, String> {
        self.applied
            .lock()
            .expect("applied")
            .push(desired.config.clone());
        match &self.apply_error {
            Some(error) => Err(error.clone()),
            None => Ok(Applied {
                summary: "redirected".into(),
            }),
        }
    }

    fn verify(&self, _desired: &Desired<'_>) -> Result<Vec<String>, String> {
        Ok(self.differences.clone())
    }

    fn probe(&self) -> Result<(), String> {
        self.probe_error.clone().map_or(Ok(()), Err)
    }
}
