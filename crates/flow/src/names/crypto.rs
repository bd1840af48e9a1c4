//! What needs cryptography: removing the protection of QUIC's Initial packets (RFC 9001, 5; RFC 9369, 3.3), and
//! digests. All keys follow from values in the packet, so nothing here is a secret.
//!
//! WebAssembly would need a C compiler for `ring`; there nothing is found. It is no target: it proves that this crate
//! knows nothing of a machine.

#[cfg(not(target_family = "wasm"))]
mod by_ring {
    use ring::aead::quic::{AES_128, HeaderProtectionKey};
    use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
    use ring::digest;
    use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
    use thalweg_wire::quic::InitialView;

    /// The most bytes of a packet number, which header protection assumes.
    const NUMBER_BYTES_MAX: usize = 4;
    const SAMPLE_BYTES: usize = 16;

    pub(crate) fn sha256(bytes: &[u8]) -> Option<[u8; 32]> {
        digest::digest(&digest::SHA256, bytes).as_ref().try_into().ok()
    }

    pub(crate) fn sha1(bytes: &[u8]) -> Option<[u8; 20]> {
        digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().try_into().ok()
    }

    /// The payload of a client's Initial packet. `destination` is the connection identifier of its first one.
    pub(crate) fn open(initial: &InitialView<'_>, destination: &[u8]) -> Option<Vec<u8>> {
        let InitialView { packet, number_at, .. } = *initial;
        let (key, mut nonce, header_key) = client_keys(initial, destination)?;
        let sample_at = number_at + NUMBER_BYTES_MAX;
        let sample = packet.get(sample_at..sample_at + SAMPLE_BYTES)?;
        let [first, mask @ ..] =
            HeaderProtectionKey::new(&AES_128, &header_key).ok()?.new_mask(sample).ok()?;
        let mut packet = packet.to_vec();
        packet[0] ^= first & 0x0f;
        let number_bytes = usize::from(packet[0] & 3) + 1;
        let (header, payload) = packet.split_at_mut_checked(number_at + number_bytes)?;
        let number = &mut header[number_at..];
        number.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        let low = &mut nonce[NONCE_LEN - number_bytes..];
        low.iter_mut().zip(number).for_each(|(nonce, number)| *nonce ^= *number);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = key.open_in_place(nonce, Aad::from(&*header), payload).ok()?;
        Some(opened.to_vec())
    }

    /// The key of a client's payloads, the base of nonces, and the key of headers.
    type Keys = ([u8; 16], [u8; NONCE_LEN], [u8; 16]);

    pub(crate) fn client_keys(initial: &InitialView<'_>, destination: &[u8]) -> Option<Keys> {
        let version = initial.version;
        let secret = Salt::new(HKDF_SHA256, &version.salt).extract(destination);
        let client: [u8; 32] = expand(&secret, "client in")?;
        let client = Prk::new_less_safe(HKDF_SHA256, &client);
        let of = |what: &str| format!("{} {what}", version.label);
        Some((expand(&client, &of("key"))?, expand(&client, &of("iv"))?, expand(&client, &of("hp"))?))
    }

    struct Length(usize);

    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }

    /// HKDF-Expand-Label (RFC 8446, 7.1) without context.
    fn expand<const BYTES: usize>(secret: &Prk, label: &str) -> Option<[u8; BYTES]> {
        let label = format!("tls13 {label}");
        let (length, label_length) = (u16::try_from(BYTES).ok()?, u8::try_from(label.len()).ok()?);
        let info = [&length.to_be_bytes()[..], &[label_length], label.as_bytes(), &[0]];
        let mut out = [0; BYTES];
        secret.expand(&info, Length(BYTES)).ok()?.fill(&mut out).ok()?;
        Some(out)
    }
}

#[cfg(target_family = "wasm")]
mod by_ring {
    use thalweg_wire::quic::InitialView;

    pub(crate) fn sha256(_bytes: &[u8]) -> Option<[u8; 32]> {
        None
    }

    pub(crate) fn sha1(_bytes: &[u8]) -> Option<[u8; 20]> {
        None
    }

    pub(crate) fn open(_initial: &InitialView<'_>, _destination: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[cfg(test)]
pub(super) use by_ring::client_keys;
pub(crate) use by_ring::{open, sha1, sha256};

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::quic::{InitialView, crypto_frames};
    use thalweg_wire::tls::ClientHello;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> =
            hex.bytes().filter_map(|c| char::from(c).to_digit(16)).map(|d| d as u8).collect();
        digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// The client's Initial packets of RFC 9001, A.2, and of RFC 9369, A.2.
    #[test]
    fn the_packets_of_the_rfcs_are_opened() {
        for hex in [include_str!("testdata/rfc9001-a2.hex"), include_str!("testdata/rfc9369-a2.hex")] {
            let datagram = bytes(hex);
            assert_eq!(datagram.len(), 1200);
            let initial = InitialView::new(&datagram).expect("an initial packet");
            let opened = open(&initial, initial.destination).expect("it is authentic");
            let [(0, message)] = crypto_frames(&opened).collect::<Vec<_>>()[..] else { panic!("one frame") };
            let hello = ClientHello::new(message).expect("a hello");
            assert!(hello.is_whole());
            assert_eq!(hello.server_name(), Some(&b"example.com"[..]));
            let mut changed = datagram.clone();
            changed[700] ^= 1;
            let initial = InitialView::new(&changed).expect("an initial packet");
            assert_eq!(open(&initial, initial.destination), None);
            assert_eq!(open(&InitialView::new(&datagram).expect("an initial packet"), b"another"), None);
        }
    }
}
