/*
 * Entry point of the kernel dialect, the subset of C in which packet functions are written
 * (README.md). This file includes the header for the current compiler. Only this file, cpu.h,
 * opencl.h and cuda.h depend on the compiler.
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

/* Reads a word of a function's tables with exactly one load, because the host may change the word
 * at the same time. */
#define GW_ONCE(type, address) (*(const volatile GW_GLOBAL type *)(address))

#endif
