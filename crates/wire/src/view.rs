//! Common parts of all header views: fields with bounds checks, and macros for accessors.

/// A fixed-size field in network byte order.
pub(crate) trait Field: Sized {
    /// Reads the field at byte `at`. Returns zero if the field lies outside `bytes`.
    fn load(bytes: &[u8], at: usize) -> Self;
    /// Writes the field at byte `at`. Does nothing if the field lies outside `bytes`.
    fn store(self, bytes: &mut [u8], at: usize);
}

impl<const N: usize> Field for [u8; N] {
    #[inline(always)]
    fn load(bytes: &[u8], at: usize) -> Self {
        match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(field) => *field,
            None => [0; N],
        }
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], at: usize) {
        if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *field = self;
        }
    }
}

macro_rules! integer_field {
    ($($integer:ty),*) => {$(
        impl Field for $integer {
            #[inline(always)]
            fn load(bytes: &[u8], at: usize) -> Self {
                <$integer>::from_be_bytes(Field::load(bytes, at))
            }

            #[inline(always)]
            fn store(self, bytes: &mut [u8], at: usize) {
                self.to_be_bytes().store(bytes, at);
            }
        }
    )*};
}
integer_field!(u8, u16, u32);

/// Returns the bytes from `from` to `to`, or to the end of `bytes` if it comes first.
#[inline]
pub(crate) fn range(bytes: &[u8], from: usize, to: usize) -> &[u8] {
    let to = to.min(bytes.len());
    bytes.get(from..to).unwrap_or(&[])
}

/// Returns the bytes from `from` to `to`, or to the end of `bytes` if it comes first.
#[inline]
pub(crate) fn range_mut(bytes: &mut [u8], from: usize, to: usize) -> &mut [u8] {
    let to = to.min(bytes.len());
    bytes.get_mut(from..to).unwrap_or(&mut [])
}

/// Declares the type of a header view: `view! { /// doc Name, check }`. The constructor
/// `new_checked` calls `check(&[u8]) -> Result<(), Error>` to check the buffer.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<T> {
            buffer: T,
        }

        impl<T: AsRef<[u8]>> $name<T> {
            /// Creates a view of a header. Returns an error if the buffer is shorter than the
            /// lengths in the header require.
            #[inline]
            pub fn new_checked(buffer: T) -> Result<Self, $crate::Error> {
                $check(buffer.as_ref())?;
                Ok(Self { buffer })
            }

            /// Returns the buffer of this view.
            #[inline]
            pub fn into_inner(self) -> T {
                self.buffer
            }

            #[inline(always)]
            fn bytes(&self) -> &[u8] {
                self.buffer.as_ref()
            }
        }
    };
}

/// Declares the accessors of a view's fields, one field per line: `/// doc  offset => name /
/// set_name: type`.
macro_rules! fields {
    ($view:ident; $($(#[$doc:meta])* $at:literal => $load:ident / $store:ident : $field:ty),* $(,)?) => {
        impl<T: AsRef<[u8]>> $view<T> {
            $(
                $(#[$doc])*
                #[inline]
                pub fn $load(&self) -> $field {
                    $crate::view::Field::load(self.bytes(), $at)
                }
            )*
        }

        impl<T: AsMut<[u8]>> $view<T> {
            $(
                #[doc = concat!("Writes [`", stringify!($load), "`](Self::", stringify!($load), ").")]
                #[inline]
                pub fn $store(&mut self, value: $field) {
                    $crate::view::Field::store(value, self.buffer.as_mut(), $at);
                }
            )*
        }
    };
}
