//! `nat_events` of `[flows]`: what collectors are told of address translation.

use crate::diagnostic::ErrorKind;
use crate::reader::{Reader, Section};
use crate::types::{BlockAllocation, Filtering, NatConfig, NatLogging};

/// Reads the key, and checks it against what is translated and who would be told.
pub(crate) fn read(
    reader: &mut Reader,
    section: &mut Section<'_>,
    nat: Option<&NatConfig>,
    has_collectors: bool,
) -> Option<NatLogging> {
    let item = section.take("nat_events")?;
    let words = [
        ("off", None),
        ("sessions", Some(NatLogging::Sessions)),
        ("bindings", Some(NatLogging::Bindings)),
        ("blocks", Some(NatLogging::Blocks)),
    ];
    let logging = reader.word(&item, &words)??;
    let Some(nat) = nat else {
        let message = "nothing is translated: there are no events of NAT";
        // A reload may take [nat] away, and leave who is told what as it was.
        reader.warning(ErrorKind::Conflict, &item.span, message, "a section [nat], or \"off\"");
        return Some(logging);
    };
    match (logging, nat.filtering, nat.subscribers.as_ref().map(|subscribers| &subscribers.allocation)) {
        (NatLogging::Sessions, Filtering::AddressDependent, _) => {
            let message =
                "with address-dependent filtering NAT does not keep whom a session's first packet went to";
            reader.error(ErrorKind::Conflict, &item.span, message, "\"bindings\" or \"blocks\"");
        }
        (NatLogging::Blocks, _, None) => {
            let message = "there are no blocks of ports";
            reader.error(
                ErrorKind::Conflict,
                &item.span,
                message,
                "[nat.subscribers], \"sessions\" or \"bindings\"",
            );
        }
        (NatLogging::Blocks, _, Some(BlockAllocation::Deterministic(_))) => {
            let message = "blocks follow from the configuration: only limits and exhausted ports are told";
            reader.warning(ErrorKind::Conflict, &item.span, message, "\"off\" for no log at all");
        }
        _ => {}
    }
    if !has_collectors {
        let message = "nobody is told of NAT's events: the dataset does not keep them";
        reader.warning(ErrorKind::MissingKey, &item.span, message, "`collectors`");
    }
    Some(logging)
}
