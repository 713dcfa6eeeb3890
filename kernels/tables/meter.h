/*
 * meter: rates of packets, by fields of their five-tuple. The worker that owns the packets of an
 * entry fills and empties its token buckets in the order of arrival (RFC 2697, color-blind mode).
 * It passes the color of each packet as the parameter of the kernel.
 */
#ifndef GODWIT_TABLES_METER_H
#define GODWIT_TABLES_METER_H

#define GW_GREEN     0u /* within the rate and the burst */
#define GW_YELLOW    1u /* above the burst, but not above the excess burst */
#define GW_RED       2u /* above both */
#define GW_COLORLESS 3u /* the table has no entry for the packet */

#endif
