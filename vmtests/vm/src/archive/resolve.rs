//! Selects a build of a kernel: the newest of its series for which every package exists.
//!
//! Up to 6.18, `linux-image-RELEASE` holds everything. From 6.19 on it is empty and depends on `linux-base-`,
//! `linux-binary-` and `linux-modules-RELEASE` of the same version. An index may list some of these before the
//! others are built, and it keeps only the last few unsigned builds. So only signed package names are considered,
//! and incomplete builds are skipped.
//!
//! `linux-base-RELEASE` of 6.18 and older is different: a full image depends on it but works without it, and
//! the archive deletes it earlier than the image.
use super::index::Package;
use super::packages::Relation;
use super::version::compare;
use crate::catalogue::Entry;
use crate::lock::{Locked, Part};

/// A package above this size holds files besides its documentation.
const SHELL: u64 = 1 << 20;

/// Returns the newest complete build, and a note for each newer build that was skipped.
pub(super) fn newest(packages: &[Package], entry: &Entry) -> Option<(Locked, Vec<String>)> {
    let images = packages.iter().filter(|p| is_build(p, entry));
    let mut images: Vec<&Package> = images.collect();
    images.sort_by(|a, b| compare(&b.version, &a.version));
    let mut notes = Vec::new();
    for image in images {
        let mut parts = Vec::new();
        match collect(packages, image, &mut parts) {
            Ok(()) => {
                let locked = Locked {
                    name: entry.name.clone(),
                    series: series(&image.version),
                    version: image.version.clone(),
                    suite: entry.suite.clone(),
                    parts,
                };
                return Some((locked, notes));
            }
            Err(missing) => notes.push(format!(
                "{} {} is listed without {missing}: passed over",
                image.name, image.version
            )),
        }
    }
    None
}

/// Whether the package is a kernel build of this entry, named `linux-image-RELEASE-FLAVOUR-ARCH`.
fn is_build(package: &Package, entry: &Entry) -> bool {
    let flavour = format!("-{}-{}", entry.flavour, entry.arch.debian());
    let release = package.name.strip_prefix("linux-image-");
    let release = release
        .and_then(|r| r.strip_suffix(&flavour))
        .unwrap_or_default();
    // linux-image-6.12-cloud-amd64 has no third number: it is a metapackage that depends on the newest build.
    let numbers = release.split(['-', '+']).next().unwrap_or_default();
    let is_digit = |c: char| c.is_ascii_digit();
    let is_wanted = entry.series.as_ref().is_none_or(|s| {
        let rest = package.version.strip_prefix(s.as_str());
        rest.is_some_and(|r| !r.starts_with(is_digit))
    });
    is_wanted && numbers.split('.').count() >= 3 && numbers.starts_with(is_digit)
}

/// Returns "7.2" for "7.2.12-1~bpo13+1".
fn series(version: &str) -> String {
    let numbers: Vec<&str> = version.split(['.', '-', '~']).take(2).collect();
    numbers.join(".")
}

