//! HTTP requests to a server whose router has died. Whatever arrives, the server answers or ends the connection; a
//! request that is HTTP gets a whole answer, and what is no success is a problem document.
//!
//! The input is sent as it is, and again as method and path (the first line) and body of a request.
#![no_main]

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use thalweg_config::WebConfig;
use thalweg_web::{Web, WebOptions};

thread_local! {
    static SERVER: Server = Server::start();
}

fuzz_target!(|input: &[u8]| SERVER.with(|server| {
    server.send(input);
    server.ask(input);
}));

/// A server that ends with its thread.
struct Server {
    _web: Web,
    folder: PathBuf,
}

impl Server {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("thalweg-fuzz-web-{}", std::process::id()));
        fs::create_dir_all(folder.join("store")).expect("a folder");
        let config = WebConfig { socket: Some(folder.join("socket")), ..WebConfig::default() };
        let options = WebOptions {
            router: folder.join("router"),
            store: Some(folder.join("store")),
            version: "0",
            wall_ns: || 1_795_364_562_000_000_000,
        };
        Self { _web: Web::start(&config, options).expect("the server starts"), folder }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.join("socket")).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream
    }

    /// Sends the bytes and then nothing.
    fn send(&self, bytes: &[u8]) {
        let mut stream = self.connect();
        // The server may have closed the connection.
        let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", answer.escape_ascii());
    }

    fn ask(&self, input: &[u8]) {
        let (line, body) =
            input.split_at(input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len()));
        let body = body.get(1..).unwrap_or_default();
        let (method, path) = line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(0));
        let methods = ["GET", "HEAD", "POST", "DELETE", "PATCH"];
        let method = methods.into_iter().find(|known| known.as_bytes() == method).unwrap_or("GET");
        let head = format!(
            "{method} /{} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            as_path(path),
            body.len()
        );
        let mut stream = self.connect();
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error}: {head}"));
            answer.extend(byte);
        }
        let answer = String::from_utf8(answer).expect("a head is text");
        let status: u16 = answer[9..12].parse().expect("a status");
        if answer.contains("text/event-stream") {
            // It has no end.
            return;
        }
        let mut body = Vec::new();
        // What the server has not read of the request makes an error of the end.
        let _ = stream.read_to_end(&mut body);
        let body = String::from_utf8_lossy(&body);
        let is_problem = answer.contains("application/problem+json")
            && (method == "HEAD" || body.contains(&format!("\"status\":{status}")));
        assert!((200..300).contains(&status) || is_problem, "{head}{answer}{body}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // What is left is a folder for temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Bytes as a path and query: what could not be in one is percent-encoded.
fn as_path(bytes: &[u8]) -> String {
    let bytes = bytes.trim_ascii_start();
    let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
    let encoded = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(*byte).to_string(),
        b'/' | b'?' | b'&' | b'=' | b'%' | b'+' | b'-' | b'.' | b'_' | b':' | b',' => {
            char::from(*byte).to_string()
        }
        byte => format!("%{byte:02x}"),
    };
    bytes.iter().map(encoded).collect()
}
