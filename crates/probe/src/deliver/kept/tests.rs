//! What the status of a dataset says of its archive.

#![allow(clippy::unwrap_used)] // a helper that fails fails the test

use thalweg_flow::{Counters, EndReason, FlowKey};
use thalweg_ports::live::wall_ns;
use thalweg_testdata::s3_server::{ACCESS_KEY, S3Server, SECRET_KEY};
use thalweg_text::calendar::format_time;

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

/// Without an archive.
fn options(waiting: Waiting) -> KeptOptions {
    KeptOptions { writing: WriterOptions::new(wall_ns), waiting, cache: None }
}

/// At least so many are written at once, and twice as many may be pending.
const ROW_GROUP_ROWS: usize = 262_144;
/// More than may be pending, so that some must be written before the last are taken.
const MANY: usize = 3 * ROW_GROUP_ROWS;
/// Longer than any test takes.
const FOREVER: Duration = Duration::from_secs(1 << 20);

#[test]
fn records_of_exporters_wait_for_a_busy_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = Kept::open(folder.path(), options(Waiting::WhileWritten(FOREVER))).unwrap();
    let records = vec![record(); 1024];
    for _ in 0..MANY / records.len() {
        kept.take(&records).unwrap();
    }
    let finished = Box::new(kept).finish(false).unwrap();
    assert_eq!((finished.summaries[0].records, finished.missed), (MANY as u64, Amount::default()));
}

/// A store that fails is not waited for, however long one that is busy would be.
#[test]
fn records_of_exporters_do_not_wait_for_a_store_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = Kept::open(folder.path(), options(Waiting::WhileWritten(FOREVER))).unwrap();
    let records = vec![record(); 1024];
    let day = format!("date={}", &format_time(records[0].counters.last_ns)[..10]);
    std::fs::write(folder.path().join(&day), "no folder").unwrap();
    for _ in 0..MANY / records.len() {
        kept.take(&records).unwrap();
    }
    let status = kept.status();
    assert!(status[0].error.is_some() && status[0].lost[RecordLoss::StoreQueue.name()] > 0, "{status:?}");
    std::fs::remove_file(folder.path().join(day)).unwrap();
    let finished = Box::new(kept).finish(false).unwrap();
    let summary = &finished.summaries[0];
    assert_eq!(summary.records + summary.lost[RecordLoss::StoreQueue.name()], MANY as u64, "{summary:?}");
}

/// One that neither writes nor fails is not waited for after a while; what finds no room is told and counted.
#[test]
fn records_of_exporters_do_not_wait_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = Kept::open(folder.path(), options(Waiting::WhileWritten(Duration::ZERO))).unwrap();
    let records = vec![record(); 1024];
    while kept.refused.records == 0 {
        kept.take(&records).unwrap();
    }
    assert!(kept.dataset.as_ref().is_ok_and(|dataset| dataset.is_told));
    // When there is room again, they are taken.
    let refused = kept.refused;
    while kept.status()[0].waiting >= ROW_GROUP_ROWS as u64 {
        std::thread::yield_now();
    }
    kept.take(&records).unwrap();
    assert_eq!(kept.refused, refused);
    assert!(kept.dataset.as_ref().is_ok_and(|dataset| !dataset.is_told));
    Box::new(kept).finish(true).unwrap();
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
    let mut options = options(Waiting::Never);
    options.writing.archive = Some(open_archive(&url).unwrap());
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
