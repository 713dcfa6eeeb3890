/*
 * lpm6: IPv6 prefixes. The prefixes of one length are a tuple of acl.h, whose best priority is that
 * of the longest prefixes. A lookup reads about one slot for each length that is longer than the
 * result.
 */
#include "acl.h"
