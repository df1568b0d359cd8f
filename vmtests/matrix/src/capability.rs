//! Converts `weir preflight --json` to rows of the report, and compares them with what a variant should lack.
use super::case::What;
use super::model::{Capability, Verdict};
use super::place::TestKernel;
use super::ran::Ran;
use serde::Deserialize;
use weir_vm::proto::Ending;

#[derive(Deserialize)]
struct Report {
    features: Vec<Feature>,
}

#[derive(Deserialize)]
struct Feature {
    area: String,
    feature: String,
    answer: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    instead: String,
}

/// The rows of `weir preflight --json`, and the verdict.
pub(super) fn judge(place: &TestKernel, ran: &Ran) -> (Vec<Capability>, Verdict) {
    let failed = |text| Verdict::Failed { text };
    let rows = rows(place.name(), &ran.stdout());
    let verdict = match &rows {
        _ if ran.kernel_error.is_some() || !is_result(ran.ending, place) => {
            ran.verdict(&What::Preflight, place)
        }
        Err(why) => failed(format!("{why}\n{}", ran.text())),
        Ok(rows) => objection(place, rows).map_or(Verdict::Passed, failed),
    };
    (rows.unwrap_or_default(), verdict)
}

/// Whether it ended with an exit code of a result: 0; 3 if some answers are unknown, which the rows contain; 1 if some job does not
/// work, which only this machine and variants may cause.
fn is_result(ending: Option<Ending>, place: &TestKernel) -> bool {
    match ending {
        Some(Ending::Status(0 | 3)) => true,
        Some(Ending::Status(1)) => place.is_host() || place.special.is_some(),
        _ => false,
    }
}

/// Parses the rows.
fn rows(environment: &str, json: &str) -> Result<Vec<Capability>, String> {
    let report: Report = serde_json::from_str(json)
        .map_err(|e| format!("weir preflight --json did not print its report: {e}"))?;
    let rows = report.features.into_iter().map(|f| Capability {
        environment: environment.to_owned(),
        group: f.area,
        name: f.feature,
        answer: match f.answer.as_str() {
            "unknown" => "could not tell".to_owned(),
            _ => f.answer,
        },
        remark: match (f.detail.is_empty(), f.instead.is_empty()) {
            (false, false) => format!("{}. Instead: {}", f.detail, f.instead),
            _ => f.detail + &f.instead,
        },
    });
    Ok(rows.collect())
}

/// Returns a reason if a guest differs from what its variant promises: a feature is there that should be lacking, the
/// reverse, or an answer is missing.
fn objection(place: &TestKernel, rows: &[Capability]) -> Option<String> {
    if place.is_host() {
        return None;
    }
    let untold = |r: &Capability| {
        let (group, name, remark) = (&r.group, &r.name, &r.remark);
        format!("{group} {name}: could not tell, in a guest with all rights: {remark}")
    };
    let unclear = rows.iter().filter(|r| r.answer == "could not tell");
    let mut wrong: Vec<String> = unclear.map(untold).collect();
    let expected = place.special.iter().flat_map(|(_, special)| {
        let lacks = special.lacks.iter().map(|feature| ("lack", feature));
        lacks.chain(special.has.iter().map(|feature| ("have", feature)))
    });
    for (wanted, (group, name)) in expected {
        let row = rows.iter().find(|r| r.group == *group && r.name == *name);
        let answer = row.map_or("nothing: there is no such row", |r| r.answer.as_str());
        if answer != wanted {
            wrong.push(format!(
                "{group} {name}: weir says {answer}, and this variant is to {wanted} it"
            ));
        }
    }
    (!wrong.is_empty()).then(|| wrong.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_vm::{Catalogue, Stream};

    const JSON: &str = r#"{"features": [
        {"area": "xtables", "feature": "table ip nat", "answer": "lack", "detail": "no", "instead": "nf_tables"},
        {"area": "xtables", "feature": "table ip6 mangle", "answer": "lack", "detail": "no", "instead": ""},
        {"area": "nf_tables", "feature": "expression match", "answer": "have"},
        {"area": "ebpf", "feature": "BTF", "answer": "unknown", "detail": "no rights"}]}"#;

    fn place(variant: Option<&str>) -> TestKernel {
        let catalogue = Catalogue::load().unwrap();
        let mut place = TestKernel::host();
        place.about.name = "6.1".into();
        place.special = variant.map(|name| (name.into(), catalogue.special(name).unwrap().clone()));
        place
    }

    #[test]
    fn rows_have_the_words_of_the_report() {
        let rows = rows("6.1", JSON).unwrap();
        assert_eq!(rows[0].remark, "no. Instead: nf_tables");
        assert_eq!(rows[3].answer, "could not tell");
        assert!(
            super::rows("6.1", "no")
                .unwrap_err()
                .contains("did not print")
        );
    }

    #[test]
    fn a_report_is_good_only_if_the_program_ended_as_documented() {
        let known = JSON.replace("unknown", "have");
        let verdict = |json: &str, variant, ending| {
            let mut ran = Ran::default();
            ran.add(Stream::Out, json.as_bytes());
            ran.ending = ending;
            let (rows, verdict) = judge(&place(variant), &ran);
            assert_eq!(rows.len(), 4, "the rows are kept in any case");
            verdict
        };
        for (ending, variant, said) in [
            (Some(Ending::Status(0)), None, None),
            (Some(Ending::Status(3)), None, None),
            (Some(Ending::Status(1)), Some("no-xtables"), None),
            (Some(Ending::Status(1)), None, Some("exit status 1")),
            (Some(Ending::Status(2)), None, Some("exit status 2")),
            (Some(Ending::Status(101)), None, Some("exit status 101")),
            (Some(Ending::Signal(11)), None, Some("signal 11")),
            (Some(Ending::TimedOut), None, Some("killed at its deadline")),
            (None, None, Some("no verdict")),
        ] {
            let found = match verdict(&known, variant, ending) {
                Verdict::Passed => None,
                Verdict::Failed { text } => Some(text),
                other => panic!("{other:?}"),
            };
            let first = found
                .as_deref()
                .map(|t| t.lines().next().unwrap_or_default());
            assert_eq!(first.is_some(), said.is_some(), "{ending:?}: {first:?}");
            assert!(said.is_none_or(|s| first.unwrap_or_default().contains(s)));
        }
        let unknown = verdict(JSON, None, Some(Ending::Status(0)));
        assert!(matches!(unknown, Verdict::Failed { text } if text.contains("could not tell")));
    }

    #[test]
    fn a_variant_that_has_what_it_must_lack_is_none() {
        let mut rows = rows("6.1", JSON).unwrap();
        let untold = objection(&place(None), &rows).unwrap();
        assert!(untold.contains("BTF: could not tell"), "{untold}");
        rows.pop();
        let place = place(Some("no-xtables"));
        assert_eq!(objection(&place, &rows), None);
        rows[0].answer = "have".into();
        let wrong = objection(&place, &rows).unwrap();
        assert!(wrong.contains("table ip nat: weir says have"), "{wrong}");
        rows.remove(0);
        assert!(objection(&place, &rows).unwrap().contains("no such row"));
    }
}
