//! Types of C.

use std::rc::Rc;

use super::ast::{DeclId, Expr, Span};

/// Type with its qualifiers.
#[derive(Clone, Debug)]
pub(crate) struct Type {
    pub(crate) kind: Rc<Kind>,
    pub(crate) constant: bool,
    pub(crate) volatile: bool,
    pub(crate) atomic: bool,
}

/// Type without qualifiers.
#[derive(Debug)]
pub(crate) enum Kind {
    Void,
    /// Integer type with its canonical name. `rank` orders integer types by width.
    Integer {
        name: &'static str,
        signed: bool,
        rank: u8,
    },
    /// Floating-point or complex type.
    Floating(String),
    Pointer(Type),
    /// Array. `size` is `None` if the declarator gives none.
    Array {
        element: Type,
        size: Option<Rc<Expr>>,
    },
    Function {
        result: Type,
        parameters: Vec<Type>,
        variadic: bool,
    },
    Record(Rc<Record>),
    /// Enumeration, with its tag and the tokens of its definition.
    Enum(Rc<Enumeration>),
    /// Name that `typedef` declares.
    Named {
        name: String,
        declaration: DeclId,
        target: Type,
    },
    /// Vector of the GNU extension.
    Vector(Type),
    /// Type that the parser does not know, such as a builtin type of the compiler.
    Unknown(String),
}

/// Struct or union. Two records are equal only if they are the same object.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) number: usize,
    pub(crate) is_union: bool,
    pub(crate) tag: Option<String>,
    /// Whether a function declares the record.
    pub(crate) local: bool,
    /// Fields. Empty until the definition is parsed.
    pub(crate) fields: std::cell::RefCell<Vec<Field>>,
    /// Tokens between the braces of the definition.
    pub(crate) body: std::cell::Cell<Option<Span>>,
    /// Attributes of the definition, such as `packed`.
    pub(crate) attributes: std::cell::RefCell<Vec<Span>>,
}

/// Enumeration.
#[derive(Debug)]
pub(crate) struct Enumeration {
    pub(crate) number: usize,
    pub(crate) tag: Option<String>,
    pub(crate) local: bool,
    pub(crate) body: std::cell::Cell<Option<Span>>,
}

/// Field of a record. An anonymous record has no name.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: Option<String>,
    pub(crate) ty: Type,
    pub(crate) bits: Option<Rc<Expr>>,
    pub(crate) attributes: Vec<Span>,
}

/// Integer types, narrowest first, with name, signedness and rank.
const INTEGERS: &[(&str, bool, u8)] = &[
    ("_Bool", false, 0),
    ("char", true, 1),
    ("signed char", true, 1),
    ("unsigned char", false, 1),
    ("short", true, 2),
    ("unsigned short", false, 2),
    ("int", true, 3),
    ("unsigned int", false, 3),
    ("long", true, 4),
    ("unsigned long", false, 4),
    ("long long", true, 4),
    ("unsigned long long", false, 4),
    ("__int128", true, 6),
    ("unsigned __int128", false, 6),
];

