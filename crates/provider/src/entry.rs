//! Loads and unloads the provider.
#![allow(unsafe_code, reason = "OpenSSL calls these functions with pointers")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use godwit_sign::remote::Connection;
use godwit_sign::{Key, Library};

use crate::algorithms;
use crate::engine;
use crate::openssl::{self, Algorithm, Dispatch, Object, OsslParam, Params, Table, functions, raise};
use crate::report::Statistics;
use crate::settings::Settings;

/// Loaded provider.
pub(crate) struct Provider {
    /// Number that distinguishes several providers of a process.
    pub(crate) number: u64,
    pub(crate) settings: Settings,
    pub(crate) library: Option<Arc<Library>>,
    /// Public halves of the signer's keys.
    held: Mutex<Vec<Arc<Key>>>,
    pub(crate) statistics: Arc<Statistics>,
    core: Core,
    /// Context of OpenSSL with only its default provider.
    context: OnceLock<Context>,
}

/// Arguments of `OSSL_provider_init`, which are valid until the provider is unloaded.
#[derive(Clone, Copy)]
struct Core {
    handle: *const c_void,
    functions: *const c_void,
}

// SAFETY: threads may share both.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

/// Context of OpenSSL that this provider owns.
struct Context {
    context: Object,
    default: Object,
}

// SAFETY: threads may share a context of OpenSSL.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Provider {
    fn new(settings: Settings, core: Core) -> Result<Self, String> {
        let (mut library, mut held) = (None, Vec::new());
        let lanes = match &settings.socket {
            Some(socket) => {
                let connection = Connection::open(socket).map_err(|error| error.to_string())?;
                held = connection.keys().to_vec();
                connection.lanes().to_owned()
            }
            None => match (&settings.crypto_mb, settings.lanes) {
                (_, false) => "disabled by the configuration".to_owned(),
                (Some(file), true) => {
                    let found = Library::load(file).map_err(|error| format!("crypto_mb = {error}"))?;
                    library.insert(Arc::new(found)).version().to_owned()
                }
                (None, true) => match Library::find() {
                    Ok(found) => library.insert(Arc::new(found)).version().to_owned(),
                    Err(error) => error.to_string(),
                },
            },
        };
        let statistics = Arc::new(Statistics::new(lanes, settings.report.as_deref())?);
        Ok(Self {
            number: engine::new_number(),
            settings,
            library,
            held: Mutex::new(held),
            statistics,
            core,
            context: OnceLock::new(),
        })
    }

    /// Returns the context with OpenSSL's default provider, or null if it cannot be created.
    pub(crate) fn context(&self) -> Object {
        let create = || {
            let openssl = functions();
            // SAFETY: OpenSSL has passed the arguments, and the context is new.
            unsafe {
                let context = (openssl.OSSL_LIB_CTX_new_from_dispatch)(self.core.handle, self.core.functions);
                let default = (openssl.OSSL_PROVIDER_load)(context, c"default".as_ptr());
                Context { context, default }
            }
        };
        self.context.get_or_init(create).context
    }

    /// Returns the key of the signer with the same public half. Asks the signer if it is not known,
    /// because the signer may have loaded new keys.
    pub(crate) fn find_held(&self, is_same: impl Fn(&Key) -> bool) -> Option<Arc<Key>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let find = |held: &[Arc<Key>]| held.iter().find(|key| is_same(key)).cloned();
        let found = find(&held);
        if found.is_some() {
            return found;
        }
        *held = Connection::open(self.settings.socket.as_deref()?).ok()?.keys().to_vec();
        find(&held)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.statistics.finish();
        self.statistics.engines.clear();
        if let Some(Context { context, default }) = self.context.take() {
            // SAFETY: no key and no signature of this provider exists any more.
            unsafe {
                (functions().OSSL_PROVIDER_unload)(default);
                (functions().OSSL_LIB_CTX_free)(context);
            }
        }
    }
}

/// Calls `work`. A panic becomes an error of OpenSSL and the result `failure`.
pub(crate) fn guard<T>(failure: T, work: impl FnOnce() -> Result<T, String>) -> T {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => value,
        Ok(Err(sentence)) => {
            if !sentence.is_empty() {
                raise(&sentence);
            }
            failure
        }
        Err(_) => {
            raise("a bug in the provider: report it with the message on standard error");
            failure
        }
    }
}

/// Prints a mistake of the configuration. Many programs do not print the errors of OpenSSL at their
/// start.
pub(crate) fn complain(sentence: String) -> String {
    eprintln!("godwit provider: {sentence}");
    sentence
}

type GetParams = unsafe extern "C" fn(*const c_void, *mut OsslParam) -> c_int;

