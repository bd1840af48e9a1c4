//! Messages of PPTP's control connection (RFC 2637): the call numbers in them, which are also in the GRE packets of the
//! call. They have two bytes wherever they are, so nothing becomes longer.
//!
//! A packet of GRE carries the number that its *receiver* gave to the call. So of an inside host's call only the number
//! matters that this host chose: in the messages that it sends as its own, in those that it gets as its peer's.

/// The port of the control connection.
pub(crate) const PORT: u16 = 1723;

const MAGIC: [u8; 4] = [0x1a, 0x2b, 0x3c, 0x4d];
/// The length field of a message, and the least length: that of a header.
const HEADER_BYTES: usize = 12;
const LENGTH_MAX: usize = 220;
const CONTROL: [u8; 2] = [0, 1];
const OUTGOING_CALL_REQUEST: u8 = 7;
const OUTGOING_CALL_REPLY: u8 = 8;

/// Where the messages are: kind and place of each that is whole; `None` at the end if what follows is none.
fn messages(bytes: &[u8]) -> impl Iterator<Item = Option<(u8, usize)>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let length = rest.first_chunk::<2>().map_or(0, |length| usize::from(u16::from_be_bytes(*length)));
        let is_sound = (HEADER_BYTES..=LENGTH_MAX).contains(&length)
            && length <= rest.len()
            && rest[2..4] == CONTROL
            && rest[4..8] == MAGIC
            && rest[8] == 0;
        let message = is_sound.then(|| (rest[9], at));
        at = if is_sound { at + length } else { bytes.len() };
        Some(message)
    })
}

/// The place in a message of the number that its sender, or its receiver, has given to the call.
fn place_of(kind: u8, is_own: bool) -> Option<usize> {
    match (kind, is_own) {
        // Requests and replies to begin a call, the request to clear it, the notice of its end.
        (7..=10 | 12 | 13, true) => Some(12),
        (8 | 10, false) => Some(14),
        // Incoming call connected, error notice, link info.
        (11 | 14 | 15, false) => Some(12),
        _ => None,
    }
}

/// Whether a message may name a call for the first time.
pub(crate) fn may_begin(kind: u8) -> bool {
    (7..=10).contains(&kind)
}

/// Whether a message begins a call.
pub(crate) fn begins_call(bytes: &[u8]) -> bool {
    let kinds = [OUTGOING_CALL_REQUEST, OUTGOING_CALL_REPLY];
    messages(bytes).flatten().any(|(kind, _)| kinds.contains(&kind))
}

/// Lets `change` replace the numbers that the sender (`is_own`) or the receiver has given to calls; it gets the kind of
/// the message too. Returns whether all bytes were whole messages.
pub(crate) fn each_call(
    bytes: &mut [u8],
    is_own: bool,
    change: &mut dyn FnMut(u8, u16) -> Option<u16>,
) -> bool {
    let found: Vec<Option<(u8, usize)>> = messages(bytes).collect();
    for (kind, at) in found.iter().flatten().copied() {
        let field = place_of(kind, is_own).and_then(|place| bytes.get_mut(at + place..at + place + 2));
        if let Some(field) = field
            && let [high, low] = *field
            && let Some(new) = change(kind, u16::from_be_bytes([high, low]))
        {
            field.copy_from_slice(&new.to_be_bytes());
        }
    }
    found.iter().all(Option::is_some)
}

/// The call number's place in a GRE packet of version 1 that carries PPP; `None` for any other.
pub(crate) fn call_of(gre: &[u8]) -> Option<(usize, u16)> {
    let header: &[u8; 8] = gre.first_chunk()?;
    let is_ppp = header[1] & 7 == 1 && header[2..4] == [0x88, 0x0b];
    is_ppp.then(|| (6, u16::from_be_bytes([header[6], header[7]])))
}

/// A control message, for tests.
#[cfg(test)]
pub(crate) fn message(kind: u8, fields: &[u16]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 1, 0x1a, 0x2b, 0x3c, 0x4d, 0, kind, 0, 0];
    bytes.extend(fields.iter().flat_map(|field| field.to_be_bytes()));
    bytes.resize(bytes.len().max(32), 0);
    bytes[1] = u8::try_from(bytes.len()).expect("a short message");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What replacing all numbers by one makes of the two fields of a message.
    fn fields(kind: u8, is_own: bool) -> [u16; 2] {
        let mut bytes = message(kind, &[1, 2]);
        assert!(each_call(&mut bytes, is_own, &mut |_, call| Some(call + 10)));
        [u16::from_be_bytes([bytes[12], bytes[13]]), u16::from_be_bytes([bytes[14], bytes[15]])]
    }

    #[test]
    fn who_has_given_which_number() {
        for (kind, of_sender, of_receiver) in [
            (7, [11, 2], [1, 2]),
            (8, [11, 2], [1, 12]),
            (9, [11, 2], [1, 2]),
            (10, [11, 2], [1, 12]),
            (11, [1, 2], [11, 2]),
            (12, [11, 2], [1, 2]),
            (13, [11, 2], [1, 2]),
            (14, [1, 2], [11, 2]),
            (15, [1, 2], [11, 2]),
            (5, [1, 2], [1, 2]),
        ] {
            assert_eq!((fields(kind, true), fields(kind, false)), (of_sender, of_receiver), "{kind}");
        }
    }

    #[test]
    fn several_messages_and_what_is_none() {
        let mut bytes = [message(7, &[1]), message(12, &[2])].concat();
        let mut seen = Vec::new();
        assert!(each_call(&mut bytes, true, &mut |kind, call| {
            seen.push((kind, call));
            None
        }));
        assert_eq!(seen, [(7, 1), (12, 2)]);
        assert!(begins_call(&bytes) && !begins_call(&bytes[32..]));
        bytes.truncate(40);
        assert!(!each_call(&mut bytes, true, &mut |_, _| None), "the second is not whole");
        bytes[4] = 0;
        assert!(!each_call(&mut bytes, true, &mut |_, _| panic!("no message")));
    }

    #[test]
    fn calls_in_gre() {
        assert_eq!(call_of(&[0x30, 0x81, 0x88, 0x0b, 0, 4, 0x12, 0x34, 0]), Some((6, 0x1234)));
        assert_eq!(call_of(&[0x30, 0x80, 0x88, 0x0b, 0, 4, 0x12, 0x34]), None, "version 0");
        assert_eq!(call_of(&[0x30, 0x81, 0x08, 0x00, 0, 4, 0x12, 0x34]), None);
        assert_eq!(call_of(&[0x30, 0x81, 0x88]), None);
    }
}
