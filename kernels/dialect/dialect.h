/*
 * The kernel dialect: what a kernel may use, on every processor. README.md in
 * this folder describes the subset. This file picks the header of the compiler
 * at hand; it is the only place, with the three headers, that knows devices.
 */
#ifndef GODWIT_DIALECT_H
#define GODWIT_DIALECT_H

#if defined(__OPENCL_VERSION__)
#include "opencl.h"
#elif defined(__CUDACC__)
#include "cuda.h"
#else
#include "cpu.h"
#endif

#include "../abi/abi.h"
#include "lane.h"
#include "find.h"

/* A word of a table image that may change meanwhile, read by one load. */
#define GW_ONCE(type, address) (*(const volatile GW_GLOBAL type *)(address))

#endif
