//! `treering loss`: figures of the paper, agreement of formula and simulation, the page.

use serde_json::Value;
use std::process::{Command, Output};

fn treering(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_treering")).args(arguments).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = treering(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "a pipe must stay quiet");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(&[&["loss", "--json"], arguments].concat())).unwrap()
}

fn number(report: &Value, key: &str) -> f64 {
    report[key].as_f64().unwrap_or_else(|| panic!("{key} in {report}"))
}

#[test]
fn the_largest_machine_of_the_paper() {
    let report = json(&["--ranks", "33554432", "--replicas", "4"]);
    let share = number(&report, "expected_failures_fraction");
    assert_eq!(format!("{:.2} %", 100.0 * share), "1.68 %");
    assert!((number(&report, "expected_failures") / 33_554_432.0 / share - 1.0).abs() < 1e-12);
    assert_eq!((&report["method"], &report["unit"]), (&"approximate".into(), &"rank".into()));
    assert!(report["simulated_failures_fraction"].is_null());
    let points = report["probabilities"].as_array().unwrap();
    assert_eq!((points[0]["failures"].as_u64(), number(&points[0], "probability")), (Some(3), 0.0));
    for point in points {
        let (probability, error) = (number(point, "probability"), number(point, "error"));
        assert!(
            (0.0..=1.0).contains(&(probability + error)) && error <= 0.01 * probability,
            "{point}"
        );
        let share = number(point, "failures") / 33_554_432.0;
        assert!((number(point, "fraction") / share - 1.0).abs() < 1e-12, "{point}");
    }
    let half = points.iter().find(|point| number(point, "probability") >= 0.5).unwrap();
    assert!((0.016..0.018).contains(&number(half, "fraction")), "{half}");
}

#[test]
fn text_is_a_table_and_sentences_that_name_the_way() {
    let exact = text(&["loss", "--ranks", "8", "--replicas", "2"]);
    // 4 pairs of 28 lose data: 4/28, then 8 · 3 of 56.
    assert!(exact.contains("probability of loss") && exact.contains("0.1429"), "{exact}");
    assert!(
        exact.contains("0.4286") && exact.contains("exact: ") && exact.contains("on average"),
        "{exact}"
    );
    assert!(!exact.contains("error"), "{exact}");
    let large = text(&["loss", "--ranks", "33554432", "--replicas", "4"]);
    assert!(large.contains("on average 1.68 % of 33554432 ranks"), "{large}");
    assert!(large.contains("error at most") && large.contains("approximate: "), "{large}");
    let nodes = text(&[
        "loss",
        "--ranks",
        "384",
        "--replicas",
        "4",
        "--ranks-per-node",
        "48",
        "--simulate",
        "100",
    ]);
    assert!(nodes.contains("failed nodes") && nodes.contains("standard error"), "{nodes}");
    assert!(nodes.contains("100 simulations on the real placement"), "{nodes}");
}

#[test]
fn nodes_fail_as_ranks_of_a_smaller_machine() {
    let nodes = json(&["--ranks", "4096", "--replicas", "3", "--ranks-per-node", "16"]);
    let ranks = json(&["--ranks", "256", "--replicas", "3"]);
    assert_eq!((&nodes["unit"], &nodes["units"]), (&"node".into(), &256.into()));
    assert_eq!(nodes["probabilities"], ranks["probabilities"]);
    assert_eq!(nodes["expected_failures_fraction"], ranks["expected_failures_fraction"]);
    // All ranks on one node: the first failure takes everything.
    let one = json(&["--ranks", "8", "--replicas", "4", "--ranks-per-node", "8"]);
    assert_eq!(
        (number(&one, "expected_failures"), number(&one, "expected_failures_fraction")),
        (1.0, 1.0)
    );
}

#[test]
fn formula_and_simulation_agree_within_four_standard_errors() {
    for (ranks, replicas, node) in [
        ("64", "4", "1"),
        ("67", "3", "1"),
        ("240", "2", "4"),
        ("1000", "4", "1"),
        ("10", "2", "4"),
        ("20000", "2", "1"),
    ] {
        let arguments = [
            "--ranks",
            ranks,
            "--replicas",
            replicas,
            "--ranks-per-node",
            node,
            "--simulate",
            "2000",
        ];
        let report = json(&arguments);
        assert_eq!(report["simulations"], 2000);
        let difference = number(&report, "simulated_failures_fraction")
            - number(&report, "expected_failures_fraction");
        let error = number(&report, "simulated_standard_error");
        assert!(difference.abs() <= 4.0 * error, "{ranks} {replicas} {node}: {difference} {error}");
        for point in report["probabilities"].as_array().unwrap() {
            let difference = (number(point, "simulated") - number(point, "probability")).abs();
            let allowed = 4.0 * number(point, "simulated_error") + number(point, "error");
            assert!(difference <= allowed, "{ranks} {replicas} {node}: {point}");
        }
        assert_eq!(report, json(&arguments), "the same question has the same answer");
    }
}

