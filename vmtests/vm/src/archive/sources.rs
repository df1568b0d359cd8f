//! Where the archive is: the apt sources of this system, or an option. No host is named anywhere here.
use crate::cache::variable;
use crate::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The variable that names the base of the archive.
const ARCHIVE_VARIABLE: &str = "VMTESTS_ARCHIVE";

const REMEDY: &str = "Name a mirror of the Debian archive with --archive URL (what stands before /dists), or \
                      copy a filled cache from another machine";

/// Base URLs, best first. Which of several is the archive shows when one has what is looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bases {
    main: Vec<String>,
    security: Vec<String>,
}

/// One suite of one entry of the apt sources.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    base: String,
    suite: String,
    components: Vec<String>,
}

impl Bases {
    /// The archive at `option` or in [`ARCHIVE_VARIABLE`], else those of the system's apt sources.
    ///
    /// # Errors
    /// Neither names one.
    pub(crate) fn find(option: Option<&str>) -> Result<Self> {
        let named = option.map(str::to_owned).or_else(|| {
            variable(ARCHIVE_VARIABLE).map(|value| value.to_string_lossy().into_owned())
        });
        match named {
            Some(url) => Self::at(&url),
            None => Self::of_system(Path::new("/etc/apt")),
        }
    }

    /// A mirror. Its security archive is beside it, called the same with `-security`, or the same.
    fn at(url: &str) -> Result<Self> {
        let base = usable(url).ok_or_else(|| {
            Error::new(
                format!("--archive {url}"),
                "not a URL of the kind http://, https:// or file://",
                "Give what stands before /dists in the URL of a mirror",
            )
        })?;
        Ok(Self {
            security: vec![format!("{base}-security"), base.clone()],
            main: vec![base],
        })
    }

    fn of_system(directory: &Path) -> Result<Self> {
        let mut sources = Vec::new();
        for file in files(directory) {
            // A file that only root may read names a private archive.
            let text = fs::read_to_string(&file).unwrap_or_default();
            match file.extension().and_then(|e| e.to_str()) {
                Some("sources") => sources.extend(deb822(&text)),
                _ => sources.extend(text.lines().flat_map(one_line)),
            }
        }
        let bases = Self::pick(&sources);
        if bases.main.is_empty() && bases.security.is_empty() {
            return Err(Error::new(
                directory.display().to_string(),
                "no Debian archive in the apt sources",
                REMEDY,
            ));
        }
        Ok(bases)
    }

    /// An archive that calls itself "debian" comes before one that only has such a suite.
    fn pick(sources: &[Source]) -> Self {
        let mut bases = Self::default();
        for source in sources {
            if !source.components.iter().any(|c| c == "main") {
                continue;
            }
            if source.suite.ends_with("-security") || source.suite.ends_with("/updates") {
                push(&mut bases.security, source.base.clone());
            } else if is_debian(&source.suite) {
                push(&mut bases.main, source.base.clone());
            }
        }
        bases.main.sort_by_key(|base| !base.ends_with("/debian"));
        bases
            .security
            .sort_by_key(|base| !base.ends_with("/debian-security"));
        // One may be named without the other: mirrors have both side by side.
        for base in bases.main.clone() {
            push(&mut bases.security, format!("{base}-security"));
        }
        for base in bases.security.clone() {
            if let Some(base) = base.strip_suffix("-security") {
                push(&mut bases.main, base.to_owned());
            }
        }
        bases
    }

    /// The archives that may have the suite.
    pub(crate) fn of(&self, suite: &str) -> impl Iterator<Item = &String> {
        match suite.ends_with("-security") {
            true => self.security.iter(),
            false => self.main.iter(),
        }
    }
}

fn push(list: &mut Vec<String>, base: String) {
    if !list.contains(&base) {
        list.push(base);
    }
}

/// sources.list, then the folder in the order of names, as apt reads them.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut parts: Vec<PathBuf> = fs::read_dir(directory.join("sources.list.d"))
        .map(|entries| entries.flatten().map(|e| e.path()).collect())
        .unwrap_or_default();
    parts.retain(|p| p.extension().is_some_and(|e| e == "list" || e == "sources"));
    parts.sort();
    parts.insert(0, directory.join("sources.list"));
    parts
}

