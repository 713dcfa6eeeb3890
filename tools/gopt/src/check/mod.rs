//! Legality of a batch loop: whether its lookups give the same result in any interleaving.
//!
//! The analysis walks the lookup and all functions with visible bodies that it calls. It follows
//! the places that pointers point to, and notes all accesses to memory that lookups share. Then it
//! applies these rules to a plain loop. A write must be one of:
//!
//! | rule | write |
//! |---|---|
//! | R1 | a local variable |
//! | R2 | the iteration's own place: all accesses to its object have the same index |
//! | R3 | a commutative step of an integer, which is not read otherwise |
//! | R4 | one constant, which is not read |
//!
//! Everything else needs the author's promise (R5): `foreach`, or `#pragma gopt independent`. Then
//! only visible contradictions are refused. A function without a visible body must be known to have
//! no side effects, or be named by the user (R6).

mod access;
mod call;
mod convert;
mod initial;
mod known;
mod lvalue;
mod memory;
mod number;
mod origin;
mod place;
mod private;
mod rules;
mod statement;
mod step;
mod value;

pub(crate) use convert::size_of;
pub(crate) use step::effects;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::batch::Loop;
use crate::batch::header::{Header, expression_mentions};
use crate::error::{Pass, refuse};
use crate::reach::Reach;
use crate::syntax::Unit;
use crate::syntax::ast::{DeclId, DeclKind, Span, Storage};
use access::Access;
use number::Number;
use place::{Place, Value};

/// Permissions of the user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permissions {
    /// Functions without side effects.
    pub(crate) pure: Vec<String>,
    /// Functions whose calls may change their order.
    pub(crate) unordered: Vec<String>,
    /// Whether floating-point sums may change their order.
    pub(crate) reassociate: bool,
}

/// Result for a legal loop.
#[derive(Debug, Default)]
pub(crate) struct Legal {
    /// Variables outside the loop that become separate variables of each lookup.
    pub(crate) private: BTreeSet<DeclId>,
    /// First tokens of shared sums of signed integers. The output computes them with unsigned
    /// integers, because another order of additions must not overflow.
    pub(crate) signed_steps: BTreeSet<usize>,
    /// Functions that must be inlined, because they contain signed sums or read an induction
    /// variable.
    pub(crate) inlined: BTreeSet<DeclId>,
    /// Whether steps of the function's local variables are the only effects.
    pub(crate) only_local_steps: bool,
    /// Whether the loop may change anything outside its lookups.
    pub(crate) has_effects: bool,
    /// Whether the loop accesses elements at its own index.
    pub(crate) reads_own_elements: bool,
}

/// A function call in the analysis. Number 0 is the loop itself.
struct Frame {
    function: DeclId,
    /// Functions from the loop to this call.
    depth: usize,
    /// Call from which this one was made, and its token.
    from: Option<(usize, usize)>,
}

/// State of the analysis.
struct Check<'u> {
    unit: &'u Unit,
    reach: &'u Reach,
    site: &'u Loop<'u>,
    header: &'u Header<'u>,
    permissions: &'u Permissions,
    private: BTreeSet<DeclId>,
    frames: Vec<Frame>,
    calls: HashMap<(usize, usize, DeclId), usize>,
    /// Values of variables, and of their parts, by call.
    values: HashMap<(usize, DeclId, String), Value>,
    /// Values that functions return, by call.
    results: HashMap<usize, Value>,
    /// Pointers of the function, by their text.
    roots: HashMap<String, DeclId>,
    /// Counters of loops inside a lookup, with their ranges inside the loops.
    counters: BTreeMap<DeclId, (Number, Span)>,
    /// Whether a value changed in this pass.
    changed: bool,
    /// Whether this is the last pass, which records accesses and refuses illegal loops.
    is_last: bool,
    accesses: Vec<Access>,
    /// Whether the current statement follows `#pragma gopt serial`.
    serial: bool,
    /// Arrays that visible callers pass as parameters of the function, by parameter.
    passed: HashMap<String, BTreeSet<DeclId>>,
    signed_steps: BTreeSet<usize>,
    inlined: BTreeSet<DeclId>,
    /// Calls whose bodies are being walked.
    open: Vec<usize>,
    budget: usize,
}