impl Type {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind: Rc::new(kind), constant: false, volatile: false, atomic: false }
    }

    /// Returns an integer type by its canonical name.
    pub(crate) fn integer(name: &str) -> Self {
        let found = INTEGERS.iter().find(|one| one.0 == name);
        let (name, signed, rank) = found.copied().unwrap_or(("int", true, 3));
        Self::new(Kind::Integer { name, signed, rank })
    }

    pub(crate) fn int() -> Self {
        Self::integer("int")
    }

    pub(crate) fn void() -> Self {
        Self::new(Kind::Void)
    }

    pub(crate) fn unknown() -> Self {
        Self::new(Kind::Unknown(String::new()))
    }

    pub(crate) fn pointer(target: Self) -> Self {
        Self::new(Kind::Pointer(target))
    }

    /// Returns the type behind `typedef` names, with the qualifiers of all levels.
    pub(crate) fn resolved(&self) -> Self {
        let mut found = self.clone();
        while let Kind::Named { target, .. } = &*found.kind.clone() {
            let mut target = target.clone();
            target.constant |= found.constant;
            target.volatile |= found.volatile;
            target.atomic |= found.atomic;
            found = target;
        }
        found
    }

    /// Returns the type behind `typedef` names, without the qualifiers of the names.
    pub(crate) fn base(&self) -> &Self {
        match &*self.kind {
            Kind::Named { target, .. } => target.base(),
            _ => self,
        }
    }

    /// Returns the type without its qualifiers.
    pub(crate) fn unqualified(&self) -> Self {
        Self { kind: Rc::clone(&self.kind), constant: false, volatile: false, atomic: false }
    }

    /// Returns the type of an expression that names a value of this type. Arrays and functions
    /// become pointers.
    pub(crate) fn decayed(&self) -> Self {
        match &*self.resolved().kind {
            Kind::Array { element, .. } => Self::pointer(element.clone()),
            Kind::Function { .. } => Self::pointer(self.clone()),
            _ => self.clone(),
        }
    }

    /// Returns the target of a pointer or the element of an array.
    pub(crate) fn target(&self) -> Option<Self> {
        match &*self.resolved().kind {
            Kind::Pointer(target) | Kind::Array { element: target, .. } | Kind::Vector(target) => Some(target.clone()),
            _ => None,
        }
    }

    pub(crate) fn record(&self) -> Option<Rc<Record>> {
        match &*self.resolved().kind {
            Kind::Record(record) => Some(Rc::clone(record)),
            _ => None,
        }
    }

    /// Returns the result type of a function, or of a function behind a pointer.
    pub(crate) fn result(&self) -> Option<Self> {
        match &*self.resolved().kind {
            Kind::Function { result, .. } => Some(result.clone()),
            Kind::Pointer(target) => match &*target.resolved().kind {
                Kind::Function { result, .. } => Some(result.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn is_void(&self) -> bool {
        matches!(&*self.resolved().kind, Kind::Void)
    }

    pub(crate) fn is_array(&self) -> bool {
        matches!(&*self.resolved().kind, Kind::Array { .. })
    }

    pub(crate) fn is_pointer(&self) -> bool {
        matches!(&*self.resolved().kind, Kind::Pointer(_))
    }

    pub(crate) fn is_function(&self) -> bool {
        matches!(&*self.resolved().kind, Kind::Function { .. })
    }

    pub(crate) fn is_unknown(&self) -> bool {
        matches!(&*self.resolved().kind, Kind::Unknown(_))
    }

    /// Returns signedness and rank of an integer or enumeration.
    pub(crate) fn as_integer(&self) -> Option<(bool, u8)> {
        match &*self.resolved().kind {
            Kind::Integer { signed, rank, .. } => Some((*signed, *rank)),
            Kind::Enum(_) => Some((true, 3)),
            _ => None,
        }
    }

    pub(crate) fn is_scalar(&self) -> bool {
        self.as_integer().is_some() || matches!(&*self.resolved().kind, Kind::Pointer(_) | Kind::Floating(_))
    }

    /// Returns the type of an arithmetic operation on two operands.
    pub(crate) fn common(left: &Self, right: &Self) -> Self {
        let floating = |ty: &Self| matches!(&*ty.resolved().kind, Kind::Floating(_) | Kind::Vector(_));
        if floating(left) || left.is_unknown() {
            let wider = floating(right) && format!("{:?}", right.resolved().kind).contains("double");
            return if wider { right.unqualified() } else { left.unqualified() };
        }
        if floating(right) || right.is_unknown() {
            return right.unqualified();
        }
        let (left, right) = (left.promoted(), right.promoted());
        match (left.as_integer(), right.as_integer()) {
            (Some((left_signed, left_rank)), Some((_, right_rank))) => {
                if left_rank > right_rank || left_rank == right_rank && !left_signed { left } else { right }
            }
            (None, _) => left,
            _ => right,
        }
    }

    /// Returns the type after integer promotion.
    pub(crate) fn promoted(&self) -> Self {
        match self.as_integer() {
            Some((_, rank)) if rank < 3 => Self::int(),
            _ => self.resolved().unqualified(),
        }
    }

    /// Returns whether two types are the same, apart from qualifiers.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (&*self.resolved().kind, &*other.resolved().kind) {
            (Kind::Void, Kind::Void) => true,
            (Kind::Integer { name, .. }, Kind::Integer { name: other, .. }) => name == other,
            (Kind::Floating(name), Kind::Floating(other)) => name == other,
            (Kind::Pointer(target), Kind::Pointer(other)) => target.same(other),
            (Kind::Record(record), Kind::Record(other)) => record.number == other.number,
            (Kind::Enum(one), Kind::Enum(other)) => one.number == other.number,
            (Kind::Vector(one), Kind::Vector(other)) => one.same(other),
            (Kind::Array { element, size }, Kind::Array { element: other, size: also }) => {
                let count = |size: &Option<Rc<Expr>>| size.as_ref().and_then(|one| one.constant());
                element.same(other) && count(size).is_some() && count(size) == count(also)
            }
            (Kind::Unknown(one), Kind::Unknown(other)) => !one.is_empty() && one == other,
            (Kind::Function { result, parameters, .. }, Kind::Function { result: other, parameters: others, .. }) => {
                result.same(other)
                    && parameters.len() == others.len()
                    && parameters.iter().zip(others).all(|(one, other)| one.same(other))
            }
            _ => false,
        }
    }
}

impl Record {
    /// Returns the type of a field. The field may also be in an anonymous record.
    pub(crate) fn field(&self, name: &str) -> Option<Type> {
        for field in self.fields.borrow().iter() {
            match &field.name {
                Some(own) if own == name => return Some(field.ty.clone()),
                None => {
                    if let Some(found) = field.ty.record().and_then(|record| record.field(name)) {
                        return Some(found);
                    }
                }
                Some(_) => {}
            }
        }
        None
    }

    /// Returns whether a field shares its memory with other fields.
    pub(crate) fn overlaps(&self, name: &str) -> bool {
        self.fields.borrow().iter().any(|field| match &field.name {
            Some(own) => own == name && self.is_union,
            None => field
                .ty
                .record()
                .is_some_and(|record| record.field(name).is_some() && (self.is_union || record.overlaps(name))),
        })
    }
}
