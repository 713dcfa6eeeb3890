// Attaches the XDP program of net_af_xdp through a BPF link. libxdp then uses this program and
// attaches no other one.
//
// Without this code, libxdp would attach the program by netlink. Such a program stays attached
// after the process is killed. With a BPF link, the kernel detaches the program when no process has
// the link open.

#include "shim.h"

#include <errno.h>

#ifdef GW_DPDK_LIBXDP

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <xdp/libxdp.h>

// Maximum number of receive queues of an interface.
#define QUEUES_MAX 1024

int gw_dpdk_xdp_link(unsigned int interface)
{
    // Without this code, libxdp would attach the program from the same file, which it finds in its
    // installation directory.
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
    // The program runs in the driver if the driver supports XDP. Otherwise, it runs after the
    // driver, in the kernel's network stack.
    if (result == 0)
        result = bpf_link_create(bpf_program__fd(code), (int)interface, BPF_XDP, NULL);
    // The BPF link keeps the program loaded, and the program keeps its maps.
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
