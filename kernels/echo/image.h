/* Table image of echo: the number of ports. */
#ifndef GODWIT_ECHO_IMAGE_H
#define GODWIT_ECHO_IMAGE_H

#define GW_ECHO_MAGIC 0x4f484345u /* "ECHO" */

typedef struct gw_echo_image {
    gw_u32 magic; /* GW_ECHO_MAGIC */
    gw_u32 ports; /* number of ports, 1..65536 */
} gw_echo_image;
GW_STATIC_ASSERT(sizeof(gw_echo_image) == 8, echo_image_size);

#endif
