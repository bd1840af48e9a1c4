//! Protocol buffer messages as read by `protoc`.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use thalweg_text::calendar::rfc3339_ns;

/// A record's fields by name, addresses as text.
pub(crate) type Fields = BTreeMap<String, Value>;

/// Decodes messages by the schema; `None` without `protoc`.
pub(crate) fn decode(messages: &[&[u8]]) -> Option<Vec<Fields>> {
    let folder = tempfile::tempdir().expect("a folder");
    let all = "syntax = \"proto3\"; import \"flow_record.proto\"; message All { repeated thalweg.FlowRecord record = 1; }";
    std::fs::write(folder.path().join("all.proto"), all).expect("there is room");
    let mut input = Vec::new();
    for message in messages {
        // Field 1, with a length of up to 14 bits.
        input.extend([0x0a, message.len() as u8 | 0x80, (message.len() >> 7) as u8]);
        input.extend_from_slice(message);
    }
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut protoc = Command::new("protoc")
        .arg(format!("--proto_path={}", schema.display()))
        .arg(format!("--proto_path={}", folder.path().display()))
        .args(["--decode=All", "all.proto"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = protoc.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = protoc.wait_with_output().expect("it ends");
    writer.join().expect("it ends").expect("protoc reads all of it");
    assert!(output.status.success());
    let mut records = Vec::new();
    for line in String::from_utf8(output.stdout).expect("text").lines().map(str::trim) {
        match line {
            "record {" => records.push(Fields::new()),
            "}" => {}
            field => {
                let (name, value) = field.split_once(": ").expect("a name and a value");
                let is_new =
                    records.last_mut().expect("in a record").insert(name.to_owned(), read(name, value));
                assert!(is_new.is_none(), "{name} twice");
            }
        }
    }
    Some(records)
}

fn read(name: &str, value: &str) -> Value {
    let Some(quoted) = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) else {
        let number = value.parse::<u64>().expect("a number");
        let is_time = matches!(name, "flow_start" | "flow_end" | "reverse_start" | "reverse_end");
        let time = || String::from_utf8(rfc3339_ns(number).to_vec()).expect("digits");
        return if is_time { time().into() } else { number.into() };
    };
    let bytes = unescape(quoted.as_bytes());
    let is_address = matches!(name, "src" | "dst" | "next_hop" | "bgp_next_hop" | "nat_src" | "nat_dst");
    if !is_address {
        return String::from_utf8(bytes).expect("text").into();
    }
    let address = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(v4) => IpAddr::from(v4),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(&bytes[..]).expect("4 or 16 bytes")),
    };
    address.to_string().into()
}

/// Decodes C escapes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        let taken = match rest[0] {
            b'0'..=b'7' => {
                bytes.push(rest[..3].iter().fold(0, |byte, digit| byte << 3 | (digit - b'0')));
                3
            }
            letter => {
                bytes.push(match letter {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => other,
                });
                1
            }
        };
        rest = &rest[taken..];
    }
    bytes
}
