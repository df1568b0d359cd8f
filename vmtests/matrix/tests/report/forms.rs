//! The report as text, JSON and JUnit XML.
use crate::example::{HOSTILE, hostile, lifelike, result};
use roxmltree::Document;
use std::fs;
use weir_vmtests::model::Verdict;
use weir_vmtests::report::{junit, read, text, write};

fn is_fit_to_be_shown(text: &str) {
    let bad = text
        .chars()
        .find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
    assert_eq!(bad, None);
}

#[test]
fn text_fits_in_100_columns_and_says_everything() {
    for run in [lifelike(false), lifelike(true), hostile()] {
        let text = text(&run, false);
        is_fit_to_be_shown(&text);
        for line in text.lines() {
            assert!(
                line.chars().count() <= 100,
                "{} in {line}",
                line.chars().count()
            );
        }
    }
    let text = text(&lifelike(true), false);
    for part in [
        "FAILED 7.2::agent::traffic::part_0::the_proxy_reaches_the_server",
        "WARNING: CPU: 0",
        "5.10.262-1",
        "5cb31d4bfb82a09e",
        "cold boot: 2.0 s",
        "CONFIG_NF_TABLES=m",
        "nf_tables/destroy (every kernel from 6.3 on must have it): Operation not supported",
        "legacy tables for IPv4 only",
        "expression tproxy",
        "ipset, nowhere: hash:mac",
        "family inet (+ 2)",
        "nf_tables, as family inet: chain inet nat, expression redir",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("FAILED: 2 failed, "), "{last}");
}

#[test]
fn colour_is_only_added() {
    let run = lifelike(true);
    let colourful = text(&run, true);
    assert!(colourful.contains("\x1b[1;31mFAILED"));
    let mut plain = String::new();
    let mut rest = &*colourful;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    plain.push_str(rest);
    // Coloured trailing spaces are not trimmed by the report.
    let lines = |t: &str| {
        t.lines()
            .map(|l| l.trim_end().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(&plain), lines(&text(&run, false)));
}

#[test]
fn the_verdict_is_not_good_when_nothing_ran() {
    let mut run = lifelike(false);
    assert!(
        text(&run, false)
            .lines()
            .last()
            .unwrap()
            .starts_with("ok: ")
    );
    run.results = vec![result(
        "6.1",
        "a::b",
        Verdict::Ignored {
            reason: "no QEMU".into(),
        },
    )];
    assert!(
        text(&run, false)
            .lines()
            .last()
            .unwrap()
            .starts_with("NOTHING RAN: 1 ignored")
    );
    run.results.clear();
    run.environments[1].unavailable = Some("not fetched".into());
    assert!(text(&run, false).contains("not available, see above: 5.10\n"));
    assert!(
        text(&run, false)
            .lines()
            .last()
            .unwrap()
            .starts_with("NOTHING RAN: no case")
    );
}

#[test]
fn json_is_read_back_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let run = lifelike(true);
    let files = write(&run, dir.path()).unwrap();
    assert_eq!(read(dir.path()).unwrap(), run);
    let mut there: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    there.sort();
    let mut expected = files.clone();
    expected.sort();
    assert_eq!(there, expected, "and nothing else is left");
    assert_eq!(
        fs::read_to_string(dir.path().join("matrix.txt")).unwrap(),
        text(&run, false)
    );
}

