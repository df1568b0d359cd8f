//! The page `/`: one document without scripts or other files.

use super::facts::{Facts, PodFacts, Time};
use super::text::{Html, absolute, length, relative};
use std::time::Duration;

/// Content-Security-Policy: only the inline style of the page applies.
pub const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// Returns the page for a snapshot.
pub fn html(f: &Facts) -> String {
    let mut h = Html::default();
    h.raw("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">")
        .raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")
        .raw("<meta name=\"color-scheme\" content=\"light dark\"><title>weir")
        .raw(if f.node.is_empty() { "" } else { " on " })
        .text(&f.node)
        .raw("</title>\n<style>")
        .raw(include_str!("page.css"))
        .raw("</style></head>\n<body><main>\n");
    top(&mut h, f);
    pods(&mut h, f);
    if let Some(ambient) = &f.ambient {
        ambient.section(&mut h);
    }
    repairs(&mut h, f);
    install(&mut h, f);
    jobs(&mut h, f);
    h.raw("<footer>As of ")
        .text(&absolute(f.time.0))
        .raw(". The same for programs: <a href=\"status.json\">status.json</a>, <a href=\"metrics\">metrics</a>.</footer>\n")
        .raw("</main></body></html>\n");
    h.finish()
}

/// Colour of a state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Good,
    Bad,
    Plain,
}

fn chip(h: &mut Html, mood: Mood, text: &str) {
    h.raw(match mood {
        Mood::Good => "<span class=\"chip good\">",
        Mood::Bad => "<span class=\"chip bad\">",
        Mood::Plain => "<span class=\"chip\">",
    });
    h.text(text).raw("</span>");
}

fn top(h: &mut Html, f: &Facts) {
    let v = &f.verification;
    let bad = v.expected.saturating_sub(v.verified);
    let (mood, verdict) = match (f.install.ready, v.state, bad) {
        (false, _, _) if f.install.preempted.is_some() => {
            (Mood::Bad, "installed, not in force".to_owned())
        }
        (false, _, _) => (Mood::Bad, "not installed".to_owned()),
        (true, "overdue", _) => (Mood::Bad, "verification has stopped".to_owned()),
        (true, _, 0) if f.pod_watch.state == "trouble" => {
            (Mood::Bad, "pods or namespaces are not watched".to_owned())
        }
        (true, _, 0) if f.not_ready.is_some() => (Mood::Bad, "not ready".to_owned()),
        (true, "on", 0) if f.unasked.iter().any(|found| !found.removed) => {
            (Mood::Bad, "rules in pods that request none".to_owned())
        }
        (true, "on", 0) if f.unasked_unseen.count > 0 => {
            (Mood::Plain, "not all pods could be examined".to_owned())
        }
        (true, "on", 0) => (Mood::Good, "all is well".to_owned()),
        (true, "on", 1) => (Mood::Bad, "1 pod is not verified".to_owned()),
        (true, "on", n) => (Mood::Bad, format!("{n} pods are not verified")),
        (true, _, _) => (Mood::Plain, "installed, pods not verified".to_owned()),
    };
    h.raw("<header><div><p class=\"quiet\">weir agent</p><h1>");
    h.text(if f.node.is_empty() {
        "a node without NODE_NAME"
    } else {
        &f.node
    });
    h.raw("</h1></div><p>");
    chip(h, mood, &verdict);
    h.raw("</p></header>\n<dl class=\"row\">");
    for (name, value) in [
        ("version", f.version),
        ("kernel", f.kernel.as_str()),
        ("up", &length(Duration::from_secs(f.uptime_seconds))),
    ] {
        h.raw("<div><dt>").text(name).raw("</dt><dd>");
        h.text(value).raw("</dd></div>");
    }
    let (count, share) = match v.ratio {
        Some(ratio) => (
            format!("{} of {}", v.verified, v.expected),
            format!("{:.0} %", (ratio * 100.0).floor()),
        ),
        None => ("none".to_owned(), "unknown".to_owned()),
    };
    let of = match f.pod_watch.state {
        "trouble" => "</b> of the known pods that request redirection</li><li><b>",
        _ => "</b> of the pods that request redirection</li><li><b>",
    };
    h.raw("</dl>\n<ul class=\"tiles\"><li><b>");
    h.text(&count).raw("</b> pods verified</li><li><b>");
    h.text(&share).raw(of);
    let made = v.repairs.iter().filter(|r| r.result == "success");
    let made = made.map(|r| r.count).sum::<u64>();
    h.number(made).raw(match made {
        1 => "</b> repair made</li><li><b>",
        _ => "</b> repairs made</li><li><b>",
    });
    h.text(if f.install.ready { "yes" } else { "no" });
    h.raw("</b> plugin in force</li></ul>\n");
}

