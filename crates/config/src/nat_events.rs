//! `nat_events` of `[flows]`: the NAT events that collectors and the dataset receive.

use thalweg_dataplane::nat::{BlockAllocation, Filtering, NatConfig, NatLogging};

use crate::diagnostic::ErrorKind;
use crate::reader::{At, Reader};

/// Checks the key against the NAT configuration and those who receive events.
pub(crate) fn check(
    reader: &mut Reader,
    at: At<Option<NatLogging>>,
    nat: Option<&NatConfig>,
    has_receivers: bool,
) -> Option<NatLogging> {
    let (logging, span) = (at.value?, at.span);
    let Some(nat) = nat else {
        let message = "nothing is translated: there are no events of NAT";
        // A reload may remove `[nat]` and leave this key.
        reader.warning(ErrorKind::Conflict, &span, message, "a section [nat], or \"off\"");
        return Some(logging);
    };
    match (logging, nat.filtering, nat.subscribers.as_ref().map(|subscribers| &subscribers.allocation)) {
        (NatLogging::Sessions, Filtering::AddressDependent | Filtering::AddressAndPortDependent, _) => {
            let message =
                "with this `filtering` NAT does not keep the destination of a session's first packet";
            reader.error(ErrorKind::Conflict, &span, message, "\"bindings\" or \"blocks\"");
        }
        (NatLogging::Blocks, _, None) => {
            let message = "there are no blocks of ports";
            reader.error(
                ErrorKind::Conflict,
                &span,
                message,
                "[nat.subscribers], \"sessions\" or \"bindings\"",
            );
        }
        (NatLogging::Blocks, _, Some(BlockAllocation::Deterministic(_))) => {
            let message = "blocks follow from the configuration: only limits and exhausted ports are told";
            reader.warning(ErrorKind::Conflict, &span, message, "\"off\" for no log at all");
        }
        _ => {}
    }
    if !has_receivers {
        let message = "nobody is told of NAT's events";
        reader.warning(ErrorKind::MissingKey, &span, message, "`collectors` or `store`");
    }
    Some(logging)
}
