//! Makes a bootable directory from packages or files: `kernel/KEY/{image,config,modules/,kernel.json}`.
//!
//! The directory is made in a scratch directory and renamed; `kernel.json` in it lists its content.
use crate::modules::{Found, Signature};
use crate::{Arch, At, Cache, Error, Result, Scratch, deb, digest, requirements, vmlinux};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Changes whenever the same packages would give a directory with other content.
const FORMAT: u32 = 2;

/// The input of a kernel's preparation.
#[derive(Debug)]
pub(crate) struct Material {
    /// The name in messages.
    pub(crate) name: String,
    /// The version of the package, or the path of a user's own files.
    pub(crate) package: String,
    /// File name and SHA-256 of each package or file.
    pub(crate) sources: Vec<(String, String)>,
    /// The bzImage or vmlinux.
    pub(crate) image: Vec<u8>,
    pub(crate) config: Option<String>,
    pub(crate) modules: Found,
    pub(crate) signature: Signature,
}

/// `kernel.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(default)]
    pub(crate) arch: Arch,
    pub(crate) release: String,
    pub(crate) package: String,
    pub(crate) sources: Vec<(String, String)>,
    pub(crate) image: u64,
    pub(crate) config: bool,
    /// In load order.
    pub(crate) modules: Vec<ModuleRecord>,
    pub(crate) builtin: Vec<String>,
    pub(crate) notes: Vec<String>,
}

/// One module of a [`Record`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ModuleRecord {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) depends: Vec<String>,
}

/// A complete kernel directory in the cache.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub(crate) folder: PathBuf,
    pub(crate) record: Record,
}

/// The path of a module in the directory of a prepared kernel.
pub(crate) fn module_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("modules/{name}.ko"))
}

/// The name of the directory, which depends on the whole input.
pub(crate) fn key(label: &str, hashes: &[&str], wanted: &[String], signature: Signature) -> String {
    let odd = |c: char| !c.is_ascii_alphanumeric() && !".+-~".contains(c);
    let label: String = label.replace(odd, "_").chars().take(60).collect();
    let all = format!("{FORMAT} {signature:?} {wanted:?} {hashes:?}");
    let hash: String = digest::sha256(all.as_bytes()).chars().take(12).collect();
    format!("{label}-{hash}")
}

/// Returns the directory for `key` if it exists; an incomplete one is an error.
pub(crate) fn open(cache: &Cache, key: &str) -> Result<Option<Prepared>> {
    let folder = cache.kernels().join(key);
    let text = match fs::read_to_string(folder.join("kernel.json")) {
        Err(_) if !folder.exists() => return Ok(None),
        other => other.map_err(|e| damaged(&folder, &e))?,
    };
    let record: Record = serde_json::from_str(&text).map_err(|e| damaged(&folder, &e))?;
    let whole = |file: &Path, size: u64| {
        let name = file.display();
        match fs::metadata(file).map(|m| m.len()) {
            Err(e) => Err(damaged(&folder, &format!("{name}: {e}"))),
            Ok(found) if found == size => Ok(()),
            Ok(found) => {
                let what = format!("{name} has {found} of {size} bytes");
                Err(damaged(&folder, &what))
            }
        }
    };
    whole(&folder.join("image"), record.image)?;
    for module in &record.modules {
        whole(&module_file(&folder, &module.name), module.size)?;
    }
    Ok(Some(Prepared { folder, record }))
}

/// Makes the directory for `key`.
pub(crate) fn build(
    cache: &Cache,
    key: &str,
    material: Material,
    wanted: &[String],
) -> Result<Prepared> {
    let image = vmlinux::image(&material.name, material.image)?;
    let arch = image.arch;
    let config = material.config;
    let config = config.or_else(|| vmlinux::embedded_config(image.elf()));
    let (name, modules) = (&material.name, &material.modules);
    let mut notes = requirements::check(name, arch, config.as_deref(), modules)?;
    if image.vmlinux.is_some() {
        notes.push("the kernel has no PVH note: it boots as a bzImage, which takes longer".into());
    }
    let release = vmlinux::release(image.elf()).ok_or_else(|| {
        let remedy = "Give a Linux kernel for 64-bit x86 or ARM";
        Error::new(&material.name, "no \"Linux version\" in this image", remedy)
    })?;
    let closure = modules.closure(wanted, &release, material.signature)?;

    let scratch = cache.scratch()?;
    let folder = scratch.path().join(key);
    fs::create_dir_all(folder.join("modules")).at(&folder)?;
    write(&folder.join("image"), &image.boot)?;
    if let Some(text) = &config {
        write(&folder.join("config"), text.as_bytes())?;
    }
    let mut record = Record {
        arch,
        release,
        package: material.package,
        sources: material.sources,
        image: image.boot.len() as u64,
        config: config.is_some(),
        modules: Vec::new(),
        builtin: material.modules.builtin.into_iter().collect(),
        notes,
    };
    for module in closure {
        write(&module_file(&folder, &module.name), &module.content)?;
        record.modules.push(ModuleRecord {
            name: module.name,
            size: module.content.len() as u64,
            depends: module.depends,
        });
    }
    let json = serde_json::to_vec_pretty(&record)
        .map_err(|e| Error::new("kernel.json", e, "Report it"))?;
    write(&folder.join("kernel.json"), &json)?;
    let place = cache.kernels().join(key);
    scratch.publish(key, &place)?;
    Ok(Prepared {
        folder: place,
        record,
    })
}

/// Extracts the packages of a kernel.
pub(crate) fn unpack(
    scratch: &Scratch,
    name: &str,
    package: &str,
    packages: &[PathBuf],
) -> Result<Material> {
    let folder = scratch.path().join("packages");
    fs::create_dir_all(&folder).at(&folder)?;
    let mut sources = Vec::new();
    for path in packages {
        let shown = path.display().to_string();
        let open = || File::open(path).at(&shown);
        let hash = digest::sha256_of(open()?).at(&shown)?;
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        sources.push((file.into_owned(), hash));
        let total = fs::metadata(path).map_or(0, |m| m.len());
        let bar = crate::program::bar(format!("unpacking {name}"), total);
        let input = bar.wrap_read(open()?);
        deb::extract(&shown, input, &folder)?;
    }
    let modules = Found::directory(&folder)?.0;
    let read = |file: &PathBuf| fs::read(file).at(file);
    let image = modules.image.as_ref().map(read).transpose()?;
    let config = modules.config.as_ref().map(read).transpose()?;
    let lacking = [
        (image.is_none(), "a kernel"),
        (modules.is_empty(), "modules"),
        (config.is_none(), "a configuration"),
    ];
    let name = format!("{name} ({package})");
    if let Some((_, what)) = lacking.iter().find(|(is_missing, _)| *is_missing) {
        let remedy = "The set is not complete: fetch it again with `weir-vm fetch`";
        let reason = format!("its packages do not hold {what}");
        return Err(Error::new(name, reason, remedy));
    }
    Ok(Material {
        name,
        package: package.to_owned(),
        sources,
        image: image.unwrap_or_default(),
        config: config.map(|text| String::from_utf8_lossy(&text).into_owned()),
        modules,
        signature: Signature::Cut,
    })
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).at(path)
}

fn damaged(folder: &Path, reason: &dyn std::fmt::Display) -> Error {
    let reason = format!("a prepared kernel is not whole: {reason}");
    let folder = folder.display().to_string();
    Error::new(folder, reason, "`weir-vm fetch` makes it again")
}
