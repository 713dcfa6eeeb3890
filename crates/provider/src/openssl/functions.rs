//! Functions of the library that has loaded the provider.
//!
//! The provider does not link OpenSSL. It finds the functions at run time, so that its build needs
//! no headers, and so that it uses exactly the library that has loaded it.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uchar, c_void};
use std::sync::OnceLock;

use libloading::os::unix::Library;

use super::params::OsslParam;
use super::{Callback, Object};

/// Function that OpenSSL calls when it frees a descriptor of an asynchronous job.
pub(crate) type Cleanup = unsafe extern "C" fn(Object, *const c_void, c_int, *mut c_void);

macro_rules! declare {
    ($(fn $name:ident($($kind:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// Functions of OpenSSL, with their original names.
        #[allow(non_snake_case)]
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($kind),*) $(-> $result)?,)*
            ERR_set_error: unsafe extern "C" fn(c_int, c_int, *const c_char, ...),
            /// Number of this provider in the table of errors.
            errors: c_int,
            _library: Library,
        }

        impl Functions {
            /// # Safety
            /// `library` is OpenSSL 3.
            unsafe fn find(library: Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of the headers of OpenSSL 3.
                unsafe {
                    Ok(Self {
                        $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)*
                        ERR_set_error: *library.get(b"ERR_set_error\0")?,
                        errors: 0,
                        _library: library,
                    })
                }
            }
        }
    };
}

type Text = *const c_char;
type Bytes = *const c_uchar;
type BytesOut = *mut c_uchar;

declare! {
    fn ERR_new();
    fn ERR_set_debug(Text, c_int, Text);
    fn ERR_get_next_error_library() -> c_int;
    fn ERR_load_strings(c_int, *mut ErrorText) -> c_int;

    fn ASYNC_get_current_job() -> Object;
    fn ASYNC_get_wait_ctx(Object) -> Object;
    fn ASYNC_pause_job() -> c_int;
    fn ASYNC_WAIT_CTX_set_wait_fd(Object, *const c_void, c_int, *mut c_void, Cleanup) -> c_int;
    fn ASYNC_WAIT_CTX_get_fd(Object, *const c_void, *mut c_int, *mut *mut c_void) -> c_int;

    fn OSSL_LIB_CTX_new_from_dispatch(*const c_void, *const c_void) -> Object;
    fn OSSL_LIB_CTX_free(Object);
    fn OSSL_PROVIDER_load(Object, Text) -> Object;
    fn OSSL_PROVIDER_unload(Object) -> c_int;

    fn EVP_PKEY_CTX_new_from_name(Object, Text, Text) -> Object;
    fn EVP_PKEY_CTX_new_from_pkey(Object, Object, Text) -> Object;
    fn EVP_PKEY_CTX_dup(Object) -> Object;
    fn EVP_PKEY_CTX_free(Object);
    fn EVP_PKEY_CTX_set_params(Object, *const OsslParam) -> c_int;
    fn EVP_PKEY_CTX_get_params(Object, *mut OsslParam) -> c_int;
    fn EVP_PKEY_fromdata_init(Object) -> c_int;
    fn EVP_PKEY_fromdata(Object, *mut Object, c_int, *const OsslParam) -> c_int;
    fn EVP_PKEY_free(Object);
    fn EVP_PKEY_up_ref(Object) -> c_int;
    fn EVP_PKEY_eq(Object, Object) -> c_int;
    fn EVP_PKEY_is_a(Object, Text) -> c_int;
    fn EVP_PKEY_get_params(Object, *mut OsslParam) -> c_int;
    fn EVP_PKEY_get_octet_string_param(Object, Text, BytesOut, usize, *mut usize) -> c_int;
    fn EVP_PKEY_export(Object, c_int, Callback, *mut c_void) -> c_int;
    fn EVP_PKEY2PKCS8(Object) -> Object;
    fn PKCS8_PRIV_KEY_INFO_free(Object);
    fn i2d_PKCS8_PRIV_KEY_INFO(Object, *mut BytesOut) -> c_int;
    fn i2d_PublicKey(Object, *mut BytesOut) -> c_int;
    fn d2i_PUBKEY_ex(*mut Object, *mut Bytes, c_long, Object, Text) -> Object;

    fn EVP_PKEY_sign_init_ex(Object, *const OsslParam) -> c_int;
    fn EVP_PKEY_sign(Object, BytesOut, *mut usize, Bytes, usize) -> c_int;
    fn EVP_PKEY_verify_init_ex(Object, *const OsslParam) -> c_int;
    fn EVP_PKEY_verify(Object, Bytes, usize, Bytes, usize) -> c_int;
    fn EVP_PKEY_verify_recover_init_ex(Object, *const OsslParam) -> c_int;
    fn EVP_PKEY_verify_recover(Object, BytesOut, *mut usize, Bytes, usize) -> c_int;

    fn EVP_MD_CTX_new() -> Object;
    fn EVP_MD_CTX_free(Object);
    fn EVP_MD_CTX_copy_ex(Object, Object) -> c_int;
    fn EVP_MD_CTX_get_pkey_ctx(Object) -> Object;
    fn EVP_DigestSignInit_ex(Object, *mut Object, Text, Object, Text, Object, *const OsslParam) -> c_int;
    fn EVP_DigestSignUpdate(Object, *const c_void, usize) -> c_int;
    fn EVP_DigestSignFinal(Object, BytesOut, *mut usize) -> c_int;
    fn EVP_DigestSign(Object, BytesOut, *mut usize, Bytes, usize) -> c_int;
    fn EVP_DigestVerifyInit_ex(Object, *mut Object, Text, Object, Text, Object, *const OsslParam) -> c_int;
    fn EVP_DigestVerifyUpdate(Object, *const c_void, usize) -> c_int;
    fn EVP_DigestVerifyFinal(Object, Bytes, usize) -> c_int;
    fn EVP_DigestVerify(Object, Bytes, usize, Bytes, usize) -> c_int;

    fn BIO_new_from_core_bio(Object, Object) -> Object;
    fn BIO_free(Object) -> c_int;
    fn PEM_read_bio(Object, *mut *mut c_char, *mut *mut c_char, *mut BytesOut, *mut c_long) -> c_int;
    fn CRYPTO_free(*mut c_void, Text, c_int);
    fn CRYPTO_clear_free(*mut c_void, usize, Text, c_int);
}

