//! Words and records in XDR.

pub(super) fn put(bytes: &mut Vec<u8>, words: &[u32]) {
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
}

/// A kind, and behind it what `body` writes with its length in front.
pub(super) fn put_opaque(bytes: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    put(bytes, &[kind, 0]);
    let start = bytes.len();
    body(bytes);
    let length = u32::try_from(bytes.len() - start).unwrap_or(u32::MAX);
    bytes[start - 4..start].copy_from_slice(&length.to_be_bytes());
}
