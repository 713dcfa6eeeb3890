//! Random programs: functions with batch loops whose lookups use all supported C.
//!
//! Everything is unsigned and every index masked, so that no program has undefined behaviour.

mod spot;

use std::fmt::Write as _;

const HEAD: &str = r"#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define g_expensive(address)
#define GW_EXPENSIVE(address) ((void)(address))
#define foreach(i, n) for (int i = 0; i < (n); i++)
#define GOPT_GROUP group
#define LANE static inline
#define GLOBAL
#define MIX(a, b) (((a) ^ (b)) * 0x9e3779b1u)
#define STEP(a) do { (a) = (a) * 5u + 1u; } while (0)

struct node {
    uint32_t key;
    uint32_t value;
    uint32_t next[2];
};
struct pair {
    uint32_t a;
    uint64_t b;
    uint32_t c[3];
};

static unsigned group = 1;
static uint32_t table[1024];
static struct node nodes[512];
static uint32_t total;
";

/// Runs every loop on batches of several sizes, with the group size of its argument.
pub(crate) const MAIN: &str = r#"
int main(int count, char **arguments)
{
    static uint32_t in[256], out[256], marks[256];
    uint32_t random = 1;
    if (count > 1) {
        group = (unsigned)atoi(arguments[1]);
    }
    for (int i = 0; i < 1024; i++) {
        table[i] = random = random * 1664525u + 1013904223u;
    }
    for (int i = 0; i < 512; i++) {
        struct node *node = &nodes[i];
        node->key = random = random * 1664525u + 1013904223u;
        node->value = random = random * 1664525u + 1013904223u;
        node->next[0] = random >> 8;
        node->next[1] = random >> 16;
    }
    const int sizes[] = {0, 1, 2, 31, 200};
    for (int f = 0; f < LOOKS; f++) {
        for (int s = 0; s < 5; s++) {
            for (int i = 0; i < 256; i++) {
                in[i] = random = random * 1664525u + 1013904223u;
                out[i] = marks[i] = 0;
            }
            uint32_t digest = looks[f](table, nodes, in, out, marks, sizes[s]);
            for (int i = 0; i < 256; i++) {
                digest = (digest ^ out[i]) * 16777619u;
                digest = (digest ^ marks[i]) * 16777619u;
            }
            printf("%08x\n", digest ^ total);
        }
    }
    return 0;
}
"#;

/// A function that lookups may call.
#[derive(Clone)]
struct Helper {
    name: String,
    /// It takes the address of a pair, and may change it.
    pair: bool,
}

/// Names that are visible at a place in the text.
#[derive(Clone, Default)]
struct Scope {
    scalars: Vec<String>,
    /// Those that may be assigned.
    writable: Vec<String>,
    arrays: Vec<String>,
    pairs: Vec<String>,
    spots: Vec<String>,
    /// Those that may change.
    changing_spots: Vec<String>,
    pointers: Vec<String>,
    /// Inside a loop, so that break and continue have something to leave.
    in_loop: bool,
    /// Inside the batch loop itself and no other.
    in_batch: bool,
    in_helper: bool,
    in_switch: bool,
}

struct Generator {
    state: u64,
    names: u32,
    helpers: Vec<Helper>,
    /// Copies of functions that a lookup may still have.
    calls: u32,
}

/// A file with some batch loops, without its `main`.
pub(crate) fn program(seed: u64) -> String {
    let mut generator =
        Generator { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, names: 0, helpers: Vec::new(), calls: 0 };
    let mut text = format!("{HEAD}{}", spot::HEAD);
    for _ in 0..4 {
        generator.helper(&mut text);
    }
    let looks = 5;
    for look in 0..looks {
        generator.look(look, seed.is_multiple_of(2), &mut text);
    }
    let names: Vec<_> = (0..looks).map(|look| format!("look{look}")).collect();
    write!(
        text,
        "\ntypedef uint32_t look_function(const uint32_t *, const struct node *, const uint32_t *, uint32_t *, uint32_t *, int);\n\
         #define LOOKS {looks}\nstatic look_function *const looks[LOOKS] = {{{}}};\n",
        names.join(", ")
    )
    .expect("writing to a String");
    text
}

impl Generator {
    fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick(&mut self, from: &[String]) -> String {
        let index = self.below(from.len() as u64) as usize;
        from[index].clone()
    }

    fn name(&mut self, base: &str) -> String {
        self.names += 1;
        format!("{base}{}", self.names)
    }

