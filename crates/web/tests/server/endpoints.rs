//! What each path answers, to whom.

use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::client::{ask, get, post, request};
use crate::router::{Fixture, GLASS, OPERATE, PREFIXES, READ, prefix};

#[test]
fn views_come_as_the_router_wrote_them() {
    let server = Fixture::open();
    let status = get(server.address(), "/api/v1/status");
    assert_eq!((status.status, status.header("content-type")), (200, Some("application/json")));
    assert_eq!(status.json()["uptime_s"], 3_600);
    let ports = get(server.address(), "/api/v1/ports").json();
    assert_eq!((&ports["items"][1]["name"], &ports["items"][0]["received"]), (&json!("wan"), &json!(7)));
    assert_eq!(ports["cursor"], json!(null));
    assert_eq!(get(server.address(), "/api/v1/queues").json(), json!({ "items": [], "cursor": null }));
    assert_eq!(get(server.address(), "/api/v1/workers").json(), json!({ "items": [], "cursor": null }));
    let fib = get(server.address(), "/api/v1/fib/192.0.2.0%2F24").json();
    assert_eq!(fib["destination"], "192.0.2.0/24");
    assert_eq!(get(server.address(), "/api/v1/fib/192.0.2.0/24").json(), fib);
    assert_eq!(get(server.address(), "/api/v1/bgp/neighbors/r1").json()["as"], "64497");
    assert_eq!(get(server.address(), "/api/v1/trace?packet=wan+tcp").json()["packet"], "wan tcp");
    assert!(
        get(server.address(), "/api/v1/drop-reasons").json()["items"]
            .as_array()
            .is_some_and(|all| all.len() > 30)
    );
    assert_eq!(get(server.address(), "/healthz").json(), json!({ "ok": true }));
    assert_eq!(get(server.address(), "/readyz").json(), json!({ "ok": true }));
    assert_eq!(get(server.address(), "/openapi.json").json()["openapi"], "3.1.0");
}

#[test]
fn pages_and_lines_have_every_route_once() {
    let server = Fixture::open();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(server.address(), &format!("/api/v1/bgp/routes?limit=10000{cursor}")).json();
        let items = page["items"].as_array().expect("items");
        seen.extend(items.iter().map(|item| item["prefix"].as_str().expect("a prefix").to_owned()));
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let expected: Vec<String> = (0..PREFIXES).flat_map(|number| [prefix(number), prefix(number)]).collect();
    assert!(seen == expected, "{} routes", seen.len());
    let lines = request(server.address(), "GET", "/api/v1/bgp/routes", &["Accept: application/x-ndjson"], "");
    assert!(lines.is_whole && lines.header("content-type") == Some("application/x-ndjson"));
    let text = lines.text();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object"));
    assert!(lines.map(|route| route["prefix"].as_str().expect("a prefix").to_owned()).eq(expected));
}

#[test]
fn what_the_router_refuses_is_a_problem_of_its_kind() {
    let server = Fixture::open();
    let problem = |path: &str| {
        let answer = get(server.address(), path);
        (answer.status, answer.problem())
    };
    assert_eq!(problem("/api/v1/bgp/neighbors/other"), (404, "not-found".to_owned()));
    assert_eq!(problem("/api/v1/nat/counters"), (404, "absent".to_owned()));
    assert_eq!(problem("/api/v1/flows/top?key=src"), (404, "absent".to_owned()));
    assert_eq!(problem("/api/v1/config/compare"), (409, "refused".to_owned()));
    assert_eq!(problem("/api/v1/nothing"), (404, "not-found".to_owned()));
    assert_eq!(problem("/assets/nothing"), (404, "not-found".to_owned()));
    assert_eq!(problem("/api/v1/ports?limit=0"), (400, "bad-request".to_owned()));
    assert_eq!(problem("/api/v1/ports?limit=10001"), (400, "bad-request".to_owned()));
    assert_eq!(problem("/api/v1/bgp/routes?insid=x"), (400, "bad-request".to_owned()));
    assert_eq!(problem("/api/v1/bgp/routes?origin_as=x"), (400, "bad-request".to_owned()));
    assert_eq!(problem("/api/v1/fib/%zz"), (400, "bad-request".to_owned()));
    assert_eq!(problem("/api/v1/events?topics=weather"), (400, "bad-request".to_owned()));
    assert!(server.sample("thalweg_web_problems_total{kind=\"bad-request\"}") == 6);
}

