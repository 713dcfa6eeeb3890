/* Shared header of the golden programs: G-Opt's keywords, random numbers and a hash function. */
#ifndef LOOK_H
#define LOOK_H

#include <stddef.h>
#include <stdint.h>

#define foreach(i, n) for (int i = 0; i < (n); i++)
#define g_expensive(address)

static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state ^ *state >> 15;
}

static inline uint32_t hash(uint32_t key)
{
    key = (key ^ key >> 16) * 0x85ebca6bu;
    key = (key ^ key >> 13) * 0xc2b2ae35u;
    return key ^ key >> 16;
}

#endif
