//! AF_XDP as a driver of ports.

use super::{XdpOptions, open, probe, receive_queues};
use crate::live::driver::{Driver, Opened, Probed, Request};
use crate::live::{LiveError, Port, reopen};

/// The driver of ports that use AF_XDP.
pub struct AfXdp;

impl AfXdp {
    fn options(request: &Request) -> Result<XdpOptions, LiveError> {
        let Request { interface, modes, queues, offload, virtual_macs, .. } = request.clone();
        if request.mac.is_some() {
            let why =
                "AF_XDP takes what the interface takes: leave `mac` out, or use driver af_packet".to_owned();
            return Err(LiveError::BadOption { interface, why });
        }
        Ok(XdpOptions { offload, virtual_macs, modes, halves: queues, ..XdpOptions::new(&interface) })
    }
}

impl Driver for AfXdp {
    fn open(&self, request: &Request) -> Result<Opened, LiveError> {
        let options = Self::options(request)?;
        reopen::open_again(Box::new(move || open(&options))).map(Opened::from)
    }

    fn open_once(&self, request: &Request) -> Result<Port, LiveError> {
        open(&Self::options(request)?)
    }

    fn probe(&self, request: &Request) -> Result<Probed, LiveError> {
        let XdpOptions { interface, modes, .. } = Self::options(request)?;
        let (mut worse, mut last) = (Vec::new(), None);
        for (mode, result) in probe(&interface, &modes) {
            match result {
                Ok(()) => {
                    let why_not_better = (!worse.is_empty()).then(|| worse.join("; "));
                    let findings = fewer_queues(request).into_iter().collect();
                    return Ok(Probed { mode: format!("af_xdp {mode}"), why_not_better, findings });
                }
                Err(error) => {
                    worse.push(format!("{mode}: {error}"));
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or(LiveError::BadOption { interface, why: "no XDP mode allowed".to_owned() }))
    }
}

/// A warning if the interface has fewer queues than wanted, since AF_XDP cannot add any.
fn fewer_queues(Request { interface, queues: wanted, .. }: &Request) -> Option<String> {
    let has = receive_queues(interface).ok()?;
    if u32::try_from(*wanted).is_ok_and(|wanted| wanted <= has) {
        return None;
    }
    Some(format!(
        "{interface} has {has} receive queues, not {wanted}: `ethtool -L {interface} combined {wanted}` (or `rx {wanted}`) \
         where it can have more, or driver af_packet"
    ))
}