#[test]
fn rights_are_those_of_the_token() {
    let server = Fixture::with_tokens();
    let status = |token: &str, method: &str, path: &str| {
        let token = format!("Authorization: Bearer {token}");
        let head = [token.as_str(), "Content-Type: application/json"];
        request(server.address(), method, path, &head, if method == "POST" { "{}" } else { "" }).status
    };
    for (token, bgp, read, act) in
        [("nothing", 401, 401, 401), (GLASS, 200, 403, 403), (READ, 200, 200, 403), (OPERATE, 200, 200, 200)]
    {
        assert_eq!(status(token, "GET", "/api/v1/bgp/neighbors"), bgp, "{token}");
        assert_eq!(status(token, "GET", "/api/v1/status"), read, "{token}");
        assert_eq!(status(token, "GET", "/metrics"), read, "{token}");
        assert_eq!(status(token, "POST", "/api/v1/bgp/neighbors/r1/refresh"), act, "{token}");
        assert_eq!(status(token, "POST", "/api/v1/config/reload"), act, "{token}");
        assert_eq!(status(token, "GET", "/healthz"), 200, "{token}");
    }
    let refused = get(server.address(), "/api/v1/status");
    assert_eq!(
        (refused.problem(), refused.header("www-authenticate")),
        ("no-token".to_owned(), Some("Bearer"))
    );
}

