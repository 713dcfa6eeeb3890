//! Copies bytes between two connections in both directions.
//!
//! All connections of a thread share one read buffer, so idle connections need no buffer. A
//! connection stores only bytes that cannot be written immediately.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::counters::Counter;

/// Size of each thread's read buffer, in bytes. It holds four TLS records.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum number of reads from one connection before others get a turn.
const READS: usize = 16;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER_BYTES]);
}

/// Reason why a relay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides closed the connection, or one side failed.
    Closed,
    /// No byte arrived in either direction for too long.
    Idle,
}

/// State of one direction of the relay.
#[derive(Debug, Default)]
struct Direction {
    /// Bytes that could not be written yet.
    pending: Vec<u8>,
    written: usize,
    flushing: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Copying,
    /// The source has ended, so the destination must be shut down.
    Ending,
    Done,
}

impl Direction {
    /// Copies bytes in one direction. Returns `Pending` when it must wait, and `Ready` after the
    /// end of the stream.
    fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        counter: &Counter,
        moved: &mut bool,
    ) -> Poll<io::Result<()>> {
        for _ in 0..READS {
            while self.written < self.pending.len() {
                let count = ready!(Pin::new(&mut *to).poll_write(cx, &self.pending[self.written..]))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.written += count;
                *moved = true;
            }
            (self.pending, self.written) = (Vec::new(), 0);
            match self.state {
                State::Copying => {
                    if self.poll_copy(cx, from, to, counter, moved)?.is_pending() {
                        // No more bytes can be read now, so flush the buffered TLS data.
                        if self.flushing {
                            ready!(Pin::new(&mut *to).poll_flush(cx))?;
                            self.flushing = false;
                        }
                        return Poll::Pending;
                    }
                }
                State::Ending => {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    self.state = State::Done;
                }
                State::Done => return Poll::Ready(Ok(())),
            }
        }
        // This task continues after other connections had a turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_copy<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        counter: &Counter,
        moved: &mut bool,
    ) -> io::Result<Poll<()>> {
        BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            match Pin::new(from).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(result) => result?,
            }
            let bytes = buffer.filled();
            if bytes.is_empty() {
                self.state = State::Ending;
                return Ok(Poll::Ready(()));
            }
            *moved = true;
            self.flushing = true;
            counter.add(bytes.len() as u64);
            let written = match Pin::new(to).poll_write(cx, bytes) {
                Poll::Ready(result) => result?,
                Poll::Pending => 0,
            };
            self.pending = bytes[written..].to_vec();
            Ok(Poll::Ready(()))
        })
    }
}

/// Copies and counts bytes between `client` and `server`. The relay ends when both sides close,
/// when one side fails, or when no byte arrives for the time `idle`.
pub(crate) async fn relay<A, B>(client: &mut A, server: &mut B, idle: Duration, counters: [&Counter; 2]) -> End
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let [bytes_in, bytes_out] = counters;
    let (mut inward, mut outward) = (Direction::default(), Direction::default());
    let mut active = Instant::now();
    let mut timer = pin!(tokio::time::sleep(idle));
    poll_fn(|cx| {
        let mut moved = false;
        let first = inward.poll(cx, client, server, bytes_in, &mut moved);
        let second = outward.poll(cx, server, client, bytes_out, &mut moved);
        match (first, second) {
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) | (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => {
                return Poll::Ready(End::Closed);
            }
            _ => {}
        }
        if moved {
            active = Instant::now();
        }
        while timer.as_mut().poll(cx).is_ready() {
            let end = active + idle;
            if Instant::now() >= end {
                return Poll::Ready(End::Idle);
            }
            timer.as_mut().reset(end.into());
        }
        Poll::Pending
    })
    .await
}
