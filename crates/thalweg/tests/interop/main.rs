//! Interoperation with other BGP daemons, over real TCP in network namespaces. Each test has its own veth, and
//! queries the daemons through their own command lines.
//!
//! Needs root and iproute2; tests with a daemon that is not installed are skipped and say so. "Controls" run
//! other daemons with each other, which shows that the tests ask the right questions. They run if
//! `THALWEG_TEST_CONTROLS` is set, as in `.ci/run`, because their failures are not this program's.

mod bird;
mod cases;
mod exabgp;
mod frr;
mod gobgp;
mod net;
mod openbgpd;
mod remarks;
mod restart;
mod robust;
mod router;
mod rpki;
mod tables;
mod thalweg;

use router::{FAMILIES, Family};

/// Runs a control, or says that it was skipped.
fn control(run: impl FnOnce()) {
    if std::env::var_os("THALWEG_TEST_CONTROLS").is_some() {
        run();
    } else {
        thalweg_testdata::skipped("other daemons with each other: set THALWEG_TEST_CONTROLS=1");
    }
}

/// Controls: established daemons with each other. They show that the tests understand the daemons' answers.
mod rivals {
    use super::*;

    #[test]
    fn bird_and_frr() {
        control(|| cases::exchange(bird::make, frr::make, 300, &FAMILIES));
    }

    #[test]
    fn bird_and_gobgp() {
        control(|| cases::exchange(bird::make, gobgp::make, 10, &FAMILIES));
    }

    #[test]
    fn bird_and_openbgpd() {
        control(|| cases::exchange(bird::make, openbgpd::make, 300, &FAMILIES));
    }

    #[test]
    fn bird_and_exabgp() {
        control(|| cases::exchange(bird::make, exabgp::make, 100, &FAMILIES));
    }

    #[test]
    fn passwords() {
        control(|| cases::password(bird::make, frr::make, &[Family::V4]));
    }

    #[test]
    fn graceful_restart() {
        control(|| cases::graceful_restart(frr::make, bird::make, Family::V4));
    }
}

/// This daemon with each of the other ones.
mod with {
    use super::*;

    #[test]
    fn bird() {
        cases::exchange(thalweg::make, bird::make, 2000, &FAMILIES);
    }

    #[test]
    fn frr() {
        cases::exchange(thalweg::make, frr::make, 1000, &FAMILIES);
    }

    #[test]
    fn gobgp() {
        cases::exchange(thalweg::make, gobgp::make, 20, &FAMILIES);
    }

    #[test]
    fn openbgpd() {
        cases::exchange(thalweg::make, openbgpd::make, 300, &FAMILIES);
    }

    #[test]
    fn exabgp() {
        cases::exchange(thalweg::make, exabgp::make, 100, &FAMILIES);
    }

    #[test]
    fn passwords_of_bird() {
        cases::password(thalweg::make, bird::make, &FAMILIES);
    }

    #[test]
    fn passwords_of_frr() {
        cases::password(thalweg::make, frr::make, &FAMILIES);
    }

    #[test]
    fn passwords_of_gobgp() {
        cases::password(thalweg::make, gobgp::make, &[Family::V4]);
    }

    #[test]
    fn a_graceful_restart_of_bird() {
        cases::graceful_restart(thalweg::make, bird::make, Family::V4);
        cases::graceful_restart(thalweg::make, bird::make, Family::V6);
    }

    #[test]
    fn a_graceful_restart_of_frr() {
        cases::graceful_restart(thalweg::make, frr::make, Family::V4);
    }

    #[test]
    fn a_graceful_restart_of_gobgp() {
        cases::graceful_restart(thalweg::make, gobgp::make, Family::V4);
    }

    #[test]
    fn a_graceful_restart_of_ours() {
        cases::graceful_restart(bird::make, thalweg::make, Family::V4);
        cases::graceful_restart(frr::make, thalweg::make, Family::V4);
    }
}
