//! The results of a run of the matrix: plain values, from which every form of the report is made.
use crate::skip::Skip;
use serde::{Deserialize, Serialize};

/// The results of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The start time in UTC, as `2026-01-31T12:00:00Z`.
    pub started: String,
    /// The duration in seconds.
    pub seconds: f64,
    /// The kernel release (`uname -r`) of this machine.
    pub host: String,
    /// QEMU's version.
    pub qemu: String,
    /// The accelerator: `tcg` or `kvm`.
    pub accelerator: String,
    /// The selection of a partial run (`--kernels 6.1 --filter nat`); empty for the whole matrix.
    #[serde(default)]
    pub selection: String,
    /// The environments in display order: `host`, then kernels, then variants.
    pub environments: Vec<Environment>,
    /// One result for each case in each environment to which it belongs.
    pub results: Vec<CaseResult>,
    /// The rows of `weir preflight` in each environment.
    pub capabilities: Vec<Capability>,
}

/// This machine's kernel, a kernel in QEMU, or a variant of one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The name: `host`, `6.12`, `6.12-no-xtables`.
    pub name: String,
    /// The kernel release (`uname -r`).
    pub release: String,
    /// The Debian package with its version, or another description of its origin.
    pub package: String,
    /// The names of its source files, with their SHA-256.
    pub sources: Vec<(String, String)>,
    /// A description of what a variant omits or adds; empty for other kernels.
    pub variant: String,
    /// Relevant config options of the kernel, as `CONFIG_NF_TABLES=m`.
    pub config: Vec<String>,
    /// The duration of the cold boot in seconds, if this run made one.
    pub cold_boot: Option<f64>,
    /// The reason, if none of its cases could run.
    pub unavailable: Option<String>,
}

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// The case passed.
    Passed,
    /// The case failed; with the output of the test and, if the kernel reported an error, the console.
    Failed {
        /// The text to show.
        text: String,
    },
    /// The kernel lacks a feature that it is allowed to lack.
    Skipped(Skip),
    /// The case could not run: no QEMU, no kernel.
    Ignored {
        /// What is missing, and how to provide it.
        reason: String,
    },
}

/// The result of one case in one environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The environment's name.
    pub environment: String,
    /// The crate, the test program and the test: `netfilter::sets::a_set_with_intervals`.
    pub case: String,
    /// The result.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The duration in seconds, including the start of the machine.
    pub seconds: f64,
    /// Whether the machine was restored from a saved state instead of booted.
    pub restored: bool,
}

/// One row of `weir preflight` in one environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Capability {
    /// The environment's name.
    pub environment: String,
    /// The group of the row (`nf_tables expressions`).
    pub group: String,
    /// The feature.
    pub name: String,
    /// `have`, `lack` or `could not tell`.
    pub answer: String,
    /// How to provide it, or what weir does instead.
    pub remark: String,
}
