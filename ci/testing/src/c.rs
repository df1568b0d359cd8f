//! The values of C expressions, as a C compiler computes them from the system's headers.

use std::collections::BTreeMap;
use std::process::Command;

pub const REMEDY: &str =
    "install gcc, libc6-dev and linux-libc-dev (Debian), or set CC to a C compiler";

/// Returns the value of each expression after these includes.
pub fn values_in_c(includes: &str, expressions: &[&str]) -> BTreeMap<String, i64> {
    let lines: String = expressions
        .iter()
        .map(|e| format!("    printf(\"%s\\t%lld\\n\", \"{e}\", (long long)({e}));\n"))
        .collect();
    let source = format!("{includes}int main(void)\n{{\n{lines}    return 0;\n}}\n");
    run_c(&source)
        .lines()
        .map(|line| {
            let (name, value) = line.split_once('\t').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn run_c(source: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir();
    let name = |suffix| dir.join(format!("headers-{}-{n}{suffix}", std::process::id()));
    let (file, program) = (name(".c"), name(""));
    std::fs::write(&file, source).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let out = Command::new(&compiler)
        .args(["-Wall", "-o"])
        .args([&program, &file])
        .output()
        .unwrap_or_else(|e| panic!("cannot run {compiler}: {e}; {REMEDY}"));
    let complaint = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        out.status.success(),
        "{compiler} refuses {}; {REMEDY}\n{complaint}",
        file.display()
    );
    let out = Command::new(&program).output().unwrap();
    assert!(out.status.success());
    std::fs::remove_file(&file).unwrap();
    std::fs::remove_file(&program).unwrap();
    String::from_utf8(out.stdout).unwrap()
}