/// Collects the package and, recursively, the `linux-*` packages that it depends on with `=`.
fn collect(packages: &[Package], package: &Package, parts: &mut Vec<Part>) -> Result<(), String> {
    if parts.contains(&package.part) {
        return Ok(());
    }
    parts.push(package.part.clone());
    for Relation { name, bound } in package.depends.split(',').map(Relation::parse) {
        let Some(("=", version)) = bound.filter(|_| name.starts_with("linux-")) else {
            continue;
        };
        let mut found = packages.iter();
        match found.find(|p| p.name == name && p.version == version) {
            Some(found) => collect(packages, found, parts)?,
            None if name.starts_with("linux-base-") && package.part.size > SHELL => {}
            None => return Err(name.to_owned()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arch;
    use crate::archive::index::packages as parse;

    fn entry(series: Option<&str>) -> Entry {
        Entry {
            name: "x".into(),
            series: series.map(str::to_owned),
            suite: "s".into(),
            flavour: "cloud".into(),
            arch: Arch::Amd64,
            required: true,
            special: None,
        }
    }

    fn paragraph(name: &str, version: &str, depends: &str) -> String {
        let sum = "0".repeat(64);
        format!(
            "Package: {name}\nVersion: {version}\nDepends: {depends}\nSize: 1\n\
             Filename: pool/{name}_{version}.deb\nSHA256: {sum}\n\n"
        )
    }

    #[test]
    fn a_full_image_does_without_its_base() {
        let image = |size| {
            paragraph(
                "linux-image-6.18.15+deb13-cloud-amd64",
                "6.18.15-1~bpo13+1",
                "kmod, linux-base-6.18.15+deb13-cloud-amd64 (= 6.18.15-1~bpo13+1)",
            )
            .replace("Size: 1\n", &format!("Size: {size}\n"))
        };
        let (found, _) = newest(&parse(&image(49_000_000)), &entry(Some("6.18"))).unwrap();
        assert_eq!(found.parts.len(), 1);
        assert_eq!(newest(&parse(&image(2_000)), &entry(Some("6.18"))), None);
    }

    fn split(release: &str, version: &str, parts: &[&str]) -> String {
        let names = ["base", "binary", "modules"];
        let depends: Vec<String> = names
            .iter()
            .map(|p| format!("linux-{p}-{release} (= {version})"))
            .collect();
        let mut text = paragraph(
            &format!("linux-image-{release}"),
            version,
            &format!("kmod, a | b (>= 1), {}", depends.join(", ")),
        );
        for part in parts {
            text += &paragraph(&format!("linux-{part}-{release}"), version, "kmod");
        }
        text
    }

    #[test]
    fn the_highest_version_of_the_series_and_flavour() {
        let text = paragraph("linux-image-6.1.0-9-cloud-amd64", "6.1.99-1", "kmod")
            + &paragraph("linux-image-6.1.0-10-cloud-amd64", "6.1.100-1", "kmod")
            + &paragraph("linux-image-6.1.0-11-rt-amd64", "6.1.101-1", "kmod")
            + &paragraph("linux-image-6.1.0-12-amd64", "6.1.102-1", "kmod")
            + &paragraph(
                "linux-image-6.1.0-13-cloud-amd64-unsigned",
                "6.1.103-1",
                "kmod",
            )
            + &paragraph("linux-image-6.12.1-cloud-amd64", "6.12.1-1", "kmod")
            + &paragraph(
                "linux-image-6.1-cloud-amd64",
                "6.1.104-1",
                "linux-image-6.1.0-10-cloud-amd64 (= 6.1.104-1)",
            );
        let packages = parse(&text);
        let (found, _) = newest(&packages, &entry(Some("6.1"))).unwrap();
        assert_eq!(found.version, "6.1.100-1");
        assert_eq!(found.series, "6.1");
        assert_eq!(found.parts.len(), 1);
        assert_eq!(newest(&packages, &entry(None)).unwrap().0.series, "6.12");
        assert_eq!(newest(&packages, &entry(Some("4.4"))), None);
    }

    #[test]
    fn an_incomplete_set_is_passed_over_and_named() {
        let text = split(
            "7.2.1-cloud-amd64",
            "7.2.1-1",
            &["base", "binary", "modules"],
        ) + &split("7.3.4-cloud-amd64", "7.3.4-1", &["base", "modules"]);
        let (found, notes) = newest(&parse(&text), &entry(None)).unwrap();
        assert_eq!(found.version, "7.2.1-1");
        assert_eq!(found.parts.len(), 4);
        assert!(notes[0].contains("without linux-binary-7.3.4"), "{notes:?}");
        let text = split("7.3.4-cloud-amd64", "7.3.4-1", &["base", "modules"]);
        assert_eq!(newest(&parse(&text), &entry(None)), None);
    }
}
