//! The report of a run in several forms.
//!
//! | file | for |
//! | --- | --- |
//! | `matrix.txt` | a terminal or a log, 100 columns |
//! | `matrix.json` | programs, and [`read`]: all other forms can be made from it |
//! | `junit.xml` | CI systems |
//! | `index.html` | a browser; one file, no scripts |
//!
//! [`readme`] writes the tables of docs/kernels.md and compares them with a run.
//!
//! Names and texts come from test programs and kernels, so every form sanitizes them with `clean` and escapes the rest: no
//! control character reaches a terminal, an XML parser or a browser.

mod clean;
mod html;
mod json;
mod junit;
mod markup;
pub mod readme;
mod summary;
mod table;
mod text;

pub use html::html;
pub use json::read;
pub use junit::junit;
pub use text::text;

use super::model::Run;
use std::fs;
use std::path::{Path, PathBuf};
use weir_vm::{At, Error, Result, replace};

/// Writes every form of the report into `dir`, which is created if necessary. Returns the files.
///
/// Each file is replaced atomically: on an error it is complete or unchanged.
pub fn write(run: &Run, dir: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(dir).at(dir)?;
    let failed = |e| Error::new(dir.display().to_string(), e, "Report it");
    let forms = [
        ("matrix.txt", text(run, false)),
        (json::FILE, json::json(run)?),
        ("junit.xml", junit(run).map_err(failed)?),
        ("index.html", html(run).map_err(failed)?),
    ];
    let files = forms.into_iter().map(|(name, content)| {
        let file = dir.join(name);
        replace(&file, &content).map(|()| file)
    });
    files.collect()
}
