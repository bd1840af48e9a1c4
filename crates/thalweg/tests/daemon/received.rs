//! Asks a running router for the routes that its sessions carry, and for the effect of another configuration on
//! them.

use std::fs;

use serde_json::{Value, json};

use crate::router::{Router, free_port, neighbor, speaker};

const WANTED: &str = "203.0.113.0/24";
const UNWANTED: &str = "192.0.2.128/25";
const OWN: &str = "198.51.100.0/24";

/// A router that accepts one of two routes, and the neighbor that sends both. `keys` go into the neighbor's
/// section in the router's configuration.
fn pair(folder: &std::path::Path, keys: &str) -> (Router, Router, String) {
    let port = free_port();
    let policy = format!(
        "[[policy.rules.some]]\nmatch = {{ prefix = [{WANTED:?}] }}\naction = \"accept\"\n\
         [[policy.rules.some]]\ndefault = \"reject\"\n"
    );
    let of_neighbor = neighbor(1, 2, port).replace("import = \"accept\"", "import = \"some\"");
    let config = format!("{}networks = [{OWN:?}]\n{of_neighbor}{keys}\n{policy}", speaker(1, port));
    let one = Router::start(folder, "one", &config);
    let two = format!("{}networks = [{WANTED:?}, {UNWANTED:?}]\n{}", speaker(2, port), neighbor(2, 1, port));
    let two = Router::start(folder, "two", &two);
    one.await_established("r2");
    one.await_route(WANTED);
    two.await_route(OWN);
    (one, two, config)
}

fn what_if(router: &Router, arguments: &[&str]) -> (i32, Value, String) {
    let output = router.command("whatif", &[&["--live", "--format", "json"], arguments].concat());
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().expect("it ends"), report, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_router_shows_what_it_is_sent_and_what_it_sends() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, two, _) = pair(folder.path(), "");
    let received = one.json(&["bgp", "routes", "--neighbor", "r2", "--received"]);
    let mut prefixes: Vec<&str> = received.iter().filter_map(|route| route["prefix"].as_str()).collect();
    prefixes.sort_unstable();
    assert_eq!(prefixes, [UNWANTED, WANTED]);
    assert_eq!((&received[0]["as_path"], &received[0]["next_hop"]), (&json!("64502"), &json!("127.0.0.2")));
    assert!(one.json(&["bgp", "route", UNWANTED, "--exact"]).is_empty(), "import rejects it");
    let filtered: [(&[&str], usize); 5] = [
        (&["--inside", "203.0.0.0/8"], 1),
        (&["--origin-as", "64502"], 2),
        (&["--through-as", "64501"], 0),
        (&["--family", "ipv6"], 0),
        (&["--limit", "1"], 1),
    ];
    for (filter, count) in filtered {
        let question = [&["bgp", "routes", "--neighbor", "r2", "--received"], filter].concat();
        assert_eq!(one.json(&question).len(), count, "{filter:?}");
    }
    let text = one.text("show", &["bgp", "routes", "--neighbor", "r2", "--received"]);
    assert!(text.contains(UNWANTED) && text.contains("64502 i"), "{text}");
    assert!(one.error("show", &["bgp", "routes", "--received"]).contains("--neighbor"));
    let nobody = one.error("show", &["bgp", "routes", "--received", "--neighbor", "nobody"]);
    assert!(nobody.contains("no neighbor is called nobody"), "{nobody}");

    let sent = one.json(&["bgp", "routes", "--advertised-to", "r2"]);
    assert_eq!(sent.len(), 1, "not its own routes: {sent:?}");
    assert_eq!(
        (&sent[0]["prefix"], &sent[0]["as_path"], &sent[0]["next_hop"], &sent[0]["local_pref"]),
        (&json!(OWN), &json!("64501"), &json!("127.0.0.1"), &Value::Null)
    );
    assert!(one.text("show", &["bgp", "routes", "--advertised-to", "127.0.0.2"]).contains("64501 i"));
    for (which, count) in
        [("--advertised-to", "1\n"), ("--not-advertised-to", "0\n"), ("--received-from", "1\n")]
    {
        assert_eq!(one.text("show", &["bgp", "routes", which, "r2", "--count"]), count, "{which}");
    }
    two.stop();
    crate::router::eventually("the session is down", || {
        (one.one(&["bgp", "neighbor", "r2"])["state"] != "Established").then_some(())
    });
    for question in
        [["--advertised-to", "r2", "--limit", "9"], ["--received", "--neighbor", "r2", "--limit=9"]]
    {
        let error = one.error("show", &[&["bgp", "routes"], &question[..]].concat());
        assert!(error.contains("not up"), "{error}");
    }
}

