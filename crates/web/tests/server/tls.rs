//! TLS on the API's addresses.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use thalweg_config::{WebRight, WebToken};

use crate::client::{ask, connect};
use crate::router::{Fixture, OPERATE};

/// A server with a certificate of its own and a token, and the certificate.
fn server() -> (Fixture, CertificateDer<'static>) {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let certificate = signed.cert.der().clone();
    let server = Fixture::with(|config| {
        let folder = config.socket.as_deref().and_then(std::path::Path::parent).expect("a folder").to_owned();
        let write = |name: &str, text: String| {
            let file = folder.join(name);
            std::fs::write(&file, text).expect("writing");
            file
        };
        let key = write("web.key", signed.signing_key.serialize_pem());
        config.tls = Some((write("web.pem", signed.cert.pem()), key));
        let file = write("operate.token", OPERATE.to_owned());
        config.tokens = vec![WebToken { name: "ops".to_owned(), file, may: WebRight::Operate }];
    });
    (server, certificate)
}

#[test]
fn a_client_that_trusts_the_certificate_is_served() {
    let (server, certificate) = server();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a root");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    let mut stream = StreamOwned::new(connection, connect(server.address()));
    let body = format!("{{\"token\":\"{OPERATE}\"}}");
    let head = format!(
        "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let answer = ask(&mut stream, &(head + &body));
    assert_eq!((answer.status, answer.json()["may"].clone()), (200, "operate".into()));
    assert!(answer.header("set-cookie").is_some_and(|cookie| cookie.ends_with("; Secure")), "{answer:?}");
}

#[test]
fn what_is_no_tls_is_cut_and_counted() {
    let (server, _) = server();
    let mut stream = connect(server.address());
    stream.write_all(b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sending");
    let mut all = Vec::new();
    // The server may reset the connection.
    let _ = stream.read_to_end(&mut all);
    assert!(!String::from_utf8_lossy(&all).contains("200"), "{all:?}");
    assert_eq!(server.sample("thalweg_web_connections_cut_total{reason=\"tls\"}"), 1);
}
