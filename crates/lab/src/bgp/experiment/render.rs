//! The experiment as tables, plots and a report.

mod plots;
mod tables;

use super::{Outcome, Part};
use crate::claims;
use crate::report::{Origin, Report};
use plots::plots;
use thalweg_text::Table;

/// The tables of each measured part, with the thesis's statements.
pub fn tables(outcome: &Outcome) -> Vec<Table> {
    let parts = Part::ALL.into_iter().flat_map(|part| tables::tables(outcome, part));
    parts.chain(judged(outcome)).collect()
}

fn judged(outcome: &Outcome) -> Option<Table> {
    claims::judged("bgp", outcome)
}

/// The whole report. `lead` may give the findings.
pub fn report(outcome: &Outcome, lead: impl Into<String>, origin: Origin) -> Report {
    let mut report = Report::new("BGP schedulings compared", lead, origin);
    for part in Part::ALL {
        let tables = tables::tables(outcome, part);
        if tables.is_empty() {
            continue;
        }
        report.heading(part.name());
        report.paragraph(explanation(part));
        for (svg, caption) in plots(outcome, part) {
            report.plot(svg, caption);
        }
        tables.into_iter().for_each(|table| report.table(table));
    }
    if let Some(table) = judged(outcome) {
        report.heading("What the thesis says");
        report.paragraph(
            "Whether each statement holds here is computed from the numbers above. \"Not run\" means that this machine, or \
             this run, has nothing to say about it.",
        );
        report.table(table);
    }
    report.heading("How to read this");
    report.notes(
        [
            "Every cell was run once to warm up and then in rounds, each with all cells in an order of its own, so \
             that a disturbance touches all cells alike. Two cells whose ranges overlap are not told apart.",
            "Each run starts a daemon, or a speaker in memory, of its own. Where the thesis switched advertisements off, \
             nobody is announced to here either: the daemon notes when its table had the last UPDATE, and is asked for the \
             table then. Elsewhere time runs until the monitor, a neighbor that only listens, holds all of it. Either way \
             every prefix must have exactly the expected best route: a scheduling that gave another answer would have no \
             number here.",
            "Cores are those that the daemon, or the speaker in memory, may use (CPU affinity). Threads are counted, not \
             believed: per-peer has a master and one for each session, the monitor's included, however many cores there are.",
            "CPU is the daemon's processor time over all threads, as the kernel counts it: a scheduling can be faster \
             and cost more.",
        ]
        .into_iter()
        .map(str::to_owned)
        .chain(outcome.left_out.iter().map(|what| format!("Not measured: {what}"))),
    );
    report
}

fn explanation(part: Part) -> &'static str {
    match part {
        Part::SpeedUp => {
            "In memory, the speaker reads prepared bytes and nothing else runs. In the kernel's buffers: the daemon is \
             stopped once sessions are up, the load is written until the buffers are full, and the clock starts when the \
             daemon may go on. Compare with the thesis's figures 4.3 and 4.9: over 5.5 for one thread per peer on 16 cores, \
             less than serial on one, dynamic slightly better, and more than one thread for each core slower."
        }
        Part::Functions => {
            "What one UPDATE costs where, as the daemon counts it itself, by the processor time of the thread that works: \
             waiting for a lock or a core adds nothing. Compare with table 4.2, whose unit is another: proportions can be \
             compared, cycles cannot. The thesis's daemon read each header and each payload by itself. This one reads many \
             messages at once: header read and payload read are that one read's time, shared out by bytes, and have one \
             speed-up. What two reads for each message cost stands under receiving. Framing is too short to be timed message \
             by message: header parse is the time to frame the same messages once more, all together, and is taken off \
             payload parse, which is all else that a session does with them: decoding, policy, interning. Housekeeping is \
             what a session's state is looked after for, before and after it reads, besides timers and new connections. \
             Export and writing have no line in the thesis."
        }
        Part::OneCore => {
            "The same with one core for all threads: what parallel schedulings cost before they gain anything. Compare with \
             figure 4.6."
        }
        Part::Mixes => {
            "How many neighbors send at a time: all of them in turns of one message (best), all in a realistic order \
             (mix1), four, two, one (worst). Messages may be read in the mix's order as fast as the speaker reads, from \
             memory, with a window of what half a neighbor has to say; nobody writes them meanwhile. Compare with table 4.3 \
             and figure 4.7. One thread does the same work in every mix, so what serial's times differ by is the feed's."
        }
        Part::Ways => {
            "The same load in file order, in turns of N messages, and with a sending thread for each neighbor \
             (section 4.1.2)."
        }
        Part::Blocks => {
            "Whether UPDATEs cost more when the table has grown, and when it has four times as many prefixes. The speaker \
             notes when its table has each batch; the messages come from memory in a realistic order (mix1). Compare with \
             figure 4.8."
        }
        Part::Ablations => {
            "What the thesis's PBTS (per-peer) had at first, put back: one poller for the sockets of all neighbors, whose \
             thread wakes theirs, and a table with two locks in each node. Tables are updated with routes that are decoded \
             already, by a thread for each neighbor; the trie has a node for each bit, and only its locks differ. All of them \
             end with the same best paths."
        }
        Part::Wu => {
            "Small: one prefix per UPDATE; large: 500. Longer paths change no best route, shorter ones change all. \
             Wu, Liao, Wolf, Gao: Benchmarking BGP Routers, IISWC 2007."
        }
        Part::Caches => {
            "Every load and store between reading a message and the end of its update of the table, as valgrind lists them of \
             one thread that has all neighbors' turns in a realistic order. Serial has one cache; per-peer has a core with a \
             cache of its own for each neighbor, and dynamic as many, to which it deals turns. Caches are fully associative and \
             drop the line that was not used for longest, so a curve moves with the size and nothing else. Compare with figure \
             5.1, which has times: serial's settle at 2 MB, those of PBTS and DTS at 256 KB for each core, and the size of the \
             level-1 cache (the left end) does not matter."
        }
        Part::Receive => {
            "The thesis asks for hardware that brings messages to the processor (chapter 5), since reading them takes \
             a quarter of its time. Here is what software does about it. Nothing but framing is done with what is \
             received, and time is the receiving thread's own."
        }
    }
}