/// Loads the provider. OpenSSL calls this function.
///
/// # Safety
/// OpenSSL passes a valid handle, a table of functions and two valid results.
#[allow(unreachable_pub, reason = "the dynamic loader exports the function")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OSSL_provider_init(
    handle: *const c_void,
    input: *const c_void,
    output: *mut *const c_void,
    context: *mut *mut c_void,
) -> c_int {
    guard(0, || {
        // SAFETY: by the contract. The table has an end.
        let get_params = unsafe { find_function(input.cast(), openssl::CORE_GET_PARAMS) };
        let get_params = get_params.ok_or("OpenSSL passes no parameters")?;
        // SAFETY: the function is in OpenSSL.
        unsafe { openssl::load(get_params) }.map_err(|error| complain(format!("this is not OpenSSL 3: {error}")))?;
        // SAFETY: the number of the function determines its type.
        let get_params = unsafe { std::mem::transmute::<*const c_void, GetParams>(get_params) };
        let core = Core { handle, functions: input };
        let value = |key: &str| {
            let key = CString::new(key).ok()?;
            // SAFETY: the handle is that of this call.
            unsafe { setting(get_params, handle, &key) }
        };
        let loaded = Settings::read(value).and_then(|settings| Provider::new(settings, core)).map_err(complain)?;
        // SAFETY: by the contract.
        unsafe {
            *output = PROVIDER.0.as_ptr().cast();
            *context = Box::into_raw(Box::new(loaded)).cast();
        }
        Ok(1)
    })
}

/// Returns a function of a table.
///
/// # Safety
/// The table ends with the number 0.
unsafe fn find_function(mut table: *const Dispatch, number: c_int) -> Option<*const c_void> {
    loop {
        // SAFETY: by the contract.
        let entry = unsafe { table.read() };
        match entry.number {
            0 => return None,
            found if found == number => return Some(entry.function),
            // SAFETY: this is not the end.
            _ => table = unsafe { table.add(1) },
        }
    }
}

/// Returns the value of a key in the configuration of OpenSSL.
///
/// # Safety
/// The handle is that of this provider.
unsafe fn setting(get_params: GetParams, handle: *const c_void, key: &CStr) -> Option<String> {
    let mut value: *const c_char = null();
    let mut params = Params::one(OsslParam::named_text_pointer(key, &mut value));
    // SAFETY: the array has an end.
    let found = unsafe { get_params(handle, params.as_mut_ptr()) } == 1 && !value.is_null();
    // SAFETY: OpenSSL returns a text that lives as long as the configuration.
    found.then(|| unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
}

static PROVIDER: Table<Dispatch, 5> = Table([
    Dispatch { number: openssl::PROVIDER_TEARDOWN, function: teardown as *const c_void },
    Dispatch { number: openssl::PROVIDER_GETTABLE_PARAMS, function: gettable_params as *const c_void },
    Dispatch { number: openssl::PROVIDER_GET_PARAMS, function: get_params as *const c_void },
    Dispatch { number: openssl::PROVIDER_QUERY_OPERATION, function: query_operation as *const c_void },
    Dispatch::END,
]);

static PARAMS: Table<OsslParam, 5> = Table([
    OsslParam::text_pointer(c"name"),
    OsslParam::text_pointer(c"version"),
    OsslParam::text_pointer(c"buildinfo"),
    OsslParam::unsigned(c"status"),
    OsslParam::END,
]);

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"",
};

unsafe extern "C" fn teardown(provider: *mut Provider) {
    guard((), || {
        // SAFETY: OpenSSL passes the provider that `OSSL_provider_init` has returned, once.
        drop(unsafe { Box::from_raw(provider) });
        Ok(())
    });
}

unsafe extern "C" fn gettable_params(_provider: *const Provider) -> *const OsslParam {
    PARAMS.0.as_ptr()
}

unsafe extern "C" fn get_params(_provider: *const Provider, params: *mut OsslParam) -> c_int {
    let mut next = params;
    // SAFETY: OpenSSL passes an array with an end.
    while let Some(param) = unsafe { next.as_mut() }.filter(|param| !param.key.is_null()) {
        // SAFETY: keys are texts.
        let is_set = match unsafe { CStr::from_ptr(param.key) }.to_bytes() {
            b"name" => param.set_text_pointer(c"Godwit"),
            b"version" | b"buildinfo" => param.set_text_pointer(VERSION),
            b"status" => param.set_unsigned(1),
            _ => true,
        };
        if !is_set {
            return 0;
        }
        // SAFETY: this is not the end.
        next = unsafe { next.add(1) };
    }
    1
}

unsafe extern "C" fn query_operation(_: *const Provider, operation: c_int, no_cache: *mut c_int) -> *const Algorithm {
    // SAFETY: OpenSSL passes a valid result.
    unsafe { *no_cache = 0 };
    algorithms::of(operation)
}
