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
 * and GW_GROUP_FORM_<name> as below, which picks it over the lane form.
 */
#ifndef GODWIT_GROUPS_H
#define GODWIT_GROUPS_H

#include "dpi/group.h"
#include "ipsec/group.h"

/* #define GW_GROUP_FORM_<name> , GW_BY_GROUP */
#define GW_GROUP_FORM_dpi   , GW_BY_GROUP
#define GW_GROUP_FORM_ipsec GW_TEAM_FORM

#define GW_GROUP_FORMS(X) X(dpi) GW_TEAM_FORMS(X(ipsec))

#endif
