//! What a program needs to start: its loader and every shared library, as `ldd` finds them, but read from the files
//! and not by running anything.
use crate::segments::segments;
use crate::{Error, Result};
use object::LittleEndian as LE;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, Dyn64, PT_LOAD};
use object::read::elf::ProgramHeader;
use object::read::{ReadCache, ReadRef};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Where a loader looks last (ld.so(8)), on Debian and elsewhere.
const DEFAULT_FOLDERS: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];
/// What this machine's administrator adds to them.
const CONFIGURATION: &str = "/etc/ld.so.conf";

/// What one file says of its needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    interpreter: Option<PathBuf>,
    libraries: Vec<String>,
    folders: Vec<PathBuf>,
}

/// The files that `programs` need besides themselves, under the names by which they are looked for. Empty for a static
/// program, or for a file that is no program at all.
///
/// # Errors
/// A file cannot be read; a library is nowhere.
pub fn closure(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut todo = programs.to_vec();
    let mut inherited = std::env::var_os("LD_LIBRARY_PATH")
        .map(|p| std::env::split_paths(&p).collect::<Vec<_>>())
        .unwrap_or_default();
    inherited.retain(|folder| folder.is_absolute());
    let configured = configured(Path::new(CONFIGURATION), 0);
    while let Some(file) = todo.pop() {
        let open = File::open(&file).map_err(|e| {
            Error::new(
                file.display().to_string(),
                e,
                "Is the path right, and is it built?",
            )
        })?;
        let needs = needs(&file, &ReadCache::new(&open)).unwrap_or_default();
        if let Some(interpreter) = needs.interpreter
            && found.insert(interpreter.clone())
        {
            todo.push(interpreter);
        }
        for library in &needs.libraries {
            let folders = inherited
                .iter()
                .chain(&needs.folders)
                .chain(&configured)
                .cloned()
                .chain(DEFAULT_FOLDERS.map(PathBuf::from));
            let path = folders
                .map(|f| f.join(library))
                .find(|p| is_elf(p))
                .ok_or_else(|| {
                    Error::new(
                        format!("{library}, which {} needs", file.display()),
                        "not found in the folders that a loader looks in",
                        "Install it, or name its folder in LD_LIBRARY_PATH",
                    )
                })?;
            if found.insert(path.clone()) {
                todo.push(path);
            }
        }
    }
    Ok(found)
}

/// A folder of another architecture may have a file of that name.
fn is_elf(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| crate::elf::header(&ReadCache::new(file)).is_some())
}

/// None: not a program, or a static one without a dynamic section.
fn needs<'d>(path: &Path, file: impl ReadRef<'d>) -> Option<Needs> {
    let segments = segments(file)?;
    let dynamic: &[Dyn64<LE>] = segments.iter().find_map(|s| s.dynamic(LE, file).ok()?)?;
    let dynamic = dynamic.iter().map(|d| (d.d_tag.get(LE), d.d_val.get(LE)));
    let value = |wanted| dynamic.clone().find(|(tag, _)| *tag == wanted).map(|d| d.1);
    // The table of strings is named by its address in memory.
    let (address, size) = (value(DT_STRTAB)?, value(DT_STRSZ)?);
    let mut loaded = segments.iter().filter(|s| s.p_type(LE) == PT_LOAD);
    let strings = loaded.find_map(|s| s.data_range(LE, file, address, size).ok()?)?;
    let interpreter = segments.iter().find_map(|s| s.interpreter(LE, file).ok()?);
    let mut needs = Needs {
        interpreter: interpreter.map(|i| PathBuf::from(text(i))),
        ..Needs::default()
    };
    for (tag, value) in dynamic {
        let is = |wanted| tag == wanted;
        if is(DT_NEEDED) || is(DT_RPATH) || is(DT_RUNPATH) {
            let value = text(strings.get(usize::try_from(value).ok()?..)?);
            if is(DT_NEEDED) {
                needs.libraries.push(value);
            } else {
                let origin = path.parent().unwrap_or(Path::new("/")).to_string_lossy();
                let value = value
                    .replace("${ORIGIN}", &origin)
                    .replace("$ORIGIN", &origin);
                needs.folders.extend(std::env::split_paths(&value));
            }
        }
    }
    Some(needs)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(end).into_owned()
}

/// The folders of ld.so.conf: a path in a line, or `include PATTERN`, where the pattern is `FOLDER/*.conf`.
fn configured(file: &Path, depth: u32) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let text = fs::read_to_string(file).unwrap_or_default();
    for line in text
        .lines()
        .map(|l| l.split('#').next().unwrap_or_default().trim())
    {
        if let Some(pattern) = line.strip_prefix("include ") {
            let folder = Path::new(pattern.trim()).parent().unwrap_or(Path::new("/"));
            let mut files: Vec<_> = fs::read_dir(folder)
                .map(|entries| entries.flatten().map(|e| e.path()).collect())
                .unwrap_or_default();
            files.retain(|f| f.extension().is_some_and(|e| e == "conf"));
            files.sort();
            // A file that includes itself.
            if depth < 4 {
                folders.extend(files.iter().flat_map(|f| configured(f, depth + 1)));
            }
        } else if line.starts_with('/') {
            folders.push(line.into());
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_needs_a_loader_and_libc() {
        let found = closure(&[std::env::current_exe().unwrap()]).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|p| p.file_name().unwrap().to_str().unwrap())
            .collect();
        assert!(names.iter().any(|n| n.starts_with("ld-linux")), "{names:?}");
        assert!(
            names.contains(&"libc.so.6") && names.contains(&"libgcc_s.so.1"),
            "{names:?}"
        );
        assert!(found.iter().all(|p| p.is_file()));
    }

    #[test]
    fn what_is_no_program_needs_nothing_and_what_is_not_there_is_an_error() {
        assert_eq!(closure(&["/etc/passwd".into()]).unwrap(), BTreeSet::new());
        assert!(closure(&["/nonexistent".into()]).is_err());
    }

    #[test]
    fn any_cut_and_any_changed_byte_is_read_without_a_panic() {
        let path = Path::new("/bin/true");
        let bytes = fs::read(path).unwrap();
        let whole = needs(path, &*bytes).unwrap();
        assert!(whole.libraries.contains(&"libc.so.6".to_owned()));
        for end in (0..bytes.len()).step_by(97) {
            let _ = needs(path, &bytes[..end]);
        }
        // The header and the table of segments behind it.
        let head = 64 + 13 * 56;
        for at in 0..head {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            let _ = needs(path, &*changed);
        }
    }
}
