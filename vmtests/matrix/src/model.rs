//! What a run of the matrix found out: plain values, read by every form of the report.
use crate::skip::Skip;
use serde::{Deserialize, Serialize};

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When it began, in UTC, as `2026-01-31T12:00:00Z`.
    pub started: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// `uname -r` of the machine.
    pub host: String,
    /// QEMU's version, and `tcg` or `kvm`.
    pub qemu: String,
    /// See [`Run::qemu`].
    pub accelerator: String,
    /// What was asked for, when that was not everything (`--kernels 6.1 --filter nat`); empty for the whole
    /// matrix.
    #[serde(default)]
    pub selection: String,
    /// The environments, in the order in which they are shown: `host`, then kernels, then variants.
    pub environments: Vec<Environment>,
    /// One for each case in each environment that it belongs to.
    pub results: Vec<CaseResult>,
    /// What `weir preflight` says in each environment.
    pub capabilities: Vec<Capability>,
}

/// The kernel of the machine, a kernel in QEMU, or a variant of one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// `host`, `6.12`, `6.12-no-xtables`.
    pub name: String,
    /// `uname -r`.
    pub release: String,
    /// The Debian package with its version, or where else it comes from.
    pub package: String,
    /// File names with their SHA-256.
    pub sources: Vec<(String, String)>,
    /// What a variant leaves out or adds, in words; empty for others.
    pub variant: String,
    /// Options of its configuration that matter, as `CONFIG_NF_TABLES=m`.
    pub config: Vec<String>,
    /// Seconds of the cold boot, when this run made one.
    pub cold_boot: Option<f64>,
    /// Why none of its cases ran, when none did.
    pub unavailable: Option<String>,
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// As it should.
    Passed,
    /// With the output of the test and, where the kernel is to blame, the console.
    Failed {
        /// What a person needs to see.
        text: String,
    },
    /// The kernel lacks something that it need not have.
    Skipped(Skip),
    /// It could not be tried: no QEMU, no kernel.
    Ignored {
        /// What is missing and what gives it.
        reason: String,
    },
}

/// One case in one environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The environment's name.
    pub environment: String,
    /// `netfilter::sets::a_set_with_intervals`: room, test program, test.
    pub case: String,
    /// How it ended.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// How long it took, the start of the machine included.
    pub seconds: f64,
    /// The machine was restored from a saved state, and not booted.
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
    /// What gives it, or what weir does instead.
    pub remark: String,
}
