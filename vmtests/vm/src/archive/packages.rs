//! Extracts packages for tests, either with all their dependencies or as upstream source. Nothing is installed.
use super::index::{Package, Source};
use super::version::compare;
use super::{Archive, index};
use crate::kernels::UPDATING;
use crate::lock::Part;
use crate::{Arch, At, Cache, Error, Result, Scratch, compress, deb};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// The upper bound of packages in one dependency closure, far above any real one.
const MOST: usize = 2000;

impl Archive {
    /// Extracts packages of a suite and all their dependencies into a directory. Packages installed on the system are not
    /// taken into account.
    pub(crate) fn extract(
        &self,
        cache: &Cache,
        suite: &str,
        names: &[String],
        into: &Path,
    ) -> Result<Vec<String>> {
        let scratch = cache.scratch()?;
        let text = self.must_have(&scratch, suite, &index::packages_of(Arch::HOST))?;
        let packages = index::packages(&text);
        let chosen = Choice::of(suite, &packages, names)?;
        for package in chosen.values() {
            let file = self.get(&scratch, suite, &package.part)?;
            let open = File::open(&file).at(&file)?;
            deb::extract(&package.part.path, open, into)?;
            // The packages are extracted, and keeping some hundred megabytes twice helps nobody.
            let _ = std::fs::remove_file(&file);
        }
        let said = chosen.values().map(|p| format!("{} {}", p.name, p.version));
        Ok(said.collect())
    }

    /// Extracts the newest version of a source package in a suite, as the upstream author published it, into a directory.
    pub(crate) fn extract_source(
        &self,
        cache: &Cache,
        suite: &str,
        name: &str,
        into: &Path,
    ) -> Result<String> {
        let scratch = cache.scratch()?;
        let text = self.must_have(&scratch, suite, index::SOURCES)?;
        let sources = index::sources(&text, name);
        let sources = sources.iter();
        let newest = sources.max_by(|a, b| compare(&a.version, &b.version));
        let Source { version, original } = newest.ok_or_else(|| missing(suite, name))?;
        let file = self.get(&scratch, suite, original)?;
        let open = File::open(&file).at(&file)?;
        let tar = compress::reader(&original.path, open)?;
        // The tarball has one top-level directory with an unpredictable name, so it is unpacked beside and then lifted.
        let whole = scratch.path().join("source");
        deb::unpack(&original.path, tar, &whole)?;
        lift(&whole, into)?;
        Ok(format!("{name} {version}"))
    }

    fn must_have(&self, scratch: &Scratch, suite: &str, name: &str) -> Result<String> {
        let remedy = "Use another mirror with --archive URL";
        let reason = "the archive does not have it";
        let missing = || Error::new(format!("the suite {suite}"), reason, remedy);
        self.index(scratch, suite, name)?.ok_or_else(missing)
    }

    fn get(&self, scratch: &Scratch, suite: &str, part: &Part) -> Result<std::path::PathBuf> {
        match self.download(scratch, suite, part)? {
            Some(()) => Ok(scratch.path().join(part.file())),
            None => {
                let reason = "the archive lists it and does not have it";
                Err(Error::new(&part.path, reason, UPDATING))
            }
        }
    }
}

/// Moves the content of the top-level directory of `whole` into `into`.
fn lift(whole: &Path, into: &Path) -> Result<()> {
    for top in std::fs::read_dir(whole).at(whole)? {
        for entry in std::fs::read_dir(top.at(whole)?.path()).at(whole)? {
            let entry = entry.at(whole)?;
            std::fs::rename(entry.path(), into.join(entry.file_name())).at(into)?;
        }
    }
    Ok(())
}

fn missing(suite: &str, name: &str) -> Error {
    let reason = format!("{suite} does not have it, or not in the version that is asked for");
    let remedy = "Check the name, or use another mirror with --archive URL";
    Error::new(format!("the package {name}"), reason, remedy)
}

/// The state of dependency resolution: which packages are selected.
struct Choice<'a> {
    by_name: BTreeMap<&'a str, &'a Package>,
    providers: BTreeMap<&'a str, Vec<&'a Package>>,
    chosen: BTreeMap<&'a str, &'a Package>,
}

impl<'a> Choice<'a> {
    fn of(
        suite: &str,
        packages: &'a [Package],
        names: &[String],
    ) -> Result<BTreeMap<&'a str, &'a Package>> {
        let (mut by_name, mut providers) = (BTreeMap::new(), BTreeMap::<_, Vec<_>>::new());
        for package in packages {
            let newest = by_name.entry(&*package.name).or_insert(package);
            if compare(&package.version, &newest.version).is_gt() {
                *newest = package;
            }
            for relation in package.provides.split(',').map(Relation::parse) {
                providers.entry(relation.name).or_default().push(package);
            }
        }
        let mut choice = Self {
            by_name,
            providers,
            chosen: BTreeMap::new(),
        };
        let mut open: Vec<&Package> = Vec::new();
        for name in names {
            let found = choice.by_name.get(name.as_str()).copied();
            open.push(found.ok_or_else(|| missing(suite, name))?);
        }
        while let Some(package) = open.pop() {
            if choice.chosen.insert(&package.name, package).is_some() {
                continue;
            }
            if choice.chosen.len() > MOST {
                let reason = format!("it depends on more than {MOST} packages");
                return Err(Error::new(names.join(" "), reason, "Ask for less"));
            }
            let relations = [&package.pre_depends, &package.depends];
            let groups = relations.into_iter().flat_map(|text| text.split(','));
            for group in groups.filter(|g| !g.trim().is_empty()) {
                match choice.fulfil(group) {
                    Some(found) => open.push(found),
                    None => return Err(missing(suite, group.trim())),
                }
            }
        }
        Ok(choice.chosen)
    }

