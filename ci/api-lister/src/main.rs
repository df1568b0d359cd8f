//! `weir-api-lister FILE.json`: prints the public API of one crate, one item per line, sorted.
//!
//! The file is the output of `rustdoc --output-format json`; `ci/public-api` calls this program. Blanket implementations
//! and auto traits are omitted; derived implementations are listed, because users build on them.
#![allow(clippy::print_stdout)]
#![forbid(unsafe_code)]

use std::env;
use std::error::Error;
use std::fmt::Write;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1);
    let (Some(file), None) = (arguments.next(), arguments.next()) else {
        return Err("usage: weir-api-lister FILE.json".into());
    };
    let api = public_api::Builder::from_rustdoc_json(&file)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .sorted(true)
        .build()
        .map_err(|e| format!("{}: {e}", file.display()))?;
    let mut text = String::new();
    for item in api.items() {
        writeln!(text, "{item}")?;
    }
    print!("{text}");
    Ok(())
}
