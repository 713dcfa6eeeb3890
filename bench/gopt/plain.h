/* The spellings of G-Opt's paper, as a C compiler reads them that knows nothing of gopt. */
#ifndef GODWIT_BENCH_GOPT_PLAIN_H
#define GODWIT_BENCH_GOPT_PLAIN_H

#define foreach(index, count) for (uint64_t index = 0; index < (count); index++)
#define g_expensive(address)

#endif
