//! The client of a capture at the other end of the control socket; [`thalweg_node::control::CaptureRequest`]
//! describes the exchange.

use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::net::UnixStream;

use thalweg_live::CaptureClient;
use thalweg_node::control::{AnswerError, CaptureBegun, CaptureRequest, Line};

use super::{LOOK, has_enough, write_line};
use crate::packets::PacketSide;

/// A client at the other end of a socket.
struct SocketClient<'s> {
    stream: &'s UnixStream,
    reader: BufReader<&'s UnixStream>,
    writer: BufWriter<&'s UnixStream>,
}

impl CaptureClient for SocketClient<'_> {
    fn begin(&mut self, begun: &CaptureBegun) -> io::Result<()> {
        self.stream.set_read_timeout(Some(LOOK))?;
        write_line(&mut self.writer, &Line::Item(serde_json::to_value(begun)?))?;
        self.writer.flush()
    }

    fn write(&mut self, blocks: &[u8]) -> io::Result<()> {
        self.writer.write_all(blocks)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    fn has_enough(&mut self) -> bool {
        has_enough(&mut self.reader)
    }
}

/// Serves a capture until it ends, and closes the connection.
pub(super) fn serve(
    request: &CaptureRequest,
    packets: Result<&PacketSide, AnswerError>,
    stream: &UnixStream,
    reader: BufReader<&UnixStream>,
    writer: BufWriter<&UnixStream>,
) -> io::Result<()> {
    let mut client = SocketClient { stream, reader, writer };
    let result = match packets {
        Ok(packets) => packets.capture(request, &mut client)?,
        Err(none) => Err(none),
    };
    match result {
        Ok(summary) => {
            write_line(&mut client.writer, &Line::Item(serde_json::to_value(summary)?))?;
            write_line(&mut client.writer, &Line::Done { items: 2 })?;
        }
        Err(error) => write_line(&mut client.writer, &Line::error(&error))?,
    }
    client.writer.flush()
}
