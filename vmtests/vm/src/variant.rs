//! Applies a variant to a prepared kernel: omits modules, adds parameters, and checks the effect.
use crate::catalogue::{Variant, matches};
use crate::modules::hide_section;
use crate::prepare::{ModuleRecord, Prepared, module_file};
use crate::requirements::is_set;
use crate::{At, Cache, Error, Kernel, Module, Result};
use std::fs;
use std::path::PathBuf;

/// The modules that a variant keeps, and the names of those that it omits.
type Split<'a> = (Vec<&'a ModuleRecord>, Vec<String>);

/// The kernel in the form that machines use, with the changes of the variant.
/// Not every kernel allows a variant: what it omits may be built in, or the kernel may never have had it.
pub(crate) fn kernel(
    cache: &Cache,
    prepared: &Prepared,
    name: &str,
    variant: Option<&Variant>,
) -> Result<Kernel> {
    let without = variant.map_or(&[][..], |v| &v.without);
    let (kept, left_out) = leave_out(&prepared.record.modules, without);
    let mut notes = prepared.record.notes.clone();
    if let Some(variant) = variant {
        notes.extend(check(prepared, name, variant, left_out.is_empty())?);
    }
    let folder = match variant {
        Some(variant) if !variant.hide_sections.is_empty() => hidden(cache, prepared, variant)?,
        _ => prepared.folder.join("modules"),
    };
    let modules = kept.iter().map(|m| Module {
        name: m.name.clone(),
        file: folder.join(format!("{}.ko", m.name)),
    });
    let (record, config) = (&prepared.record, prepared.folder.join("config"));
    Ok(Kernel {
        name: name.to_owned(),
        arch: record.arch,
        release: record.release.clone(),
        package: record.package.clone(),
        sources: record.sources.clone(),
        image: prepared.folder.join("image"),
        modules: modules.collect(),
        config: record.config.then_some(config),
        parameters: variant.map_or_else(Vec::new, |v| v.parameters.clone()),
        left_out,
        notes,
    })
}

/// A directory with copies of the modules in which the kernel does not find the sections.
fn hidden(cache: &Cache, prepared: &Prepared, variant: &Variant) -> Result<PathBuf> {
    let name = format!("modules-{}", variant.name);
    let place = prepared.folder.join(&name);
    if place.is_dir() {
        return Ok(place);
    }
    let scratch = cache.scratch()?;
    let folder = scratch.path().join(&name);
    fs::create_dir_all(&folder).at(&folder)?;
    for module in &prepared.record.modules {
        let from = module_file(&prepared.folder, &module.name);
        let mut content = fs::read(&from).at(&from)?;
        for section in &variant.hide_sections {
            hide_section(&mut content, section);
        }
        let to = folder.join(format!("{}.ko", module.name));
        fs::write(&to, &content).at(&to)?;
    }
    // Another run may have made the directory first; its content is the same.
    match scratch.publish(&name, &place) {
        Err(_) if place.is_dir() => Ok(place),
        other => other.map(|()| place),
    }
}

/// Removes the modules that match the patterns, and then those that depend on them.
fn leave_out<'a>(modules: &'a [ModuleRecord], patterns: &[String]) -> Split<'a> {
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    // In load order, a module comes after its dependencies.
    for module in modules {
        let named = patterns.iter().any(|p| matches(p, &module.name));
        if named || module.depends.iter().any(|d| gone.contains(d)) {
            gone.push(module.name.clone());
        } else {
            kept.push(module);
        }
    }
    (kept, gone)
}

/// Checks that the variant has the effect that its name states. Returns notes about built-in modules that remain.
fn check(prepared: &Prepared, name: &str, variant: &Variant, has_all: bool) -> Result<Vec<String>> {
    let (what, builtin) = (&variant.name, &prepared.record.builtin);
    let config = fs::read_to_string(prepared.folder.join("config")).unwrap_or_default();
    let in_kernel = variant.gone.iter().find(|n| builtin.contains(n));
    let no_option = variant.builtin.iter().find(|o| !is_set(&config, o, "y"));
    let reason = match (in_kernel, no_option) {
        (Some(name), _) => format!("{name} is built into the kernel and cannot be left out"),
        (_, Some(option)) => format!("{option} is not y, so the parameter would change nothing"),
        _ if has_all && variant.parameters.is_empty() => {
            "the kernel has none of the modules that it would leave out".to_owned()
        }
        _ => {
            let is_left = |b: &&String| variant.without.iter().any(|p| matches(p, b));
            let remains = builtin.iter().filter(is_left);
            return Ok(remains
                .map(|b| format!("{b} is built in and stays"))
                .collect());
        }
    };
    let remedy = format!("`{what}` cannot be had of this kernel: take another one");
    Err(Error::new(name, reason, remedy))
}
