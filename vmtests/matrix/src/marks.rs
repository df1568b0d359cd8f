//! Marks: source lines of a test that begin with `// matrix: ` and determine where it runs.
//!
//! ```text
//! // matrix: none: asks a C compiler, and no kernel          not in the matrix, with the reason
//! // matrix: host: measures microseconds                     only on this machine, with the reason
//! // matrix: oldest                                          on this machine and the oldest kernel; also: newest, every
//! // matrix: smoke; variants no-xtables no-ipset             in a quick run; on these variants, or "variants all"
//! // matrix: needs WEIR_GOLDEN                               cannot run without this variable
//! ```
//!
//! A mark above a test applies to that test, any other mark to its file and the modules in it. The mark nearest to the test
//! has precedence; `smoke`, variants and needs accumulate. Without a mark, a test runs on this machine and on every kernel
//! that is not a variant; a unit test is not in the matrix.
use super::artifacts::Program;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use weir_vm::{At, Catalogue, Error, Result};

const MARK: &str = "// matrix: ";

/// Where a test runs, apart from variants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum On {
    /// On this machine and on every kernel.
    Every,
    /// On this machine, and on the selected kernel with the lowest version.
    Oldest,
    /// On this machine, and on the selected kernel with the highest version.
    Newest,
    /// Only on this machine; the reason.
    Host(String),
    /// Not in the matrix; the reason.
    None(String),
}

/// The combined marks of a test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    /// Where it runs; `None`: not specified.
    pub on: Option<On>,
    /// Whether a quick run includes it.
    pub is_smoke: bool,
    /// The variants on which it runs.
    pub variants: BTreeSet<String>,
    /// Environment variables that it needs.
    pub needs: BTreeSet<String>,
}

impl Marks {
    /// Whether it runs on the variant.
    pub fn runs_on(&self, variant: &str) -> bool {
        self.variants.contains("all") || self.variants.contains(variant)
    }

    fn add(&mut self, other: &Self) {
        self.on = other.on.clone().or(self.on.take());
        self.is_smoke |= other.is_smoke;
        self.variants.extend(other.variants.iter().cloned());
        self.needs.extend(other.needs.iter().cloned());
    }

    fn read(text: &str) -> std::result::Result<Self, String> {
        let mut marks = Self::default();
        let mut rest = text;
        while !rest.is_empty() {
            // A reason may contain any character, even ";", so it extends to the end of the line.
            let (clause, after) = match rest {
                _ if rest.starts_with("none: ") || rest.starts_with("host: ") => (rest, ""),
                _ => rest.split_once("; ").unwrap_or((rest, "")),
            };
            rest = after;
            let (word, value) = clause.split_once(' ').unwrap_or((clause, ""));
            let names = || value.split_whitespace().map(str::to_owned);
            match (word, value) {
                ("none:", _) => marks.on = Some(On::None(value.to_owned())),
                ("host:", _) => marks.on = Some(On::Host(value.to_owned())),
                ("oldest", "") => marks.on = Some(On::Oldest),
                ("newest", "") => marks.on = Some(On::Newest),
                ("every", "") => marks.on = Some(On::Every),
                ("smoke", "") => marks.is_smoke = true,
                ("needs", _) if !value.is_empty() => marks.needs.extend(names()),
                ("variants", _) if !value.is_empty() => marks.variants.extend(names()),
                _ => return Err(format!("{clause:?} is nothing that the matrix knows")),
            }
        }
        static KNOWN: LazyLock<Result<Catalogue>> = LazyLock::new(Catalogue::load);
        let catalogue = KNOWN.as_ref().map_err(ToString::to_string)?;
        let is_known = |name: &String| name == "all" || catalogue.special(name).is_some();
        match marks.variants.iter().find(|name| !is_known(name)) {
            Some(name) => Err(format!("there is no variant {name:?}")),
            None => Ok(marks),
        }
    }
}

/// The marks of one source file.
#[derive(Debug, Default)]
struct Source {
    about_all: Marks,
    about_tests: BTreeMap<String, Marks>,
    /// Files of modules with a `#[path = "..."]` attribute, by module.
    paths: BTreeMap<String, String>,
}

impl Source {
    fn read(text: &str) -> std::result::Result<Self, String> {
        let mut source = Self::default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some((module, path)) = elsewhere(line, lines.clone().next()) {
                source.paths.insert(module.to_owned(), path.to_owned());
            }
            let Some(mark) = line.trim_start().strip_prefix(MARK) else {
                continue;
            };
            let marks = Marks::read(mark.trim_end())?;
            let about = match function_below(lines.clone()) {
                Some(test) => source.about_tests.entry(test.to_owned()).or_default(),
                None => &mut source.about_all,
            };
            about.add(&marks);
        }
        Ok(source)
    }
}

/// The module and its path, if these two lines are a module declaration with a path attribute.
fn elsewhere<'a>(line: &'a str, next: Option<&'a str>) -> Option<(&'a str, &'a str)> {
    let path = line.trim().strip_prefix("#[path = \"")?;
    let path = path.strip_suffix("\"]")?;
    let declared = next?.trim().strip_suffix(';')?;
    Some((declared.rsplit(' ').next()?, path))
}

