//! `thalweg show`: the state of a running router. A row defines a command: its name, help and arguments, its
//! request, and the format of the answer.

mod bgp;
mod firewall;
mod flows;
mod forwarding;
mod nat;
mod packets;
mod status;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use serde_json::Value;
use thalweg_node::control::{BgpRequest, Request};
use thalweg_text::Table;

pub(crate) use flows::alarm_events;

use crate::client::{SocketArgs, ask};
use crate::screen::{Line, Screen, size, wait};
use crate::signals::stop_on_signals;
use crate::tables::stream;
use crate::{Failure, Format, print, received};

/// Commands in the order of the help text.
const TOPICS: &[&[Show]] =
    &[status::SHOW, packets::SHOW, forwarding::SHOW, bgp::SHOW, flows::SHOW, nat::SHOW, firewall::SHOW];

struct Show {
    name: &'static str,
    aliases: &'static [&'static str],
    help: &'static str,
    does: Does,
}

enum Does {
    /// Sends a request without arguments.
    Asks(Request, Print),
    /// Sends a request made from its arguments.
    Reads(fn(Command) -> Command, fn(&ArgMatches) -> Result<Question, clap::Error>),
    /// Runs a function.
    Runs(fn(&Path, Format) -> Result<String, Failure>),
    /// Has subcommands, and examples.
    Has(&'static [Show], &'static str),
}

impl Does {
    const fn reads<A: Args + Into<Question>>() -> Self {
        Self::Reads(A::augment_args, |matches| A::from_arg_matches(matches).map(Into::into))
    }
}

/// A request, and the format of its answer.
type Question = (Request, Print);

#[derive(Clone, Copy, Debug)]
enum Print {
    /// All items together: tables need all their rows.
    Page(fn(Vec<Value>) -> Result<String, Failure>),
    /// A row for each item as it arrives: there may be millions.
    Rows(fn() -> Table, fn(Value) -> Result<Vec<String>, Failure>),
    /// How many items there are.
    Count,
    /// Routes of a neighbor before import, which the router does not keep: this program collects them.
    Received,
}

impl Show {
    /// A command without arguments.
    const fn asks(name: &'static str, help: &'static str, request: Request, print: Print) -> Self {
        Self { name, aliases: &[], help, does: Does::Asks(request, print) }
    }

    /// A command whose arguments make the request.
    const fn reads<A: Args + Into<Question>>(name: &'static str, help: &'static str) -> Self {
        Self { name, aliases: &[], help, does: Does::reads::<A>() }
    }

    fn command(&self) -> Command {
        let command = Command::new(self.name).about(self.help).visible_aliases(self.aliases.iter().copied());
        match self.does {
            Does::Reads(add_args, _) => add_args(command),
            Does::Has(commands, examples) => with_commands(command.after_help(examples), commands),
            _ => command,
        }
    }
}

fn with_commands(command: Command, rows: &[Show]) -> Command {
    let command = command.subcommand_required(true).arg_required_else_help(true);
    command.subcommands(rows.iter().map(Show::command))
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  thalweg show status
  thalweg show neighbors
  thalweg show ports --watch 5
  thalweg show route 192.0.2.1
  thalweg show routes --source configured
  thalweg show bgp neighbor transit-1")]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    router: SocketArgs,
    /// Show it again every so many seconds (2), until Ctrl-C
    #[arg(long, global = true, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
    #[command(subcommand)]
    command: ShowCommand,
}

/// A command with its arguments.
#[derive(Debug)]
enum ShowCommand {
    Question(Box<Request>, Print),
    Command(fn(&Path, Format) -> Result<String, Failure>),
}

impl ShowCommand {
    fn read<'s>(rows: impl Iterator<Item = &'s Show>, matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (name, matches) =
            matches.subcommand().ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        let row = rows.into_iter().find(|row| row.name == name);
        match &row.ok_or_else(|| clap::Error::new(ErrorKind::InvalidSubcommand))?.does {
            Does::Asks(request, print) => Ok(Self::Question(Box::new(request.clone()), *print)),
            Does::Reads(_, read) => {
                read(matches).map(|(request, print)| Self::Question(Box::new(request), print))
            }
            Does::Runs(run) => Ok(Self::Command(*run)),
            Does::Has(rows, _) => Self::read(rows.iter(), matches),
        }
    }
}

impl FromArgMatches for ShowCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::read(TOPICS.iter().copied().flatten(), matches)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        Self::from_arg_matches(matches).map(|command| *self = command)
    }
}

impl Subcommand for ShowCommand {
    fn augment_subcommands(command: Command) -> Command {
        TOPICS.iter().fold(command, |command, rows| with_commands(command, rows))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        TOPICS.iter().copied().flatten().any(|row| row.name == name)
    }
}

/// Takes text as it arrives.
type Out<'o> = &'o mut dyn FnMut(&str) -> Result<(), Failure>;

pub(crate) fn run(args: &ShowArgs, format: Format) -> Result<(), Failure> {
    let Some(seconds) = args.watch else { return show(args, format, &mut print) };
    if matches!(args.command, ShowCommand::Question(_, Print::Received)) {
        let why = "--received has neighbors send all their routes again: it cannot be watched";
        return Err(Failure::Usage(why.to_owned()));
    }
    let interval = Duration::from_secs(seconds);
    let stop = stop_on_signals()?;
    if format == Format::Json || !io::stdout().is_terminal() {
        while !stop.load(Ordering::Acquire) {
            show(args, format, &mut print)?;
            if format == Format::Human {
                print("\n")?;
            }
            wait(&stop, interval);
        }
        return Ok(());
    }
    let screen = Screen::enter()?;
    while !stop.load(Ordering::Acquire) {
        let (_, height) = size();
        let mut text = String::new();
        let shown = show(args, format, &mut |more| {
            text += more;
            match text.lines().count() > height {
                // As from a pipe whose reader has gone: nobody sees more.
                true => Err(Failure::Output(io::ErrorKind::BrokenPipe.into())),
                false => Ok(()),
            }
        });
        let mut lines: Vec<Line> = text.lines().map(|line| Line::new("", line)).collect();
        if let Err(failure) = shown
            && !matches!(failure, Failure::Output(_))
        {
            lines.push(Line::bad(failure.to_string()));
        }
        screen.draw(&lines, height)?;
        wait(&stop, interval);
    }
    Ok(())
}

fn show(args: &ShowArgs, format: Format, out: Out<'_>) -> Result<(), Failure> {
    let socket = &args.router.socket;
    let (request, form) = match &args.command {
        ShowCommand::Command(run) => return out(&run(socket, format)?),
        ShowCommand::Question(request, form) => (&**request, form),
    };
    match (format, form) {
        (_, Print::Received) => match request {
            Request::Bgp(BgpRequest::Routes(filter)) => received::show(socket, filter, format),
            other => ask(socket, other, |item| out(&format!("{item}\n"))),
        },
        (_, Print::Count) => {
            let mut count = 0_u64;
            ask(socket, request, |_| {
                count += 1;
                Ok(())
            })?;
            out(&format!("{count}\n"))
        }
        (Format::Json, _) => ask(socket, request, |item| out(&format!("{item}\n"))),
        (Format::Human, Print::Rows(columns, row)) => {
            let mut rows = stream(columns());
            ask(socket, request, |item| out(&rows.push(row(item)?)))?;
            out(&rows.finish())
        }
        (Format::Human, Print::Page(page)) => {
            let mut items = Vec::new();
            ask(socket, request, |item| {
                items.push(item);
                Ok(())
            })?;
            out(&page(items)?)
        }
    }
}
