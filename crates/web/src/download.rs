//! A capture as a download: blocks of a pcapng file, as the router sends them.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use thalweg_node::control::{Client, Request};

use crate::answer::Outlet;
use crate::limits::ROUTER_MAX;
use crate::problem::Problem;
use crate::routes::CAPTURE_SECONDS;

/// Passes on a capture: the body of a thread.
pub(crate) fn capture(socket: &Path, request: &Request, mut outlet: Outlet) {
    // Perhaps no packet passes until its end.
    let silence_max = ROUTER_MAX + Duration::from_secs(CAPTURE_SECONDS.1);
    let result = Client::connect(socket, Some(silence_max)).map_err(Problem::from).and_then(|mut router| {
        // The first item says that the capture runs; then come blocks.
        router.ask(request, |_| ControlFlow::Break(()))?;
        let broke_off = |error| Problem::failed(format!("the capture broke off: {error}"));
        while let Some(block) = router.block().map_err(broke_off)? {
            let written =
                outlet.write(block).and_then(|()| if router.has_more() { Ok(()) } else { outlet.flush() });
            if written.is_err() {
                return Ok(());
            }
        }
        // The summary, or the connection has ended without one.
        router.item()?;
        Ok(())
    });
    outlet.end(result);
}
