/*
 * Entry point of the kernel dialect, described in README.md of this folder. Includes the header of
 * the current compiler. Only this file and the three headers depend on the device.
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

/* Reads a word of a table image with one load, because the host may change it at the same time. */
#define GW_ONCE(type, address) (*(const volatile GW_GLOBAL type *)(address))

#endif
