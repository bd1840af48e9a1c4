//! Each endpoint, misused in each way: the client gets a problem document, the problem is counted, the router hears
//! nothing of it, and a client that came before is served all the while.
//!
//! The endpoints are those of `/openapi.json`, which has the rows of the server's table (a unit test compares them).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use serde_json::Value;

use crate::client::{Answer, ask, connect, connect_as, get, request_text};
use crate::router::{Fixture, GLASS, OPERATE};

const JSON: &str = "Content-Type: application/json";
/// Connections that are open at the same time: one less than fit.
const AT_ONCE: usize = 63;

struct Endpoint {
    method: String,
    path: String,
    /// The right that it needs.
    needs: Option<String>,
}

impl Endpoint {
    fn all(server: &Fixture) -> Vec<Self> {
        let document = get(server.address(), "/openapi.json").json();
        let paths = document["paths"].as_object().expect("paths");
        let methods = paths.iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods");
            methods.iter().map(move |(method, operation)| (path, method, operation))
        });
        let endpoint = |(path, method, operation): (&String, &String, &Value)| Self {
            method: method.to_ascii_uppercase(),
            path: path.replace("{name}", "r1").replace("{rest}", "10.0.0.0%2F8"),
            needs: operation["x-right"].as_str().map(str::to_owned),
        };
        let all: Vec<Self> = methods.map(endpoint).collect();
        assert!(all.len() > 50, "{} endpoints", all.len());
        all
    }

    fn is_post(&self) -> bool {
        self.method == "POST"
    }

    /// A request of it that lacks its end.
    fn cut_text(&self) -> String {
        let Self { method, path, .. } = self;
        let rest = if self.is_post() {
            format!("{JSON}\r\nAuthorization: Bearer {OPERATE}\r\nContent-Length: 9\r\n\r\n{{")
        } else {
            "Accept: ".to_owned()
        };
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{rest}")
    }
}

/// A request that must be refused, and the kind of its problem.
struct Misuse {
    kind: &'static str,
    method: String,
    path: String,
    head: Vec<String>,
    body: String,
}

/// All misuses of an endpoint.
fn misuses(endpoint: &Endpoint) -> Vec<Misuse> {
    let is_post = endpoint.is_post();
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    // What is right of a request, unless the caller replaces it.
    let misuse = |kind, replaces: fn(&mut Misuse)| {
        let (method, path) = (endpoint.method.clone(), endpoint.path.clone());
        let head = vec![bearer(OPERATE), JSON.to_owned()];
        let body = if is_post { "{}" } else { "" }.to_owned();
        let mut misuse = Misuse { kind, method, path, head, body };
        replaces(&mut misuse);
        misuse
    };
    let mut all = vec![
        misuse("wrong-method", |it| it.method = "PATCH".to_owned()),
        misuse("misdirected", |it| it.head.push("Host: evil.example".to_owned())),
        misuse("bad-request", |it| it.path += "?weather=1"),
        misuse("bad-request", |it| it.path += &format!("?limit={}", "1".repeat(9_000))),
    ];
    if is_post {
        all.extend([
            misuse("wrong-type", |it| it.head[1] = "Content-Type: text/plain".to_owned()),
            misuse("wrong-type", |it| drop(it.head.pop())),
            misuse("bad-request", |it| it.body = "{\"weather\":1}".to_owned()),
            misuse("bad-request", |it| it.body = "[".to_owned()),
            misuse("too-large", |it| it.body = "x".repeat(70_000)),
        ]);
    }
    if let Some(right) = &endpoint.needs {
        all.push(misuse("no-token", |it| drop(it.head.remove(0))));
        all.push(misuse("no-token", |it| it.head[0] += "4"));
        if right != "looking-glass" {
            all.push(Misuse { head: vec![bearer(GLASS), JSON.to_owned()], ..misuse("forbidden", |_| {}) });
        }
    }
    all
}

/// A client that was there before, and asks for the router's status now and then.
struct Bystander {
    stream: UnixStream,
    /// Its questions, the only ones that the router hears.
    asked: usize,
}

impl Bystander {
    fn of(server: &Fixture) -> Self {
        let stream = UnixStream::connect(server.socket()).expect("the socket");
        let mut bystander = Self { stream, asked: 0 };
        bystander.is_served();
        bystander
    }

