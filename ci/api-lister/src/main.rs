//! `weir-api-lister FILE.json`: prints the public API of one crate, one item per line, sorted.
//!
//! The file is the output of `rustdoc --output-format json`; `ci/public-api` calls this program. Blanket implementations
//! and auto traits are omitted. Derived implementations follow the items, one line per type: users build on them, too.
#![allow(clippy::print_stdout)]
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1);
    let (Some(file), None) = (arguments.next(), arguments.next()) else {
        return Err("usage: weir-api-lister FILE.json".into());
    };
    let items = items(file.as_ref(), false)?;
    let mut text = String::new();
    for item in &items {
        writeln!(text, "{item}")?;
    }
    let listed: BTreeSet<&String> = items.iter().collect();
    let all = self::items(file.as_ref(), true)?;
    let derived = all.iter().filter(|item| !listed.contains(item));
    for (of, traits) in derives(derived.map(String::as_str)) {
        let traits: Vec<&str> = traits.into_iter().collect();
        writeln!(text, "#[derive({})] {of}", traits.join(", "))?;
    }
    print!("{text}");
    Ok(())
}

/// Returns the items of the crate, with or without those of derived implementations.
fn items(file: &Path, with_derived: bool) -> Result<Vec<String>, String> {
    let api = public_api::Builder::from_rustdoc_json(file)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(!with_derived)
        .sorted(true)
        .build()
        .map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(api.items().map(ToString::to_string).collect())
}

/// Returns the derived traits of each type, from lines such as `impl core::clone::Clone for weir_netlink::Error`. Methods of these
/// implementations are not listed.
fn derives<'a>(items: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut derives: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for item in items.filter(|item| item.starts_with("impl")) {
        if let Some((before, of)) = item.rsplit_once(" for ")
            && let Some((_, name)) = before.rsplit_once("::")
            // A marker that comes with PartialEq.
            && name != "StructuralPartialEq"
        {
            derives.entry(of).or_default().insert(name);
        }
    }
    derives
}

#[cfg(test)]
mod tests {
    use super::derives;

    #[test]
    fn derived_traits_are_listed_by_type() {
        let items = [
            "impl core::clone::Clone for a::T",
            "impl core::marker::StructuralPartialEq for a::T",
            "impl<E: core::clone::Clone> core::clone::Clone for a::N<E>",
            "impl core::cmp::Eq for a::T",
            "pub fn a::T::clone(&self) -> a::T",
        ];
        let found = derives(items.into_iter());
        let lines: Vec<String> = found.iter().map(|(of, t)| format!("{of} {t:?}")).collect();
        assert_eq!(lines, [r#"a::N<E> {"Clone"}"#, r#"a::T {"Clone", "Eq"}"#]);
    }
}
