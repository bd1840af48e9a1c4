//! A bucket of a store that checks every request and fails on demand.

#![allow(clippy::unwrap_used)] // a helper that fails fails the test

use std::path::{Path, PathBuf};

use thalweg_testdata::s3_server::{ACCESS_KEY, Fault, S3Server, SECRET_KEY};

use super::*;

fn open(server: &S3Server, prefix: &str) -> Bucket {
    open_as(&server.url(prefix), SECRET_KEY, wall_ns)
}

fn open_as(url: &str, secret: &str, clock: fn() -> u64) -> Bucket {
    let address: S3Address = url.parse().unwrap();
    let variables = |name: &str| match name {
        "AWS_ACCESS_KEY_ID" => Some(ACCESS_KEY.to_owned()),
        "AWS_SECRET_ACCESS_KEY" => Some(secret.to_owned()),
        _ => None,
    };
    Bucket::open_with(&address, &variables, clock).unwrap()
}

fn server() -> S3Server {
    S3Server::start(wall_ns).unwrap()
}

fn file(folder: &Path, content: &[u8]) -> PathBuf {
    let path = folder.join("file");
    std::fs::write(&path, content).unwrap();
    path
}

fn put(bucket: &Bucket, key: &str, path: &Path) -> Result<u64, String> {
    bucket.put_new(key, path, &|| true).map_err(|error| error.to_string())
}

#[test]
fn old_objects_are_listed_and_removed() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let bucket = open(&server, "edge");
    let path = file(folder.path(), b"content");
    for key in ["a/1", "a/2", "a/3", "a/4", "b/1"] {
        put(&bucket, key, &path).unwrap();
    }
    server.age(3600);
    put(&bucket, "a/5", &path).unwrap();
    let before_ns = wall_ns() - 1800 * 1_000_000_000;
    let old = bucket.list_written_before("a/", before_ns, &|| true).unwrap().objects;
    assert_eq!(old, ["a/1", "a/2", "a/3", "a/4"].map(|key| (key.to_owned(), 7)));
    assert_eq!(
        bucket.list_written_before("a/", before_ns - 3600 * 1_000_000_000, &|| true).unwrap().objects,
        []
    );
    for fault in [Fault::Cut, Fault::CutAfter, Fault::Status(503, "SlowDown"), Fault::None] {
        server.fail("DELETE", fault, 1);
        let (key, _) = &bucket.list("a/", true, &|| true).unwrap().objects[0];
        bucket.remove(key, &|| true).unwrap();
        bucket.remove(key, &|| true).unwrap();
    }
    let left: Vec<String> = server.objects().into_iter().map(|(key, _)| key).collect();
    assert_eq!(left, ["edge/a/5", "edge/b/1"]);
    server.fail("DELETE", Fault::Status(403, "AccessDenied"), 1);
    let said = bucket.remove("b/1", &|| true).unwrap_err().to_string();
    assert!(said.contains("s3:DeleteObject"), "{said}");
}

#[test]
fn who_ends_waits_for_no_list_and_no_removal() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let bucket = open(&server, "edge");
    put(&bucket, "a", &file(folder.path(), b"content")).unwrap();
    for method in ["GET", "DELETE"] {
        server.fail(method, Fault::Hang, 1);
        let before = server.requests().len();
        // It ends when the request is there.
        let goes_on = || server.requests().len() == before;
        match method {
            "GET" => assert!(bucket.list_written_before("", u64::MAX, &goes_on).is_err()),
            _ => assert!(bucket.remove("a", &goes_on).is_err()),
        }
        assert_eq!(server.requests().len(), before + 1, "{method} is not tried again");
    }
    assert_eq!(server.objects().len(), 1);
}

