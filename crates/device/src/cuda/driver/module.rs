//! Loads modules of compiled kernels and launches the kernels.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::context::{Context, failed};
use super::stream::Stream;
use crate::error::Error;

/// Compiled kernels, loaded on the device.
pub struct Module {
    module: sys::CUmodule,
    context: Arc<Context>,
}

// SAFETY: a loaded module does not change.
unsafe impl Send for Module {}
// SAFETY: see above.
unsafe impl Sync for Module {}

impl Module {
    /// Loads a binary (cubin) with compiled kernels on the device.
    ///
    /// # Errors
    /// Returns the error of the driver if it rejects the binary, for example because of its
    /// version.
    pub fn new(context: &Arc<Context>, cubin: &[u8]) -> Result<Self, DriverError> {
        // SAFETY: NVRTC wrote the cubin, which contains its own length.
        let module = unsafe { result::module::load_data(cubin.as_ptr().cast()) }?;
        Ok(Self { module, context: Arc::clone(context) })
    }

    /// Returns the kernel with the name `name`.
    ///
    /// # Errors
    /// Returns [`Error::Driver`] if the module has no kernel of this name.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function, Error> {
        let Ok(name) = CString::new(name) else { unreachable!("kernel names contain no zero byte") };
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(self.module, name) };
        let function = function.map_err(failed(&self.context.id, "find a kernel"))?;
        Ok(Function { function, scratch_bytes: 0, module: Arc::clone(self) })
    }

    /// Returns the value of a constant that the kernel source defines under the name `name`.
    pub fn number(&self, name: &str) -> Result<u32, Error> {
        let Ok(name) = CString::new(name) else { unreachable!("variable names contain no zero byte") };
        let wrong = || failed(&self.context.id, "read a constant of the kernels");
        let mut number = [0; size_of::<u32>()];
        // SAFETY: the module is loaded.
        let (pointer, bytes) = unsafe { result::module::get_global(self.module, name) }.map_err(wrong())?;
        assert_eq!(bytes, number.len(), "a gw_u32");
        // SAFETY: the variable has this length, and the copy has ended when the call returns.
        unsafe { result::memcpy_dtoh_sync(&mut number, pointer) }.map_err(wrong())?;
        Ok(u32::from_le_bytes(number))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: the module was loaded once and is unloaded once. Its owner has waited until none
        // of its kernels runs, or leaks it.
        let _ = unsafe { result::module::unload(self.module) };
    }
}

/// A kernel of a module.
pub struct Function {
    function: sys::CUfunction,
    /// Dynamic shared memory of a launch, in bytes.
    scratch_bytes: u32,
    module: Arc<Module>,
}

// SAFETY: a function does not change after its module is loaded.
unsafe impl Send for Function {}
// SAFETY: see above.
unsafe impl Sync for Function {}

impl Function {
    /// Gives each work-group of later launches `bytes` bytes of additional shared memory.
    ///
    /// # Errors
    /// Returns the error of the driver if the device has too little shared memory.
    pub fn with_scratch(mut self, bytes: u32) -> Result<Self, DriverError> {
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function exists.
        unsafe { result::function::set_function_attribute(self.function, attribute, bytes as i32) }?;
        self.scratch_bytes = bytes;
        Ok(self)
    }

    /// Returns how many work-groups one multiprocessor can run at the same time. Each work-group
    /// has `lanes` threads.
    pub fn groups_per_unit(&self, lanes: u32) -> usize {
        // SAFETY: the function exists. If the driver fails, one group is assumed.
        let groups = unsafe {
            let scratch_bytes = self.scratch_bytes as usize;
            result::occupancy::max_active_block_per_multiprocessor(self.function, lanes as i32, scratch_bytes)
        };
        groups.map_or(1, |groups| groups.max(1) as usize)
    }

    /// Enqueues a launch of `groups` work-groups with `lanes` threads each.
    ///
    /// # Errors
    /// Returns the driver's error.
    ///
    /// # Safety
    /// `arguments` must point to values of the kernel's parameters, in order. Memory that these
    /// values point to must stay allocated and have no other use until the launch has ended.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        groups: u32,
        lanes: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), DriverError> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (groups, lanes) = ((groups, 1, 1), (lanes, 1, 1));
            result::launch_kernel(self.function, groups, lanes, self.scratch_bytes, stream.stream, arguments)
        }
    }
}

/// CUDA graph of one kernel launch that is repeated with different arguments. On a host with an
/// H200, a repeated launch takes 2 µs of the calling thread, or 3.3 µs if the number of work-groups
/// changes. An ordinary launch takes 3.5 µs.
pub(crate) struct Repeated {
    exec: sys::CUgraphExec,
    graph: sys::CUgraph,
    node: sys::CUgraphNode,
    function: sys::CUfunction,
    lanes: u32,
    scratch_bytes: u32,
    context: Arc<Context>,
    _module: Arc<Module>,
}

// SAFETY: one thread at a time uses a graph, in its context.
unsafe impl Send for Repeated {}

impl Repeated {
    /// Prepares a launch with `lanes` threads per work-group. [`Repeated::launch`] replaces the
    /// placeholders in `arguments` before each run.
    pub(crate) fn new(
        context: &Arc<Context>,
        function: &Function,
        lanes: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<Self, Error> {
        let mut repeated = Self {
            exec: std::ptr::null_mut(),
            graph: std::ptr::null_mut(),
            node: std::ptr::null_mut(),
            function: function.function,
            lanes,
            scratch_bytes: function.scratch_bytes,
            context: Arc::clone(context),
            _module: Arc::clone(&function.module),
        };
        repeated.make(arguments).map_err(failed(&context.id, "prepare a launch"))?;
        Ok(repeated)
    }

    /// Creates the CUDA graph of the launch. If a driver call fails, its handle and all later
    /// handles stay null.
    fn make(&mut self, arguments: &mut [*mut c_void]) -> Result<(), DriverError> {
        let node = self.described(1, arguments);
        // SAFETY: each call writes one handle. The node has no dependencies, and its arguments are
        // copied.
        unsafe {
            sys::cuGraphCreate(&mut self.graph, 0).result()?;
            sys::cuGraphAddKernelNode_v2(&mut self.node, self.graph, std::ptr::null(), 0, &node).result()?;
            sys::cuGraphInstantiateWithFlags(&mut self.exec, self.graph, 0).result()
        }
    }

    fn described(&self, groups: u32, arguments: &mut [*mut c_void]) -> sys::CUDA_KERNEL_NODE_PARAMS {
        sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.function,
            gridDimX: groups,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: self.lanes,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.scratch_bytes,
            kernelParams: arguments.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        }
    }

    /// # Safety
    /// Same as for [`Function::launch`].
    pub(crate) unsafe fn launch(
        &mut self,
        stream: &Stream,
        groups: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), DriverError> {
        let node = self.described(groups, arguments);
        // SAFETY: guaranteed by the caller. Launches in flight keep their own arguments.
        unsafe {
            sys::cuGraphExecKernelNodeSetParams_v2(self.exec, self.node, &node).result()?;
            sys::cuGraphLaunch(self.exec, stream.stream).result()
        }
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: each handle was created at most once and is destroyed once.
        unsafe {
            if !self.exec.is_null() {
                let _ = sys::cuGraphExecDestroy(self.exec);
            }
            if !self.graph.is_null() {
                let _ = sys::cuGraphDestroy(self.graph);
            }
        }
    }
}
