/* All kernels for NVRTC. The build expands the includes into one source text. */
#include "dialect/dialect.h"
#include "functions.h"
#include "dialect/loops_cuda.h"
