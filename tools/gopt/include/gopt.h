/*
 * Macros of programs that gopt transforms. Copy this file into your project.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Without gopt, the program is compiled as it is: a marker does nothing, and foreach is a loop.
 * Parameters of the transformed file, as flags of the compiler: -DGOPT_GROUP=32 (interleaved
 * lookups; 1: the loop as written; auto: measured while the program runs), -DGOPT_GROUP_MAX=64.
 */
#ifndef GOPT_H
#define GOPT_H

/* g_expensive(address) or g_expensive(address, size): the next access to this address is likely to
 * miss every cache. */
#define g_expensive(...) ((void)0)

/* A loop with a promise: no two lookups access the same location, if one of them writes it. */
#ifndef foreach
#define foreach(i, n) for (int i = 0; i < (n); i++)
#endif

#endif
