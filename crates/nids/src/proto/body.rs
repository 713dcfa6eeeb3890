//! Stores a message body or a file, and selects the bytes that rules inspect next.

/// Sizes of the parts of a body that rules inspect at once.
#[derive(Debug, Clone, Copy)]
pub struct WindowOptions {
    /// Maximum number of bytes of a body that are kept for rules.
    pub limit: u64,
    /// Number of body bytes that must arrive before the first inspection. A shorter body is
    /// inspected when it is complete.
    pub minimum: u64,
    /// Number of body bytes that rules inspect at once after the first inspection.
    pub window: u64,
}

impl WindowOptions {
    /// Default values of Suricata for request bodies.
    pub const REQUEST: Self = Self { limit: 100 << 10, minimum: 32 << 10, window: 4 << 10 };
    /// Default values of Suricata for response bodies.
    pub const RESPONSE: Self = Self { limit: 100 << 10, minimum: 40 << 10, window: 16 << 10 };
    /// Default values of Suricata for files.
    pub const FILE: Self = Self { limit: 0, minimum: 100_000, window: 100_000 };
}

/// Bytes of a message body. Inspected bytes are removed once rules no longer need them.
#[derive(Debug, Default)]
pub struct Body {
    data: Vec<u8>,
    /// Offset of the first byte of `data`.
    base: u64,
    /// Number of received bytes, up to the maximum body size.
    stored: u64,
    /// Number of bytes that have arrived.
    total: u64,
    /// Number of bytes that rules have inspected.
    inspected: u64,
    /// Whether the body is complete.
    complete: bool,
}

impl Body {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8], limit: u64) {
        self.total += bytes.len() as u64;
        let room =
            if limit == 0 { bytes.len() } else { limit.saturating_sub(self.stored).min(bytes.len() as u64) as usize };
        self.data.extend_from_slice(&bytes[..room]);
        self.stored += room as u64;
    }

    /// Marks the body as complete.
    pub fn finish(&mut self) {
        self.complete = true;
    }

    /// Returns whether no more bytes follow.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the number of bytes so far.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns whether rules have inspected all bytes.
    pub fn is_inspected(&self) -> bool {
        self.inspected == self.stored
    }

    /// Returns the bytes that rules inspect now, or `None` if too few bytes have arrived.
    pub fn window(&self, options: &WindowOptions, end: bool, inline: bool) -> Option<&[u8]> {
        if self.stored == 0 {
            return None;
        }
        let full = options.limit > 0 && self.stored >= options.limit;
        if !inline && !end && !self.complete && !full && self.stored < options.minimum {
            return None;
        }
        let mut start = 0;
        if self.inspected > options.minimum || inline && self.inspected > options.window {
            let fresh = self.stored - self.inspected;
            start = if fresh < options.window {
                self.inspected.saturating_sub(options.window - fresh)
            } else {
                self.inspected.saturating_sub(options.window / 4)
            };
        }
        Some(&self.data[(start.max(self.base) - self.base) as usize..])
    }

    /// Marks all bytes as inspected, and removes bytes that rules no longer need.
    pub fn mark_inspected(&mut self, options: &WindowOptions) {
        self.inspected = self.stored;
        if self.inspected > options.minimum {
            let keep = self.inspected.saturating_sub(options.window);
            let release = keep.saturating_sub(self.base) as usize;
            if release * 2 > self.data.len() {
                self.data.drain(..release);
                self.base = keep;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: WindowOptions = WindowOptions { limit: 100, minimum: 10, window: 4 };

    #[test]
    fn waits_for_the_minimum_and_slides() {
        let mut body = Body::default();
        body.add(b"abc", SMALL.limit);
        assert_eq!(body.window(&SMALL, false, false), None);
        assert_eq!(body.window(&SMALL, false, true), Some(&b"abc"[..]));
        assert_eq!(body.window(&SMALL, true, false), Some(&b"abc"[..]));
        body.add(b"defghijklmnop", SMALL.limit);
        assert_eq!(body.window(&SMALL, false, false).unwrap().len(), 16);
        body.mark_inspected(&SMALL);
        body.add(b"qr", SMALL.limit);
        assert_eq!(body.window(&SMALL, false, false), Some(&b"opqr"[..]));
        body.mark_inspected(&SMALL);
        body.add(b"stuvwxyz", SMALL.limit);
        assert_eq!(body.window(&SMALL, false, false), Some(&b"rstuvwxyz"[..]));
        assert_eq!(body.total(), 26);
    }

    #[test]
    fn stores_no_more_than_the_limit() {
        let mut body = Body::default();
        body.add(&[b'x'; 150], SMALL.limit);
        assert_eq!(body.window(&SMALL, false, false).unwrap().len(), 100);
        assert_eq!(body.total(), 150);
    }
}