    /// A new name, or one that hides another.
    fn local(&mut self, scope: &Scope) -> String {
        if self.chance(25) && !scope.scalars.is_empty() { self.pick(&scope.scalars) } else { self.name("v") }
    }

    /// An expression without effects.
    fn value(&mut self, scope: &Scope, depth: u32) -> String {
        let number = self.below(1000);
        match self.below(if depth == 0 { 3 } else { 12 }) {
            0 => format!("{number}u"),
            1 | 2 if !scope.scalars.is_empty() => self.pick(&scope.scalars),
            3 if !scope.arrays.is_empty() => {
                format!("{}[{} & 3]", self.pick(&scope.arrays), self.value(scope, depth - 1))
            }
            4 if !scope.pairs.is_empty() => {
                let pair = self.pick(&scope.pairs);
                match self.below(3) {
                    0 => format!("{pair}.a"),
                    1 => format!("(uint32_t)({pair}.b)"),
                    _ => format!("{pair}.c[{} % 3]", self.value(scope, depth - 1)),
                }
            }
            9 if !scope.spots.is_empty() && self.chance(50) => format!("{}.a", self.pick(&scope.spots)),
            5 if !scope.pointers.is_empty() => format!("*{}", self.pick(&scope.pointers)),
            6 => format!("MIX({}, {})", self.value(scope, depth - 1), self.value(scope, depth - 1)),
            7 => format!(
                "({} ? {} : {})",
                self.value(scope, depth - 1),
                self.value(scope, depth - 1),
                self.value(scope, depth - 1)
            ),
            8 => format!("({} >> ({} & 15))", self.value(scope, depth - 1), self.value(scope, depth - 1)),
            _ if depth > 0 => {
                let operator = ["+", "-", "*", "^", "&", "|", "==", "<", "&&", "||"][self.below(10) as usize];
                format!("({} {operator} {})", self.value(scope, depth - 1), self.value(scope, depth - 1))
            }
            _ => format!("{number}u"),
        }
    }

    /// A value that may call functions with expensive accesses; none of them changes anything else.
    fn called(&mut self, scope: &Scope) -> String {
        let pure: Vec<_> =
            self.helpers.iter().filter(|helper| !helper.pair).map(|helper| helper.name.clone()).collect();
        if self.calls == 0 || pure.is_empty() {
            return self.value(scope, 2);
        }
        self.calls -= 1;
        let name = self.pick(&pure);
        let call = format!("{name}({}, {})", self.value(scope, 1), self.value(scope, 1));
        match self.below(9) {
            0 => format!("({} + {call})", self.value(scope, 1)),
            1 => format!("({} && {call})", self.value(scope, 1)),
            2 => format!("({} || ({call} & 1))", self.value(scope, 1)),
            3 => format!("({} & 1 ? {call} : {})", self.value(scope, 1), self.value(scope, 1)),
            4 => format!("({call} ^ {})", self.called_again(scope)),
            5 => format!("{name}({call}, {})", self.value(scope, 1)),
            6 => format!("(uint32_t)({call})"),
            7 if self.chance(60) => format!("{} & 1 ? {call} : {}", self.value(scope, 1), self.called_again(scope)),
            _ => call,
        }
    }

    fn called_again(&mut self, scope: &Scope) -> String {
        if self.calls == 0 { self.value(scope, 1) } else { self.plain_call(scope) }
    }

    fn plain_call(&mut self, scope: &Scope) -> String {
        let pure: Vec<_> =
            self.helpers.iter().filter(|helper| !helper.pair).map(|helper| helper.name.clone()).collect();
        if self.calls == 0 || pure.is_empty() {
            return self.value(scope, 1);
        }
        self.calls -= 1;
        let name = self.pick(&pure);
        let and = ["", "1 && ", "0 || "][self.below(3) as usize];
        format!("({and}{name}({}, {}))", self.value(scope, 1), self.value(scope, 1))
    }

