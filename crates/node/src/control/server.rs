//! The control socket: a line of JSON in, lines of JSON out.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::{Line, Request};
use crate::speaker::Speaker;

/// Clients served at once; further ones are told to come again.
const CLIENTS_MAX: usize = 32;

/// A request is short.
const REQUEST_MAX_BYTES: u64 = 64 << 10;

/// A client that takes nothing for so long is left.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the configuration again and applies it: what changed in words, or why it was refused.
pub type Reload = dyn Fn() -> Result<Vec<String>, String> + Send + Sync;

/// Serves clients until the listener fails, which it does not. Each has a thread of its own.
pub fn serve(listener: &UnixListener, speaker: &Arc<Speaker>, reload: &Arc<Reload>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors, most likely: somebody else has to close one first.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        if clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS_MAX {
            clients.fetch_sub(1, Ordering::AcqRel);
            // The client sees the end of the stream whether or not this reaches it.
            let _ = refuse(stream);
            continue;
        }
        let (speaker, reload, count) = (speaker.clone(), reload.clone(), clients.clone());
        let spawned = thread::Builder::new().name("control".to_owned()).spawn(move || {
            // A client that went away needs no answer.
            let _ = talk(&stream, &speaker, &*reload);
            count.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            clients.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn refuse(mut stream: UnixStream) -> io::Result<()> {
    let line = Line::Error(format!("{CLIENTS_MAX} clients are being served; try again"));
    writeln!(stream, "{}", serde_json::to_string(&line)?)
}

/// Answers a client's requests one after the other.
fn talk(stream: &UnixStream, speaker: &Speaker, reload: &Reload) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    let mut writer = BufWriter::with_capacity(64 << 10, stream);
    loop {
        let mut text = String::new();
        if reader.by_ref().take(REQUEST_MAX_BYTES).read_line(&mut text)? == 0 {
            return Ok(());
        }
        let mut items = 0;
        let result = match serde_json::from_str::<Request>(&text) {
            Err(error) => Err(format!("not a request: {error}")),
            Ok(Request::Reload) => reload().map(|changes| {
                items = changes.len();
                changes.into_iter().map(serde_json::Value::from).collect::<Vec<_>>()
            }),
            Ok(request) => {
                let answered = speaker.answer(&request, &mut |item| {
                    items += 1;
                    write_line(&mut writer, &Line::Item(item))
                });
                match answered {
                    Ok(result) => result.map(|()| Vec::new()),
                    Err(lost) => return Err(lost),
                }
            }
        };
        match result {
            Ok(rest) => {
                rest.into_iter().try_for_each(|item| write_line(&mut writer, &Line::Item(item)))?;
                write_line(&mut writer, &Line::Done { items })?;
            }
            Err(error) => write_line(&mut writer, &Line::Error(error))?,
        }
        writer.flush()?;
    }
}

fn write_line(writer: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *writer, line)?;
    writer.write_all(b"\n")
}
