//! Small random functions with one batch loop each, which are legal, illegal or promised.
//!
//! A shape has a head, a chain of marked reads, and effects from the tables of `effects`. gopt must
//! transform a legal shape. It must refuse an illegal one at a line with the comment `refused`.

mod effects;
mod heads;

use std::fmt::Write as _;

use effects::Effect;

/// Declarations of the data on which all shapes work, without macros.
pub(crate) const HEAD: &str = include_str!("world.h");
/// Program that runs each shape in groups of several sizes, and prints a digest of the data.
pub(crate) const MAIN: &str = include_str!("main.c");

/// Shape with its expected result.
pub(crate) struct Shape {
    pub(crate) text: String,
    pub(crate) is_legal: bool,
}

/// Random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Returns the function `shape_NUMBER`.
pub(crate) fn shape(number: u64) -> Shape {
    let mut random = Random((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..4 {
        random.below(2);
    }
    let is_legal = random.chance(65);
    let promised = is_legal && random.chance(15);
    let head = if promised { &heads::HEADS[0] } else { random.pick(heads::HEADS) };
    let mut effects = chosen(&mut random, effects::LEGAL, head.own);
    if promised {
        effects = vec![random.pick(effects::PROMISED)];
    }
    if !is_legal {
        // An illegal effect must not share data with the others.
        let illegal = random.pick(effects::ILLEGAL);
        effects.retain(|effect| effect.data != illegal.data && illegal.data != "*");
        let at = random.below(effects.len() + 1);
        effects.insert(at, illegal);
    }
    let mut text = String::new();
    let helpers: String = effects.iter().map(|effect| effect.helper).collect();
    let mut body = String::new();
    chain(&mut random, &mut body);
    let mut before = String::new();
    let mut after = String::new();
    for effect in effects {
        before += effect.before;
        after += effect.after;
        let lines = effect.text;
        if effect.may_be_conditional && random.chance(35) {
            writeln!(body, "        if ({}) {{\n{lines}        }}", random.pick(CONDITIONS)).expect("a String");
        } else {
            body += lines;
        }
        if random.chance(20) {
            step(&mut random, &mut body);
        }
    }
    // Serial lines must not share variables with the lines before them.
    let shares = |text: &str| {
        let used = format!("{before}{}{body}", head.text);
        effects::SERIAL_VARIABLES.iter().any(|name| text.contains(name) && used.contains(name))
    };
    let serial = random.pick(effects::SERIAL);
    if is_legal && !promised && !shares(serial.text) && random.chance(15) {
        before += serial.before;
        after += serial.after;
        body += "#pragma gopt serial\n";
        body += serial.text;
    } else if head.continues && random.chance(20) {
        body += "        if (x & 4) { continue; }\n        total_3 += x;\n";
    }
    let mut functions = helpers;
    for (name, function) in [("find_", heads::FIND), ("deep_", heads::DEEP)] {
        if body.contains(name) {
            functions += function;
        }
    }
    let functions = named(&functions, number);
    let pragma = if promised { "#pragma gopt independent\n" } else { "" };
    write!(text, "{functions}\nvoid shape_{number}(uint32_t *keys, uint32_t *results, int n)\n{{\n    (void)keys, (void)results;\n")
        .expect("a String");
    let begin = head.text.replace("{PRAGMA}", pragma);
    let (begin, end) = begin.split_once("{BODY}").expect("a head has a body");
    writeln!(text, "{before}{begin}{}{end}{after}}}", named(&body, number)).expect("a String");
    Shape { text, is_legal }
}

/// Conditions of effects.
const CONDITIONS: &[&str] = &["x & 1", "x > y", "(x ^ y) & 2", "y % 3u != 0"];

/// Returns some effects that work on different data.
fn chosen(random: &mut Random, from: &'static [Effect], own: bool) -> Vec<&'static Effect> {
    let mut found: Vec<&Effect> = Vec::new();
    let count = 1 + random.below(4);
    while found.len() < count {
        let effect = random.pick(from);
        if (own || !effect.needs_index) && !found.iter().any(|other| other.data == effect.data) {
            found.push(effect);
        }
    }
    found
}

/// Returns a text with the number of its shape.
fn named(text: &str, number: u64) -> String {
    text.replace("{N}", &number.to_string())
}

/// Writes the reads of a lookup: variables `x` and `y` depend on marked memory.
fn chain(random: &mut Random, body: &mut String) {
    body.push_str(random.pick::<&str>(heads::CHAINS));
    for _ in 0..random.below(3) {
        step(random, body);
    }
}

/// Writes one further read.
fn step(random: &mut Random, body: &mut String) {
    body.push_str(random.pick::<&str>(heads::STEPS));
}
