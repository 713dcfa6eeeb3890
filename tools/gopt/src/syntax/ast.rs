//! Syntax tree. Every node covers a range of tokens.

use std::rc::Rc;

use super::types::Type;

/// Range of tokens: the first one and the one after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: usize,
    pub(crate) end: usize,
}

impl Span {
    pub(crate) fn contains(self, other: Self) -> bool {
        self.first <= other.first && other.end <= self.end
    }
}

/// Index of a declaration in [`super::Unit::declarations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DeclId(pub(crate) usize);

/// Kind of a declared name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeclKind {
    Variable(Storage),
    Parameter,
    Function,
    Typedef,
    /// Constant of an enumeration.
    Constant,
}

/// Storage of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Automatic,
    /// `static` inside a function.
    Static,
    /// Variable of the file.
    Global,
    ThreadLocal,
}

/// Declared name.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    pub(crate) name: String,
    pub(crate) kind: DeclKind,
    pub(crate) ty: Type,
    /// Token of the name.
    pub(crate) token: usize,
    pub(crate) initializer: Option<Rc<Initializer>>,
    /// Attributes and alignment, as they are written.
    pub(crate) attributes: Vec<Span>,
    /// Whether an attribute or a specifier states that a function has no side effects.
    pub(crate) pure: bool,
    pub(crate) is_static: bool,
    pub(crate) cleanup: bool,
}

/// Initialiser: an expression or a list in braces.
#[derive(Debug)]
pub(crate) enum Initializer {
    Expression(Expr),
    List(InitList),
}

/// List in braces.
#[derive(Debug)]
pub(crate) struct InitList {
    pub(crate) span: Span,
    pub(crate) items: Vec<InitItem>,
}

/// Element of a list in braces.
#[derive(Debug)]
pub(crate) struct InitItem {
    /// Designators.
    pub(crate) designators: Vec<Designator>,
    pub(crate) value: Initializer,
}

/// Part of a designator.
#[derive(Debug)]
pub(crate) enum Designator {
    Field(String),
    Index,
}

/// Expression.
#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) ty: Type,
    pub(crate) span: Span,
}

/// Kind of an expression.
#[derive(Debug)]
pub(crate) enum ExprKind {
    Name(DeclId),
    /// Name without a declaration.
    Undeclared(String),
    Number(Option<i128>),
    Character,
    String,
    Paren(Box<Expr>),
    Call(Box<Expr>, Vec<Expr>),
    Index(Box<Expr>, Box<Expr>),
    Member {
        object: Box<Expr>,
        arrow: bool,
        field: String,
    },
    /// Prefix operator: `& * + - ! ~`, and `__real__`, `__imag__`, `__extension__`.
    Unary(String, Box<Expr>),
    /// `++` or `--`.
    Update {
        operator: String,
        postfix: bool,
        operand: Box<Expr>,
    },
    Binary(String, Box<Expr>, Box<Expr>),
    /// Assignment with its operator, such as `=` or `+=`.
    Assign(String, Box<Expr>, Box<Expr>),
    /// `a ? b : c`. The second operand of `a ?: c` is missing.
    Conditional(Box<Expr>, Option<Box<Expr>>, Box<Expr>),
    Comma(Box<Expr>, Box<Expr>),
    Cast(Type, Box<Expr>),
    Compound(Type, InitList),
    /// `sizeof` and `_Alignof`, of an expression or a type.
    SizeOf(Option<Box<Expr>>),
    /// Statement expression.
    Statement(Box<Stmt>),
    /// `_Generic` and builtins with type arguments. Their operands are not evaluated, or have no
    /// side effects.
    Opaque(Vec<Expr>),
    /// `&&label`.
    LabelAddress,
}

/// Statement.
#[derive(Debug)]
pub(crate) struct Stmt {
    pub(crate) kind: StmtKind,
    pub(crate) span: Span,
}

/// Kind of a statement.
#[derive(Debug)]
pub(crate) enum StmtKind {
    Block(Vec<Stmt>),
    Expression(Expr),
    Declaration(DeclStmt),
    If(Expr, Box<Stmt>, Option<Box<Stmt>>),
    While(Expr, Box<Stmt>),
    Do(Box<Stmt>, Expr),
    For(Box<ForLoop>),
    Switch(Expr, Box<Stmt>),
    Case(Vec<Expr>, Box<Stmt>),
    Default(Box<Stmt>),
    Label(String, Box<Stmt>),
    Goto(String),
    ComputedGoto(Expr),
    Return(Option<Expr>),
    Break,
    Continue,
    /// Inline assembly.
    Assembly(Assembly),
    /// `;`, or an attribute such as `fallthrough`.
    Empty,
    /// `#pragma gopt WORD`.
    Pragma(String),
}

/// Parts of a `for`.
#[derive(Debug)]
pub(crate) struct ForLoop {
    pub(crate) first: Option<Stmt>,
    pub(crate) condition: Option<Expr>,
    pub(crate) step: Option<Expr>,
    pub(crate) body: Stmt,
    /// Whether a `foreach` macro expands to the loop.
    pub(crate) promise: bool,
}

/// Declaration statement.
#[derive(Debug)]
pub(crate) struct DeclStmt {
    /// Declared names, in order.
    pub(crate) names: Vec<DeclId>,
    /// Static assertions and declarations without names have no effect at run time.
    pub(crate) types: Vec<Type>,
}