    fn helper(&mut self, text: &mut String) {
        let pair = self.chance(35);
        let name = self.name("helper");
        let mut scope = Scope { in_helper: true, ..Scope::default() };
        scope.scalars = vec!["a".to_owned(), "b".to_owned()];
        scope.writable = if self.chance(50) { scope.scalars.clone() } else { Vec::new() };
        let constant = if self.chance(30) && scope.writable.is_empty() { "const " } else { "" };
        let last = if pair { "struct pair *p" } else { "uint32_t b" };
        if pair {
            scope.scalars.pop();
            scope.writable.retain(|name| name == "a");
        }
        let lane = if self.chance(50) { "LANE" } else { "static" };
        write!(text, "\n{lane} uint32_t {name}({constant}uint32_t a, {last})\n{{\n").expect("writing to a String");
        self.calls = if self.helpers.is_empty() { 0 } else { 1 };
        let mut body = scope.clone();
        self.expensive(&mut body, 1, text);
        if pair {
            let value = self.value(&body, 1);
            writeln!(text, "    p->a ^= {value};\n    p->c[1] += p->a;").expect("writing to a String");
        }
        self.statements(&mut body, 1, 3, text);
        let value = self.value(&body, 2);
        writeln!(text, "    return {value};\n}}").expect("writing to a String");
        self.helpers.push(Helper { name, pair });
    }

    fn look(&mut self, number: u64, foreach: bool, text: &mut String) {
        self.calls = 5;
        write!(
            text,
            "\nstatic uint32_t look{number}(const uint32_t *t, const struct node *nodes_, const uint32_t *in, uint32_t *out, uint32_t *marks, int n)\n{{\n    \
             uint32_t sum = 0, bits = 0;\n    uint32_t twist = 0;\n    int rounds = 0;\n    (void)t, (void)nodes_;\n"
        )
        .expect("writing to a String");
        let (declared, head) = match self.below(2) {
            _ if foreach => ("", "foreach (i, n)"),
            0 => ("", "for (int i = 0; i < n; i++)"),
            _ => ("    int i;\n", "for (i = n - 1; i >= 0; i--)"),
        };
        text.push_str(declared);
        self.batch(number, head, text);
        // Several loops of one function, with jumps in each.
        if self.chance(40) {
            self.batch(number, head, text);
        }
        text.push_str("    return sum ^ bits ^ twist ^ (uint32_t)rounds;\n}\n");
    }

    fn batch(&mut self, number: u64, head: &str, text: &mut String) {
        writeln!(text, "    {head} {{").expect("writing to a String");
        let mut scope = Scope { in_batch: true, ..Scope::default() };
        text.push_str("        uint32_t key = in[i];\n        int fuel = 20;\n        rounds++;\n");
        scope.scalars = vec!["key".to_owned()];
        scope.writable = scope.scalars.clone();
        self.expensive(&mut scope, 2, text);
        self.first_spot(&mut scope, text);
        // No function is left that nothing calls.
        if let Some(helper) = self.helpers.get(number as usize).cloned() {
            let value = self.value(&scope, 1);
            let call = if helper.pair {
                "struct pair first = {1, 2, {3}};\n        key ^= HELPER(VALUE, &first);"
            } else {
                "key ^= HELPER(VALUE, key);"
            };
            writeln!(text, "        {}", call.replace("HELPER", &helper.name).replace("VALUE", &value))
                .expect("writing to a String");
        }
        self.statements(&mut scope, 2, 6, text);
        let value = self.value(&scope, 2);
        writeln!(text, "        out[i] = {value};\n        sum += key;").expect("writing to a String");
        self.statements(&mut scope, 2, 2, text);
        text.push_str(
            "        bits |= key & 0xff;\n        total += key;\n        twist ^= key;\n        (void)fuel;\n    }\n",
        );
    }

    fn statements(&mut self, scope: &mut Scope, depth: u32, count: u64, text: &mut String) {
        for _ in 0..1 + self.below(count) {
            self.statement(scope, depth, text);
        }
    }

    /// An access that is announced, and its value in a variable.
    fn expensive(&mut self, scope: &mut Scope, depth: u32, text: &mut String) {
        let indent = "    ".repeat(depth as usize);
        let (place, found) = (self.name("place"), self.name("v"));
        let index = self.value(scope, 2);
        let word = ["g_expensive", "GW_EXPENSIVE"][self.below(2) as usize];
        let constant = if self.chance(50) { "const " } else { "" };
        if self.chance(50) {
            writeln!(
                text,
                "{indent}{constant}uint32_t {place} = ({index}) & 1023;\n{indent}{word}(&table[{place}]);\n\
                 {indent}{constant}uint32_t {found} = table[{place}];"
            )
        } else {
            writeln!(
                text,
                "{indent}const GLOBAL struct node *{constant}{place} = &nodes[({index}) & 511];\n{indent}{word}({place});\n\
                 {indent}{constant}uint32_t {found} = {place}->key == 7 ? {place}->value : {place}->next[1];"
            )
        }
        .expect("writing to a String");
        if constant.is_empty() {
            scope.writable.push(found.clone());
        }
        scope.scalars.push(found);
    }

