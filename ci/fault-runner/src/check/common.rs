//! The API server and the pods of the plugin's own tests.

use std::path::{Path, PathBuf};

#[path = "../../../../cni/tests/common/api_server.rs"]
pub(crate) mod api_server;
#[path = "../../../../cni/tests/common/pods.rs"]
pub(crate) mod pods;

/// The directory that the API server's kubeconfig is written to.
pub(crate) struct TempDir(pub(crate) PathBuf);

impl TempDir {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("written");
        path
    }
}
