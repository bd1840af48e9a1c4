//! Answers on their way from a thread to a client, in bounded pieces.
//!
//! A thread asks the router, and the pieces of its answer wait in a short channel, so a slow client stops nothing but
//! its own question: the thread waits, then the router's thread for this connection. If the answer fails before its
//! first piece is sent, the client gets a problem document; later the connection breaks.

use std::ops::ControlFlow;
use std::path::Path;

use hyper::body::Bytes;
use serde::Deserialize;
use thalweg_node::control::{Client, Request};
use tokio::sync::{mpsc, oneshot};

use crate::body::{Body, BrokenOff};
use crate::clients::Listing;
use crate::limits::{LIST_DEFAULT, PIECE_BYTES, PIECES_AHEAD};
use crate::problem::{Problem, ProblemKind};
use crate::router::connect;

/// The client does not take the answer any more.
pub(crate) struct Gone;

/// The sending end of an answer.
pub(crate) struct Outlet {
    first: Option<oneshot::Sender<Result<Body, Problem>>>,
    pieces: Option<mpsc::Sender<Result<Bytes, BrokenOff>>>,
    buffer: Vec<u8>,
    listing: Option<Listing>,
}

impl Outlet {
    /// An outlet, and where the beginning of its answer arrives.
    pub(crate) fn new() -> (Self, oneshot::Receiver<Result<Body, Problem>>) {
        let (first, begun) = oneshot::channel();
        (Self { first: Some(first), pieces: None, buffer: Vec::new(), listing: None }, begun)
    }

    /// The answer is a list: its client may ask for another when this one has been made.
    pub(crate) fn is_list(&mut self, listing: Option<Listing>) {
        self.listing = listing;
    }

    pub(crate) fn write(&mut self, text: impl AsRef<[u8]>) -> Result<(), Gone> {
        self.buffer.extend_from_slice(text.as_ref());
        if self.buffer.len() < PIECE_BYTES { Ok(()) } else { self.flush() }
    }

    /// Sends what has been written so far.
    pub(crate) fn flush(&mut self) -> Result<(), Gone> {
        if let Some(first) = self.first.take() {
            let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
            first.send(Ok(Body::Pieces(pieces))).map_err(|_| Gone)?;
            self.pieces = Some(sender);
        }
        let piece = Bytes::from(std::mem::take(&mut self.buffer));
        match &self.pieces {
            Some(pieces) if !piece.is_empty() => pieces.blocking_send(Ok(piece)).map_err(|_| Gone),
            _ => Ok(()),
        }
    }

    /// Ends the answer: it is complete, or why it is not.
    pub(crate) fn end(mut self, result: Result<(), Problem>) {
        // Before the client sees the end and asks again.
        drop(self.listing.take());
        match (result, self.first.take()) {
            (Ok(()), Some(first)) => {
                // Who is gone needs no answer.
                let _ = first.send(Ok(Body::whole(self.buffer)));
            }
            (Err(problem), Some(first)) => {
                let _ = first.send(Err(problem));
            }
            (Ok(()), None) => {
                let _ = self.flush();
            }
            (Err(problem), None) => {
                tracing::debug!("an answer broke off: {}", problem.detail);
                let _ = self.pieces.map(|pieces| pieces.blocking_send(Err(BrokenOff)));
            }
        }
    }
}

/// The form of the router's items in the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The only item.
    One,
    /// A list of the only item, by the name of its field.
    Part(&'static str),
    /// `{"items":[..],"cursor":..}`.
    List(Page),
    /// An item on each line.
    Lines(Page),
    /// `{"NAME":[..]}`.
    Named(&'static str),
    /// There are no items: `{"done":true}`.
    Done,
}

/// How much of a list is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) limit: Option<usize>,
    /// Whether the list can go on behind its last prefix.
    pub(crate) has_cursor: bool,
}

/// The field of routes that cursors are made of.
#[derive(Deserialize)]
struct Prefixed {
    prefix: String,
}

/// Asks the router and sends its answer: the body of a thread.
pub(crate) fn answer(socket: &Path, request: &Request, form: &Form, mut outlet: Outlet) {
    let result = connect(socket).and_then(|mut router| match form {
        Form::One => one(&mut router, request, &mut outlet, |item, outlet| outlet.write(item)),
        Form::Part(name) => one(&mut router, request, &mut outlet, |item, outlet| {
            let view: serde_json::Value = serde_json::from_str(item).unwrap_or_default();
            let part = view.get(name).cloned().unwrap_or_default();
            outlet.write(format!("{{\"items\":{part},\"cursor\":null}}"))
        }),
        Form::List(page) => list(&mut router, request, *page, &mut outlet),
        Form::Lines(page) => lines(&mut router, request, *page, &mut outlet),
        Form::Named(name) => named(&mut router, request, name, &mut outlet),
        Form::Done => {
            router.ask(request, |_| ControlFlow::<()>::Continue(()))?;
            sent(outlet.write("{\"done\":true}"))
        }
    });
    outlet.end(result);
}