    fn block(&mut self, scope: &Scope, depth: u32, text: &mut String) {
        let mut inner = scope.clone();
        let count = if depth > 4 { 1 } else { 3 };
        self.statements(&mut inner, depth, count, text);
    }

    #[allow(clippy::too_many_lines, reason = "one arm per kind of statement")]
    fn statement(&mut self, scope: &mut Scope, depth: u32, text: &mut String) {
        let indent = "    ".repeat(depth as usize);
        let deep = depth > 4;
        let fuel = if scope.in_helper { "" } else { " && fuel-- > 0" };
        match self.below(26) {
            0 | 1 => {
                let value = self.called(scope);
                let name = self.local(scope);
                let constant = self.chance(30);
                // A name that hides another may be used before only by what its value was made of.
                let hides = scope.scalars.contains(&name);
                if hides {
                    let fresh = self.name("v");
                    writeln!(text, "{indent}const uint32_t {fresh} = {value};\n{indent}{{\n{indent}    uint32_t {name} = {fresh} + 1u;").expect("writing to a String");
                    let mut inner = scope.clone();
                    inner.writable.retain(|other| *other != name);
                    inner.writable.push(name.clone());
                    inner.pointers.clear();
                    self.statements(&mut inner, depth + 1, 2, text);
                    if let Some(outer) = scope.writable.iter().find(|other| **other != name).cloned() {
                        writeln!(text, "{indent}    {outer} += {name};").expect("writing to a String");
                    }
                    writeln!(text, "{indent}}}").expect("writing to a String");
                    scope.scalars.push(fresh);
                } else {
                    writeln!(text, "{indent}{}uint32_t {name} = {value};", if constant { "const " } else { "" })
                        .expect("writing to a String");
                    if !constant {
                        scope.writable.push(name.clone());
                    }
                    scope.scalars.push(name);
                }
            }
            2 | 3 if !scope.writable.is_empty() => {
                let (name, value) = (self.pick(&scope.writable), self.called(scope));
                let operator = ["=", "+=", "^=", "-=", "|="][self.below(5) as usize];
                writeln!(text, "{indent}{name} {operator} {value};").expect("writing to a String");
            }
            4 | 5 => self.expensive(scope, depth, text),
            6 if !deep => {
                let condition = if self.chance(40) { self.called(scope) } else { self.value(scope, 2) };
                writeln!(text, "{indent}if ({condition}) {{").expect("writing to a String");
                self.block(scope, depth + 1, text);
                if self.chance(50) {
                    writeln!(text, "{indent}}} else {{").expect("writing to a String");
                    self.block(scope, depth + 1, text);
                }
                writeln!(text, "{indent}}}").expect("writing to a String");
            }
            7 if !deep => {
                let (name, limit) = (self.name("k"), self.value(scope, 1));
                writeln!(text, "{indent}for (uint32_t {name} = 0; {name} < (({limit}) & 3); {name}++) {{")
                    .expect("writing to a String");
                let mut inner = Scope { in_loop: true, in_batch: false, in_switch: false, ..scope.clone() };
                inner.scalars.push(name);
                self.block(&inner, depth + 1, text);
                writeln!(text, "{indent}}}").expect("writing to a String");
            }
            8 if !deep && !scope.in_helper => {
                let condition = if self.chance(40) { self.called(scope) } else { self.value(scope, 2) };
                writeln!(text, "{indent}while ((({condition}) & 3){fuel}) {{").expect("writing to a String");
                let inner = Scope { in_loop: true, in_batch: false, in_switch: false, ..scope.clone() };
                self.block(&inner, depth + 1, text);
                writeln!(text, "{indent}}}").expect("writing to a String");
            }
            9 if !deep && !scope.in_helper => {
                writeln!(text, "{indent}do {{").expect("writing to a String");
                let inner = Scope { in_loop: true, in_batch: false, in_switch: false, ..scope.clone() };
                self.block(&inner, depth + 1, text);
                let condition = if self.chance(40) { self.called(scope) } else { self.value(scope, 2) };
                writeln!(text, "{indent}}} while ((({condition}) & 1){fuel});").expect("writing to a String");
            }
            10 if !deep => {
                let condition = if self.chance(30) { self.called(scope) } else { self.value(scope, 2) };
                writeln!(text, "{indent}switch (({condition}) & 3) {{").expect("writing to a String");
                let inner = Scope { in_switch: true, ..scope.clone() };
                for case in 0..3 {
                    writeln!(text, "{indent}case {case}: {{").expect("writing to a String");
                    self.block(&inner, depth + 1, text);
                    let end = if self.chance(70) { "break;" } else { "__attribute__((fallthrough));" };
                    writeln!(text, "{indent}}} {end}").expect("writing to a String");
                }
                writeln!(text, "{indent}default: {{").expect("writing to a String");
                self.block(&inner, depth + 1, text);
                writeln!(text, "{indent}    break;\n{indent}}}\n{indent}}}").expect("writing to a String");
            }
            11 => {
                let (name, first, second) = (self.name("array"), self.value(scope, 1), self.value(scope, 1));
                writeln!(text, "{indent}uint32_t {name}[4] = {{{first}, {second}}};").expect("writing to a String");
                scope.arrays.push(name);
            }
            12 if !scope.arrays.is_empty() => {
                let (name, index, value) = (self.pick(&scope.arrays), self.value(scope, 1), self.called(scope));
                writeln!(text, "{indent}{name}[({index}) & 3] += {value};").expect("writing to a String");
            }
            13 => {
                let (name, value) = (self.name("pair"), self.value(scope, 1));
                let form =
                    ["{VALUE, 2, {1, 2, 3}}", "{.b = 9, .a = VALUE}"][self.below(2) as usize].replace("VALUE", &value);
                writeln!(text, "{indent}struct pair {name} = {form};").expect("writing to a String");
                scope.pairs.push(name);
            }
            14 if !scope.pairs.is_empty() => {
                let takers: Vec<_> =
                    self.helpers.iter().filter(|helper| helper.pair).map(|helper| helper.name.clone()).collect();
                if takers.is_empty() || self.calls == 0 {
                    return;
                }
                self.calls -= 1;
                let (pair, taker) = (self.pick(&scope.pairs), self.pick(&takers));
                let (name, value) = (self.name("v"), self.value(scope, 1));
                writeln!(text, "{indent}uint32_t {name} = {taker}({value}, &{pair});").expect("writing to a String");
                scope.scalars.push(name.clone());
                scope.writable.push(name);
            }
            15 if !scope.writable.is_empty() => {
                let (name, target) = (self.name("pointer"), self.pick(&scope.writable));
                writeln!(text, "{indent}uint32_t *{name} = &{target};").expect("writing to a String");
                scope.pointers.push(name);
            }
            16 if !scope.pointers.is_empty() => {
                let (name, value) = (self.pick(&scope.pointers), self.called(scope));
                writeln!(text, "{indent}*{name} ^= {value};").expect("writing to a String");
            }
            17 if scope.in_loop && !scope.in_switch => {
                let (condition, jump) = (self.value(scope, 2), ["break", "continue"][self.below(2) as usize]);
                // A do-while's condition burns the fuel, so continue ends as well.
                writeln!(text, "{indent}if (({condition}) & 4) {jump};").expect("writing to a String");
            }
            18 if scope.in_batch && depth > 2 => {
                let condition = self.value(scope, 2);
                writeln!(
                    text,
                    "{indent}if (({condition}) & 8) {{\n{indent}    marks[i]++;\n{indent}    continue;\n{indent}}}"
                )
                .expect("writing to a String");
            }
            19 if scope.in_helper => {
                let (condition, value) = (self.value(scope, 2), self.called(scope));
                writeln!(text, "{indent}if (({condition}) & 2) return {value};").expect("writing to a String");
            }
            20 if !deep => {
                let (label, condition) = (self.name("label"), self.value(scope, 2));
                writeln!(text, "{indent}if (({condition}) & 16) goto {label};\n{indent}{{")
                    .expect("writing to a String");
                self.block(scope, depth + 1, text);
                writeln!(text, "{indent}}}\n{indent}{label}:;").expect("writing to a String");
            }
            21 => self.spot(scope, depth, text),
            22 | 23 if !scope.spots.is_empty() => self.with_spot(scope, depth, text),
            24 if !deep && !scope.in_helper => self.jump_back(scope, depth, text),
            _ if !scope.writable.is_empty() => {
                let name = self.pick(&scope.writable);
                writeln!(text, "{indent}STEP({name});").expect("writing to a String");
            }
            _ => {}
        }
    }
}