fn pods(h: &mut Html, f: &Facts) {
    h.raw("<section><h2>Pods in the mesh</h2>\n<p class=\"lede\">The watch of this node's pods: ");
    match f.pod_watch.state {
        "synced" => chip(h, Mood::Good, "synced"),
        "trouble" => chip(h, Mood::Bad, "not watched"),
        "off" => chip(h, Mood::Bad, "off"),
        _ => chip(h, Mood::Plain, "begins"),
    }
    reason(h, f.pod_watch.reason.as_deref());
    h.raw("</p>\n");
    if f.pod_socket.state == "failed" {
        h.raw("<p class=\"lede\">The socket for the plugin's queries about pods: ");
        chip(h, Mood::Bad, "failed");
        reason(h, f.pod_socket.reason.as_deref());
        h.raw("</p>\n");
    }
    for found in &f.unasked {
        h.raw("<p class=\"lede\">");
        let mood = if found.removed {
            Mood::Plain
        } else {
            Mood::Bad
        };
        chip(h, mood, "not requested");
        h.raw(" ").text(&found.namespace).raw("/").text(&found.name);
        h.raw(" ").text(&found.message).raw("</p>\n");
    }
    if let Some(first) = &f.unasked_unseen.first {
        h.raw("<p class=\"lede\">");
        chip(h, Mood::Plain, "unknown");
        h.raw(" Pods that request no redirection and could not be checked for rules: ");
        h.number(f.unasked_unseen.count).raw(", first ");
        h.text(first).raw("</p>\n");
    }
    match f.verification.state {
        "off" => {
            h.raw("<p class=\"lede\">No pod is verified");
            reason(h, f.verification.reason.as_deref());
            h.raw("</p></section>\n");
            return;
        }
        "begins" => {
            h.raw("<p class=\"lede\">They have not been examined yet.</p></section>\n");
            return;
        }
        "overdue" => {
            h.raw("<p class=\"lede\">");
            chip(h, Mood::Bad, "verification has stopped");
            reason(h, f.verification.reason.as_deref());
            h.raw("</p>\n");
        }
        _ => {}
    }
    if f.pods.is_empty() {
        h.raw(match (f.pod_watch.state, f.verification.state) {
            ("synced", "on") => "<p class=\"lede\">No pod of this node requests redirection.",
            _ => "<p class=\"lede\">No pod of this node requested redirection when the pods were last known.",
        });
        h.raw("</p></section>\n");
        return;
    }
    h.raw("<table class=\"pods\"><thead><tr><th scope=\"col\">Pod</th><th scope=\"col\">State</th>")
        .raw("<th scope=\"col\">Mode</th><th scope=\"col\">Rules in</th><th scope=\"col\">Verified</th></tr></thead><tbody>\n");
    // Pods with problems come first, then by name.
    let (good, bad): (Vec<_>, Vec<_>) = f.pods.iter().partition(|p| p.verified);
    bad.into_iter().chain(good).for_each(|p| pod(h, p, f.time));
    h.raw("</tbody></table></section>\n");
}

/// Writes `: REASON`.
fn reason(h: &mut Html, reason: Option<&str>) {
    if let Some(reason) = reason {
        h.raw(": ").text(reason);
    }
}

fn pod(h: &mut Html, p: &PodFacts, now: Time) {
    h.raw("<tr><th scope=\"row\"><span class=\"quiet\">");
    h.text(&p.namespace).raw("/</span><wbr>").text(&p.name);
    if let Some(error) = &p.error {
        h.raw("<small class=\"why\">").text(error).raw("</small>");
    }
    h.raw("</th><td data-label=\"State\">");
    match p.verified {
        true => chip(h, Mood::Good, "verified"),
        false => chip(h, Mood::Bad, "not verified"),
    }
    h.raw("</td><td data-label=\"Mode\">");
    h.text(p.mode.unwrap_or("unknown"));
    h.raw("</td><td data-label=\"Rules in\">");
    h.text(p.engine.as_deref().unwrap_or("unknown"));
    if p.engine.is_some() && !p.verified {
        h.raw(" <small>when they were seen last</small>");
    }
    h.raw("</td><td data-label=\"Verified\"><span>");
    time(h, p.verified_at, now);
    h.raw("</span></td></tr>\n");
}

