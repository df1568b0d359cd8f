//! `matrix.json`: a serialized [`Run`] with `"format": "weir-vmtests-matrix/1"`. The `verdict` is beside the fields of its
//! case: `passed`; `failed` with `text`; `skipped` with `probe`, `since` and `reason`; `ignored` with `reason`. A change that
//! breaks readers changes the number in the format; fields may be added, and readers must ignore unknown ones.
use crate::model::Run;
use serde::{Deserialize, Serialize};
use std::path::Path;
use weir_vm::{Error, Result};

/// The file name in the directory of the report.
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
    let format = FORMAT;
    let text = serde_json::to_string_pretty(&Written { format, run });
    let text = text.map_err(|e| Error::new(FILE, e, "Report it"))?;
    Ok(text + "\n")
}

/// Reads `matrix.json` in `dir`.
pub fn read(dir: &Path) -> Result<Run> {
    const AGAIN: &str = "Run the matrix with --report and this directory (ci/matrix)";
    let file = dir.join(FILE);
    let input = file.display().to_string();
    let text = std::fs::read_to_string(&file).map_err(|e| Error::new(&input, e, AGAIN))?;
    let wrong = |what: &str, e| Error::new(&input, format!("{what}: {e}"), AGAIN);
    let head = serde_json::from_str(&text);
    let Head { format } = head.map_err(|e| wrong("it is not the report of a matrix", e))?;
    if format != FORMAT {
        let reason = format!("its format is {format:?}, this release reads {FORMAT:?}");
        return Err(Error::new(input, reason, AGAIN));
    }
    serde_json::from_str(&text).map_err(|e| wrong("it is damaged", e))
}
