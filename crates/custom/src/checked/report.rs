//! Finds the problem in the messages of sanitizers.

use super::Fault;

/// Returns the problem that `messages` describe. `file` is the name of the user's file in the
/// messages, and `text` is the file's content.
pub(super) fn fault(messages: &str, file: &str, text: &str) -> Option<Fault> {
    let (frame, line, message) = messages.lines().find_map(|line| {
        let mut parts = line.strip_prefix("godwit: ")?.splitn(3, ": ");
        Some((parts.next()?.parse().ok()?, parts.next()?, parts.next()?))
    })?;
    let Some(tables) = message.strip_prefix("sanitizer ") else {
        let line = line.parse().ok().filter(|line| (1..=text.lines().count()).contains(line));
        return Some(Fault { frame, line, message: message.to_owned() });
    };
    let undefined = messages.lines().find_map(|line| {
        let (place, problem) = line.split_once(": runtime error: ")?;
        Some((line_in(place, file), format!("the C code has no defined result here: {problem}")))
    });
    let (line, message) =
        undefined.unwrap_or_else(|| (frame_line(messages, file), access(messages, is_in(messages, tables))));
    Some(Fault { frame, line, message })
}

/// Returns the line number in a position such as `my.c:12:5`, if it is in the user's file.
fn line_in(place: &str, file: &str) -> Option<usize> {
    let end = place.rfind(file)? + file.len();
    place[end..].strip_prefix(':')?.split(':').next()?.trim().parse().ok()
}

/// Returns the line of the innermost call in the user's file.
fn frame_line(messages: &str, file: &str) -> Option<usize> {
    let calls = messages.lines().map(str::trim).filter(|line| line.starts_with('#'));
    calls.filter_map(|call| call.rsplit_once(' ')).find_map(|(_, place)| line_in(place, file))
}

/// Returns whether the address in an AddressSanitizer report is in `range`, given as two
/// hexadecimal numbers.
fn is_in(messages: &str, range: &str) -> bool {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let address = messages
        .split_once(" address 0x")
        .and_then(|(_, rest)| hex(rest.split(|letter: char| !letter.is_ascii_hexdigit()).next()?));
    let bounds = range.split_once(' ').and_then(|(start, end)| Some(hex(start)?..hex(end)?));
    address.zip(bounds).is_some_and(|(address, bounds)| bounds.contains(&address))
}

/// Describes an AddressSanitizer report in one sentence. `in_tables` is true if the address is in
/// or near the table memory.
fn access(messages: &str, in_tables: bool) -> String {
    let action = match messages {
        messages if messages.contains("\nWRITE of size") || messages.contains("caused by a WRITE") => "writes",
        _ => "reads",
    };
    if in_tables {
        return match action {
            "writes" => "the kernel writes to its tables, which are read-only".to_owned(),
            _ => "the kernel reads outside its tables: check the index".to_owned(),
        };
    }
    match messages {
        messages if messages.contains("use-after-poison") => format!(
            "the kernel {action} outside the frame, or bytes that `reads` and `writes` do not declare: check the length first"
        ),
        messages if messages.contains("stack-buffer") || messages.contains("stack-overflow") => {
            format!("the kernel {action} outside a variable: check the index")
        }
        messages if messages.contains("global-buffer-overflow") => {
            format!("the kernel {action} outside a constant table: check the index")
        }
        messages if messages.contains("SEGV") => format!("the kernel {action} outside all memory: check the address"),
        _ => format!("the kernel {action} memory that it must not access"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_name_the_frame_the_line_and_the_problem() {
        let text = "a\n".repeat(50);
        let find = |messages: &str| fault(messages, "/tmp/my.c", &text);
        assert_eq!(find(""), None);
        let own = find("godwit: 7: 12: the packet takes too many steps: bound the loop\n").unwrap();
        assert_eq!((own.frame, own.line), (7, Some(12)));
        let shift =
            find("/tmp/my.c:31:9: runtime error: shift exponent 32 is too large\ngodwit: 2: 0: sanitizer 0 0\n");
        let shift = shift.unwrap();
        assert_eq!((shift.frame, shift.line), (2, Some(31)));
        assert!(shift.message.contains("shift exponent"), "{shift:?}");
        let read = find(
            "==1==ERROR: AddressSanitizer: use-after-poison on address 0x629\nREAD of size 4 at 0x7f\n    \
             #0 0x1 in gw_load_be32 dialect/cpu.h:60\n    #1 0x2 in gw_my_packet /tmp/my.c:37\ngodwit: 0: 0: sanitizer 7f00 7fff\n",
        )
        .unwrap();
        assert_eq!((read.frame, read.line), (0, Some(37)));
        assert!(read.message.contains("reads outside the frame"), "{read:?}");
        let write = find(
            "==1==ERROR: AddressSanitizer: SEGV on unknown address 0x7f10 (pc 0x1)\n\
             ==1==The signal is caused by a WRITE memory access.\n    #0 0x1 in gw_my_packet my.c:9\n\
             godwit: 1: 0: sanitizer 7f00 7fff\n",
        );
        assert!(write.unwrap().message.contains("writes to its tables"));
    }
}
