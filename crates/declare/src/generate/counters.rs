//! Generates the C functions that increment a kernel's counters.

use crate::declaration::Declaration;
use crate::layout::ImageLayout;

use super::prefix;

pub(super) fn increments(declaration: &Declaration) -> String {
    let (prefix, offset) = (prefix(declaration), ImageLayout::of(declaration).counters.offset);
    let counted = declaration.counters.iter().take(declaration.kernel_counters()).enumerate();
    let increment = |(index, counter): (usize, &crate::declaration::CounterDeclaration)| {
        format!(
            "\n/* Adds a number to the counter. {} */\nGW_LANE void {prefix}_count_{}(const gw_lane *lane, gw_u32 value)\n{{\n    \
             gw_count(lane, {offset}, {index}, value);\n}}\n",
            counter.text, counter.name
        )
    };
    counted.map(increment).collect()
}
