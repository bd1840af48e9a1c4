//! VLAN sub-interfaces: ports without an interface of their own.
//!
//! The stages handle them: the first finds the port by the tag, and later ones see no tag. This module joins them
//! to their parent's outbox, and removes tags from frames for the host thread, so that for it and for mirrors a
//! sub-interface is a port like any other.

use std::sync::Arc;

use thalweg_config::RouterConfig;
use thalweg_node::egress_tags;
use thalweg_ports::live::{RxCounters, TxCounters};
use thalweg_wire::ethernet::{ADDRESS_BYTES, HEADER_BYTES};
use thalweg_wire::vlan::id_of;

use crate::counters::PortCounters;
use crate::open::OpenError;
use crate::outbox::Outbox;
use crate::ports::{PortState, PortStates};

/// Fills in outboxes and states of sub-interfaces, which are `None` in `own`, from their parents.
pub(crate) fn with_sub_interfaces(
    config: &RouterConfig,
    own: Vec<Option<Outbox>>,
    mut states: PortStates,
) -> Result<(Vec<Outbox>, PortStates), OpenError> {
    let tags = egress_tags(config);
    let mut subs = Vec::new();
    for ((index, port), _) in (0u16..).zip(&config.ports).zip(&own).filter(|(_, own)| own.is_none()) {
        let tag = tags.get(index);
        let place = tag.map(|tag| usize::from(tag.parent));
        let parent = place.and_then(|place| Some((own.get(place)?.as_ref()?, states.get(place)?.as_ref()?)));
        let (Some(tag), Some((outbox, state))) = (tag, parent) else {
            return Err(OpenError::NoInterface { port: port.name.clone() });
        };
        if config.qos.egress.iter().any(|egress| egress.port == index) {
            let parent = config.ports[usize::from(tag.parent)].name.clone();
            return Err(OpenError::ShapedSubInterface { port: port.name.clone(), parent });
        }
        subs.push(outbox.sub_interface(tag));
        if states[usize::from(index)].is_none() {
            let sub = PortState::sub_interface(port, state, id_of(tag.tci));
            states[usize::from(index)] = Some(Arc::new(sub));
        }
    }
    let mut subs = subs.into_iter();
    Ok((own.into_iter().filter_map(|own| own.or_else(|| subs.next())).collect(), states))
}

/// What a sub-interface received and sent. Its parent's driver counts that too, as well as failures.
pub(crate) fn numbers_of(counters: &PortCounters) -> (RxCounters, TxCounters) {
    let ((received, received_bytes), (sent, sent_bytes)) = (counters.received.get(), counters.sent.get());
    let received = RxCounters { frames: received, bytes: received_bytes, ..RxCounters::default() };
    (received, TxCounters { frames: sent, bytes: sent_bytes, failed: 0 })
}

/// Where the network header begins after removal of the tags before it.
pub(crate) fn offset_without_tags(l3_offset: u16) -> u16 {
    l3_offset.min(HEADER_BYTES as u16)
}

/// Removes the tags before the network header, which begins at `l3_offset`.
pub(crate) fn without_tags(frame: &[u8], l3_offset: u16) -> Vec<u8> {
    match (frame.get(..ADDRESS_BYTES), frame.get(usize::from(l3_offset).saturating_sub(2)..)) {
        (Some(addresses), Some(rest)) if usize::from(l3_offset) > HEADER_BYTES => [addresses, rest].concat(),
        _ => frame.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_taken_off() {
        let frame = |tags: &[u8]| [&[7; 12], tags, &[0x08, 0x06], &[1; 28]].concat();
        let plain = frame(&[]);
        for tags in [&[][..], &[0x81, 0, 0, 10], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 10]] {
            let l3_offset = 14 + tags.len() as u16;
            assert_eq!(without_tags(&frame(tags), l3_offset), plain);
            assert_eq!(offset_without_tags(l3_offset), 14);
        }
        // A packet of the router's own has no link layer; nothing is known of a frame that is too short.
        for (frame, l3_offset) in [(&[0x45, 0][..], 0), (&[1; 10], 18)] {
            assert_eq!(without_tags(frame, l3_offset), frame);
        }
        assert_eq!(offset_without_tags(0), 0);
    }
}