/// The name of the function that follows after comments and attributes, if any.
fn function_below<'a>(mut lines: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let is_above = |line: &&str| line.starts_with("//") || line.starts_with("#[");
    let first = lines.find(|line| !is_above(&line.trim_start()))?;
    let name = first.trim_start().strip_prefix("fn ")?;
    name.split(['(', '<']).next()
}

/// Reads the marks of the tests of one program.
#[derive(Debug, Default)]
pub struct Reader {
    root: PathBuf,
    sources: BTreeMap<PathBuf, Source>,
    /// The tests whose own marks have been used, by file and name.
    used: BTreeSet<(PathBuf, String)>,
}

impl Reader {
    /// Creates a reader for the program.
    pub fn new(program: &Program) -> Self {
        let root = program.source.clone();
        Self {
            root,
            ..Self::default()
        }
    }

    /// Returns the marks of a test by its name: `module::test`.
    pub fn marks(&mut self, test: &str) -> Result<Marks> {
        let mut file = self.root.clone();
        let mut folder = file.parent().unwrap_or(Path::new("")).to_owned();
        let mut marks = self.source(&file)?.about_all.clone();
        let (modules, name) = test.rsplit_once("::").unwrap_or(("", test));
        for module in modules.split("::").filter(|m| !m.is_empty()) {
            let beside = file.parent().unwrap_or(Path::new("")).to_owned();
            let path = self.source(&file)?.paths.get(module);
            let path = path.map(|path| beside.join(path));
            let plain = folder.join(format!("{module}.rs"));
            folder.push(module);
            // An inline module has no file: its marks are in the parent's file.
            let below = [plain, folder.join("mod.rs")].into_iter().chain(path);
            if let Some(found) = below.into_iter().find(|f| f.is_file()) {
                marks.add(&self.source(&found)?.about_all);
                file = found;
            }
        }
        if let Some(own) = self.source(&file)?.about_tests.get(name) {
            marks.add(own);
            self.used.insert((file, name.to_owned()));
        }
        Ok(marks)
    }

    /// Marks above tests that do not exist, as `FILE: TEST`.
    pub fn stale(&self) -> Vec<String> {
        let all = self.sources.iter().flat_map(|(file, source)| {
            let names = source.about_tests.keys();
            names.map(move |name| (file.clone(), name.clone()))
        });
        let unused = all.filter(|mark| !self.used.contains(mark));
        let shown = unused.map(|(file, name)| format!("{}: {name}", file.display()));
        shown.collect()
    }

    fn source(&mut self, file: &Path) -> Result<&Source> {
        match self.sources.entry(file.to_owned()) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let text = std::fs::read_to_string(file).at(file)?;
                let remedy = "The lines are described in vmtests/matrix/src/marks.rs";
                let error = |e| Error::new(file.display().to_string(), e, remedy);
                Ok(place.insert(Source::read(&text).map_err(error)?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Marks {
        Marks::read(text).unwrap()
    }

    #[test]
    fn a_line_is_understood_or_refused() {
        let marks = read("oldest; smoke; variants no-ipset no-btf; needs A");
        assert_eq!(marks.on, Some(On::Oldest));
        assert!(marks.is_smoke && marks.runs_on("no-ipset") && !marks.runs_on("no-xtables"));
        assert!(marks.needs.contains("A"));
        assert!(read("variants all").runs_on("no-xtables"));
        assert_eq!(read("none: a; b").on, Some(On::None("a; b".into())));
        for wrong in [
            "latest",
            "smoke yes",
            "variants",
            "variants no-such",
            "needs",
        ] {
            assert!(Marks::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_closer_to_a_test_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file(
            "main.rs",
            "// matrix: oldest\nmod a;\nmod b;\n#[path = \"a/far.rs\"]\nmod c;\nfn help() {}\n",
        );
        file(
            "a.rs",
            "mod inner {\n    // matrix: every; smoke\n    #[test]\n    // why\n    fn one() {}\n\n\
             #[test]\nfn two() {}\n}\n// matrix: smoke\nfn gone() {}\n",
        );
        file("b/mod.rs", "//! b\n// matrix: none: values\n#![allow(x)]\n");
        file("a/far.rs", "// matrix: newest\n");
        let mut reader = Reader::new(&Program {
            room: "r".into(),
            name: "kernel".into(),
            source: folder.path().join("main.rs"),
            executable: PathBuf::new(),
            package: PathBuf::new(),
        });
        let mut on = |test: &str| reader.marks(test).unwrap().on.unwrap();
        assert_eq!(on("top"), On::Oldest);
        assert_eq!(on("a::inner::one"), On::Every);
        assert_eq!(on("a::inner::two"), On::Oldest);
        assert_eq!(on("b::x"), On::None("values".into()));
        assert_eq!(on("c::x"), On::Newest);
        let stale = reader.stale();
        assert!(
            matches!(&stale[..], [one] if one.ends_with("a.rs: gone")),
            "{stale:?}"
        );
    }
}
