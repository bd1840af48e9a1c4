//! Signatures of requests: AWS Signature Version 4, of the header.

use std::fmt::Write as _;

use ring::{digest, hmac};

/// SHA-256 of nothing.
pub(super) const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Who signs, for which region, and when.
pub(super) struct Signer<'a> {
    pub(super) access_key: &'a str,
    pub(super) secret_key: &'a str,
    pub(super) region: &'a str,
    /// As `20130524T000000Z`.
    pub(super) time: &'a str,
}

/// What is signed.
pub(super) struct Signed<'a> {
    pub(super) method: &'a str,
    /// Encoded.
    pub(super) path: &'a str,
    /// Encoded, and in the order of names.
    pub(super) query: &'a str,
    /// Lines of the header, by names in small letters, in their order.
    pub(super) header: &'a [(&'a str, String)],
    /// SHA-256 of the body.
    pub(super) body: &'a str,
}

impl Signer<'_> {
    /// The value of `Authorization`.
    pub(super) fn authorization(&self, signed: &Signed<'_>) -> String {
        let Signed { method, path, query, header, body } = signed;
        let names: Vec<&str> = header.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines: String = header.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let request = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{body}");
        let (time, region) = (self.time, self.region);
        let day = time.get(..8).unwrap_or(time);
        let scope = format!("{day}/{region}/s3/aws4_request");
        let request = hex(digest::digest(&digest::SHA256, request.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{request}");
        let first = format!("AWS4{}", self.secret_key).into_bytes();
        let key = [day, region, "s3", "aws4_request"].into_iter().fold(first, |key, part| mac(&key, part));
        let signature = hex(&mac(&key, &text));
        let who = self.access_key;
        format!("AWS4-HMAC-SHA256 Credential={who}/{scope},SignedHeaders={names},Signature={signature}")
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

/// Two digits a byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Encodes a path or, without `/`, a value of a query as signatures want it.
pub(super) fn encoded(text: &str, is_path: bool) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'~' => encoded.push(byte.into()),
            b'/' if is_path => encoded.push('/'),
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of "Authenticating Requests: Using the Authorization Header" in Amazon's S3 API reference.
    #[test]
    fn signatures_are_those_of_the_examples() {
        let signer = Signer {
            access_key: "AKIAIOSFODNN7EXAMPLE",
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            region: "us-east-1",
            time: "20130524T000000Z",
        };
        let put = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
        let path = encoded("/test$file.text", true);
        let get: &[(&str, &str)] = &[];
        let cases = [
            (
                ("GET", "/test.txt", "", EMPTY_SHA256),
                &[("range", "bytes=0-9")][..],
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                ("PUT", path.as_str(), "", put),
                &[("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")][..],
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                ("GET", "/", "lifecycle=", EMPTY_SHA256),
                get,
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                ("GET", "/", "max-keys=2&prefix=J", EMPTY_SHA256),
                get,
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ];
        for ((method, path, query, body), more, signature) in cases {
            let host = "examplebucket.s3.amazonaws.com";
            let always = [("host", host), ("x-amz-content-sha256", body), ("x-amz-date", signer.time)];
            let mut header: Vec<(&str, String)> =
                always.iter().chain(more).map(|(name, value)| (*name, (*value).to_owned())).collect();
            header.sort();
            let signed = Signed { method, path, query, header: &header, body };
            let value = signer.authorization(&signed);
            assert!(value.ends_with(&format!(",Signature={signature}")), "{method} {path}?{query}: {value}");
        }
    }
}
