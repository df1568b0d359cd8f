//! The page in a real browser.
use crate::chromium::{Chromium, Scheme};
use crate::example::{hostile, lifelike};
use std::fs;
use weir_vmtests::matrix::report::html;

/// The page forbids every request, and the browser says on the console that it refused one.
#[test]
fn a_browser_shows_the_page_and_has_nothing_to_refuse() {
    let Some(browser) = Chromium::find() else {
        return;
    };
    let file = browser.dir().join("page.html");
    let page = html(&lifelike(true));
    fs::write(&file, &page).unwrap();
    let visit = browser.visit(&file, Scheme::Light);
    assert_eq!(visit.console, [""; 0]);
    for text in [
        "Kernel matrix",
        "2 cases failed",
        "a_redirect_keeps_the_original_destination",
        "WARNING: CPU: 0 PID: 214",
        "5cb31d4bfb82a09e",
    ] {
        assert!(visit.dom.contains(text), "{text}");
    }
    for (what, intruder) in [
        ("image", "<img src=\"https://192.0.2.1/image\">"),
        ("script", "<script>document.title = 'mine'</script>"),
    ] {
        fs::write(&file, page.replace("<main>", &format!("<main>{intruder}"))).unwrap();
        let visit = browser.visit(&file, Scheme::Light);
        assert_eq!(visit.console.len(), 1, "{what}: {:?}", visit.console);
        assert!(!visit.dom.contains("<title>mine"));
    }
}

/// Pages in frames of several widths, beside a script that measures them. The page itself has none.
#[test]
fn everything_can_be_read_at_every_width_in_light_and_dark() {
    let Some(browser) = Chromium::find() else {
        return;
    };
    let mut frames = String::new();
    let mut expected = 0;
    for (title, run) in [
        ("lifelike", lifelike(true)),
        ("passed", lifelike(false)),
        ("hostile", hostile()),
    ] {
        let page = html(&run);
        let unfolded = page
            .replace("<details ", "<details open=\"open\" ")
            .replace("<details>", "<details open=\"open\">");
        for (folded, page) in [("", &page), (" unfolded", &unfolded)] {
            let page = page.replace('&', "&amp;").replace('"', "&quot;");
            for width in [1200, 700, 360] {
                frames += &format!(
                    "<iframe title=\"{title}{folded}\" width=\"{width}\" height=\"900\" srcdoc=\"{page}\"></iframe>\n"
                );
                expected += 1;
            }
        }
    }
    let script = include_str!("measure.js");
    let page = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><script>{script}</script><pre id=\"result\">none</pre>{frames}"
    );
    let file = browser.dir().join("measure.html");
    fs::write(&file, page).unwrap();
    for scheme in [Scheme::Light, Scheme::Dark] {
        let visit = browser.visit(&file, scheme);
        let result = visit.dom.split("<pre id=\"result\">").nth(1).unwrap();
        let result = result.split("</pre>").next().unwrap();
        assert_eq!(result, format!("frames {expected}\n\nend"));
        // That line shows that a complaint of the browser would be seen.
        assert_eq!(visit.console.len(), 1, "{:?}", visit.console);
        assert!(visit.console[0].contains("measured"));
    }
}

#[test]
fn light_and_dark_look_different() {
    let Some(browser) = Chromium::find() else {
        return;
    };
    let page = browser.dir().join("page.html");
    fs::write(&page, html(&lifelike(true))).unwrap();
    let size = |png: &[u8]| {
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
        (number(16), number(20))
    };
    let light = browser.picture(&page, Scheme::Light, 1200, 900);
    let dark = browser.picture(&page, Scheme::Dark, 1200, 900);
    assert_eq!((size(&light), size(&dark)), ((1200, 900), (1200, 900)));
    assert_ne!(light, dark);
}
