//! The archive's base URLs: from an option, or from the system's apt sources. The code names no host.
use crate::cache::variable;
use crate::{Error, Result};
use std::path::Path;
use std::process::Command;

const REMEDY: &str = "Name a mirror of the Debian archive with --archive URL (what stands before /dists), or \
                      copy a filled cache from another machine";

/// Base URLs in order of preference. With several, the first that has the requested file is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bases {
    main: Vec<String>,
    security: Vec<String>,
}

impl Bases {
    /// The archive given by `option` or `VMTESTS_ARCHIVE`, else the archives in the system's apt sources.
    pub(crate) fn find(option: Option<&str>) -> Result<Self> {
        let named = option
            .map(Into::into)
            .or_else(|| variable("VMTESTS_ARCHIVE"));
        match named {
            Some(url) => Self::at(&url.to_string_lossy()),
            None => Self::of_system(Path::new("/etc/apt")),
        }
    }

    /// A given mirror. Its security archive is expected at the same URL with `-security` appended, or at the same URL.
    fn at(url: &str) -> Result<Self> {
        let base = usable(url).ok_or_else(|| {
            let reason = "not a URL of the kind http://, https:// or file://";
            let remedy = "Give what stands before /dists in the URL of a mirror";
            Error::new(format!("--archive {url}"), reason, remedy)
        })?;
        Ok(Self {
            security: vec![format!("{base}-security"), base.clone()],
            main: vec![base],
        })
    }

    /// The archives that apt would use with the configuration in `directory`, from `apt-get update --print-uris`. Source
    /// files that only root may read are ignored: they usually name private archives.
    fn of_system(directory: &Path) -> Result<Self> {
        let output = Command::new("apt-get")
            .args(["update", "--print-uris", "-o"])
            .arg(format!("Dir::Etc={}", directory.display()))
            .output();
        let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
        let bases = Self::pick(&text.unwrap_or_default());
        if bases.main.is_empty() && bases.security.is_empty() {
            let (folder, reason) = (directory.display(), "no Debian archive in the apt sources");
            return Err(Error::new(folder.to_string(), reason, REMEDY));
        }
        Ok(bases)
    }

    /// Selects base URLs from apt's list. Archives whose path ends in "debian" come before others that have a suite of the
    /// same name.
    fn pick(uris: &str) -> Self {
        let mut bases = Self::default();
        for line in uris.lines() {
            // 'BASE/dists/SUITE/main/binary-amd64/Packages.xz' NAME 0
            let index = line.strip_prefix('\'');
            let index = index.and_then(|l| l.split_once("/dists/"));
            let suite = index.and_then(|(_, rest)| rest.split_once("/main/binary-"));
            let base = index.and_then(|(base, _)| usable(base));
            let (Some(base), Some((suite, _))) = (base, suite) else {
                continue;
            };
            if suite.ends_with("-security") || suite.ends_with("/updates") {
                push(&mut bases.security, base);
            } else if is_debian(suite) {
                push(&mut bases.main, base);
            }
        }
        bases.main.sort_by_key(|base| !base.ends_with("/debian"));
        let security = &mut bases.security;
        security.sort_by_key(|base| !base.ends_with("/debian-security"));
        // The sources may name only one of the two archives; mirrors serve both side by side.
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

    /// The base URLs that may have the suite.
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

fn usable(url: &str) -> Option<String> {
    let mut known = ["http://", "https://", "file:/"].iter();
    let is_known = known.any(|scheme| url.starts_with(scheme));
    is_known.then(|| url.trim_end_matches('/').to_owned())
}

/// Whether it is a suite of Debian itself. Other archives use Debian's code names too, mostly with other suffixes.
fn is_debian(suite: &str) -> bool {
    const SUITES: &str = "bullseye bookworm trixie forky duke sid unstable experimental testing stable oldstable oldoldstable";
    let name = suite.split('-').next().unwrap_or(suite);
    let rest = suite.strip_prefix(name).unwrap_or_default();
    SUITES.split(' ').any(|s| s == name)
        && ["", "-updates", "-backports", "-proposed-updates"].contains(&rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(indexes: &[&str]) -> Bases {
        let line = |index: &&str| format!("'{index}Packages.xz' name 0 \n");
        Bases::pick(&indexes.iter().map(line).collect::<String>())
    }

    #[test]
    fn archives_of_both_kinds() {
        let bases = pick(&[
            "https://other.test/tool/dists/bookworm/main/binary-amd64/",
            "http://mirror.test/debian/dists/bookworm/main/binary-amd64/",
            "http://mirror.test/debian/dists/bookworm-updates/main/binary-all/",
            "http://mirror.test/debian-security/dists/bookworm-security/main/binary-amd64/",
        ]);
        let main: Vec<_> = bases.of("trixie-backports").collect();
        assert_eq!(
            main,
            ["http://mirror.test/debian", "https://other.test/tool"]
        );
        let security: Vec<_> = bases.of("trixie-security").collect();
        assert_eq!(security[0], "http://mirror.test/debian-security");
    }

    #[test]
    fn what_is_no_archive_of_debian_is_passed_over() {
        let bases = pick(&[
            "http://no.test/debian/dists/sid/main/source/",
            "http://no.test/debian/dists/bookworm/contrib/binary-amd64/",
            "https://m.test/debian/dists/bookworm/main/binary-amd64/",
            "cdrom:[Disk]/dists/bookworm/main/binary-amd64/",
            "http://tool.test/apt/dists/tool-bookworm/main/binary-amd64/",
        ]);
        assert_eq!(bases.main, ["https://m.test/debian"]);
        // The list names no security archive, so it is derived from the main one.
        assert_eq!(bases.security, ["https://m.test/debian-security"]);
    }

    #[test]
    fn the_sources_of_apt() {
        let folder = std::env::temp_dir().join(format!("weir-vm-sources-{}", std::process::id()));
        let parts = folder.join("sources.list.d");
        std::fs::create_dir_all(&parts).unwrap();
        let old = "# deb http://no.test/debian sid main\n\
                   deb-src http://no.test/debian sid main\n\
                   deb [arch=amd64 trusted=yes] https://m.test/debian bookworm main # why\n";
        std::fs::write(folder.join("sources.list"), old).unwrap();
        let new = "Types: deb\nURIs: http://s.test/debian-security/\n# a comment inside\n\
                   Suites: bookworm-security\n trixie-security\nComponents: main contrib\n\n\
                   Types: deb\nEnabled: no\nURIs: http://off.test/debian\nSuites: sid\nComponents: main\n";
        std::fs::write(parts.join("x.sources"), new).unwrap();
        let has_apt = Command::new("apt-get").arg("--version").output().is_ok();
        let bases = Bases::of_system(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        if !has_apt {
            println!("skip: there is no apt-get");
            return;
        }
        let bases = bases.unwrap();
        assert_eq!(
            bases.main,
            ["https://m.test/debian", "http://s.test/debian"]
        );
        assert_eq!(
            bases.security,
            [
                "http://s.test/debian-security",
                "https://m.test/debian-security"
            ]
        );
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
