//! `matrix.json`: a [`Run`] as it is, with the name of its format.
//!
//! ```text
//! {
//!   "format": "weir-vmtests-matrix/1",     a change that breaks readers changes the number
//!   "started": "2026-01-31T12:00:00Z",     UTC
//!   "seconds": 312.5,                      the whole run
//!   "host": "6.18.5",                      uname -r
//!   "qemu": "7.2.22",
//!   "accelerator": "tcg",                  or "kvm"
//!   "selection": "",                       the options that made it a part of the matrix
//!   "environments": [{
//!     "name": "6.12-no-xtables",           "host", a kernel, or KERNEL-VARIANT
//!     "release": "6.12.117+deb13-cloud-amd64",
//!     "package": "linux-image-... 6.12.117-1",
//!     "sources": [["FILE", "SHA-256"]],
//!     "variant": "no legacy iptables...",  empty for a kernel as it is
//!     "config": ["CONFIG_NF_TABLES=m"],
//!     "cold_boot": 2.1,                    seconds, or null when a saved state was there
//!     "unavailable": null                  or why none of its cases ran
//!   }],
//!   "results": [{
//!     "environment": "6.12",
//!     "case": "netfilter::sets::interval", room, test program, test
//!     "verdict": "passed",                 passed, failed, skipped, ignored
//!     "text": "...",                       failed only: output and console
//!     "probe": "...", "since": "5.13",     skipped only: the feature, the first kernel that must have it
//!     "reason": "...",                     skipped and ignored
//!     "seconds": 0.31,
//!     "restored": true                     from a saved state; false: booted, or on the host
//!   }],
//!   "capabilities": [{
//!     "environment": "6.12", "group": "nf_tables", "name": "expression tproxy",
//!     "answer": "have",                    have, lack, could not tell
//!     "remark": "..."
//!   }]
//! }
//! ```
//!
//! Fields may be added; readers ignore what they do not know.
use crate::model::Run;
use serde::{Deserialize, Serialize};
use std::path::Path;
use weir_vm::{Error, Result};

/// Its name in the directory of the report.
pub(super) const FILE: &str = "matrix.json";

const FORMAT: &str = "weir-vmtests-matrix/1";

#[derive(Serialize)]
struct Written<'a> {
    format: &'static str,
    #[serde(flatten)]
    run: &'a Run,
}

#[derive(Deserialize)]
struct Head {
    format: String,
}

pub(super) fn json(run: &Run) -> Result<String> {
    let written = Written {
        format: FORMAT,
        run,
    };
    let text = serde_json::to_string_pretty(&written);
    text.map(|t| t + "\n")
        .map_err(|e| Error::new(FILE, e, "Report it"))
}

/// Reads `matrix.json` in `dir`.
pub fn read(dir: &Path) -> Result<Run> {
    const AGAIN: &str = "Run the matrix with --report and this directory (ci/matrix)";
    let file = dir.join(FILE);
    let input = file.display().to_string();
    let text = std::fs::read_to_string(&file).map_err(|e| Error::new(&input, e, AGAIN))?;
    let head: Head = serde_json::from_str(&text).map_err(|e| {
        Error::new(
            &input,
            format!("it is not the report of a matrix: {e}"),
            AGAIN,
        )
    })?;
    if head.format != FORMAT {
        let reason = format!(
            "its format is {:?}, this release reads {FORMAT:?}",
            head.format
        );
        return Err(Error::new(input, reason, AGAIN));
    }
    serde_json::from_str(&text).map_err(|e| Error::new(input, format!("it is damaged: {e}"), AGAIN))
}