    /// Selects a package for the alternatives `a | b`: one that is already selected, else the first that exists.
    fn fulfil(&self, group: &'a str) -> Option<&'a Package> {
        let alternatives = || group.split('|').map(Relation::parse);
        let chosen = alternatives().find_map(|r| {
            let named = self.chosen.get(r.name).filter(|p| r.holds(&p.version));
            let mut chosen = self.chosen.values();
            named.or_else(|| chosen.find(|p| p.provides(&r)))
        });
        let named = |r: &Relation<'a>| {
            let found = self.by_name.get(r.name).copied();
            found.filter(|p| r.holds(&p.version))
        };
        let provider = |r: &Relation<'a>| {
            let all = self.providers.get(r.name).into_iter().flatten().copied();
            // Among several providers, prefer the one with the highest priority (`required` first).
            all.filter(|p| p.provides(r)).min_by_key(|p| p.rank())
        };
        let found = alternatives().find_map(|r| named(&r).or_else(|| provider(&r)));
        chosen.copied().or(found)
    }
}

impl Package {
    fn provides(&self, wanted: &Relation<'_>) -> bool {
        let mut provided = self.provides.split(',').map(Relation::parse);
        provided.any(|p| {
            p.name == wanted.name
                && (wanted.bound.is_none() || p.bound.is_some_and(|(_, v)| wanted.holds(v)))
        })
    }
}

/// `NAME[:ARCH] [(OPERATOR VERSION)]`, as in deb-control(5).
pub(super) struct Relation<'a> {
    pub(super) name: &'a str,
    pub(super) bound: Option<(&'a str, &'a str)>,
}

impl<'a> Relation<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let (name, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let bound = rest.trim().strip_prefix('(');
        let bound = bound.and_then(|b| b.strip_suffix(')'));
        Self {
            name: name.split(':').next().unwrap_or(name),
            bound: bound.and_then(|b| b.split_once(' ')),
        }
    }

    fn holds(&self, version: &str) -> bool {
        let Some((operator, bound)) = self.bound else {
            return true;
        };
        let order = compare(version, bound.trim());
        match operator {
            "<<" => order.is_lt(),
            "<=" => order.is_le(),
            "=" => order.is_eq(),
            ">=" => order.is_ge(),
            ">>" => order.is_gt(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(index: &str, names: &[&str]) -> std::result::Result<String, String> {
        let more = format!("Filename: x\nSize: 1\nSHA256: {}\n", "0".repeat(64));
        let text: Vec<String> = index
            .split("\n\n")
            .map(|p| format!("{}\n{more}", p.trim()))
            .collect();
        let packages = index::packages(&text.join("\n"));
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let chosen = Choice::of("s", &packages, &names).map_err(|e| e.to_string())?;
        let chosen = chosen.values().map(|p| format!("{} {}", p.name, p.version));
        Ok(chosen.collect::<Vec<_>>().join(", "))
    }

    const INDEX: &str = "Package: tool\nVersion: 1\nPre-Depends: libc6 (>= 2.30)\nDepends: awk, a (<< 2) | b, lib:any (= 1)\n\n\
        Package: libc6\nVersion: 2.31-1\n\nPackage: a\nVersion: 2\n\nPackage: b\nVersion: 1\nDepends: tool\n\n\
        Package: gawk\nVersion: 5\nProvides: awk\nPriority: optional\n\n\
        Package: mawk\nVersion: 1\nProvides: awk\nPriority: required\n\n\
        Package: lib\nVersion: 1\n\nPackage: odd\nVersion: 1\nDepends: virtual (>= 2)\n\n\
        Package: v\nVersion: 9\nProvides: virtual (= 1)\n\nPackage: lib\nVersion: 0.9";

    #[test]
    fn dependencies_are_followed_to_their_end() {
        assert_eq!(
            choose(INDEX, &["tool"]).unwrap(),
            "b 1, lib 1, libc6 2.31-1, mawk 1, tool 1"
        );
        // gawk is selected already and provides awk, so mawk is not added.
        assert!(!choose(INDEX, &["tool", "gawk"]).unwrap().contains("mawk"));
    }

    #[test]
    fn what_there_is_not_is_named() {
        assert!(
            choose(INDEX, &["none"])
                .unwrap_err()
                .contains("the package none")
        );
        // The version of a virtual package is that of its Provides field, not that of the providing package.
        assert!(
            choose(INDEX, &["odd"])
                .unwrap_err()
                .contains("virtual (>= 2)")
        );
    }
}