/// Inline assembly.
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) volatile: bool,
    pub(crate) memory: bool,
    pub(crate) jumps: bool,
    pub(crate) outputs: Vec<Expr>,
    /// Inputs, with whether the operand is in memory.
    pub(crate) inputs: Vec<(bool, Expr)>,
}

impl Expr {
    /// Returns the expression without its parentheses and `__extension__`.
    pub(crate) fn bare(&self) -> &Self {
        match &self.kind {
            ExprKind::Paren(inner) => inner.bare(),
            ExprKind::Unary(operator, inner) if operator == "__extension__" => inner.bare(),
            _ => self,
        }
    }

    /// Returns the declared name, if the expression is one.
    pub(crate) fn name(&self) -> Option<DeclId> {
        match self.bare().kind {
            ExprKind::Name(id) => Some(id),
            _ => None,
        }
    }

    /// Returns the direct subexpressions in order. A statement expression has no direct
    /// subexpressions.
    pub(crate) fn parts(&self) -> Vec<&Self> {
        match &self.kind {
            ExprKind::Paren(one)
            | ExprKind::Unary(_, one)
            | ExprKind::Update { operand: one, .. }
            | ExprKind::Member { object: one, .. }
            | ExprKind::Cast(_, one) => vec![one],
            ExprKind::Call(function, arguments) => std::iter::once(&**function).chain(arguments).collect(),
            ExprKind::Index(one, two)
            | ExprKind::Binary(_, one, two)
            | ExprKind::Assign(_, one, two)
            | ExprKind::Comma(one, two) => vec![one, two],
            ExprKind::Conditional(one, two, three) => {
                let mut all = vec![&**one];
                all.extend(two.as_deref());
                all.push(three);
                all
            }
            ExprKind::Compound(_, list) => list.expressions(),
            ExprKind::Opaque(all) => all.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the value of an integer constant expression that consists of numbers, characters and
    /// operators.
    pub(crate) fn constant(&self) -> Option<i128> {
        match &self.kind {
            ExprKind::Number(value) => *value,
            ExprKind::Paren(inner) => inner.constant(),
            ExprKind::Cast(ty, inner) if ty.as_integer().is_some_and(|(_, rank)| rank >= 3) => inner.constant(),
            ExprKind::Unary(operator, inner) => {
                let value = inner.constant()?;
                match operator.as_str() {
                    "-" => value.checked_neg(),
                    "+" | "__extension__" => Some(value),
                    "~" => Some(!value),
                    "!" => Some(i128::from(value == 0)),
                    _ => None,
                }
            }
            ExprKind::Binary(operator, left, right) => {
                let (left, right) = (left.constant()?, right.constant()?);
                let bits = u32::try_from(right).ok();
                match operator.as_str() {
                    "+" => left.checked_add(right),
                    "-" => left.checked_sub(right),
                    "*" => left.checked_mul(right),
                    "/" => left.checked_div(right),
                    "%" => left.checked_rem(right),
                    "<<" => left.checked_shl(bits?),
                    ">>" => left.checked_shr(bits?),
                    "&" => Some(left & right),
                    "|" => Some(left | right),
                    "^" => Some(left ^ right),
                    "<" => Some(i128::from(left < right)),
                    ">" => Some(i128::from(left > right)),
                    "==" => Some(i128::from(left == right)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

impl InitList {
    /// Returns all expressions of the list, in order.
    pub(crate) fn expressions(&self) -> Vec<&Expr> {
        self.items.iter().flat_map(|item| item.value.expressions()).collect()
    }
}

impl Initializer {
    /// Returns all expressions of the initialiser, in order.
    pub(crate) fn expressions(&self) -> Vec<&Expr> {
        match self {
            Self::Expression(expression) => vec![expression],
            Self::List(list) => list.expressions(),
        }
    }

    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Expression(expression) => expression.span,
            Self::List(list) => list.span,
        }
    }
}

impl Stmt {
    /// Returns the direct substatements, in order.
    pub(crate) fn statements(&self) -> Vec<&Self> {
        match &self.kind {
            StmtKind::Block(all) => all.iter().collect(),
            StmtKind::If(_, yes, no) => std::iter::once(&**yes).chain(no.as_deref()).collect(),
            StmtKind::While(_, body)
            | StmtKind::Do(body, _)
            | StmtKind::Switch(_, body)
            | StmtKind::Case(_, body)
            | StmtKind::Default(body)
            | StmtKind::Label(_, body) => vec![body],
            StmtKind::For(parts) => parts.first.iter().chain([&parts.body]).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the expressions of the statement itself in order, without initialisers.
    pub(crate) fn expressions(&self) -> Vec<&Expr> {
        match &self.kind {
            StmtKind::Expression(one)
            | StmtKind::If(one, ..)
            | StmtKind::While(one, _)
            | StmtKind::Do(_, one)
            | StmtKind::Switch(one, _)
            | StmtKind::ComputedGoto(one)
            | StmtKind::Return(Some(one)) => vec![one],
            StmtKind::Case(all, _) => all.iter().collect(),
            StmtKind::For(parts) => parts.condition.iter().chain(&parts.step).collect(),
            StmtKind::Assembly(assembly) => {
                assembly.outputs.iter().chain(assembly.inputs.iter().map(|(_, input)| input)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the body of a loop.
    pub(crate) fn loop_body(&self) -> Option<&Self> {
        match &self.kind {
            StmtKind::While(_, body) | StmtKind::Do(body, _) => Some(body),
            StmtKind::For(parts) => Some(&parts.body),
            _ => None,
        }
    }
}