#[test]
fn a_browser_shows_its_token_once() {
    let server = Fixture::with_tokens();
    assert_eq!(get(server.address(), "/api/v1/session").json(), json!({ "may": null, "name": null }));
    let wrong = post(server.address(), "/api/v1/session", &[], r#"{"token":"nothing"}"#);
    assert_eq!((wrong.status, wrong.problem()), (401, "no-token".to_owned()));
    let begun = post(server.address(), "/api/v1/session", &[], &json!({ "token": OPERATE }).to_string());
    assert_eq!(begun.json(), json!({ "may": "operate", "name": "operate" }));
    let cookie = begun.header("set-cookie").expect("a cookie");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = format!("Cookie: {}", cookie.split(';').next().expect("a value"));
    let session = request(server.address(), "GET", "/api/v1/session", &[&cookie], "").json();
    assert_eq!(session["may"], "operate");
    let (refresh, body) = ("/api/v1/bgp/neighbors/r1/refresh", "{}");
    assert_eq!(post(server.address(), refresh, &[&cookie], body).json(), json!({ "done": true }));
    let own = format!("Origin: http://{}", server.address());
    assert_eq!(post(server.address(), refresh, &[&cookie, &own], body).status, 200);
    for other in ["Origin: http://evil.example", "Origin: null", "Origin: http://127.0.0.1:1"] {
        assert_eq!(
            post(server.address(), refresh, &[&cookie, other], body).problem(),
            "forbidden",
            "{other}"
        );
    }
    let ended = request(server.address(), "DELETE", "/api/v1/session", &[&cookie], "");
    assert!(ended.header("set-cookie").is_some_and(|cookie| cookie.contains("Max-Age=0")));
    assert_eq!(ended.json()["may"], json!(null));
}

#[test]
fn bodies_must_be_small_json_objects_with_known_fields() {
    let server = Fixture::with_tokens();
    let token = format!("Authorization: Bearer {OPERATE}");
    let refresh = "/api/v1/bgp/neighbors/r1/refresh";
    let problem =
        |head: &[&str], body: &str| request(server.address(), "POST", refresh, head, body).problem();
    assert_eq!(problem(&[&token], "{}"), "wrong-type");
    assert_eq!(problem(&[&token, "Content-Type: text/plain"], "{}"), "wrong-type");
    let json = "Content-Type: application/json; charset=utf-8";
    for bad in ["", "{", "[]", "{\"x\":1}"] {
        assert_eq!(problem(&[&token, json], bad), "bad-request", "{bad}");
    }
    let large = format!("{{\"text\":\"{}\"}}", "x".repeat(70_000));
    assert_eq!(post(server.address(), "/api/v1/config/check", &[&token], &large).problem(), "too-large");
    let unknown = post(server.address(), "/api/v1/bgp/neighbors/r9/refresh", &[&token], "{}");
    assert_eq!((unknown.status, unknown.problem()), (404, "not-found".to_owned()));
    let wrong = request(server.address(), "PUT", refresh, &[&token], "");
    assert_eq!(
        (wrong.status, wrong.problem(), wrong.header("allow")),
        (405, "wrong-method".to_owned(), Some("POST"))
    );
}

#[test]
fn a_configuration_is_checked_and_other_files_are_not_shown() {
    let server = Fixture::with_tokens();
    let token = format!("Authorization: Bearer {OPERATE}");
    let secret = server.folder.path().join("secret.routes");
    std::fs::write(&secret, "root:hunter2\n").expect("writing");
    let check = |text: &str| {
        post(server.address(), "/api/v1/config/check", &[&token], &json!({ "text": text }).to_string()).json()
    };
    let bad = check("[ports.lan]\nmtu = 1\n");
    assert_eq!(bad["ok"], false);
    assert!(bad["findings"].as_array().is_some_and(|all| all.iter().any(|each| each["line"] == 2)), "{bad}");
    let good = "[ports.lan]\nmac = \"02:00:00:00:00:02\"\naddresses = [\"192.168.1.1/24\"]\n";
    assert_eq!(check(good), json!({ "ok": true, "findings": [] }));
    let other = check(&format!("{good}[routing]\nfiles = [{:?}]\n", secret.display().to_string()));
    assert!(other["ok"] == false && !other.to_string().contains("hunter2"), "{other}");
}

#[test]
fn names_that_are_not_ours_are_refused() {
    let server = Fixture::open();
    let with =
        |host: &str| request(server.address(), "GET", "/api/v1/status", &[&format!("Host: {host}")], "");
    for ours in ["localhost", "router.example.net:80", "127.0.0.1", "[::1]:8080"] {
        assert_eq!(with(ours).status, 200, "{ours}");
    }
    for other in ["evil.example", "127.0.0.1.evil.example", ""] {
        let answer = with(other);
        assert_eq!((answer.status, answer.problem()), (421, "misdirected".to_owned()), "{other}");
    }
    let mut unix = UnixStream::connect(server.socket()).expect("the socket");
    let answer =
        ask(&mut unix, "GET /api/v1/session HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n");
    assert_eq!(answer.json(), json!({ "may": "operate", "name": null }));
}

#[test]
fn the_page_comes_with_its_policy_and_a_tag() {
    let server = Fixture::open();
    let page = get(server.address(), "/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(
        page.header("content-security-policy").is_some_and(|policy| policy.contains("default-src 'none'"))
    );
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let tag = page.header("etag").expect("a tag");
    let again = request(server.address(), "GET", "/", &[&format!("If-None-Match: {tag}")], "");
    assert_eq!((again.status, again.body.len()), (304, 0));
    let head = request(server.address(), "POST", "/", &[], "");
    assert_eq!(head.problem(), "wrong-method");
}

#[test]
fn without_a_router_everything_says_so() {
    let server = Fixture::with(|_| {});
    std::fs::remove_file(server.folder.path().join("router.sock")).expect("removing");
    for path in ["/api/v1/status", "/api/v1/bgp/routes", "/metrics", "/readyz"] {
        let answer = get(server.address(), path);
        assert_eq!((answer.status, answer.problem()), (503, "no-router".to_owned()), "{path}");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    assert_eq!(get(server.address(), "/healthz").status, 200);
}
