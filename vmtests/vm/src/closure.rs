//! The files that a program needs to start: its loader and every shared library, as the loader itself lists them. The
//! loader maps the files and runs none of their code.
use crate::elf::segments;
use crate::{At, Error, Result};
use object::LittleEndian as LE;
use object::elf::DT_NEEDED;
use object::read::elf::ProgramHeader;
use object::read::{ReadCache, ReadRef};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program whose loader is used for plug-ins, because they name no loader.
const SHELL: &str = "/bin/sh";

/// The files that `programs` need besides themselves, under the paths that the loader opens. Empty for a static program
/// and for a file that is not a program.
pub fn closure(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for program in programs {
        let file = open(program)?;
        let file = ReadCache::new(&file);
        if !has_libraries(&file) {
            continue;
        }
        let own = interpreter(&file);
        found.extend(own.clone());
        let shell = open(Path::new(SHELL))?;
        if let Some(loader) = own.or_else(|| interpreter(&ReadCache::new(&shell))) {
            found.extend(list(&loader, program)?);
        }
    }
    Ok(found)
}

fn open(path: &Path) -> Result<File> {
    let (name, remedy) = (path.display(), "Is the path right, and is it built?");
    File::open(path).map_err(|e| Error::new(name.to_string(), e, remedy))
}

/// The loader (PT_INTERP) that a program names. `None`: a plug-in, a static program, or not a program.
fn interpreter<'d>(file: impl ReadRef<'d>) -> Option<PathBuf> {
    let mut segments = segments(file)?.iter();
    let path = segments.find_map(|s| s.interpreter(LE, file).ok()?)?;
    let path = path.split(|b| *b == 0).next().unwrap_or_default();
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

fn has_libraries<'d>(file: impl ReadRef<'d>) -> bool {
    let mut segments = segments(file).unwrap_or_default().iter();
    let dynamic = segments.find_map(|s| s.dynamic(LE, file).ok()?);
    let mut dynamic = dynamic.unwrap_or_default().iter();
    dynamic.any(|d| d.d_tag.get(LE) == DT_NEEDED)
}

/// What ld.so(8) prints with `--list`: a line `NAME => PATH (ADDRESS)` for each library, or `PATH (ADDRESS)`.
fn list(loader: &Path, program: &Path) -> Result<Vec<PathBuf>> {
    let name = program.display();
    let program = std::path::absolute(program).at(program)?;
    let mut command = Command::new(loader);
    command.arg("--list").arg(program).stdin(Stdio::null());
    let output = command.output();
    let output = output.at(format!("{}, the loader of {name}", loader.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let missing = |what: String| {
        let reason = "not found in the folders that a loader looks in";
        let remedy = "Install it, or name its folder in LD_LIBRARY_PATH";
        Error::new(what, reason, remedy)
    };
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some((library, _)) = line.split_once(" => not found") {
            return Err(missing(format!("{library}, which {name} needs")));
        }
        let path = line.rsplit_once(" (0x").map_or("", |(path, _)| path);
        let path = path.split_once(" => ").map_or(path, |(_, path)| path);
        // The vDSO has no path.
        if path.starts_with('/') {
            found.push(PathBuf::from(path));
        }
    }
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(missing(format!("a library of {name} ({})", why.trim())));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(found: &BTreeSet<PathBuf>) -> Vec<&str> {
        let names = found
            .iter()
            .map(|p| p.file_name().unwrap().to_str().unwrap());
        names.collect()
    }

    #[test]
    fn this_test_needs_a_loader_and_libc() {
        let found = closure(&[std::env::current_exe().unwrap()]).unwrap();
        let names = names(&found);
        assert!(names.iter().any(|n| n.starts_with("ld-linux")), "{names:?}");
        assert!(
            names.contains(&"libc.so.6") && names.contains(&"libgcc_s.so.1"),
            "{names:?}"
        );
        assert!(found.iter().all(|p| p.is_file()));
    }

    #[test]
    fn a_plug_in_needs_its_libraries_too() {
        let found = closure(&[std::env::current_exe().unwrap()]).unwrap();
        let library = found.iter().find(|p| p.ends_with("libgcc_s.so.1")).unwrap();
        let found = closure(std::slice::from_ref(library)).unwrap();
        assert!(names(&found).contains(&"libc.so.6"), "{found:?}");
    }

    #[test]
    fn what_is_no_program_needs_nothing_and_what_is_not_there_is_an_error() {
        assert_eq!(closure(&["/etc/passwd".into()]).unwrap(), BTreeSet::new());
        assert!(closure(&["/nonexistent".into()]).is_err());
    }

    /// The test replaces the name of a library in the file by another of the same length.
    #[test]
    fn a_library_that_is_nowhere_is_named() {
        let mut bytes = fs::read("/bin/true").unwrap();
        let at = bytes.windows(9).position(|w| w == b"libc.so.6").unwrap();
        bytes[at..at + 9].copy_from_slice(b"libx.so.6");
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("true");
        fs::write(&program, bytes).unwrap();
        let e = closure(&[program]).unwrap_err().to_string();
        assert!(
            e.contains("libx.so.6") && e.contains("LD_LIBRARY_PATH"),
            "{e}"
        );
    }

    #[test]
    fn any_cut_and_any_changed_byte_is_read_without_a_panic() {
        let read = |bytes: &[u8]| (interpreter(bytes), has_libraries(bytes));
        let bytes = fs::read("/bin/true").unwrap();
        assert!(matches!(read(&bytes), (Some(_), true)));
        for end in (0..bytes.len()).step_by(97) {
            let _ = read(&bytes[..end]);
        }
        // The ELF header, and the program headers that follow it.
        let head = 64 + 13 * 56;
        for at in 0..head {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            let _ = read(&changed);
        }
    }
}
