//! Bodies of answers: whole, or in pieces as a thread makes them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use hyper::body::{Bytes, Frame, SizeHint};
use tokio::sync::mpsc;

/// An answer that failed after its beginning was sent: the connection breaks, so that no client takes a part for the
/// whole.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off")]
pub(crate) struct BrokenOff;

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Body {
    /// Everything at once; `None` once taken.
    Whole(Option<Bytes>),
    Pieces(mpsc::Receiver<Result<Bytes, BrokenOff>>),
    /// Events, and how many bytes of them wait.
    Events(mpsc::Receiver<Bytes>, Arc<AtomicUsize>),
}

impl Body {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()).filter(|bytes: &Bytes| !bytes.is_empty()))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let piece = match self.get_mut() {
            Self::Whole(bytes) => bytes.take().map(Ok),
            Self::Pieces(pieces) => ready!(pieces.poll_recv(context)),
            Self::Events(events, waiting) => {
                let event = ready!(events.poll_recv(context));
                waiting.fetch_sub(event.as_ref().map_or(0, Bytes::len), Ordering::AcqRel);
                event.map(Ok)
            }
        };
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Pieces(_) | Self::Events(..) => SizeHint::default(),
        }
    }
}