#[test]
fn objects_are_written_once_listed_and_read_in_parts() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let bucket = open(&server, "site a/edge");
    let content: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let path = file(folder.path(), &content);
    for key in ["date=2026-11-22/hour=5/a", "date=2026-11-22/hour=6/b", "date=2026-11-23/hour=0/c", "d", "e"]
    {
        assert_eq!(put(&bucket, key, &path), Ok(4_000_000), "{key}");
        assert_eq!(put(&bucket, key, &path), Ok(0), "{key} again");
    }
    let part = bucket.read("date=2026-11-22/hour=5/a", 1_000..1_500).unwrap();
    assert_eq!(part, content[1_000..1_500]);
    let top = bucket.list("", false, &|| true).unwrap();
    assert_eq!(top.folders, ["date=2026-11-22/", "date=2026-11-23/"]);
    assert_eq!(top.objects, [("d".to_owned(), 4_000_000), ("e".to_owned(), 4_000_000)]);
    let deep = bucket.list("date=", true, &|| true).unwrap();
    assert_eq!(deep.objects.len(), 3);
    let other = file(folder.path(), b"other");
    let said = put(&bucket, "d", &other).expect_err("it is taken");
    assert!(said.contains("another dataset"), "{said}");
    assert_eq!(server.content("site a/edge/d").map(|bytes| bytes.len()), Some(4_000_000));
}

#[test]
fn a_store_that_fails_for_a_moment_is_asked_again() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let bucket = open(&server, "");
    let path = file(folder.path(), b"0123456789");
    for fault in [Fault::Status(503, "SlowDown"), Fault::Cut, Fault::CutAfter, Fault::Truncate] {
        put(&bucket, "object", &path).unwrap();
        server.fail("GET", fault, 3);
        let read = bucket.read("object", 2..6).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(read, b"2345", "{fault:?}");
    }
    server.fail("GET", Fault::Status(503, "SlowDown"), 5);
    let said = bucket.read("object", 2..6).expect_err("it is too busy").to_string();
    assert!(said.contains("busy") && said.contains("SlowDown"), "{said}");
    assert_eq!(bucket.read("object", 2..6).ok().as_deref(), Some(&b"2345"[..]));
    // It was written, and nobody heard of it.
    server.fail("PUT", Fault::CutAfter, 2);
    let said = put(&bucket, "new", &path).expect_err("no answer");
    assert!(said.contains("does not answer"), "{said}");
    assert_eq!(put(&bucket, "new", &path), Ok(0));
}

#[test]
fn refusals_say_what_to_do() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let url = server.url("a");
    let path = file(folder.path(), b"content");
    let elsewhere = url.replace("s3://flows/", "s3://floes/");
    let late: fn() -> u64 = || wall_ns() - 3_600_000_000_000;
    let cases: [(Bucket, &[&str]); 4] = [
        (open_as(&url, "wrong", wall_ns), &["AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch"]),
        (open_as(&elsewhere, SECRET_KEY, wall_ns), &["no such bucket", "s3://floes/a"]),
        (open_as(&url, SECRET_KEY, late), &["clock", "NTP", "RequestTimeTooSkewed"]),
        (
            open_as("s3://flows/a?endpoint=http://127.0.0.1:1", SECRET_KEY, wall_ns),
            &["127.0.0.1:1 does not answer"],
        ),
    ];
    for (bucket, words) in cases {
        let listed = bucket.list("", true, &|| true).expect_err("it is refused").to_string();
        let written = put(&bucket, "object", &path).expect_err("it is refused");
        for word in words {
            assert!(listed.contains(word) && written.contains(word), "{word}: {listed}; {written}");
        }
    }
    let bucket = open(&server, "a");
    for (status, code, word) in [
        (301, "PermanentRedirect", "region"),
        (403, "AccessDenied", "s3:PutObject"),
        (403, "ExpiredToken", "AWS_SESSION_TOKEN"),
    ] {
        server.fail("PUT", Fault::Status(status, code), 1);
        let said = put(&bucket, "object", &path).expect_err("it is refused");
        assert!(said.contains(word) && said.contains(code), "{said}");
    }
    assert!(bucket.read("absent", 0..1).expect_err("there is none").is_gone());
    assert!(server.objects().is_empty());
}

#[test]
fn a_connection_serves_many_requests() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let bucket = open(&server, "");
    let path = file(folder.path(), b"content");
    put(&bucket, "object", &path).unwrap();
    for at in 0..20 {
        bucket.read("object", at % 6..7).unwrap();
    }
    assert_eq!((server.requests().len(), server.connections()), (22, 1));
}
