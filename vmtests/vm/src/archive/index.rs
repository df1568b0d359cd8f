//! `Packages.xz`: what a suite has. Only kernels are kept of it.
use super::Client;
use super::release::Release;
use crate::{Error, Result, Scratch, compress, digest};
use std::fs;

/// The architecture whose packages are looked for.
pub(super) const ARCHITECTURE: &str = "amd64";

/// One paragraph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) depends: String,
    pub(super) path: String,
    pub(super) size: u64,
    pub(super) sha256: String,
}

/// Gets the index and compares it with what the release file says.
pub(super) fn get(
    client: &Client,
    scratch: &Scratch,
    base: &str,
    suite: &str,
    release: &Release,
) -> Result<Vec<Package>> {
    let name = format!("main/binary-{ARCHITECTURE}/Packages.xz");
    let url = format!("{base}/dists/{suite}/{name}");
    let file = scratch.path().join(format!("{suite}-Packages.xz"));
    if client.file(&url, &file, None)?.is_none() {
        return Err(Error::new(
            url,
            "the archive has the suite and not its index",
            "Try again later: it may be in the middle of an update. Or use another mirror with --archive URL",
        ));
    }
    let packed = fs::read(&file).map_err(|e| Error::io(file.display(), &e))?;
    let sum = digest::sha256(&packed);
    if release
        .sha256(&name)
        .is_some_and(|expected| expected != sum)
    {
        return Err(Error::new(
            url,
            "the index is not the one that the release file vouches for",
            "Try again later: the mirror may be in the middle of an update. Or use another one with \
             --archive URL",
        ));
    }
    let text = compress::unpack(&url, &packed)?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

/// The kernels of an index.
pub(super) fn parse(text: &str) -> Vec<Package> {
    text.split("\n\n")
        .filter(|p| p.trim_start().starts_with("Package: linux-"))
        .filter_map(package)
        .collect()
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
            "Filename" => value.clone_into(&mut package.path),
            "SHA256" => value.clone_into(&mut package.sha256),
            "Size" => package.size = value.parse().ok()?,
            _ => {}
        }
    }
    let complete = !package.path.is_empty() && package.sha256.len() == 64;
    complete.then_some(package)
}