fn one(
    router: &mut Client,
    request: &Request,
    outlet: &mut Outlet,
    mut write: impl FnMut(&str, &mut Outlet) -> Result<(), Gone>,
) -> Result<(), Problem> {
    let mut found = false;
    router.ask(request, |item| {
        found = true;
        go_on(write(item, outlet))
    })?;
    if found { Ok(()) } else { Err(Problem::new(ProblemKind::NotFound, "there is no such thing")) }
}

fn named(router: &mut Client, request: &Request, name: &str, outlet: &mut Outlet) -> Result<(), Problem> {
    let mut before = format!("{{\"{name}\":[");
    router.ask(request, |item| {
        let result = outlet.write(&before).and_then(|()| outlet.write(item));
        ",".clone_into(&mut before);
        go_on(result)
    })?;
    let end = if before == "," { "]}".to_owned() } else { before + "]}" };
    sent(outlet.write(end))
}

fn list(router: &mut Client, request: &Request, page: Page, outlet: &mut Outlet) -> Result<(), Problem> {
    let mut until = Until::new(page, LIST_DEFAULT);
    let mut separator = "{\"items\":[";
    router.ask(request, |item| {
        if until.ends_before(item) {
            return ControlFlow::Break(());
        }
        let result = outlet.write(separator).and_then(|()| outlet.write(item));
        separator = ",";
        go_on(result)
    })?;
    let begin = if separator == "," { "" } else { separator };
    let cursor = serde_json::Value::from(until.cursor());
    sent(outlet.write(format!("{begin}],\"cursor\":{cursor}}}")))
}

fn lines(router: &mut Client, request: &Request, page: Page, outlet: &mut Outlet) -> Result<(), Problem> {
    let mut until = Until::new(page, usize::MAX);
    router.ask(request, |item| match until.ends_before(item) {
        true => ControlFlow::Break(()),
        false => go_on(outlet.write(item).and_then(|()| outlet.write("\n"))),
    })?;
    Ok(())
}

/// Finds the end of a page: all paths of a prefix are on one.
struct Until {
    page: Page,
    limit: usize,
    seen: usize,
    /// The prefix of the last item.
    last: String,
    has_more: bool,
}

impl Until {
    fn new(page: Page, default: usize) -> Self {
        Self { page, limit: page.limit.unwrap_or(default), seen: 0, last: String::new(), has_more: false }
    }

    /// Whether the page ends before this item.
    fn ends_before(&mut self, item: &str) -> bool {
        self.seen += 1;
        if !self.page.has_cursor {
            self.has_more |= self.seen > self.limit;
            return self.has_more;
        }
        let prefix = serde_json::from_str(item).map_or_else(|_| String::new(), |item: Prefixed| item.prefix);
        self.has_more = self.seen > self.limit && prefix != self.last;
        if !self.has_more {
            self.last = prefix;
        }
        self.has_more
    }

    /// Where the next page begins.
    fn cursor(self) -> Option<String> {
        Some(self.last).filter(|_| self.has_more && self.page.has_cursor)
    }
}

/// Who is gone needs no answer.
fn sent(_: Result<(), Gone>) -> Result<(), Problem> {
    Ok(())
}

fn go_on(result: Result<(), Gone>) -> ControlFlow<()> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(Gone) => ControlFlow::Break(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(limit: usize, prefixes: &[&str]) -> (usize, Option<String>) {
        let mut until = Until::new(Page { limit: Some(limit), has_cursor: true }, 0);
        let item = |prefix: &&str| format!("{{\"age_s\":1,\"prefix\":\"{prefix}\"}}");
        let shown = prefixes.iter().map(item).take_while(|item| !until.ends_before(item)).count();
        (shown, until.cursor())
    }

    #[test]
    fn a_page_ends_between_prefixes() {
        let all = ["a", "a", "b", "b", "b", "c"];
        assert_eq!(pages(1, &all), (2, Some("a".to_owned())));
        assert_eq!(pages(3, &all), (5, Some("b".to_owned())));
        assert_eq!(pages(5, &all), (5, Some("b".to_owned())));
        assert_eq!(pages(6, &all), (6, None));
        assert_eq!(pages(9, &[]), (0, None));
    }
}
