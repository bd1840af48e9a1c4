//! Sends a client of the control socket what neighbors send; [`thalweg_node::control::ReceivedRequest`] describes
//! the exchange. The client's own thread writes; the threads that route copy into a bounded queue and never wait. A
//! client that reads more slowly than neighbors send is disconnected.

use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use thalweg_node::control::{Answer, AnswerError, Line, ReceivedItem, ReceivedRequest, to_json};
use thalweg_node::mrt::RibDump;
use thalweg_node::speaker::{SessionObserver, Speaker};
use thalweg_wire::bgp::MessageKind;

use super::{has_enough, write_line};
use crate::mrt::{UpdateRecorder, timestamp};

/// Bytes of messages that may wait for a client: some hundred thousand routes.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// The approximate size of one write.
const PIECE_BYTES: usize = 256 << 10;

/// How long the thread waits for messages before it checks on its client.
const WAIT: Duration = Duration::from_millis(50);

/// The kinds of messages that the client gets.
const WANTED: [MessageKind; 2] = [MessageKind::Update, MessageKind::RouteRefresh];

/// Observes sessions until it is dropped.
struct Watch<'s> {
    speaker: &'s Speaker,
    recorder: Arc<UpdateRecorder>,
    observer: Arc<dyn SessionObserver>,
}

impl<'s> Watch<'s> {
    fn begin(speaker: &'s Speaker, request: &ReceivedRequest) -> Result<Self, AnswerError> {
        let recorder = Arc::new(UpdateRecorder::new(Some(request.watch.clone()), WAITING_BYTES_MAX));
        let observer: Arc<dyn SessionObserver> = recorder.clone();
        speaker.observe(observer.clone())?;
        Ok(Self { speaker, recorder, observer })
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.speaker.stop_observing(&self.observer);
    }
}

/// Sends what neighbors send until the client has enough, and closes the connection.
pub(super) fn serve(
    request: &ReceivedRequest,
    speaker: &Speaker,
    stream: &UnixStream,
    mut reader: BufReader<&UnixStream>,
    mut writer: BufWriter<&UnixStream>,
) -> io::Result<()> {
    let ended = match Watch::begin(speaker, request) {
        Ok(watch) => {
            stream.set_read_timeout(Some(super::LOOK))?;
            write_table(request, speaker, &mut writer)?;
            write_line(&mut writer, &Line::Item(to_json(&ReceivedItem::Watching)))?;
            writer.flush()?;
            write_messages(&watch.recorder, &mut reader, &mut writer)?
        }
        Err(why) => Err(why),
    };
    match ended {
        Ok(()) => write_line(&mut writer, &Line::Done { items: 0 })?,
        Err(why) => write_line(&mut writer, &Line::error(&why))?,
    }
    writer.flush()
}

/// Writes the requested routes of the RIB.
fn write_table(request: &ReceivedRequest, speaker: &Speaker, writer: &mut impl Write) -> io::Result<()> {
    if request.after_import.is_empty() {
        return Ok(());
    }
    let mut records = Vec::new();
    let dump = RibDump::begin(speaker, timestamp().seconds.into(), &mut records).map_err(io::Error::other)?;
    let mut dump = dump.only_of(speaker, &request.after_import);
    let mut done = false;
    while !done {
        done = dump.step(speaker, &mut records);
        if done || records.len() >= PIECE_BYTES {
            write_records(writer, &mut records)?;
        }
    }
    Ok(())
}

/// Writes what sessions receive, until the client has enough. The inner error says why it gets no more.
fn write_messages(
    recorder: &UpdateRecorder,
    reader: &mut BufReader<&UnixStream>,
    writer: &mut impl Write,
) -> Answer {
    let mut records = Vec::new();
    loop {
        let (seen, dropped, _) = recorder.take(WAIT);
        if dropped > 0 {
            return Ok(Err(AnswerError::SlowClient(WAITING_BYTES_MAX >> 20)));
        }
        for each in seen {
            each.encode(&mut records, &WANTED);
            if records.len() >= PIECE_BYTES {
                write_records(writer, &mut records)?;
            }
        }
        write_records(writer, &mut records)?;
        writer.flush()?;
        if has_enough(reader) {
            return Ok(Ok(()));
        }
    }
}

fn write_records(writer: &mut impl Write, records: &mut Vec<u8>) -> io::Result<()> {
    if !records.is_empty() {
        write_line(writer, &Line::Item(to_json(&ReceivedItem::Mrt { bytes: records.len() })))?;
        writer.write_all(records)?;
        records.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use thalweg_bgp::session::{AssumedNeighbor, Negotiated, NeighborConfig, assume};

    use super::*;

    fn session(number: u8) -> Arc<Negotiated> {
        let (address, us) = (Ipv4Addr::new(192, 0, 2, number), Ipv4Addr::new(192, 0, 2, 254));
        let config = NeighborConfig::new(address.into(), 64_501, 64_500, us);
        let neighbor = AssumedNeighbor { asn: 64_501, router_id: address, local_address: us.into() };
        Arc::new(assume(&config, neighbor).expect("a session"))
    }

    #[test]
    fn a_client_that_takes_too_little_is_told_and_nobody_waits_for_it() {
        let watched = session(1);
        let recorder = UpdateRecorder::new(Some(vec![watched.remote_address]), 1000);
        for session in [session(2), session(2), session(2), watched.clone()] {
            recorder.received(&session, &[0; 500]);
        }
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        drop(theirs);
        let ended = write_messages(&recorder, &mut BufReader::new(&ours), &mut Vec::new());
        ended.expect("nothing fails").expect("one has room, and those of others are not copied");
        recorder.received(&watched, &[0; 500]);
        recorder.received(&watched, &[0; 500]);
        let ended = write_messages(&recorder, &mut BufReader::new(&ours), &mut Vec::new());
        let why = ended.expect("nothing fails").expect_err("one had no room");
        assert!(why.to_string().contains("takes less than neighbors send"), "{why}");
    }
}