    #[track_caller]
    fn is_served(&mut self) {
        self.asked += 1;
        let answer = ask(&mut self.stream, "GET /api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!((answer.status, &answer.json()["uptime_s"]), (200, &3_600.into()));
    }

    #[track_caller]
    fn is_alone(&self, server: &Fixture) {
        assert_eq!(server.written.load(Ordering::Relaxed), self.asked, "the router heard of others");
    }
}

#[test]
fn what_is_wrong_is_refused_and_counted() {
    let server = Fixture::with_tokens();
    let mut bystander = Bystander::of(&server);
    let (mut clients, mut kinds) = (0.., BTreeMap::<String, u64>::new());
    for endpoint in Endpoint::all(&server) {
        for Misuse { kind, method, path, head, body } in misuses(&endpoint) {
            let head: Vec<&str> = head.iter().map(String::as_str).collect();
            let text = request_text(server.address(), &method, &path, &head, &body);
            let client = clients.next().expect("it has no end");
            let answer = ask(&mut connect_as(client, server.address()), &text);
            assert_eq!(answer.problem(), kind, "{method} {path}, {head:?}: {answer:?}");
            if kind == "wrong-method" {
                let allowed = answer.header("allow").expect("the methods");
                assert!(allowed.split(", ").any(|allowed| allowed == endpoint.method), "{allowed} {path}");
            }
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
        bystander.is_served();
    }
    bystander.is_alone(&server);
    assert_eq!(server.samples("thalweg_web_problems_total"), kinds);
}

#[test]
fn requests_of_a_client_are_limited_whatever_it_asks() {
    let server = Fixture::with_tokens();
    let mut bystander = Bystander::of(&server);
    let endpoints = Endpoint::all(&server);
    for Endpoint { method, path, .. } in &endpoints {
        let mut stream = connect(server.address());
        let text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{JSON}\r\n\r\n");
        let mut answers = std::iter::repeat_with(|| ask(&mut stream, &text));
        let refused: Answer = answers.find(|answer| answer.status == 429).expect("it has no end");
        assert_eq!((refused.problem(), refused.header("retry-after")), ("too-many".to_owned(), Some("1")));
        bystander.is_served();
    }
    assert_eq!(server.samples("thalweg_web_problems_total")["too-many"], endpoints.len() as u64);
}

#[test]
fn what_does_not_come_to_its_end_reaches_nobody() {
    let server = Fixture::with_tokens();
    let mut bystander = Bystander::of(&server);
    let endpoints = Endpoint::all(&server);
    let mut clients = 0..;
    let mut begun = |endpoint: &Endpoint| {
        let mut stream = connect_as(clients.next().expect("it has no end"), server.address());
        stream.write_all(endpoint.cut_text().as_bytes()).expect("sending");
        stream
    };
    let rest_of = |mut stream: TcpStream| {
        let mut all = Vec::new();
        // The server may reset the connection.
        let _ = stream.read_to_end(&mut all);
        String::from_utf8(all).expect("text")
    };
    for endpoint in &endpoints {
        let stream = begun(endpoint);
        stream.shutdown(Shutdown::Write).expect("closing");
        let text = rest_of(stream);
        assert!(text.is_empty() || text.contains("problem:bad-request"), "{} {text}", endpoint.path);
    }
    bystander.is_served();
    assert!(endpoints.len() <= AT_ONCE, "they are slow together");
    let slow: Vec<(&Endpoint, TcpStream)> = endpoints.iter().map(|each| (each, begun(each))).collect();
    bystander.is_served();
    for (endpoint, stream) in slow {
        let text = rest_of(stream);
        // Without a whole head there is no request to answer.
        assert_eq!(text.contains("problem:too-slow"), endpoint.is_post(), "{} {text}", endpoint.path);
    }
    bystander.is_alone(&server);
    let (problems, cuts) =
        (server.samples("thalweg_web_problems_total"), server.samples("thalweg_web_connections_cut_total"));
    let posts = endpoints.iter().filter(|endpoint| endpoint.is_post()).count() as u64;
    let all = endpoints.len() as u64;
    // Meanwhile the bystander asked nothing for too long.
    assert_eq!((problems["too-slow"], cuts["slow-head"]), (posts, all - posts + 1));
    assert!(cuts["truncated"] >= all - posts, "{cuts:?} {problems:?}");
}
