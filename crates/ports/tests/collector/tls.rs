//! TLS with our own certificate authority: which servers are trusted, and which certificate the client sends.

use super::*;
use crate::server::{Heard, Server};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use thalweg_ports::collector::{
    Collector, CollectorAddress, CollectorError, CollectorOptions, Connection, TlsOptions,
};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn sign(
        &self,
        name: &str,
        purpose: ExtendedKeyUsagePurpose,
    ) -> (String, String, CertificateDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem(), certificate.der().clone())
    }

    fn server(&self, name: &str) -> Arc<ServerConfig> {
        let (_, key, certificate) = self.sign(name, ExtendedKeyUsagePurpose::ServerAuth);
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .unwrap();
        let key =
            <PrivateKeyDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_slice(key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate], key)
            .unwrap();
        Arc::new(config)
    }

    /// Files for a client that trusts `trusted` and has a certificate of `self`.
    fn client(&self, trusted: &Self, folder: &Path) -> TlsOptions {
        let (certificate, key, _) = self.sign("exporter.test", ExtendedKeyUsagePurpose::ClientAuth);
        let write = |name: &str, text: &str| {
            fs::write(folder.join(name), text).unwrap();
            folder.join(name)
        };
        TlsOptions {
            authorities: Some(write("ca.pem", &trusted.0.pem())),
            server_name: Some("collector.test".to_owned()),
            identity: Some((write("exporter.pem", &certificate), write("exporter.key", &key))),
        }
    }
}

fn open(server: &Server, tls: TlsOptions) -> Collector {
    let address: CollectorAddress = format!("ipfix+tls://{}", server.address).parse().unwrap();
    let options =
        CollectorOptions { tls, retry_max: Duration::from_millis(200), ..CollectorOptions::new(&address) };
    Collector::open(&address, options).unwrap()
}

#[test]
fn records_arrive_at_a_trusted_collector() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let heard = Heard::default();
    let config = authority.server("collector.test");
    let server = Server::start("127.0.0.1:0".parse().unwrap(), Some(Arc::clone(&config)), &heard);
    let place = server.address;
    let collector = open(&server, authority.client(&authority, folder.path()));
    let send = |numbers: std::ops::RangeInclusive<u64>| {
        for batch in numbers.map(record).collect::<Vec<_>>().chunks(500) {
            collector.send(batch.to_vec()).unwrap();
        }
    };
    send(1..=20_000);
    wait_until("the first records", || heard.lock().unwrap().len() == 20_000);
    wait_until("their acknowledgement", || collector.report().in_flight.records == 0);
    server.kill();
    let server = Server::start(place, Some(config), &heard);
    wait_until("the second session", || collector.report().connects == 2);
    send(20_001..=30_000);
    let report = collector.finish(TIMEOUT);
    wait_until("the last records", || heard.lock().unwrap().len() == 30_000);
    server.kill();
    assert_eq!(*heard.lock().unwrap(), (1..=30_000).collect::<Vec<u64>>());
    assert_eq!(report.sent.records, 30_000);
    check_totals(&report);
}

#[test]
fn a_collector_that_is_not_trusted_gets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, stranger) = (Authority::new(), Authority::new());
    for (config, what) in [
        (stranger.server("collector.test"), "invalid peer certificate"),
        (authority.server("someone-else.test"), "not valid for name"),
    ] {
        let heard = Heard::default();
        let server = Server::start("127.0.0.1:0".parse().unwrap(), Some(config), &heard);
        let collector = open(&server, authority.client(&authority, folder.path()));
        collector.send(vec![record(1)]).unwrap();
        wait_until("an error", || matches!(collector.report().connection, Connection::Down(_)));
        let Connection::Down(why) = collector.report().connection else { panic!("it was down") };
        assert!(why.contains(what), "{why}");
        let report = collector.finish(Duration::from_millis(50));
        assert_eq!(report.lost_in_all().records, 1);
        assert!(heard.lock().unwrap().is_empty());
        server.kill();
    }
}

#[test]
fn files_that_are_none_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let good = authority.client(&authority, folder.path());
    let address: CollectorAddress = "ipfix+tls://localhost".parse().unwrap();
    let error = |tls: TlsOptions| {
        let options = CollectorOptions { tls, ..CollectorOptions::new(&address) };
        Collector::open(&address, options).err().expect("refused")
    };
    assert!(error(TlsOptions::default()).to_string().contains("no file of authorities"));
    let missing = folder.path().join("missing.pem");
    let said = error(TlsOptions { authorities: Some(missing.clone()), ..good.clone() }).to_string();
    assert!(said.starts_with(&missing.display().to_string()), "{said}");
    let (certificate, key) = good.identity.clone().unwrap();
    let swapped = error(TlsOptions { identity: Some((key, certificate)), ..good.clone() });
    assert!(matches!(swapped, CollectorError::TlsFile { .. }), "{swapped}");
    assert!(swapped.to_string().contains("found none"), "{swapped}");
    let name = error(TlsOptions { server_name: Some("not a name".to_owned()), ..good });
    assert!(name.to_string().contains("neither a host's name nor an address"), "{name}");
}
