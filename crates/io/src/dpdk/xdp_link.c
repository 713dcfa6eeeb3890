// See shim.h. The driver net_af_xdp has libxdp attach its XDP program by netlink, where it has no
// owner: killed, a process leaves it behind. But libxdp takes a program of its own that is attached
// already, and a BPF link has an owner, the processes that have it open.

#include "shim.h"

#include <errno.h>

#ifdef GW_DPDK_LIBXDP

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <xdp/libxdp.h>

// Receive queues of an interface that the program may lead to sockets.
#define QUEUES_MAX 1024

int gw_dpdk_xdp_link(unsigned int interface)
{
    // The program that libxdp would attach itself, wherever this machine has it.
    struct xdp_program *program = xdp_program__find_file("xsk_def_xdp_prog.o", NULL, NULL);
    long result = libxdp_get_error(program);
    if (result != 0)
        return (int)result;
    struct bpf_object *object = xdp_program__bpf_obj(program);
    struct bpf_map *sockets = bpf_object__find_map_by_name(object, "xsks_map");
    struct bpf_program *code = bpf_object__next_program(object, NULL);
    result =
        sockets == NULL || code == NULL ? -ENOENT : bpf_map__set_max_entries(sockets, QUEUES_MAX);
    if (result == 0)
        result = bpf_object__load(object);
    // In the driver where it can, else behind it.
    if (result == 0)
        result = bpf_link_create(bpf_program__fd(code), (int)interface, BPF_XDP, NULL);
    // The link keeps the program, and the program its maps.
    xdp_program__close(program);
    return (int)result;
}

#else

int gw_dpdk_xdp_link(unsigned int interface)
{
    (void)interface;
    return -ENOTSUP;
}

#endif
