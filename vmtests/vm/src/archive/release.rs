//! `InRelease`: the signed list of a suite's files and their hashes.
use super::Client;
use crate::cache::variable;
use crate::{At, Error, Result, Scratch, note};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The keyring of the Debian archive, from the package debian-archive-keyring. VMTESTS_KEYRING overrides it.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The text of a release file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Release(String);

impl Release {
    /// The SHA-256 that the release file lists for a path relative to the suite's directory.
    pub(super) fn sha256(&self, file: &str) -> Option<&str> {
        let mut inside = false;
        self.0.lines().find_map(|line| {
            if !line.starts_with(' ') {
                inside = line.trim_end() == "SHA256:";
                return None;
            }
            let mut words = line.split_whitespace();
            let (sum, _size, name) = (words.next()?, words.next()?, words.next()?);
            (inside && name == file).then_some(sum)
        })
    }
}

/// Downloads the release file of a suite and verifies its signature; `None` if the archive has no such suite.
pub(super) fn get(
    client: &Client,
    scratch: &Scratch,
    base: &str,
    suite: &str,
    verify: bool,
) -> Result<Option<Release>> {
    let url = format!("{base}/dists/{suite}/InRelease");
    let file = scratch.path().join(format!("{suite}-InRelease"));
    if client.file(&url, &file, None)?.is_none() {
        return Ok(None);
    }
    let read = |path: &Path| fs::read_to_string(path).at(path);
    let unchecked = |why: &str| {
        note(&format!("the signature of {suite} was not checked: {why}"));
        Ok(Some(Release(read(&file)?)))
    };
    if !verify {
        return unchecked("--no-signature");
    }
    let keyring = variable("VMTESTS_KEYRING").unwrap_or_else(|| PathBuf::from(KEYRING));
    if !keyring.is_file() {
        let keyring = keyring.display();
        return unchecked(&format!(
            "{keyring} is missing (package debian-archive-keyring)"
        ));
    }
    // gpgv writes the signed part alone to --output; the file may hold unsigned text before and after it.
    let signed = scratch.path().join(format!("{suite}-Release"));
    let mut command = Command::new("gpgv");
    command.args(["--quiet", "--keyring"]).arg(&keyring);
    command.arg("--output").args([&signed, &file]);
    match command.output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            unchecked("gpgv is missing (package gpgv)")
        }
        Err(e) => Err(Error::io("gpgv", &e)),
        Ok(output) if output.status.success() => Ok(Some(Release(read(&signed)?))),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said: Vec<&str> = said.lines().map(str::trim).collect();
            let reason = format!("its signature is not good: {}", said.join("; "));
            let remedy = "If the archive is meant to be signed by others, name their keys in VMTESTS_KEYRING; \
                 --no-signature goes without";
            Err(Error::new(url, reason, remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sha256_list_counts() {
        let release = Release(
            "Suite: x\nMD5Sum:\n aa 1 main/Packages.xz\nSHA256:\n bb 1 main/Packages\n cc 12 \
                   main/Packages.xz\nOther: y\n dd 1 main/Other\n"
                .into(),
        );
        assert_eq!(release.sha256("main/Packages.xz"), Some("cc"));
        assert_eq!(release.sha256("main/Other"), None);
    }
}
