//! A connection that ends when nothing moves, or when its client takes nothing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::counters::{Counters, Cut};
use crate::limits::{IDLE_MAX, STALL_MAX};

/// Limits the time without progress of a stream.
pub(crate) struct Timed<S> {
    stream: S,
    counters: Arc<Counters>,
    /// Ends the wait for bytes from the client, while none go there either.
    idle: Pin<Box<Sleep>>,
    /// Ends the wait for the client to take bytes.
    stall: Pin<Box<Sleep>>,
    is_stalled: bool,
    patience: Patience,
}

/// The longest times without progress.
#[derive(Clone, Copy, Debug)]
struct Patience {
    idle: Duration,
    stall: Duration,
}

impl<S> Timed<S> {
    pub(crate) fn new(stream: S, counters: Arc<Counters>) -> Self {
        Self::with(stream, counters, Patience { idle: IDLE_MAX, stall: STALL_MAX })
    }

    fn with(stream: S, counters: Arc<Counters>, patience: Patience) -> Self {
        let [idle, stall] = [patience.idle, patience.stall].map(|time| Box::pin(sleep(time)));
        Self { stream, counters, idle, stall, is_stalled: false, patience }
    }

    fn moved(&mut self) {
        restart(&mut self.idle, self.patience.idle);
        self.is_stalled = false;
    }

    /// What came of writing; starts the clock where the client takes nothing.
    fn written<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.moved();
            return result;
        }
        if !self.is_stalled {
            self.is_stalled = true;
            restart(&mut self.stall, self.patience.stall);
        }
        self.stall.as_mut().poll(context).map(|()| Err(self.end(Cut::Stalled)))
    }

    fn end(&self, why: Cut) -> io::Error {
        self.counters.cut(why);
        io::Error::new(io::ErrorKind::TimedOut, why.name())
    }
}

fn restart(sleep: &mut Pin<Box<Sleep>>, time: Duration) {
    sleep.as_mut().reset(Instant::now() + time);
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_read(context, buffer);
        if result.is_ready() {
            this.moved();
            return result;
        }
        this.idle.as_mut().poll(context).map(|()| Err(this.end(Cut::Idle)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.written(context, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.written(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_flush(context);
        match result.is_ready() {
            // Nothing may have been written: this is no progress.
            true => result,
            false => this.written(context, result),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::net::UnixStream;

    use super::*;

    const NEVER: Duration = Duration::from_secs(3600);
    const SOON: Duration = Duration::from_millis(10);

    /// How reading ends, or writing without end, if the other end does nothing; and what was counted.
    fn end_of(is_writing: bool, patience: Patience) -> (io::ErrorKind, Vec<&'static str>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let counters = Arc::<Counters>::default();
        let error = runtime.block_on(async {
            let (ours, _theirs) = UnixStream::pair().expect("sockets");
            let mut stream = Timed::with(ours, counters.clone(), patience);
            let mut bytes = [0; 4096];
            loop {
                let moved = poll_fn(|context| match is_writing {
                    true => Pin::new(&mut stream).poll_write(context, &bytes).map_ok(|_| ()),
                    false => Pin::new(&mut stream).poll_read(context, &mut ReadBuf::new(&mut bytes)),
                });
                if let Err(error) = moved.await {
                    return error;
                }
            }
        });
        let counted = counters.cuts().filter(|(_, count)| *count == 1).map(|(name, _)| name);
        (error.kind(), counted.collect())
    }

    #[test]
    fn a_connection_ends_when_nothing_moves_or_its_client_takes_nothing() {
        let timed_out = |why| (io::ErrorKind::TimedOut, vec![why]);
        assert_eq!(end_of(false, Patience { idle: SOON, stall: NEVER }), timed_out("idle"));
        assert_eq!(end_of(true, Patience { idle: NEVER, stall: SOON }), timed_out("stalled"));
    }
}
