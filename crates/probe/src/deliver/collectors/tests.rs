//! What the status says of a collector that was away.

#![allow(clippy::unwrap_used)] // a helper that fails fails the test

use std::net::TcpListener;

use thalweg_flow::fields::unknown_record;

use super::*;

/// The time limit for each awaited status.
const SOONER_OR_LATER: Duration = Duration::from_secs(60);

/// Records go on until the status is as wanted.
fn until(collectors: &mut Collectors, is_wanted: impl Fn(&OutletStatus) -> bool) -> OutletStatus {
    let begun = Instant::now();
    loop {
        collectors.take(&[unknown_record()]).unwrap();
        let status = collectors.status().remove(0);
        if is_wanted(&status) {
            return status;
        }
        assert!(begun.elapsed() < SOONER_OR_LATER, "{status:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_collector_that_is_back_fails_no_more() {
    // Not the address from which the collector connects, so that it never connects to itself.
    let place = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    let targets =
        ExportTargets { addresses: vec![format!("ipfix+tcp://{place}")], ..ExportTargets::default() };
    let (meter, interfaces) = (MeterOptions::default(), SharedInterfaces::default());
    let mut collectors = Collectors::open(&targets, &meter, &interfaces, false, Notify::default()).unwrap();
    let lost = |status: &OutletStatus| status.lost.get(RecordLoss::CollectorDown.name()).copied();
    let away = until(&mut collectors, |status| lost(status).is_some());
    assert!(away.error.as_ref().is_some_and(|error| error.contains("refused")), "{away:?}");

    // Its kernel accepts and acknowledges.
    let _listener = TcpListener::bind(place).unwrap();
    let back = until(&mut collectors, |status| status.records > 0);
    assert_eq!(back.error, None, "{back:?}");
    assert!(lost(&back) >= lost(&away), "{back:?}");
}
