/* All kernels for OpenCL. The build expands the includes into one source text. */
#include "dialect/dialect.h"
#include "functions.h"
#include "dialect/loops_opencl.h"
