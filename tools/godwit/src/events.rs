//! Log lines of events, as `key=value` pairs (`docs/monitoring.md`).

use std::fmt::{self, Write};
use std::time::{Duration, SystemTime};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Line format: `time`, `level`, the event fields, and the sentence as `message`.
pub(crate) struct Format;

impl<S, N> FormatEvent<S, N> for Format
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut pairs = Pairs::default();
        event.record(&mut pairs);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        writeln!(writer, "time={} level={level}{}{}", timestamp(now), pairs.fields, pairs.message)
    }
}

/// Fields of an event, each with a space in front.
#[derive(Default)]
struct Pairs {
    fields: String,
    /// The message is the last pair.
    message: String,
}

impl Pairs {
    fn add(&mut self, key: &str, value: &str) {
        let pairs = if key == "message" { &mut self.message } else { &mut self.fields };
        // Writing to a String cannot fail.
        let _ = write!(pairs, " {key}={}", Quoted(value));
    }
}

impl Visit for Pairs {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field.name(), &format!("{value:?}"));
    }
}

/// Value that is quoted unless it is a plain word. Control characters, quotation marks and
/// backslashes are escaped as in JSON.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain =
            |character: char| !character.is_whitespace() && !character.is_control() && !"\"=\\".contains(character);
        if !self.0.is_empty() && self.0.chars().all(is_plain) {
            return f.write_str(self.0);
        }
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                '\n' => f.write_str("\\n")?,
                character if character.is_control() => write!(f, "\\u{:04x}", u32::from(character))?,
                character => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}

/// Returns the current date in UTC, such as `2026-01-31`.
pub(crate) fn today() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = date(now.as_secs() / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Formats a time since 1970 as in RFC 3339, in UTC with microseconds.
fn timestamp(since_1970: Duration) -> String {
    let (days, seconds) = (since_1970.as_secs() / 86_400, since_1970.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z", since_1970.subsec_micros())
}

/// Converts days since 1970 to year, month and day in the Gregorian calendar.
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let (mut year, mut days) = (1970, days_since_1970);
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for month_days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < month_days {
            break;
        }
        days -= month_days;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_rfc_3339() {
        // Results of `date -u -d @SECONDS`.
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000007Z"),
            (951_782_400, "2000-02-29T00:00:00.000007Z"),
            (1_795_622_399, "2026-11-25T15:59:59.000007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000007Z"),
        ] {
            assert_eq!(timestamp(Duration::from_secs(seconds) + Duration::from_micros(7)), expected);
        }
    }

    #[test]
    fn values_with_spaces_are_quoted() {
        for (value, expected) in
            [("right", "right"), ("", "\"\""), ("a b", "\"a b\""), ("a=\"1\"\n\u{7}", "\"a=\\\"1\\\"\\n\\u0007\"")]
        {
            assert_eq!(Quoted(value).to_string(), expected);
        }
    }
}
