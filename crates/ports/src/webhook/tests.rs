//! Servers that accept, refuse, come later, say nonsense, or are not there.

use super::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpListener;

/// Reads a request; returns its head and body.
fn read_request(stream: &mut impl Read) -> (String, String) {
    let mut bytes = Vec::new();
    let mut piece = [0; 512];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            if body.len() == length.expect("a length").parse::<usize>().expect("a number") {
                return (head.to_owned(), body.to_owned());
            }
        }
        let count = stream.read(&mut piece).expect("a request");
        assert!(count > 0, "the request is whole");
        bytes.extend_from_slice(&piece[..count]);
    }
}

/// A server that gives these answers, one for each connection, and returns what it was sent.
fn server(answers: Vec<&'static str>) -> (u16, JoinHandle<Vec<(String, String)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let serve = move || {
        let answer = |answer: &str| {
            let (mut stream, _) = listener.accept().expect("a client");
            let request = read_request(&mut stream);
            stream.write_all(answer.as_bytes()).expect("it reads");
            request
        };
        answers.into_iter().map(answer).collect()
    };
    (port, std::thread::spawn(serve))
}

fn webhook(url: &str, authorities: Option<PathBuf>) -> Webhook {
    Webhook::start_with(url, authorities, Duration::from_millis(1)).expect("a webhook")
}

#[test]
fn a_text_is_repeated_until_it_is_accepted_and_then_given_up() {
    let refusal = "HTTP/1.1 503 Service Unavailable\r\n\r\n";
    let accepts = "HTTP/1.1 204 No Content\r\n\r\n";
    let (port, server) =
        server(vec![refusal, accepts, "no HTTP\r\n", refusal, "HTTP/1.1 302 Found\r\n\r\n", accepts]);
    let webhook = webhook(&format!("http://127.0.0.1:{port}/hooks/a?b=c"), None);
    for text in ["{\"n\":1}", "{\"n\":2}", "{\"n\":3}"] {
        webhook.post(text.to_owned());
    }
    let requests = server.join().expect("it served");
    let counts = webhook.finish();
    assert_eq!((counts.accepted, counts.given_up, counts.dropped), (2, 1, 0));
    assert_eq!(counts.error, None);
    let bodies: Vec<&str> = requests.iter().map(|(_, body)| body.as_str()).collect();
    assert_eq!(bodies, ["{\"n\":1}", "{\"n\":1}", "{\"n\":2}", "{\"n\":2}", "{\"n\":2}", "{\"n\":3}"]);
    let head = &requests[0].0;
    assert!(head.starts_with("POST /hooks/a?b=c HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nHost: 127.0.0.1:{port}\r\n")), "{head}");
}

#[test]
fn nobody_waits_for_a_server_that_is_not_there() {
    // Bound and not listening for others: its number is nobody else's.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let webhook = webhook(&format!("http://127.0.0.1:{port}"), None);
    // The first texts hang in the server's backlog until it goes; all further ones find the queue full.
    for _ in 0..2 * WAITING_MAX {
        webhook.post("{}".to_owned());
    }
    let dropped = webhook.counts().dropped;
    assert!(dropped >= (WAITING_MAX - 1) as u64, "{dropped}");
    drop(listener);
    let counts = webhook.finish();
    assert_eq!(counts.accepted, 0);
    assert_eq!(counts.given_up + counts.dropped, 2 * WAITING_MAX as u64);
    assert!(counts.error.is_some());
}

#[test]
fn a_server_of_https_must_be_signed() {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, authority.pem()).expect("it can be written");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
        )
        .expect("a server's configuration");
    let listener = TcpListener::bind("localhost:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let serve = move || {
        let (socket, _) = listener.accept().expect("a client");
        let session = rustls::ServerConnection::new(Arc::new(config)).expect("a session");
        let mut stream = StreamOwned::new(session, socket);
        let (_, body) = read_request(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("it reads");
        body
    };
    let server = std::thread::spawn(serve);
    let hook = webhook(&format!("https://localhost:{port}/"), Some(file));
    hook.post("{\"secret\":1}".to_owned());
    assert_eq!(server.join().expect("it served"), "{\"secret\":1}");
    assert_eq!(hook.finish().accepted, 1);
    let missing = folder.path().join("none.pem");
    assert!(matches!(Webhook::start("https://localhost/", Some(missing)), Err(WebhookError::Tls(_))));
}

#[test]
fn addresses_are_read_or_refused() {
    let parsed = |url: &str| {
        Target::parse(url, None).map(|target| (target.server.host, target.server.port, target.path))
    };
    let expect = |host: &str, port, path: &str| (host.to_owned(), port, path.to_owned());
    assert_eq!(parsed("http://hooks.example.net").ok(), Some(expect("hooks.example.net", 80, "/")));
    assert_eq!(parsed("http://h:8080/a/b?c=d:e").ok(), Some(expect("h", 8080, "/a/b?c=d:e")));
    assert_eq!(parsed("http://[2001:db8::1]/x").ok(), Some(expect("2001:db8::1", 80, "/x")));
    assert_eq!(parsed("http://[2001:db8::1]:81").ok(), Some(expect("2001:db8::1", 81, "/")));
    for url in
        ["hooks", "ftp://a/", "http://", "http://a:b/", "http://a b/", "http://a/\r\nX: y", "http://:80/"]
    {
        assert!(matches!(parsed(url), Err(WebhookError::Address(_))), "{url}");
    }
}
