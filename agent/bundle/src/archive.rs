//! Writes the parts as a tar archive with a manifest.

use super::secrets::{Secrets, left_out};
use super::{LIMIT, Part};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::fmt::Write;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_cni::log::timestamp;

/// The top directory of the archive.
const TOP: &str = "weir-bundle";

/// An archive and its manifest.
#[derive(Debug)]
pub struct Bundle {
    /// Content of the tar archive.
    pub tar: Vec<u8>,
    /// `manifest.json`
    pub manifest: Value,
}

/// Removes secrets and packs the parts in the order of their names, after the manifest and the checksums.
pub(super) fn pack(mut parts: Vec<Part>, secrets: &Secrets) -> io::Result<Bundle> {
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    let (mut files, mut listed) = (Vec::new(), Vec::new());
    for part in parts {
        let (text, why) = match part.text {
            Ok(text) => (text, None),
            Err(why) => (String::new(), Some(secrets.cut(&why, part.form))),
        };
        let mut text = secrets.cut(&shortened(text), part.form);
        if let Some(why) = &why {
            text = missing(&part.name, why);
        }
        let left_out = left_out(&text);
        let bytes = text.into_bytes();
        listed.push(json!({
            "name": part.name,
            "bytes": bytes.len(),
            "sha256": sum(&bytes),
            "valuesLeftOut": left_out,
            "couldNotBeHad": why,
        }));
        files.push((part.name, bytes));
    }
    let now = SystemTime::now();
    let manifest = json!({
        "weir": env!("CARGO_PKG_VERSION"),
        "made": timestamp(now),
        "leftOut": "values of unknown keys in configurations, log lines of other programs, tokens, passwords, private keys, and the contents of kubeconfigs; \"(left out)\" stands where one was",
        "files": listed,
    });
    files.insert(
        0,
        (
            "manifest.json".into(),
            format!("{manifest:#}\n").into_bytes(),
        ),
    );
    let mut sums = String::new();
    for (name, bytes) in &files {
        // The format of sha256sum(1). Writing to a String does not fail.
        let _ = writeln!(sums, "{}  {name}", sum(bytes));
    }
    files.insert(1, ("SHA256SUMS".into(), sums.into_bytes()));
    let tar = tar(&files, now)?;
    Ok(Bundle { tar, manifest })
}

/// Returns the reason for a missing part in the format of that part, so that a JSON file stays JSON.
fn missing(name: &str, why: &str) -> String {
    match name.ends_with(".json") {
        true => format!("{:#}\n", json!({ "couldNotBeHad": why })),
        false => format!("not available: {why}\n"),
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > LIMIT {
        let length = text.len();
        let end = (0..=LIMIT).rev().find(|n| text.is_char_boundary(*n));
        text.truncate(end.unwrap_or(0));
        let _ = write!(
            text,
            "\n(truncated: {length} bytes exceed the limit of {LIMIT})\n"
        );
    }
    text
}

fn sum(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in digest(&SHA256, bytes).as_ref() {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn tar(files: &[(String, Vec<u8>)], now: SystemTime) -> io::Result<Vec<u8>> {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(seconds);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, format!("{TOP}/{name}"), bytes.as_slice())?;
    }
    archive.into_inner()
}
