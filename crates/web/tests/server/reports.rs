//! Reports of the laboratory: what is served, and that nothing else is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use crate::client::get;
use crate::router::Fixture;

const PAGE: &str = "<!doctype html><script>alert(1)</script>";

fn write(folder: &Path, file: &str, text: &str) {
    fs::create_dir_all(folder).expect("a folder");
    fs::write(folder.join(file), text).expect("writing");
}

/// A server with a folder of reports, among them what must not be served.
fn server() -> Fixture {
    Fixture::with(|config| {
        let home = config.socket.as_deref().and_then(Path::parent).expect("a folder").to_owned();
        let reports = home.join("reports");
        write(&reports.join("lab-models"), "report.html", PAGE);
        write(&reports.join("lab-models"), "results.json", "{\"a\":1}");
        write(&reports.join("lab.bgp"), "report.html", PAGE);
        write(&reports.join(".hidden"), "report.html", PAGE);
        write(&reports.join("no page"), "report.html", PAGE);
        write(&reports.join("empty"), "other.html", PAGE);
        write(&home.join("secret"), "report.html", "secret");
        symlink(home.join("secret"), reports.join("linked")).expect("a link");
        fs::create_dir(reports.join("inner")).expect("a folder");
        symlink(home.join("secret/report.html"), reports.join("inner/report.html")).expect("a link");
        fs::create_dir_all(reports.join("folder/report.html")).expect("a folder");
        config.reports = Some(reports);
    })
}

#[test]
fn reports_are_listed_and_served_in_a_sandbox() {
    let server = server();
    let list = get(server.address(), "/api/v1/reports").json();
    let items = list["items"].as_array().expect("items");
    let mut names: Vec<&str> = items.iter().map(|item| item["name"].as_str().expect("a name")).collect();
    names.sort_unstable();
    assert_eq!(names, ["lab-models", "lab.bgp"]);
    let of = |name| items.iter().find(|item| item["name"] == name).expect("it is listed");
    assert_eq!(
        (&of("lab-models")["bytes"], &of("lab-models")["results"]),
        (&json!(PAGE.len()), &json!(true))
    );
    assert_eq!(of("lab.bgp")["results"], false);
    let page = get(server.address(), "/api/v1/reports/lab-models");
    assert_eq!((page.status, page.text().as_str()), (200, PAGE));
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policies: Vec<&str> = page
        .headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-security-policy"))
        .map(|(_, value)| value.as_str())
        .collect();
    let [policy] = policies[..] else { panic!("{policies:?}") };
    assert!(policy.starts_with("sandbox; default-src 'none';") && !policy.contains("script"), "{policy}");
    assert_eq!(get(server.address(), "/api/v1/reports/lab-models/results").json(), json!({ "a": 1 }));
}

#[test]
fn no_name_leads_out_of_the_folder() {
    let server = server();
    for name in [
        "linked",
        "inner",
        "folder",
        "empty",
        ".hidden",
        "no%20page",
        ".",
        "..",
        "..%2Fsecret",
        "%2e%2e%2fsecret",
        "lab-models%2F..%2F..%2Fsecret",
        "lab-models%00",
        "%2Fetc",
        "absent",
        &"x".repeat(200),
    ] {
        for rest in ["", "/results"] {
            let answer = get(server.address(), &format!("/api/v1/reports/{name}{rest}"));
            assert_eq!((answer.status, answer.problem().as_str()), (404, "not-found"), "{name}{rest}");
        }
    }
    let without = Fixture::open();
    for path in ["/api/v1/reports", "/api/v1/reports/lab-models"] {
        let answer = get(without.address(), path);
        assert_eq!((answer.status, answer.problem().as_str()), (404, "absent"));
    }
}