fn time(h: &mut Html, at: Option<Time>, now: Time) {
    match at {
        None => h.raw("never"),
        Some(Time(at)) => h
            .text(&relative(at, now.0))
            .raw(" <small>")
            .text(&absolute(at))
            .raw("</small>"),
    };
}

fn repairs(h: &mut Html, f: &Facts) {
    let v = &f.verification;
    h.raw("<section><h2>Repairs and drift</h2>\n<div class=\"pair\"><table><thead><tr><th scope=\"col\">Repairs</th>");
    // Every cause has every result, in the same order.
    let first = v.repairs.first().map(|r| r.cause);
    for r in v.repairs.iter().filter(|r| Some(r.cause) == first) {
        h.raw("<th scope=\"col\">").text(r.result).raw("</th>");
    }
    h.raw("</tr></thead><tbody>");
    for row in v.repairs.chunk_by(|a, b| a.cause == b.cause) {
        h.raw("<tr><th scope=\"row\">");
        h.text(match row.first().map(|r| r.cause) {
            Some("criteria") => "reported by the pod's init container",
            _ => "rules not in sync",
        });
        h.raw("</th>");
        for r in row {
            h.raw("<td>").number(r.count).raw("</td>");
        }
        h.raw("</tr>");
    }
    h.raw("</tbody></table>\n<table><thead><tr><th scope=\"col\">Rules were</th><th scope=\"col\">times</th></tr></thead><tbody>");
    for d in &v.drift {
        h.raw("<tr><th scope=\"row\">").text(d.cause);
        h.raw("</th><td>").number(d.count).raw("</td></tr>");
    }
    h.raw("</tbody></table></div></section>\n");
}

fn install(h: &mut Html, f: &Facts) {
    let i = &f.install;
    h.raw("<section><h2>Installation</h2>\n<dl class=\"facts\"><dt>State</dt><dd>");
    match (i.ready, &i.preempted) {
        (true, _) => chip(h, Mood::Good, "installed and in force"),
        (false, None) => chip(h, Mood::Bad, "not ready"),
        (false, why) => {
            chip(h, Mood::Bad, "installed, not in force");
            reason(h, why.as_deref());
        }
    }
    h.raw("</dd><dt>Program</dt><dd><code>")
        .text(&i.programs)
        .raw("</code></dd><dt>Configuration</dt><dd>");
    match &i.configuration {
        Some(path) => h.raw("<code>").text(path).raw("</code>"),
        None => h.raw("none yet"),
    };
    h.raw("</dd><dt>Last complete pass</dt><dd>");
    time(h, i.last_pass, f.time);
    h.raw("</dd><dt>Last failure</dt><dd>");
    match &i.last_failure {
        None => {
            h.raw("none");
        }
        Some(failure) => {
            time(h, Some(failure.time), f.time);
            h.raw("<br>").text(&failure.reason);
        }
    }
    h.raw("</dd></dl></section>\n");
}

fn jobs(h: &mut Html, f: &Facts) {
    let k = &f.kernel_jobs;
    h.raw("<section><h2>Jobs that this kernel allows</h2>\n<p class=\"lede\">Result of <code>weir preflight</code> in this process, at its start");
    match k.state {
        "asking" => h.raw(": in progress."),
        "failed" => h.raw(": failed"),
        _ => h.raw("."),
    };
    if k.state == "failed" {
        reason(h, k.reason.as_deref());
    } else if let Some(why) = &k.reason {
        h.raw(" Some features are unknown: ").text(why);
    }
    h.raw("</p>\n");
    if k.jobs.is_empty() {
        h.raw("</section>\n");
        return;
    }
    h.raw("<table class=\"jobs\"><thead><tr><th scope=\"col\">Job</th><th scope=\"col\">Verdict</th></tr></thead><tbody>\n");
    for job in &k.jobs {
        h.raw("<tr><th scope=\"row\">").text(job.job);
        h.raw("<small class=\"quiet\">").text(job.title);
        h.raw("</small></th><td>");
        let mood = match job.verdict {
            "works" => Mood::Good,
            "does-not-work" => Mood::Bad,
            _ => Mood::Plain,
        };
        chip(h, mood, job.words);
        for reason in &job.reasons {
            h.raw("<small>").text(reason).raw("</small>");
        }
        for name in &job.missing_capabilities {
            h.raw("<small>this process lacks CAP_").text(name);
            h.raw("</small>");
        }
        h.raw("</td></tr>\n");
    }
    h.raw("</tbody></table></section>\n");
}
