//! The page in a real browser.
use crate::chromium::{Chromium, Scheme, address};
use crate::example::{hostile, lifelike};
use std::fs;
use weir_vmtests::report::html;

/// The page's policy forbids all requests, and the browser reports refused ones on its console.
#[test]
fn a_browser_shows_the_page_and_has_nothing_to_refuse() {
    let Some(browser) = Chromium::find() else {
        return;
    };
    let file = browser.dir().join("page.html");
    let page = html(&lifelike(true)).unwrap();
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

/// The page is loaded in frames of several widths, next to a script that measures it; the page itself has no script.
#[test]
fn everything_can_be_read_at_every_width_in_light_and_dark() {
    let Some(browser) = Chromium::find() else {
        return;
    };
    let mut pages = Vec::new();
    for (title, run) in [
        ("lifelike", lifelike(true)),
        ("passed", lifelike(false)),
        ("hostile", hostile()),
    ] {
        let page = html(&run).unwrap();
        let unfolded = page
            .replace("<details ", "<details open=\"open\" ")
            .replace("<details>", "<details open=\"open\">");
        pages.push((title.to_owned(), page));
        pages.push((format!("{title} unfolded"), unfolded));
    }
    for scheme in [Scheme::Light, Scheme::Dark] {
        assert_eq!(browser.complaints(&pages, scheme), "");
    }
}

#[test]
fn light_and_dark_look_different() {
    let Some(browser) = Chromium::find() else {
        return;
    };
    let page = browser.dir().join("page.html");
    fs::write(&page, html(&lifelike(true)).unwrap()).unwrap();
    let size = |png: &[u8]| {
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
        (number(16), number(20))
    };
    let light = browser.picture(&address(&page), Scheme::Light, (1200, 900), "png");
    let dark = browser.picture(&address(&page), Scheme::Dark, (1200, 900), "png");
    assert_eq!((size(&light), size(&dark)), ((1200, 900), (1200, 900)));
    assert_ne!(light, dark);
}