#[test]
fn names_in_json_are_stable() {
    let dir = tempfile::tempdir().unwrap();
    write(&lifelike(true), dir.path()).unwrap();
    let text = fs::read_to_string(dir.path().join("matrix.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let keys = |v: &serde_json::Value| {
        v.as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        keys(&value),
        "accelerator capabilities environments format host qemu results seconds selection started"
    );
    assert_eq!(
        keys(&value["environments"][1]),
        "cold_boot config name package release sources unavailable variant"
    );
    let of = |verdict: &str| {
        let all = value["results"].as_array().unwrap();
        keys(all.iter().find(|r| r["verdict"] == verdict).unwrap())
    };
    assert_eq!(of("passed"), "case environment restored seconds verdict");
    assert_eq!(
        of("failed"),
        "case environment restored seconds text verdict"
    );
    assert_eq!(
        of("skipped"),
        "case environment probe reason restored seconds since verdict"
    );
    assert_eq!(
        keys(&value["capabilities"][0]),
        "answer environment group name remark"
    );
}

#[test]
fn what_is_no_report_is_said_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let refusal = |content: Option<&str>| {
        if let Some(content) = content {
            fs::write(dir.path().join("matrix.json"), content).unwrap();
        }
        let e = read(dir.path()).unwrap_err();
        assert!(e.input.ends_with("matrix.json"), "{e}");
        assert!(e.remedy.contains("ci/matrix"), "{e}");
        e.reason
    };
    assert!(refusal(None).contains("No such file"));
    assert!(refusal(Some("")).contains("not the report of a matrix"));
    assert!(refusal(Some("{}")).contains("missing field `format`"));
    assert!(
        refusal(Some("{\"format\": \"weir-vmtests-matrix/0\"}")).contains("this release reads")
    );
    assert!(refusal(Some("{\"format\": \"weir-vmtests-matrix/1\"}")).contains("damaged"));
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let e = write(&lifelike(false), &file.join("report")).unwrap_err();
    assert!(e.input.contains("file/report"), "{e}");
}

#[test]
fn junit_has_a_suite_for_each_environment() {
    let run = lifelike(true);
    let xml = junit(&run).unwrap();
    let document = Document::parse(&xml).unwrap();
    let root = document.root_element();
    assert_eq!(root.tag_name().name(), "testsuites");
    assert_eq!(
        root.attribute("tests"),
        Some(&*run.results.len().to_string())
    );
    assert_eq!(root.attribute("failures"), Some("2"));
    let suites: Vec<_> = root
        .children()
        .filter(|n| n.has_tag_name("testsuite"))
        .collect();
    assert_eq!(suites.len(), run.environments.len());
    for (suite, environment) in suites.iter().zip(&run.environments) {
        assert_eq!(suite.attribute("name"), Some(&*environment.name));
        let cases = suite.children().filter(|n| n.has_tag_name("testcase"));
        assert_eq!(suite.attribute("tests"), Some(&*cases.count().to_string()));
        let skipped = suite.descendants().filter(|n| n.has_tag_name("skipped"));
        assert_eq!(
            suite.attribute("skipped"),
            Some(&*skipped.count().to_string())
        );
    }
    let failure = document
        .descendants()
        .find(|n| n.has_tag_name("failure"))
        .unwrap();
    assert!(
        failure
            .attribute("message")
            .unwrap()
            .starts_with("thread 'main' panicked")
    );
    assert!(failure.text().unwrap().contains("10.0.0.0/8, 192.0.2.1"));
    let case = failure.parent().unwrap();
    assert_eq!(
        case.attribute("classname"),
        Some("5.10::netfilter::sets::part_0")
    );
    assert_eq!(case.attribute("name"), Some("ipv6_goes_the_same_way"));
}

#[test]
fn junit_survives_every_name() {
    let xml = junit(&hostile()).unwrap();
    is_fit_to_be_shown(&xml);
    let document = Document::parse(&xml).unwrap();
    let names = document.descendants().filter_map(|n| n.attribute("name"));
    assert!(
        names
            .clone()
            .any(|n| n.contains("<script>alert(1)</script>&amp;\"'"))
    );
    assert!(names.clone().any(|n| n.contains("größer ✓ 中文")));
    assert!(HOSTILE.contains("größer ✓ 中文"));
    let times = document.descendants().filter_map(|n| n.attribute("time"));
    for time in times {
        let seconds: f64 = time.parse().unwrap();
        assert!(seconds.is_finite());
    }
}
