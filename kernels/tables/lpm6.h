/*
 * lpm6: a table that finds the longest matching IPv6 prefix. The prefixes of one length are a tuple
 * of acl.h, and longer prefixes have better priorities. A lookup reads about one slot for each
 * length that is longer than the result.
 */
#include "acl.h"