/// Maximum number of passes until all values are known.
const PASSES_MAX: usize = 40;
/// Maximum number of calls that the analysis walks.
const CALLS_MAX: usize = 4000;

/// Refuses a loop whose lookups may depend on each other.
pub(crate) fn check(
    unit: &Unit,
    reach: &Reach,
    site: &Loop<'_>,
    header: &Header<'_>,
    permissions: &Permissions,
) -> Pass<Legal> {
    let kept: BTreeSet<DeclId> = header.inductions.keys().copied().collect();
    let mut private = private::variables(unit, site, &kept);
    // The head reads a variable between two lookups.
    let head = || header.condition.iter().chain(&header.step);
    private.retain(|id| !head().any(|part| expression_mentions(unit, part, *id)));
    let mut check = Check {
        unit,
        reach,
        site,
        header,
        permissions,
        private,
        frames: vec![Frame { function: site.function, depth: 0, from: None }],
        calls: HashMap::new(),
        values: HashMap::new(),
        results: HashMap::new(),
        roots: HashMap::new(),
        counters: BTreeMap::new(),
        changed: true,
        is_last: false,
        accesses: Vec::new(),
        serial: false,
        passed: origin::passed(unit, site.function),
        signed_steps: BTreeSet::new(),
        inlined: BTreeSet::new(),
        open: Vec::new(),
        budget: 0,
    };
    check.roots = (0..unit.declarations.len())
        .map(DeclId)
        .filter(|id| unit.declaration(*id).is_automatic() && in_function(unit, site, *id))
        .map(|id| (unit.declaration(id).name.clone(), id))
        .collect();
    check.find_counters();
    for pass in 0..=PASSES_MAX {
        check.is_last = !check.changed || pass == PASSES_MAX;
        check.changed = false;
        check.serial = false;
        check.budget = 0;
        check.head()?;
        check.statement(site.body, 0)?;
        if check.is_last {
            break;
        }
    }
    check.finish()
}

/// Returns whether the function of a loop declares a name.
fn in_function(unit: &Unit, site: &Loop<'_>, id: DeclId) -> bool {
    let span = unit.functions[&site.function].span;
    (span.first..span.end).contains(&unit.declaration(id).token)
}

impl<'u> Check<'u> {
    /// Walks the head of the loop.
    fn head(&mut self) -> Pass<()> {
        let header = self.header;
        for part in header.condition.iter().chain(&header.step) {
            if self.reach.count_in(self.site.function, part.span) > 0 && self.is_last {
                return refuse(
                    part.span.first,
                    "an access with a marker in the head of the batch loop: move it into the body",
                );
            }
            self.unused(part, 0)?;
        }
        Ok(())
    }

    /// Returns whether a variable of a call belongs to one lookup.
    fn is_private(&self, frame: usize, id: DeclId) -> bool {
        let declaration = self.unit.declaration(id);
        if !declaration.is_automatic() {
            return self.header.inductions.contains_key(&id);
        }
        if frame != 0 {
            return true;
        }
        let span = self.site.body.span;
        (span.first..span.end).contains(&declaration.token)
            || self.private.contains(&id)
            || self.header.inductions.contains_key(&id)
    }

    /// Returns whether a variable is constant data.
    fn is_constant(&self, id: DeclId) -> bool {
        let declaration = self.unit.declaration(id);
        let mut ty = declaration.ty.resolved();
        while let Some(element) = ty.is_array().then(|| ty.target()).flatten() {
            ty = element.resolved();
        }
        ty.constant && !ty.volatile && matches!(declaration.kind, DeclKind::Variable(Storage::Global | Storage::Static))
    }

    fn name(&self, id: DeclId) -> String {
        self.unit.declaration(id).name.clone()
    }

    /// Refuses a construct, in the last pass.
    fn refuse(&self, at: usize, reason: impl Into<String>) -> Pass<()> {
        if self.is_last { refuse(at, reason) } else { Ok(()) }
    }

    /// Adds a possible value of a variable or of a part of it.
    fn assign(&mut self, frame: usize, id: DeclId, part: &str, value: &Value) {
        let known = self.values.entry((frame, id, part.to_owned())).or_insert_with(Value::nothing);
        self.changed |= known.join(value);
    }

    /// Returns the text of a place for messages.
    fn place_text(&self, place: &Place) -> String {
        place.text(|id| self.name(id))
    }
}
