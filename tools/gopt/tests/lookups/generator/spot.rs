//! Structs that move with their lookup, structs that must stay where they are, and jumps back.

use std::fmt::Write as _;

use super::{Generator, Scope};

/// Functions that look through a pointer, one that returns it, and one with markers.
pub(super) const HEAD: &str = r"
struct spot {
    uint32_t a;
    const struct node *at;
};
static uint32_t see(const struct spot *spot, uint32_t b)
{
    return spot->a ^ (spot->at->value + b);
}
static void set(struct spot *spot, uint32_t b)
{
    spot->a = spot->a * 3u + b;
    spot->at = &nodes[(spot->a >> 3) & 511];
}
static void set_twice(struct spot *spot, uint32_t b)
{
    set(spot, b);
    set(spot, see(spot, b));
}
static struct spot *keep(struct spot *spot)
{
    return spot;
}
static uint32_t visit(struct spot *spot, uint32_t b)
{
    g_expensive(spot->at);
    spot->a ^= spot->at->key;
    g_expensive(&table[spot->a & 1023]);
    set(spot, b);
    return spot->a + table[b & 1023];
}
";

impl Generator {
    /// Writes the begin of a lookup, which uses every function.
    pub(super) fn first_spot(&mut self, scope: &mut Scope, text: &mut String) {
        self.spot(scope, 2, text);
        writeln!(
            text,
            "        const struct node *const begun = &nodes[key & 511];\n        struct spot once = {{key, begun}};\n        key ^= visit(&once, see(&once, 5));\n        \
             set_twice(&once, key);\n        key += keep(&once)->a;"
        )
        .expect("writing to a String");
    }

    /// A struct, either one that may change or one that can be computed again.
    pub(super) fn spot(&mut self, scope: &mut Scope, depth: u32, text: &mut String) {
        let indent = "    ".repeat(depth as usize);
        let (name, value, place) = (self.name("spot"), self.value(scope, 1), self.value(scope, 1));
        // An array that lookups share may be named by a pointer to const only.
        let at = self.name("at");
        writeln!(text, "{indent}const struct node *const {at} = &nodes[({place}) & 511];")
            .expect("writing to a String");
        if self.chance(40) {
            let part = self.name("part");
            writeln!(
                text,
                "{indent}const uint32_t {part} = {value};\n{indent}const struct spot {name} = {{{part} ^ 0x55u, {at}}};"
            )
            .expect("writing to a String");
        } else {
            writeln!(text, "{indent}struct spot {name} = {{{value}, {at}}};").expect("writing to a String");
            scope.changing_spots.push(name.clone());
        }
        scope.spots.push(name);
    }

    /// A statement with a struct that there is.
    pub(super) fn with_spot(&mut self, scope: &mut Scope, depth: u32, text: &mut String) {
        let indent = "    ".repeat(depth as usize);
        let value = self.value(scope, 1);
        if scope.changing_spots.is_empty() || self.chance(25) {
            let (spot, name) = (self.pick(&scope.spots), self.name("v"));
            writeln!(text, "{indent}const uint32_t {name} = see(&{spot}, {value}) + {spot}.at->key;")
                .expect("writing to a String");
            scope.scalars.push(name);
            return;
        }
        let spot = self.pick(&scope.changing_spots);
        match self.below(6) {
            0 => writeln!(text, "{indent}{spot}.a ^= {value};"),
            1 => writeln!(text, "{indent}set(&{spot}, {value});"),
            2 => writeln!(text, "{indent}set_twice(&({spot}), {value});"),
            3 => {
                let pointer = self.name("kept");
                writeln!(text, "{indent}struct spot *{pointer} = keep(&{spot});").expect("writing to a String");
                self.expensive(scope, depth, text);
                writeln!(text, "{indent}{pointer}->a += {value};")
            }
            4 if self.calls > 0 => {
                self.calls -= 1;
                let name = self.name("v");
                writeln!(text, "{indent}uint32_t {name} = visit(&{spot}, {value});").expect("writing to a String");
                scope.scalars.push(name.clone());
                scope.writable.push(name);
                Ok(())
            }
            _ => {
                let other = self.name("spot");
                writeln!(text, "{indent}struct spot {other} = {spot};").expect("writing to a String");
                scope.spots.push(other.clone());
                scope.changing_spots.push(other);
                Ok(())
            }
        }
        .expect("writing to a String");
    }

    /// Statements that a jump back does again, as long as there is fuel.
    pub(super) fn jump_back(&mut self, scope: &Scope, depth: u32, text: &mut String) {
        let indent = "    ".repeat(depth as usize);
        let (label, condition) = (self.name("back"), self.value(scope, 1));
        writeln!(text, "{indent}{label}:;\n{indent}{{").expect("writing to a String");
        let mut inner = scope.clone();
        self.expensive(&mut inner, depth + 1, text);
        self.statements(&mut inner, depth + 1, 2, text);
        writeln!(text, "{indent}}}\n{indent}if ((({condition}) & 3) && fuel-- > 0) goto {label};")
            .expect("writing to a String");
    }
}
