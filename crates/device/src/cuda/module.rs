//! Kernels as the driver has them: a module, its entries, and launches of these. Owned as in `driver.rs`.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::driver::{Context, Stream, failed};
use crate::Error;

/// Compiled kernels on the device.
pub(super) struct Module {
    module: sys::CUmodule,
    context: Arc<Context>,
}

// SAFETY: a module is not changed once it is loaded.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// # Errors
    /// What the driver says of the cubin: it may be of another version.
    pub(super) fn new(context: &Arc<Context>, cubin: &[u8]) -> Result<Self, DriverError> {
        // SAFETY: a cubin says how long it is, and NVRTC wrote it.
        let module = unsafe { result::module::load_data(cubin.as_ptr().cast()) }?;
        Ok(Self { module, context: Arc::clone(context) })
    }

    pub(super) fn function(self: &Arc<Self>, name: &str) -> Result<Function, Error> {
        let Ok(name) = CString::new(name) else { unreachable!("a name of a kernel has no zero") };
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(self.module, name) };
        let function = function.map_err(failed(&self.context.id, "find a kernel"))?;
        Ok(Function { function, scratch_bytes: 0, module: Arc::clone(self) })
    }

    /// The number that the kernels' text keeps under this name.
    pub(super) fn number(&self, name: &str) -> Result<u32, Error> {
        let Ok(name) = CString::new(name) else { unreachable!("a name of a variable has no zero") };
        let wrong = || failed(&self.context.id, "read what the kernels say of themselves");
        let mut number = [0; size_of::<u32>()];
        // SAFETY: the module is loaded.
        let (pointer, bytes) = unsafe { result::module::get_global(self.module, name) }.map_err(wrong())?;
        assert_eq!(bytes, number.len(), "a gw_u32");
        // SAFETY: the variable has so many bytes, and the copy has ended when the call returns.
        unsafe { result::memcpy_dtoh_sync(&mut number, pointer) }.map_err(wrong())?;
        Ok(u32::from_le_bytes(number))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: loaded once, unloaded once; nothing of it runs (its owner waited, or leaks it).
        let _ = unsafe { result::module::unload(self.module) };
    }
}

/// An entry of a module.
pub(super) struct Function {
    function: sys::CUfunction,
    /// Shared memory that a launch asks for.
    scratch_bytes: u32,
    module: Arc<Module>,
}

// SAFETY: a function is not changed once its module is loaded.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// Lets every launch have so many bytes of shared memory, besides what the kernel declares.
    ///
    /// # Errors
    /// The device has less.
    pub(super) fn with_scratch(mut self, bytes: u32) -> Result<Self, DriverError> {
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function exists.
        unsafe { result::function::set_function_attribute(self.function, attribute, bytes as i32) }?;
        self.scratch_bytes = bytes;
        Ok(self)
    }

    /// Groups of so many lanes that one multiprocessor holds at once.
    pub(super) fn groups_per_unit(&self, lanes: u32) -> usize {
        // SAFETY: the function exists. A driver that does not answer gets one group.
        let groups = unsafe {
            let scratch_bytes = self.scratch_bytes as usize;
            result::occupancy::max_active_block_per_multiprocessor(self.function, lanes as i32, scratch_bytes)
        };
        groups.map_or(1, |groups| groups.max(1) as usize)
    }

    /// # Safety
    /// `arguments` point to values of the kernel's parameters, in order; whatever these point to stays allocated, and is
    /// not used otherwise, until the launch has ended.
    pub(super) unsafe fn launch(
        &self,
        stream: &Stream,
        groups: u32,
        lanes: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe {
            let (groups, lanes) = ((groups, 1, 1), (lanes, 1, 1));
            result::launch_kernel(self.function, groups, lanes, self.scratch_bytes, stream.stream, arguments)
        }
    }
}

/// A launch that is made again and again, each time with other arguments: a graph of one kernel. It costs the calling thread
/// 2 us where a launch costs 3.5 (an H200's host), as long as the number of groups stays the same, and 3.3 where it does not.
pub(super) struct Repeated {
    exec: sys::CUgraphExec,
    graph: sys::CUgraph,
    node: sys::CUgraphNode,
    function: sys::CUfunction,
    lanes: u32,
    scratch_bytes: u32,
    context: Arc<Context>,
    _module: Arc<Module>,
}

// SAFETY: a graph is used by one thread at a time, in its context.
unsafe impl Send for Repeated {}

impl Repeated {
    /// For groups of so many lanes. `arguments` as for [`Repeated::launch`], which gets others before anything runs.
    pub(super) fn new(
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

    /// What is not made stays null.
    fn make(&mut self, arguments: &mut [*mut c_void]) -> Result<(), DriverError> {
        let node = self.described(1, arguments);
        // SAFETY: each call writes one handle; the node depends on none, and its arguments are copied.
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
    /// As for [`Function::launch`].
    pub(super) unsafe fn launch(
        &mut self,
        stream: &Stream,
        groups: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), DriverError> {
        let node = self.described(groups, arguments);
        // SAFETY: the caller's promise; what is in flight keeps the arguments that it was launched with.
        unsafe {
            sys::cuGraphExecKernelNodeSetParams_v2(self.exec, self.node, &node).result()?;
            sys::cuGraphLaunch(self.exec, stream.stream).result()
        }
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        let _ = self.context.bind();
        // SAFETY: each was made once, or never, and is destroyed once.
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
