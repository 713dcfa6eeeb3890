//! Token bucket, which holds at most the tokens of one second.

const SECOND_NS: u64 = 1_000_000_000;

/// Token bucket that limits the rate of events. The caller passes the number of events per second
/// and the current time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    tokens: u32,
    refilled_ns: u64,
}

impl Bucket {
    /// Creates a full bucket.
    pub(crate) fn new(rate: u32) -> Self {
        Self { tokens: rate, refilled_ns: 0 }
    }

    /// Takes a token. Returns whether there was one.
    pub(crate) fn take(&mut self, rate: u32, now_ns: u64) -> bool {
        let new = u64::from(rate) * now_ns.saturating_sub(self.refilled_ns).min(SECOND_NS) / SECOND_NS;
        if new > 0 {
            self.tokens = rate.min(self.tokens.saturating_add(new as u32));
            self.refilled_ns = now_ns;
        }
        let has_token = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        has_token
    }
}
