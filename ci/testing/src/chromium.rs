//! Headless Chromium for tests.
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;

/// The deadline of a visit. On a busy machine Chromium takes a few seconds to start.
const PATIENCE: Duration = Duration::from_secs(90);

/// The value of `prefers-color-scheme`: light or dark.
#[derive(Clone, Copy)]
pub enum Scheme {
    Light,
    Dark,
}

/// A browser with its own profile.
pub struct Chromium {
    program: PathBuf,
    dir: TempDir,
}

/// The result of loading a page.
pub struct Visit {
    /// The document after loading, as HTML.
    pub dom: String,
    /// The console messages of the page, including errors.
    pub console: Vec<String>,
}

impl Chromium {
    /// Finds the browser of this machine; `None`, with a message, if there is none.
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

    /// The directory where a test may put pages.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Loads a file and returns the result.
    pub fn visit(&self, page: &Path, scheme: Scheme) -> Visit {
        self.visit_address(&address(page), scheme)
    }

    /// Loads an address: a file's, or one of a server on 127.0.0.1.
    pub fn visit_address(&self, address: &str, scheme: Scheme) -> Visit {
        let (dom, messages) = self.run(address, scheme, &["--dump-dom"]);
        // The browser's internal pages also write messages, for example about a slow machine.
        let console = messages
            .lines()
            .filter(|l| l.contains(":CONSOLE") && !l.contains("source: chrome://"));
        Visit {
            dom,
            console: console.map(str::to_owned).collect(),
        }
    }

    /// Takes a screenshot of an address in a window of the given size; `format` is `png` or `webp`.
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

    /// Shows pages, each given by its name and HTML, in frames of several widths, next to a script that checks whether all
    /// text is legible. Returns the script's complaints, one per line; empty if there are none.
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
        // The script writes this line, which proves that console messages are captured.
        assert_eq!(visit.console.len(), 1, "{:?}", visit.console);
        assert!(visit.console[0].contains("measured"));
        let result = visit.dom.split("<pre id=\"result\">").nth(1).unwrap();
        let result = result.split("</pre>").next().unwrap();
        let begin = format!("frames {}\n", pages.len() * 3);
        let rest = result.strip_prefix(&begin).unwrap_or(result);
        rest.trim_end_matches("end").trim().to_owned()
    }

    fn run(&self, address: &str, scheme: Scheme, arguments: &[&str]) -> (String, String) {
        let mut done = self.attempt(address, scheme, arguments);
        // A browser that crashes says nothing about the page.
        if matches!(done, Err((_, true))) {
            done = self.attempt(address, scheme, arguments);
        }
        done.unwrap_or_else(|(why, _)| panic!("{why}"))
    }

    /// Returns the output and the messages; or why there are none, and whether a signal ended the browser.
    fn attempt(
        &self,
        address: &str,
        scheme: Scheme,
        arguments: &[&str],
    ) -> Result<(String, String), (String, bool)> {
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
            // Requests of the browser itself must not leave this machine.
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
            // Its helper processes may live slightly longer and would write to the profile.
            let _ = killpg(group, Signal::SIGKILL);
            late
        });
        let status = child.wait().unwrap();
        drop(done);
        let late = watch.join().unwrap();
        let messages = fs::read_to_string(&err).unwrap();
        if !status.success() || late {
            let why = format!("{status}, {PATIENCE:?} at most: {messages}");
            return Err((why, !late && status.signal().is_some()));
        }
        Ok((fs::read_to_string(&out).unwrap(), messages))
    }
}

/// The address of a file.
pub fn address(file: &Path) -> String {
    format!("file://{}", file.display())
}
