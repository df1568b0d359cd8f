//! The tables of docs/kernels.md.
use crate::example::{HOSTILE, lifelike};
use std::fs;
use weir_vmtests::model::{Capability, Verdict};
use weir_vmtests::report::readme::{check, tables, update};

const AROUND: (&str, &str) = (
    "# Kernels\n\n<!-- matrix -->\n",
    "<!-- /matrix -->\n\nMore.\n",
);

#[test]
fn a_row_for_each_kernel_and_what_differs() {
    let tables = tables(&lifelike(true)).unwrap();
    let row = |name: &str| {
        tables
            .lines()
            .find(|l| l.starts_with(&format!("| {name} |")))
            .unwrap()
    };
    assert_eq!(
        row("6.12"),
        "| 6.12 | 6.12.117-1 | yes | yes | yes | yes | yes | yes | yes | yes | 309 | 0 | 0 |"
    );
    assert_eq!(
        row("5.10"),
        "| 5.10 | 5.10.262-1 | yes | yes | yes | yes | yes | **no** | **no** | yes | 305 | **1** | 3 |"
    );
    assert!(row("6.12-no-ip6tables").contains("| **in part** |"));
    assert!(!tables.contains("host"));
    assert!(
        tables.contains("| ebpf: attach tcx | 5.10, 6.1 | clsact with cls_bpf |"),
        "{tables}"
    );
    assert!(
        !tables.contains("hash:mac"),
        "what no kernel has is no difference"
    );
}

/// The number of cases is the sum of the table and of the machine itself.
#[test]
fn the_number_of_cases_is_that_of_the_run() {
    let mut run = lifelike(true);
    let text = tables(&run).unwrap();
    let (all, on_host) = ("4,017", "309");
    let sentence = format!(
        "{all} cases, {on_host} of them on the machine itself, which the table omits.\n\n| kernel |"
    );
    assert!(text.starts_with(&sentence), "{text}");
    let rows = text.lines().skip(4).take_while(|line| !line.is_empty());
    let number = |cell: &str| cell.trim_matches([' ', '*']).parse::<usize>().unwrap();
    let count = |row: &str| row.rsplit('|').skip(1).take(3).map(number).sum::<usize>();
    assert_eq!(rows.map(count).sum::<usize>() + 309, run.results.len());
    assert_eq!(run.results.len(), 4017);
    // The row of a kernel on which nothing ran has no numbers.
    for result in run.results.iter_mut().filter(|r| r.environment == "7.2") {
        let reason = "no QEMU".to_owned();
        result.verdict = Verdict::Ignored { reason };
    }
    let text = tables(&run).unwrap();
    assert!(text.starts_with("3,708 cases, 309 of them"), "{text}");
}

#[test]
fn it_is_written_between_the_markers_and_then_equal() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kernels.md");
    fs::write(&file, format!("{}| old |\n{}", AROUND.0, AROUND.1)).unwrap();
    let run = lifelike(false);
    let e = check(&run, &file).unwrap_err();
    assert!(
        e.reason.contains("old") && e.reason.contains("| kernel |"),
        "{e}"
    );
    let written = format!("--readme {}", file.display());
    assert!(e.remedy.contains(&written), "{e}");
    assert!(update(&run, &file).unwrap());
    check(&run, &file).unwrap();
    assert!(!update(&run, &file).unwrap());
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.starts_with(AROUND.0) && text.ends_with(AROUND.1),
        "{text}"
    );
}

/// Recorded upstream cases, new tests and newer packages do not change the features of the kernels.
#[test]
fn features_are_compared_and_neither_counts_nor_versions() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kernels.md");
    fs::write(&file, format!("{}old\n{}", AROUND.0, AROUND.1)).unwrap();
    let run = lifelike(false);
    update(&run, &file).unwrap();
    let mut more = lifelike(false);
    let case = more.results[0].clone();
    more.results.push(case);
    assert!(tables(&more).unwrap().starts_with("4,018 cases, 310 of"));
    check(&more, &file).unwrap();
    // A document from before the sentence.
    let text = fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once("4,017 cases").unwrap();
    let (_, table) = rest.split_once("\n\n").unwrap();
    fs::write(&file, format!("{before}{table}")).unwrap();
    check(&run, &file).unwrap();
    fs::write(&file, text).unwrap();
    // The run has failed cases.
    check(&lifelike(true), &file).unwrap();
    let mut newer = lifelike(false);
    for e in &mut newer.environments {
        e.package = e.package.replace("6.12.117-1", "6.12.120-1");
    }
    assert_ne!(tables(&newer).unwrap(), tables(&run).unwrap());
    check(&newer, &file).unwrap();
    let mut other = lifelike(false);
    let at = |c: &&mut Capability| c.name == "attach tcx" && c.environment == "6.12";
    other.capabilities.iter_mut().find(at).unwrap().answer = "lack".into();
    let e = check(&other, &file).unwrap_err();
    assert!(e.reason.contains("**no**"), "{e}");
    let mut fewer = lifelike(false);
    fewer.environments.retain(|e| e.name != "6.12-no-ip6tables");
    let e = check(&fewer, &file).unwrap_err();
    assert!(e.reason.contains("| 6.12-no-ip6tables | "), "{e}");
    // A difference in the second table.
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("clsact with cls_bpf", "nothing")).unwrap();
    assert!(check(&run, &file).unwrap_err().reason.contains("clsact"));
}

#[test]
fn a_part_of_the_matrix_is_not_written_down() {
    let mut run = lifelike(false);
    run.selection = "--kernels 6.1".into();
    let e = tables(&run).unwrap_err().to_string();
    assert!(
        e.contains("--kernels 6.1") && e.contains("ci/matrix"),
        "{e}"
    );
}

#[test]
fn a_feature_that_was_renamed_is_noticed() {
    let mut run = lifelike(false);
    run.capabilities.retain(|c| c.name != "attach tcx");
    let e = tables(&run).unwrap_err().to_string();
    assert!(e.contains("ebpf/attach tcx"), "{e}");
}

#[test]
fn no_text_ends_the_table() {
    let mut run = lifelike(false);
    run.environments[2].name = HOSTILE.into();
    run.environments[2].package = HOSTILE.into();
    for capability in run
        .capabilities
        .iter_mut()
        .filter(|c| c.name == "link netkit")
    {
        capability.remark = HOSTILE.into();
    }
    let tables = tables(&run).unwrap();
    assert!(
        !tables.contains("<!--") && !tables.contains("<script"),
        "{tables}"
    );
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    let first: Vec<usize> = tables
        .lines()
        .skip(2)
        .take_while(|l| !l.is_empty())
        .map(columns)
        .collect();
    assert!(first.iter().all(|n| *n == first[0]), "{tables}");
}

#[test]
fn markers_that_are_missing_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("README.md");
    for text in [
        "",
        "<!-- /matrix -->\n<!-- matrix -->\n",
        "<!-- matrix -->\n",
    ] {
        fs::write(&file, text).unwrap();
        let e = update(&lifelike(false), &file).unwrap_err().to_string();
        assert!(
            e.contains("README.md") && e.contains("<!-- matrix -->"),
            "{e}"
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}