#[test]
fn nodes_without_a_formula_are_simulated_on_request() {
    let arguments = ["loss", "--ranks", "1001", "--replicas", "2", "--ranks-per-node", "4"];
    let refused = treering(&arguments);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2));
    assert!(words.contains("no formula") && words.contains("--simulate 1000"), "{words}");
    let report = json(&[&arguments[1..], &["--simulate", "500"]].concat());
    assert_eq!((&report["method"], &report["units"]), (&"simulated".into(), &251.into()));
    // Almost the machine without the odd rank.
    let even = json(&["--ranks", "1000", "--replicas", "2", "--ranks-per-node", "4"]);
    let key = "expected_failures_fraction";
    assert!((number(&report, key) / number(&even, key) - 1.0).abs() < 0.2, "{report}");
}

#[test]
fn bad_arguments_get_one_sentence() {
    let huge = "99999999999999999";
    for (arguments, words) in [
        (["8", "0", "1", "2"], "invalid number of replicas 0: expected 1 to 32"),
        (["0", "2", "1", "2"], "invalid number of ranks 0"),
        (["4", "5", "1", "2"], "5 replicas need as many ranks, and there are only 4"),
        ([huge, "4", "1", "2"], "invalid number of ranks 99999999999999999"),
        (["8", huge, "1", "2"], "invalid number of replicas 99999999999999999"),
        (["8", "2", "9", "2"], "invalid number of ranks on a node 9: expected 1 to 8"),
        (["8", "2", "0", "2"], "invalid number of ranks on a node 0"),
        (["8", "2", "1", "0"], "invalid number of simulations 0"),
        (["8", "2", "1", huge], "invalid number of simulations"),
        (["1073741824", "2", "1", "2"], "too many for a simulation"),
    ] {
        let [ranks, replicas, node, simulate] = arguments;
        let output = treering(&[
            "loss",
            "--ranks",
            ranks,
            "--replicas",
            replicas,
            "--ranks-per-node",
            node,
            "--simulate",
            simulate,
        ]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
        assert!(said.contains(words) && said.trim_end().lines().count() == 1, "{said}");
    }
    for arguments in
        [&["loss", "--ranks", "8"][..], &["loss", "--ranks", "many", "--replicas", "2"]]
    {
        assert_eq!(treering(arguments).status.code(), Some(2));
    }
    let nowhere = ["loss", "--ranks", "8", "--replicas", "2", "--report", "/nowhere/at/all.html"];
    assert_eq!(treering(&nowhere).status.code(), Some(2));
}

#[test]
fn the_page_of_losses_opens_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("loss.html").display().to_string();
    text(&["loss", "--ranks", "512", "--replicas", "4", "--simulate", "300", "--report", &page]);
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(
        !html.contains("http://") && !html.contains("https://") && !html.contains("__TREERING")
    );
    // Replicas 2 to 4 twice, and 2^8, 2^9, 2^12, 2^16, 2^20 and 2^25 ranks.
    assert_eq!(html.matches("class=\"curve\"").count(), 3 + 6 + 3);
    let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
    let browse = |more: &str, place: &str| {
        let common = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=5000",
            "--enable-logging=stderr",
        ];
        let output = Command::new("chromium")
            .args(common)
            .args([&profile, more, "--window-size=1100,2400", place])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !said.contains("CONSOLE"), "{said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for theme in ["light", "dark"] {
        let place = format!("file://{page}#{theme}");
        let dom = browse("--dump-dom", &place);
        assert!(
            dom.contains("data-ready=\"yes\"") && dom.contains(&format!("data-theme=\"{theme}\""))
        );
        assert!(dom.matches("class=\"dot\"").count() > 10, "simulated points are missing");
        let shot = folder.path().join(format!("{theme}.png"));
        browse(&format!("--screenshot={}", shot.display()), &place);
        assert!(std::fs::metadata(&shot).unwrap().len() > 20_000, "the picture is nearly empty");
    }
}