#[test]
fn what_a_change_would_do_to_a_running_router() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, two, config) = pair(folder.path(), "");
    let new = folder.path().join("new.toml");
    let new = new.to_str().expect("a path");
    fs::write(new, config.replace("import = \"some\"", "import = \"accept\"")).expect("a file");
    let updates = || {
        let view = two.one(&["bgp", "neighbor", "r1"]);
        (view["updates_received"].clone(), view["flaps"].clone())
    };
    let before = updates();
    // Each client occupies one of a few places in the router; a client that ends must free its place.
    for _ in 0..6 {
        let (code, report, error) = what_if(&one, &[new]);
        assert_eq!(code, 0, "{error}");
        assert_eq!(
            (&report["prefixes"]["new"], &report["prefixes"]["lost"]),
            (&json!(1), &json!(0)),
            "{report}"
        );
        let live = &report["live"];
        assert_eq!(
            (&live["file_differs"], &live["neighbors"][0]["known"]),
            (&json!(false), &json!("as-sent"))
        );
        assert_eq!(live["neighbors"][0]["routes"], 2);
    }
    assert_eq!(updates(), before, "the neighbor notices nothing but requests");
    assert!(one.json(&["bgp", "route", UNWANTED, "--exact"]).is_empty(), "nothing is changed");

    // The configuration in force counts as the old one, even if the file has changed.
    fs::write(&one.config, config.replace("import = \"some\"", "import = \"reject\"")).expect("a file");
    let (code, report, _) = what_if(&one, &[new, "--fail-on", "new>0"]);
    assert_eq!((code, &report["prefixes"]["new"]), (1, &json!(1)));
    assert_eq!(report["live"]["file_differs"], true);
    let text = one.text("whatif", &[new, "--live"]);
    assert!(text.contains("the file is another one by now"), "{text}");
    assert!(one.text("show", &["config"]).contains("the file is another one by now"));

    // A failure without another configuration, passwords that must not be shown, and arguments that exclude each
    // other.
    let failure = what_if(&one, &["--fail", "r2"]).1;
    assert_eq!(failure["failures"][0]["counts"]["after"]["lost"], 1, "{failure}");
    let second = format!("{config}[[bgp.neighbor]]\nname = \"r3\"\naddress = \"127.0.0.3\"\nas = 64503\n");
    fs::write(new, second).expect("a file");
    let text = one.text("whatif", &[new, "--live"]);
    assert!(text.contains("what r3 would send is not known: it is new"), "{text}");
    for (arguments, says) in [
        (&["--live", new, new][..], "give the new one only"),
        (&["--live"][..], "--fail NEIGHBOR"),
        (&["--live", new, "--table", "x"][..], "cannot be used with"),
    ] {
        let output = one.command("whatif", arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(says), "{arguments:?}: {error}");
    }
}

#[test]
fn a_neighbor_without_route_refresh_has_its_routes_as_import_left_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let (one, _two, config) = pair(folder.path(), "route_refresh = false");
    let new = folder.path().join("new.toml");
    let new = new.to_str().expect("a path");
    fs::write(new, config.replace("import = \"some\"", "import = \"reject\"")).expect("a file");
    let (code, report, error) = what_if(&one, &[new]);
    assert_eq!((code, &report["prefixes"]["lost"]), (0, &json!(1)), "{error}");
    let neighbor = &report["live"]["neighbors"][0];
    assert_eq!((&neighbor["known"], &neighbor["routes"]), (&json!("after-import"), &json!(1)));
    let text = one.text("whatif", &[new, "--live"]);
    assert!(text.contains("r2 offers no route refresh: 1 route of it as import left them"), "{text}");
    let error = one.error("show", &["bgp", "routes", "--neighbor", "r2", "--received"]);
    assert!(error.contains("does not offer route refresh"), "{error}");
}
