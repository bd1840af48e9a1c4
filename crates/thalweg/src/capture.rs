//! `thalweg capture`: captures packets of a running router into a pcapng file.
//!
//! The router sends the blocks of the file, which are written as they arrive, followed by a summary. To end a
//! capture, the client closes its half of the connection; packets captured before that still arrive.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thalweg_node::capture::PacketFilter;
use thalweg_node::control::{CaptureBegun, CaptureRequest, CaptureSummary, Client, ClientError, Request};
use thalweg_text::units::count;

use crate::cli::{CaptureArgs, Format};
use crate::client::read;
use crate::{Failure, print};

const BUFFER_BYTES: usize = 64 << 10;

pub(crate) fn run(args: &CaptureArgs, format: Format) -> Result<(), Failure> {
    if let Some(filter) = &args.filter {
        // A malformed filter is reported without asking the router.
        PacketFilter::parse(filter).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    let to_stdout = args.output == Path::new("-");
    if to_stdout && io::stdout().is_terminal() {
        let what = "a capture is not for a terminal: give -o a file, or `-o - | tshark -r -`";
        return Err(Failure::Usage(what.to_owned()));
    }
    // Without a limit of time: perhaps no packet passes.
    let mut client = Client::connect(&args.router.socket, None)?;
    client.send(&Request::Capture(request(args)))?;
    let begun: CaptureBegun = read(client.item()?.unwrap_or_default())?;
    let mut output = Output::create(&args.output)?;
    end_on_signals(client.stream())
        .map_err(|error| Failure::Run(format!("cannot handle signals: {error}")))?;
    print_note(&format!("capturing {}; Ctrl-C ends it", begun.point));
    if !begun.offload_paused.is_empty() {
        let ports = begun.offload_paused.join(", ");
        print_note(&format!("offload is paused meanwhile (ports {ports}): the router sees every packet"));
    }
    while let Some(block) = client.block().map_err(ClientError::from)? {
        if let Err(error) = output.write(&block, client.has_more()) {
            // The reader closed the pipe, or the disk is full: tell the router, and read on for the summary.
            let _ = client.stream().shutdown(Shutdown::Write);
            if error.kind() != ErrorKind::BrokenPipe {
                return Err(Failure::Run(format!("cannot write {}: {error}", args.output.display())));
            }
        }
    }
    let summary = client.item().map_err(|error| match error {
        ClientError::Closed => {
            Failure::Control("the router ended the capture; the file is complete up to there".to_owned())
        }
        other => other.into(),
    })?;
    let summary: CaptureSummary = read(summary.unwrap_or_default())?;
    let text = match format {
        Format::Human => render(&summary),
        Format::Json => {
            serde_json::to_string(&summary).map_err(|error| Failure::Control(error.to_string()))?
        }
    };
    match to_stdout {
        true => {
            print_note(&text);
            Ok(())
        }
        false => print(&format!("{text}\n")),
    }
}

fn request(args: &CaptureArgs) -> CaptureRequest {
    CaptureRequest {
        point: args.point.clone(),
        port: args.port.clone(),
        reason: args.reason.clone(),
        filter: args.filter.clone(),
        count: args.count,
        seconds: args.seconds,
        snaplen: args.snaplen,
        rate: args.rate,
    }
}

fn render(summary: &CaptureSummary) -> String {
    let mut text = format!("{} packets captured", count(summary.captured));
    for (number, why) in
        [(summary.queue_full, "too many waited to be written"), (summary.over_rate, "of the limit --rate")]
    {
        if number > 0 {
            text += &format!(", {} not, because {why}", count(number));
        }
    }
    text + &format!(" ({})", summary.ended)
}

/// Standard output may be the capture.
fn print_note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// The first signal ends the capture, the second the program.
fn end_on_signals(stream: &UnixStream) -> io::Result<()> {
    let stream = stream.try_clone()?;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for (number, _) in signals.forever().enumerate() {
            if number > 0 || stream.shutdown(Shutdown::Write).is_err() {
                std::process::exit(1);
            }
        }
    })?;
    Ok(())
}

/// The file; `None` after a failed write.
struct Output(Option<Box<dyn Write>>);

impl Output {
    fn create(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self(Some(Box::new(io::BufWriter::with_capacity(BUFFER_BYTES, io::stdout())))));
        }
        let file = File::create(path)
            .map_err(|error| Failure::Run(format!("cannot write {}: {error}", path.display())))?;
        Ok(Self(Some(Box::new(io::BufWriter::with_capacity(BUFFER_BYTES, file)))))
    }

    /// Writes a block, and flushes if none follows at once. After an error nothing more is written.
    fn write(&mut self, block: &[u8], has_more: bool) -> io::Result<()> {
        let Some(writer) = &mut self.0 else { return Ok(()) };
        let result = writer.write_all(block).and_then(|()| if has_more { Ok(()) } else { writer.flush() });
        if result.is_err() {
            self.0 = None;
        }
        result
    }
}
