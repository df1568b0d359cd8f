//! Chromium without a window, as a test uses it.
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;

/// On a busy machine it starts in a few seconds.
const PATIENCE: Duration = Duration::from_secs(90);

/// Light or dark, what `prefers-color-scheme` says.
#[derive(Clone, Copy)]
pub enum Scheme {
    Light,
    Dark,
}

/// A browser with a profile of its own.
pub struct Chromium {
    program: PathBuf,
    dir: TempDir,
}

/// What one page came to.
pub struct Visit {
    /// The document after loading, as HTML.
    pub dom: String,
    /// What the page wrote to the console, errors too.
    pub console: Vec<String>,
}

impl Chromium {
    /// The browser of this machine. `None`, and a line that says so, when there is none.
    pub fn find() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places = std::env::split_paths(&path)
            .flat_map(|dir| ["chromium", "chromium-browser", "google-chrome"].map(|n| dir.join(n)));
        let Some(program) = places.into_iter().find(|p| p.is_file()) else {
            let why = "no chromium in PATH; ci/deps --browser installs it";
            let required = std::env::var_os("WEIR_REQUIRE_TOOLS").is_some_and(|v| v == "1");
            assert!(!required, "{why}");
            println!("skipped: {why}");
            return None;
        };
        Some(Self {
            program,
            dir: tempfile::tempdir().unwrap(),
        })
    }

    /// Where a test may put pages.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Loads a file and returns what became of it.
    pub fn visit(&self, page: &Path, scheme: Scheme) -> Visit {
        self.visit_address(&address(page), scheme)
    }

    /// The same for an address: a file's, or one of a server on 127.0.0.1.
    pub fn visit_address(&self, address: &str, scheme: Scheme) -> Visit {
        let (dom, messages) = self.run(address, scheme, &["--dump-dom"]);
        // Pages of the browser itself complain too, of a slow machine for one.
        let console = messages
            .lines()
            .filter(|l| l.contains(":CONSOLE") && !l.contains("source: chrome://"));
        Visit {
            dom,
            console: console.map(str::to_owned).collect(),
        }
    }

    /// A picture of what is at an address in a window of that size; `format` is `png` or `webp`.
    pub fn picture(
        &self,
        address: &str,
        scheme: Scheme,
        (width, height): (u32, u32),
        format: &str,
    ) -> Vec<u8> {
        let file = self.dir().join(format!("page.{format}"));
        let picture = format!("--screenshot={}", file.display());
        let size = format!("--window-size={width},{height}");
        self.run(address, scheme, &[&picture, &size, "--hide-scrollbars"]);
        fs::read(file).unwrap()
    }

    /// Shows pages, each by its name and its HTML, in frames of several widths, beside a script that measures
    /// whether everything can be read. What it complains about, one line each; empty is good.
    pub fn complaints(&self, pages: &[(String, String)], scheme: Scheme) -> String {
        let mut frames = String::new();
        for (title, page) in pages {
            let page = page.replace('&', "&amp;").replace('"', "&quot;");
            for width in [1200, 700, 360] {
                frames += &format!(
                    "<iframe title=\"{title}\" width=\"{width}\" height=\"900\" srcdoc=\"{page}\"></iframe>\n"
                );
            }
        }
        let script = include_str!("measure.js");
        let page = format!(
            "<!DOCTYPE html><meta charset=\"utf-8\"><script>{script}</script><pre id=\"result\">none</pre>{frames}"
        );
        let file = self.dir().join("measure.html");
        fs::write(&file, page).unwrap();
        let visit = self.visit(&file, scheme);
        // That line shows that a complaint of the browser would be seen.
        assert_eq!(visit.console.len(), 1, "{:?}", visit.console);
        assert!(visit.console[0].contains("measured"));
        let result = visit.dom.split("<pre id=\"result\">").nth(1).unwrap();
        let result = result.split("</pre>").next().unwrap();
        let begin = format!("frames {}\n", pages.len() * 3);
        let rest = result.strip_prefix(&begin).unwrap_or(result);
        rest.trim_end_matches("end").trim().to_owned()
    }

    fn run(&self, address: &str, scheme: Scheme, arguments: &[&str]) -> (String, String) {
        let profile = tempfile::tempdir_in(self.dir()).unwrap();
        let (out, err) = (profile.path().join("out"), profile.path().join("err"));
        let scheme = match scheme {
            Scheme::Dark => 0,
            Scheme::Light => 1,
        };
        let mut child = Command::new(&self.program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            // Whatever the browser itself would like to know, it does not leave this machine.
            .args([
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                "--enable-logging=stderr",
            ])
            .arg(format!(
                "--user-data-dir={}",
                profile.path().join("profile").display()
            ))
            .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
            .args(arguments)
            .arg(address)
            .env("HOME", profile.path())
            .stdin(Stdio::null())
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap())
            .process_group(0)
            .spawn()
            .unwrap();
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let (done, wait) = mpsc::channel::<()>();
        let watch = std::thread::spawn(move || {
            let late = wait.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout);
            // Its helpers may outlive it for a moment, and write into the profile.
            let _ = killpg(group, Signal::SIGKILL);
            late
        });
        let status = child.wait().unwrap();
        drop(done);
        let late = watch.join().unwrap();
        let messages = fs::read_to_string(&err).unwrap();
        assert!(
            status.success() && !late,
            "{status}, {PATIENCE:?} at most: {messages}"
        );
        (fs::read_to_string(&out).unwrap(), messages)
    }
}

/// Of a file.
pub fn address(file: &Path) -> String {
    format!("file://{}", file.display())
}
