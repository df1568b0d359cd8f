//! `Packages.xz` and `Sources.xz`: the indexes that list a suite's binary and source packages.
use super::Client;
use super::release::Release;
use crate::lock::Part;
use crate::{Arch, At, Error, Result, Scratch, compress, digest};
use std::fs;

/// The path of an architecture's package index, relative to the suite's directory.
pub(super) fn packages_of(arch: Arch) -> String {
    format!("main/binary-{}/Packages.xz", arch.debian())
}

/// The path of the source index, relative to the suite's directory.
pub(super) const SOURCES: &str = "main/source/Sources.xz";

/// A paragraph of a package index: one binary package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) depends: String,
    pub(super) pre_depends: String,
    pub(super) provides: String,
    pub(super) priority: String,
    pub(super) part: Part,
}

impl Package {
    /// The order of preference among several providers: packages that every system has (`required`) come first.
    pub(super) fn rank(&self) -> usize {
        let order = ["required", "important", "standard"];
        let place = order.iter().position(|p| *p == self.priority);
        place.unwrap_or(order.len())
    }
}

/// A paragraph of a source index: one source package.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) version: String,
    /// The `.orig.tar.*` file: the source as the upstream author published it.
    pub(super) original: Part,
}

/// Downloads an index and compares its hash with the release file.
pub(super) fn get(
    client: &Client,
    scratch: &Scratch,
    base: &str,
    suite: &str,
    release: &Release,
    name: &str,
) -> Result<String> {
    let url = format!("{base}/dists/{suite}/{name}");
    let remedy = "Try again later: the mirror may be in the middle of an update. Or use another one with --archive URL";
    let file = format!("{suite}-{}", name.replace('/', "-"));
    let file = scratch.path().join(file);
    if client.file(&url, &file, None)?.is_none() {
        let reason = "the archive has the suite and not its index";
        return Err(Error::new(url, reason, remedy));
    }
    let packed = fs::read(&file).at(&file)?;
    let sum = digest::sha256(&packed);
    if release.sha256(name).is_some_and(|expected| expected != sum) {
        let reason = "the index is not the one that the release file vouches for";
        return Err(Error::new(url, reason, remedy));
    }
    let text = compress::unpack(&url, &packed)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Parses a package index.
pub(super) fn packages(text: &str) -> Vec<Package> {
    text.split("\n\n").filter_map(package).collect()
}

/// Parses the entries of a source index that have the given package name.
pub(super) fn sources(text: &str, name: &str) -> Vec<Source> {
    let first = format!("Package: {name}");
    text.split("\n\n")
        .filter(|p| p.trim_start().lines().next() == Some(&first))
        .filter_map(source)
        .collect()
}

fn source(paragraph: &str) -> Option<Source> {
    let field = |key: &str| {
        let mut lines = paragraph.lines();
        lines.find_map(|l| l.strip_prefix(key)?.strip_prefix(": "))
    };
    let sums = paragraph.split_once("\nChecksums-Sha256:")?.1.lines();
    let sums = sums.skip(1).take_while(|line| line.starts_with(' '));
    let mut files = sums.filter_map(|line| {
        let mut words = line.split_whitespace();
        let (sum, size, file) = (words.next()?, words.next()?, words.next()?);
        Some((sum, size.parse().ok()?, file))
    });
    // Native Debian packages have no `.orig.tar.*`; they are skipped, since no caller asks for one.
    let (sum, size, file) =
        files.find(|(_, _, file)| file.contains(".orig.tar.") && !file.ends_with(".asc"))?;
    Some(Source {
        version: field("Version")?.to_owned(),
        original: Part {
            path: format!("{}/{file}", field("Directory")?),
            size,
            sha256: sum.to_owned(),
        },
    })
}

fn package(paragraph: &str) -> Option<Package> {
    let mut package = Package::default();
    for line in paragraph.lines() {
        let Some((key, value)) = line.split_once(": ") else {
            continue;
        };
        match key {
            "Package" => value.clone_into(&mut package.name),
            "Version" => value.clone_into(&mut package.version),
            "Depends" => value.clone_into(&mut package.depends),
            "Pre-Depends" => value.clone_into(&mut package.pre_depends),
            "Provides" => value.clone_into(&mut package.provides),
            "Priority" => value.clone_into(&mut package.priority),
            "Filename" => value.clone_into(&mut package.part.path),
            "SHA256" => value.clone_into(&mut package.part.sha256),
            "Size" => package.part.size = value.parse().ok()?,
            _ => {}
        }
    }
    let complete = !package.part.path.is_empty() && package.part.sha256.len() == 64;
    complete.then_some(package)
}
