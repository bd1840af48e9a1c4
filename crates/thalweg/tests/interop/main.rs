//! Interoperation with other people's daemons, over real TCP in network namespaces. Each test has a cable of its
//! own; what daemons think is asked through their own command lines.
//!
//! Needs root and iproute2; a daemon that is not installed is left out, and said so.

mod bird;
mod cases;
mod exabgp;
mod frr;
mod gobgp;
mod net;
mod openbgpd;
mod router;

use router::{FAMILIES, Family};

/// That the questions and their answers are understood: daemons that are known to work, with each other.
mod rivals {
    use super::*;

    #[test]
    fn bird_and_frr() {
        cases::exchange(bird::make, frr::make, 300, &FAMILIES);
    }

    #[test]
    fn bird_and_gobgp() {
        cases::exchange(bird::make, gobgp::make, 10, &FAMILIES);
    }

    #[test]
    fn bird_and_openbgpd() {
        cases::exchange(bird::make, openbgpd::make, 300, &FAMILIES);
    }

    #[test]
    fn bird_and_exabgp() {
        cases::exchange(bird::make, exabgp::make, 100, &FAMILIES);
    }

    #[test]
    fn passwords() {
        cases::password(bird::make, frr::make, &[Family::V4]);
    }

    #[test]
    fn graceful_restart() {
        cases::graceful_restart(frr::make, bird::make, Family::V4);
    }
}