/// sources.list(5), "DEB822-STYLE FORMAT": paragraphs of fields; a line that starts with space continues.
fn deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    // A comment may stand inside a paragraph and does not end it.
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    for paragraph in lines.split(|line| line.trim().is_empty()) {
        let field = |name: &str| {
            let mut words = Vec::new();
            let mut inside = false;
            for line in paragraph {
                if line.starts_with([' ', '\t']) {
                    if inside {
                        words.extend(line.split_whitespace());
                    }
                } else if let Some((key, value)) = line.split_once(':') {
                    inside = key.trim().eq_ignore_ascii_case(name);
                    if inside {
                        words.extend(value.split_whitespace());
                    }
                }
            }
            words
        };
        let enabled = field("Enabled").first().is_none_or(|v| *v != "no");
        if !enabled || !field("Types").contains(&"deb") {
            continue;
        }
        let components: Vec<String> = field("Components").into_iter().map(str::to_owned).collect();
        for base in field("URIs").into_iter().filter_map(usable) {
            for suite in field("Suites") {
                sources.push(Source {
                    base: base.clone(),
                    suite: suite.to_owned(),
                    components: components.clone(),
                });
            }
        }
    }
    sources
}

/// sources.list(5), "ONE-LINE-STYLE FORMAT": `deb [options] URI SUITE COMPONENT...`.
fn one_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb ")?.trim_start();
    let rest = match rest.strip_prefix('[') {
        Some(options) => options.split_once(']')?.1,
        None => rest,
    };
    let mut words = rest.split_whitespace();
    Some(Source {
        base: usable(words.next()?)?,
        suite: words.next()?.to_owned(),
        components: words.map(str::to_owned).collect(),
    })
}

fn usable(url: &str) -> Option<String> {
    let known = ["http://", "https://", "file:/"];
    known
        .iter()
        .any(|scheme| url.starts_with(scheme))
        .then(|| url.trim_end_matches('/').to_owned())
}

/// Is it a suite of Debian itself? Other archives use its names too, but not with every ending.
fn is_debian(suite: &str) -> bool {
    const SUITES: &[&str] = &[
        "bullseye",
        "bookworm",
        "trixie",
        "forky",
        "duke",
        "sid",
        "unstable",
        "experimental",
        "testing",
        "stable",
        "oldstable",
        "oldoldstable",
    ];
    let name = suite.split('-').next().unwrap_or(suite);
    let rest = suite.strip_prefix(name).unwrap_or_default();
    SUITES.contains(&name) && ["", "-updates", "-backports", "-proposed-updates"].contains(&rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "\
# the archive
Types: deb
URIs: http://mirror.test/debian/
# a comment inside
Suites: bookworm
 bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/x.gpg

Types: deb deb-src
URIs: http://mirror.test/debian-security
Suites: bookworm-security
Components: main

Types: deb
Enabled: no
URIs: http://off.test/debian
Suites: bookworm
Components: main

Types: deb
URIs: https://other.test/tool
Suites: bookworm
Components: main
";

    #[test]
    fn deb822_sources() {
        let bases = Bases::pick(&deb822(DEB822));
        let main: Vec<_> = bases.of("trixie-backports").collect();
        assert_eq!(
            main,
            ["http://mirror.test/debian", "https://other.test/tool"]
        );
        let security: Vec<_> = bases.of("trixie-security").collect();
        assert_eq!(security[0], "http://mirror.test/debian-security");
    }

    #[test]
    fn one_line_sources() {
        let text = "# deb http://no.test/debian sid main\n\
                    deb-src http://no.test/debian sid main\n\
                    deb [arch=amd64 signed-by=/x.gpg] https://m.test/debian bookworm main # why\n\
                    deb cdrom:[Disk]/ bookworm main\n\
                    deb http://tool.test/apt tool-bookworm main\n";
        let sources: Vec<_> = text.lines().filter_map(one_line).collect();
        let bases = Bases::pick(&sources);
        assert_eq!(bases.main, ["https://m.test/debian"]);
        // Named nowhere: beside the archive.
        assert_eq!(bases.security, ["https://m.test/debian-security"]);
    }

    #[test]
    fn no_debian_in_the_sources() {
        let e = Bases::of_system(Path::new("/nonexistent"))
            .unwrap_err()
            .to_string();
        assert!(
            e.contains("no Debian archive") && e.contains("--archive"),
            "{e}"
        );
        let e = Bases::at("mirror.test/debian").unwrap_err().to_string();
        assert!(e.contains("http://"), "{e}");
    }
}
