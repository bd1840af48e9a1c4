//! What the status of a dataset says of its archive.

#![allow(clippy::unwrap_used)] // a helper that fails fails the test

use thalweg_flow::{Counters, EndReason, FlowKey};
use thalweg_testdata::s3_server::{ACCESS_KEY, S3Server, SECRET_KEY};

use super::*;
use crate::archive::open_archive;

/// Long enough ago for an hour to be complete.
const AGO_NS: u64 = 3 * 3600 * 1_000_000_000;

fn record() -> FlowRecord {
    let key = FlowKey {
        src: "10.0.0.1".parse().unwrap(),
        dst: "192.0.2.53".parse().unwrap(),
        src_port: 1024,
        dst_port: 53,
        protocol: 17,
        traffic_class: 0,
        ingress: 1,
        vlan: 0,
        mpls_label: None,
    };
    let last_ns = wall_ns() - AGO_NS;
    let counters = Counters { packets: 1, bytes: 100, first_ns: last_ns, last_ns, ..Counters::default() };
    FlowRecord::new(key, counters, EndReason::IdleTimeout)
}

/// The status when it is like this.
fn status_when(kept: &mut Kept, is: impl Fn(&[OutletStatus]) -> bool) -> Vec<OutletStatus> {
    loop {
        let status = kept.status();
        if is(&status) {
            return status;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_bucket_that_is_away_is_named_and_the_folder_is_well() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(folder.path(), WriterOptions::new(wall_ns)).unwrap();
    writer.append(&[record()]).unwrap();
    writer.close().unwrap();
    let server = S3Server::start(wall_ns).unwrap();
    server.set_down(true);
    let credentials = folder.path().join("credentials");
    let text = format!("[default]\naws_access_key_id={ACCESS_KEY}\naws_secret_access_key={SECRET_KEY}\n");
    std::fs::write(&credentials, text).unwrap();
    let url = format!("{}&credentials_file={}", server.url("edge1"), credentials.display());
    let options = KeptOptions {
        retention: Retention::default(),
        iceberg: false,
        archive: Some(open_archive(&url).unwrap()),
        waiting: Waiting::Never,
        cache: None,
        notify: Notify::default(),
    };
    let mut kept = Kept::open(folder.path(), options).unwrap();
    let status = status_when(&mut kept, |status| status.iter().any(|outlet| outlet.error.is_some()));
    let [here, there] = &status[..] else { panic!("{status:?}") };
    assert_eq!((&here.to, &here.error), (&folder.path().display().to_string(), &None));
    assert_eq!((there.to.as_str(), there.records), ("s3://flows/edge1", 0));
    assert!(there.error.as_ref().unwrap().contains("s3://flows/edge1"), "{there:?}");
    server.set_down(false);
    let status = status_when(&mut kept, |status| status[1].records == 1 && status[1].error.is_none());
    assert_eq!((&status[0].error, status[1].lost.len()), (&None, 0));
    Box::new(kept).finish(true).unwrap();
}
