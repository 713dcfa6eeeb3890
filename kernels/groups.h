/*
 * Functions with a group form. In a group form, all lanes of a group work on one bin together, with
 * several lanes per packet. In a lane form each lane processes whole packets. Devices run the group
 * form if there is one. A CPU core, which is a group of one lane, always runs the lane form.
 *
 * For each function in GW_GROUP_FORMS, <name>/group.h defines:
 *
 *   gw_<name>_scratch   a struct in the group's memory (GW_LOCAL)
 *   gw_<name>_prepare   initialises the struct for another instance
 *   gw_<name>_bin       processes all packets of a bin; contains barriers
 *
 * All lanes of the group call gw_<name>_prepare and gw_<name>_bin together.
 *
 * GW_FORM_<name> selects the form. There is one macro per function, because NVIDIA's OpenCL
 * compiler has no variadic macros.
 */
#ifndef GODWIT_GROUPS_H
#define GODWIT_GROUPS_H

#include "dpi/group.h"
#include "ipsec/group.h"

/* The form of each function that devices run. The values are macros of loops_device.h. */
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
