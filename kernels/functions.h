/*
 * The list of kernels: the number of each (gw_bin.kernel) and its name, which is also its folder.
 * build.rs generates the Rust side from this list. A number never changes its meaning.
 */
#ifndef GODWIT_FUNCTIONS_H
#define GODWIT_FUNCTIONS_H

#include "common/frame.h"
#include "template/template.h"
#include "echo/echo.h"
#include "ipv4/ipv4.h"
#include "ipsec/ipsec.h"
#include "dpi/dpi.h"
#include "ipv6/ipv6.h"
#include "l2/l2.h"
#include "ndn/ndn.h"

/* clang-format off */
#define GW_FUNCTIONS(X) \
    X(0, template)      \
    X(1, echo)          \
    X(2, ipv4)          \
    X(3, ipsec)         \
    X(4, dpi)           \
    X(5, ipv6)          \
    X(6, l2)            \
    X(7, ndn)
/* clang-format on */

#endif
