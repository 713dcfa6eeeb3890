/*
 * Functions that come in a group form besides the lane form: all lanes of a group
 * work on one bin together, several lanes to a packet. Devices run the group form
 * where there is one; a CPU core, which is a group of one lane, never does.
 *
 * <name>/group.h defines, for each name in the list,
 *
 *   gw_<name>_scratch   a struct: the group's memory (GW_LOCAL)
 *   gw_<name>_prepare   fills it, by all lanes; called when the group comes from another function
 *   gw_<name>_bin       settles all packets of one bin, by all lanes; barriers inside
 *
 * and GW_FORM_<name> below picks it over the lane form. (No variadic macro: NVIDIA's OpenCL
 * has none.)
 */
#ifndef GODWIT_GROUPS_H
#define GODWIT_GROUPS_H

#include "dpi/group.h"
#include "ipsec/group.h"

/* The form that devices run of each function: one of those of loops_device.h. */
#define GW_FORM_template GW_BY_LANE
#define GW_FORM_echo     GW_BY_LANE
#define GW_FORM_ipv4     GW_BY_LANE
#define GW_FORM_ipsec    GW_TEAM_FORM
#define GW_FORM_dpi      GW_GROUP_FORM
#define GW_FORM_ipv6     GW_BY_LANE
#define GW_FORM_l2       GW_BY_LANE
#define GW_FORM_ndn      GW_BY_LANE

#define GW_GROUP_FORMS(X) X(dpi) GW_TEAM_FORMS(X(ipsec))

#endif
