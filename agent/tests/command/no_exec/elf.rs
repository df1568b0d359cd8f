//! The linked functions: those that a dynamic program imports from the C library.
//!
//! The linker drops unused functions, so a program that cannot execute others does not even import `execvp`. (Static programs are stripped,
//! and glibc contains an `execve` of its own.)
// matrix: none: reads the program file with its symbols, and asks no kernel

use std::path::Path;

/// Section type of the dynamic symbols (`elf.h`).
const SHT_DYNSYM: u32 = 11;

/// The names that a 64-bit little-endian ELF file leaves for its libraries to define.
fn imports(file: &[u8]) -> Vec<String> {
    assert_eq!(
        file[..6],
        *b"\x7fELF\x02\x01",
        "not ELF, 64 bits, little-endian"
    );
    let sections = number(file, 0x28, 8);
    let (size, count) = (number(file, 0x3a, 2), number(file, 0x3c, 2));
    let section = |n: usize| &file[sections + n * size..][..size];
    let content = |header: &[u8]| &file[number(header, 0x18, 8)..][..number(header, 0x20, 8)];
    let dynsym = (0..count)
        .map(section)
        .find(|s| number(s, 4, 4) == SHT_DYNSYM as usize);
    let dynsym = dynsym.expect("a dynamic program has dynamic symbols");
    let names = content(section(number(dynsym, 0x28, 4)));
    content(dynsym)
        .chunks_exact(24)
        // Section index 0 means that the symbol is undefined here.
        .filter(|symbol| number(symbol, 6, 2) == 0)
        .map(|symbol| {
            let name = &names[number(symbol, 0, 4)..];
            let end = name.iter().position(|b| *b == 0).unwrap();
            String::from_utf8(name[..end].to_vec()).unwrap()
        })
        .filter(|name| !name.is_empty())
        .collect()
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length]
        .iter()
        .rev()
        .fold(0, |n, b| n << 8 | usize::from(*b))
}

/// The imports that execute a program or fork a process.
fn executing(path: &Path) -> Vec<String> {
    let file = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let imports = imports(&file);
    assert!(
        imports.iter().any(|name| name == "memcpy"),
        "{}: {imports:?}",
        path.display()
    );
    let starts = [
        "exec",
        "posix_spawn",
        "pidfd_spawn",
        "fork",
        "vfork",
        "clone",
        "dlopen",
    ];
    let executes = |name: &String| {
        starts
            .iter()
            .any(|s| name.trim_start_matches('_').starts_with(s))
            || matches!(name.as_str(), "system" | "popen" | "fexecve" | "wordexp")
    };
    imports.into_iter().filter(executes).collect()
}

#[test]
fn the_plugin_is_linked_with_nothing_that_executes() {
    // This test starts programs itself, so its own file must contain such imports.
    let own = executing(&std::env::current_exe().unwrap());
    assert!(own.iter().any(|name| name == "posix_spawnp"), "{own:?}");
    let Some(plugin) = super::plugin() else {
        return;
    };
    // The child process executes nothing: see the exception in `source`.
    assert_eq!(
        executing(&plugin),
        ["fork"],
        "weir-cni has these from the C library. Our sources are checked by another test, so look \
         for the dependency that executes: `cargo tree -p weir-cni -e normal`"
    );
}
