/*
 * Every function that has a kernel: its number (gw_bin.kernel), its name (also
 * its folder) and the bytes of scratch memory a group of lanes needs for it.
 * build.rs reads this list for the Rust side; a number never changes its meaning.
 */
#ifndef GODWIT_FUNCTIONS_H
#define GODWIT_FUNCTIONS_H

#include "common/frame.h"
#include "template/template.h"
#include "echo/echo.h"
#include "ipv4/ipv4.h"
#include "ipsec/ipsec.h"
#include "dpi/dpi.h"

/* clang-format off */
#define GW_FUNCTIONS(X)    \
    X(0, template, 0)      \
    X(1, echo, 0)          \
    X(2, ipv4, 0)          \
    X(3, ipsec, 0)         \
    X(4, dpi, 0)
/* clang-format on */

#endif