/// Name of an error.
#[repr(C)]
pub(crate) struct ErrorText {
    number: u64,
    text: Text,
}

// SAFETY: the texts are constants.
unsafe impl Sync for ErrorText {}

/// Reason of all errors of the provider. The details are in the data of the error.
const REASON: c_int = 100;
static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Finds the functions of the library that contains `function`.
///
/// # Safety
/// `function` is the address of a function of OpenSSL 3.
pub(crate) unsafe fn load(function: *const c_void) -> Result<&'static Functions, libloading::Error> {
    if let Some(functions) = FUNCTIONS.get() {
        return Ok(functions);
    }
    // SAFETY: a null pointer in each field is valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is valid.
    let is_found = unsafe { libc::dladdr(function, &raw mut info) } != 0 && !info.dli_fname.is_null();
    let flags = libc::RTLD_NOLOAD | libc::RTLD_NOW;
    let open = |name: &CStr| {
        // SAFETY: the library is already loaded.
        unsafe { Library::open(Some(std::ffi::OsStr::new(&*name.to_string_lossy())), flags) }
    };
    // SAFETY: `dladdr` returns a text. The program itself has the functions if it links OpenSSL
    // statically.
    let library = is_found.then(|| open(unsafe { CStr::from_ptr(info.dli_fname) }));
    let library = library.and_then(Result::ok).unwrap_or_else(Library::this);
    // SAFETY: by the contract.
    let mut functions = unsafe { Functions::find(library)? };
    functions.register_errors();
    Ok(FUNCTIONS.get_or_init(|| functions))
}

/// Returns the functions.
///
/// # Panics
/// Panics before [`load`] has succeeded.
pub(crate) fn functions() -> &'static Functions {
    FUNCTIONS.get().expect("OpenSSL calls nothing before the provider is loaded")
}

impl Functions {
    fn register_errors(&mut self) {
        // OpenSSL adds the number of the library to the entries.
        let texts = Box::leak(Box::new([
            ErrorText { number: 0, text: c"godwit provider".as_ptr() },
            ErrorText { number: REASON as u64, text: c"failed".as_ptr() },
            ErrorText { number: 0, text: std::ptr::null() },
        ]));
        // SAFETY: the table is never freed, and its end is marked.
        unsafe {
            self.errors = (self.ERR_get_next_error_library)();
            texts[0].number = (self.errors as u64) << 23;
            (self.ERR_load_strings)(self.errors, texts.as_mut_ptr());
        }
    }

    /// Frees memory that OpenSSL has allocated.
    pub(crate) fn free<T>(&self, memory: *mut T) {
        // SAFETY: the pointer is null or from OpenSSL.
        unsafe { (self.CRYPTO_free)(memory.cast(), c"".as_ptr(), 0) };
    }
}

/// Puts an error on the error stack of OpenSSL.
pub(crate) fn raise(sentence: &str) {
    let Some(functions) = FUNCTIONS.get() else { return };
    let sentence = CString::new(sentence.replace('\0', " ")).unwrap_or_default();
    // SAFETY: the format consumes one text.
    unsafe {
        (functions.ERR_new)();
        (functions.ERR_set_debug)(c"godwit".as_ptr(), 0, c"godwit".as_ptr());
        (functions.ERR_set_error)(functions.errors, REASON, c"%s".as_ptr(), sentence.as_ptr());
    }
}
