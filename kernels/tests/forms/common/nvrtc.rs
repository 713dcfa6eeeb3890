//! NVRTC, loaded at run time: compiles a source text to PTX.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::{env, fs, ptr};

use godwit_test_support::skip;
use libloading::Library;

type CreateProgram = unsafe extern "C" fn(
    *mut *mut c_void,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type CompileProgram = unsafe extern "C" fn(*mut c_void, c_int, *const *const c_char) -> c_int;
type TextSize = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;
type Text = unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int;
type DestroyProgram = unsafe extern "C" fn(*mut *mut c_void) -> c_int;

/// Loaded NVRTC library and its path.
pub(crate) struct Nvrtc {
    library: Library,
    pub(crate) path: PathBuf,
}

impl Nvrtc {
    /// Loads the first library of: `$GODWIT_NVRTC`, or else `target/nvrtc` and the search path of
    /// the loader. Returns `None` and reports a skipped test if there is none.
    pub(crate) fn load() -> Option<Self> {
        let candidates = match env::var_os("GODWIT_NVRTC") {
            Some(path) => vec![PathBuf::from(path)],
            None => {
                let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
                let mut found = Vec::new();
                find(&root.join("target/nvrtc"), &mut found);
                found.extend(["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"].map(Into::into));
                found
            }
        };
        let nvrtc = candidates.into_iter().find_map(|path| {
            // SAFETY: the initialisers of NVRTC have no preconditions.
            let library = unsafe { Library::new(&path) }.ok()?;
            Some(Self { library, path })
        });
        if nvrtc.is_none() {
            skip("NVRTC is not installed (set GODWIT_NVRTC to libnvrtc.so to compile the kernels for CUDA)");
        }
        nvrtc
    }

    /// Compiles a source text. Returns the PTX and the log, or only the log after an error.
    pub(crate) fn compile(&self, source: &str, options: &[&str]) -> Result<(String, String), String> {
        let source = CString::new(source).unwrap();
        let options: Vec<_> = options.iter().map(|option| CString::new(*option).unwrap()).collect();
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = ptr::null_mut();
        // SAFETY: the types match nvrtc.h. All strings are zero-terminated and outlive the calls.
        unsafe {
            let create = self.library.get::<CreateProgram>(b"nvrtcCreateProgram").unwrap();
            let status = create(&mut program, source.as_ptr(), c"kernels.cu".as_ptr(), 0, ptr::null(), ptr::null());
            assert_eq!(status, 0, "nvrtcCreateProgram");
            let compile = self.library.get::<CompileProgram>(b"nvrtcCompileProgram").unwrap();
            let status = compile(program, options.len() as c_int, options.as_ptr());
            let log = self.text(program, b"nvrtcGetProgramLogSize", b"nvrtcGetProgramLog");
            let result = match status {
                0 => Ok((self.text(program, b"nvrtcGetPTXSize", b"nvrtcGetPTX"), log)),
                _ => Err(log),
            };
            self.library.get::<DestroyProgram>(b"nvrtcDestroyProgram").unwrap()(&mut program);
            result
        }
    }

    fn text(&self, program: *mut c_void, size: &[u8], text: &[u8]) -> String {
        // SAFETY: as in `compile`. The buffer has the size that the library returned.
        unsafe {
            let mut bytes = 0;
            assert_eq!(self.library.get::<TextSize>(size).unwrap()(program, &mut bytes), 0);
            let mut buffer = vec![0_u8; bytes];
            let status = self.library.get::<Text>(text).unwrap()(program, buffer.as_mut_ptr().cast());
            assert_eq!(status, 0);
            String::from_utf8_lossy(buffer.strip_suffix(&[0]).unwrap_or(&buffer)).into_owned()
        }
    }
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, found);
        } else if entry.file_name().to_string_lossy().starts_with("libnvrtc.so") {
            found.push(path);
        }
    }
}
