//! `save_fib`: a router that was killed forwards by the table of its predecessor, before BGP is there again.

use std::fs;
use std::path::PathBuf;

use crate::dead_ways::{
    BEYOND, BGP, Bird, PORTS, SLOW, all_answer, bird, established, goes_by, neighbor, site, ways,
};
use crate::site::{GUEST, Router, eventually, has};

/// Long, because a busy machine may take its time.
const SAVED: &str = "save_fib = true\ngraceful_restart = { time_s = 3000 }\ninstall =";

/// An empty table has 36 bytes.
const EMPTY_BYTES: u64 = 36;

fn file_of(router: &Router<'_>) -> PathBuf {
    PathBuf::from(format!("{}.fib", router.socket()))
}

#[test]
fn a_killed_router_forwards_before_bgp_is_back_and_drops_what_is_not_repeated() {
    let Some(site) = site() else { return };
    if !has("bird") {
        return;
    }
    let config = format!("{PORTS}{}{}", BGP.replace("install =", SAVED), neighbor(&SLOW));
    let mut router = site.run_alone(&config, &[]);
    let mut silent = bird(&site, &SLOW);
    goes_by(&router, BEYOND, &[GUEST]);
    eventually("all addresses answer", || all_answer(&site).then_some(()));
    let file = file_of(&router);
    eventually("the table is saved", || (fs::metadata(&file).ok()?.len() > EMPTY_BYTES).then_some(()));

    // The neighbor says nothing any more, so the route cannot come from it.
    silent.signal("STOP");
    router.process.kill();
    drop(router);
    let router = site.run_alone(&config, &[]);
    goes_by(&router, BEYOND, &[GUEST]);
    eventually("all addresses answer without BGP", || all_answer(&site).then_some(()));
    assert_eq!(established(&router), Some(Vec::new()));
    let said = site.log();
    assert!(said.contains("restart: forwarding by the saved table") && said.contains("prefixes=1"), "{said}");
    let view = router.one("forwarding");
    assert_eq!((&view["prefixes"]["ipv4"], &view["saved_prefixes"]), (&1.into(), &1.into()), "{view}");

    // Its successor announces something else.
    const OTHER: &str = "203.0.113.64/28";
    silent.kill();
    let _other = bird(&site, &Bird { prefixes: &[OTHER], ..SLOW });
    goes_by(&router, OTHER, &[GUEST]);
    eventually("what nobody repeats is gone", || ways(&router, BEYOND)?.is_empty().then_some(()));
    let view = router.one("forwarding");
    assert_eq!((&view["prefixes"]["ipv4"], &view["saved_prefixes"]), (&1.into(), &0.into()), "{view}");
    eventually("the log says so", || site.log().contains("restart: removed saved routes").then_some(()));
    router.counters_add_up();

    // A router that is stopped leaves nothing, so the next start is a cold one.
    let mut router = router;
    assert!(router.process.end(), "{}", site.log());
    assert!(!file.exists());
    drop(router);
    let router = site.run_alone(&config, &[]);
    eventually("the session is up", || (established(&router)?.len() == 1).then_some(()));
    assert_eq!(site.log().matches("restart: forwarding by the saved table").count(), 1, "{}", site.log());
}

/// A file that is damaged makes the start a cold one, and the log says why.
#[test]
fn a_damaged_table_is_not_used() {
    let Some(site) = site() else { return };
    if !has("bird") {
        return;
    }
    let config = format!("{PORTS}{}{}", BGP.replace("install =", SAVED), neighbor(&SLOW));
    let mut router = site.run_alone(&config, &[]);
    let silent = bird(&site, &SLOW);
    goes_by(&router, BEYOND, &[GUEST]);
    let file = file_of(&router);
    eventually("the table is saved", || (fs::metadata(&file).ok()?.len() > EMPTY_BYTES).then_some(()));
    silent.signal("STOP");
    router.process.kill();
    drop(router);
    let mut bytes = fs::read(&file).expect("the table is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).expect("the folder is writable");
    let router = site.run_alone(&config, &[]);
    assert_eq!(ways(&router, BEYOND), Some(Vec::new()));
    let said = site.log();
    assert!(
        said.contains("this is a cold start: cannot use") && said.contains("its checksum is wrong"),
        "{said}"
    );
}
