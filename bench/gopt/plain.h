/*
 * Definitions of G-Opt's keywords for an ordinary C compiler: `foreach` is a loop, and
 * `g_expensive` does nothing.
 */
#ifndef GODWIT_BENCH_GOPT_PLAIN_H
#define GODWIT_BENCH_GOPT_PLAIN_H

#define foreach(index, count) for (uint64_t index = 0; index < (count); index++)
#define g_expensive(address)

#endif
