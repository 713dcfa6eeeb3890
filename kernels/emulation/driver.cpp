/*
 * Emulates the CUDA driver for tests, with the part of its interface that Godwit uses. The host
 * side of Godwit can thus be tested without a GPU. Kernels come from compiler.cpp. memory.cpp
 * contains the calls for memory and copies.
 *
 * Each stream has a thread. An operation may still run when its call returns, and streams overtake
 * each other. Where the behaviour of a real driver is undefined, the program ends with a message:
 * copies from or to memory that is neither page-locked nor device memory, copies beyond the end of
 * an allocation, and memory that is freed while the device is busy with work that does not end.
 *
 * Tests control the driver through the functions emulated_..., which a real driver does not have.
 */
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <link.h>
#include <memory>
#include <optional>
#include <sched.h>
#include <string>
#include <unistd.h>

#include "world.h"

namespace
{

constexpr int MULTIPROCESSORS = 2;
constexpr int UNIT_GROUPS = 2;
constexpr int SHARED_BYTES_MAX = 227 << 10;
const char NAME[] = "CUDA emulated on a CPU";

/* A kernel, as declared in entries.h. */
struct Kernel {
    void *(*copy_arguments)(void **arguments);
    void (*run)(void *arguments, unsigned index, unsigned blocks, unsigned threads, uint64_t seed);
    void (*free_arguments)(void *arguments);
    std::function<void()> *host;
};

struct Module {
    void *library;
};

/* Lets other threads run, and waits while the test holds the device. There may be fewer processors
 * than waiting groups. */
void pause_kernel()
{
    do {
        sched_yield();
    } while (world.held);
}

/* A kernel with its launch arguments. */
struct Launch {
    const Kernel *kernel;
    unsigned blocks, threads;
    std::shared_ptr<void> arguments;

    Launch(const Kernel *kernel, unsigned blocks, unsigned threads, void **arguments)
        : kernel(kernel), blocks(blocks), threads(threads),
          arguments(kernel->copy_arguments(arguments), kernel->free_arguments)
    {
    }

    void run(uint64_t seed) const
    {
        /* Groups take blocks from a counter. At most as many groups run at once as on the
         * device. */
        std::atomic<unsigned> next{0};
        std::mutex mutex;
        std::condition_variable ended;
        unsigned left = std::min<unsigned>(blocks, MULTIPROCESSORS * UNIT_GROUPS);
        for (unsigned group = left; group != 0; group--) {
            world.pool.run([&] {
                for (unsigned index = next++; index < blocks; index = next++) {
                    kernel->run(arguments.get(), index, blocks, threads, seed + index);
                }
                std::lock_guard guard(mutex);
                left--;
                ended.notify_one();
            });
        }
        std::unique_lock lock(mutex);
        ended.wait(lock, [&] { return left == 0; });
    }
};

void launch(const Launch &launch, Stream *stream)
{
    uint64_t seed = 0;
    {
        std::lock_guard guard(world.mutex);
        seed = world.random();
    }
    const uint64_t number = world.launches++;
    stream->push([=] {
        do {
            pause_kernel();
        } while (number >= world.held_from);
        launch.run(seed);
    });
}

/* Parameters of a kernel node in a graph. */
struct KernelNode {
    const Kernel *kernel;
    unsigned blocks[3], threads[3], shared_bytes;
    void **arguments;
};

/* Graph with one kernel. It also serves as its executable form. */
struct Graph {
    std::optional<Launch> kernel;

    Result set(const KernelNode &node)
    {
        if (node.blocks[0] == 0 || node.threads[0] == 0 || node.threads[0] > 1024) {
            return INVALID_VALUE;
        }
        kernel.emplace(node.kernel, node.blocks[0], node.threads[0], node.arguments);
        return SUCCESS;
    }
};

} // namespace

extern "C" {

/* Makes a driver call fail with `result` after calls_before more calls. The failed call has no
 * other effect. */
void emulated_break(const char *call, uint64_t calls_before, int result)
{
    std::lock_guard guard(world.mutex);
    world.failures[call] = Failure{calls_before, (Result)result};
}

/* Sets the number of devices, at most 16. Tests must call it first. */
void emulated_devices(int devices)
{
    world.devices = devices;
}

/* Holds the device if `held` is not 0, and releases it otherwise. While the device is held,
 * launched kernels do not begin, and persistent groups do not poll. */
void emulated_hold(int held)
{
    world.held = held != 0;
    world.held_from = UINT64_MAX;
}

/* Lets `launches` more kernels begin. Holds all later ones until emulated_hold(0). */
void emulated_hold_after(int launches)
{
    world.held_from = world.launches + launches;
}

/* Returns the number of calls to a driver function. */
uint64_t emulated_calls(const char *call)
{
    std::lock_guard guard(world.mutex);
    return world.calls[call];
}

/* Removes all injected errors. */
void emulated_restore(int)
{
    std::lock_guard guard(world.mutex);
    world.failures.clear();
}

Result cuInit(unsigned)
{
    return SUCCESS;
}

Result cuDriverGetVersion(int *version)
{
    *version = 13000;
    return SUCCESS;
}

Result cuGetErrorName(Result result, const char **name)
{
    switch (result) {
    case SUCCESS:
        *name = "CUDA_SUCCESS";
        break;
    case INVALID_VALUE:
        *name = "CUDA_ERROR_INVALID_VALUE";
        break;
    case OUT_OF_MEMORY:
        *name = "CUDA_ERROR_OUT_OF_MEMORY";
        break;
    case INVALID_CONTEXT:
        *name = "CUDA_ERROR_INVALID_CONTEXT";
        break;
    case LAUNCH_FAILED:
        *name = "CUDA_ERROR_LAUNCH_FAILED";
        break;
    default:
        *name = "CUDA_ERROR_UNKNOWN";
        break;
    }
    return SUCCESS;
}

Result cuGetErrorString(Result, const char **text)
{
    *text = "error of the emulated driver: injected by the test, or caused by a wrong call";
    return SUCCESS;
}

Result cuDeviceGetCount(int *count)
{
    *count = world.devices;
    return SUCCESS;
}

Result cuDeviceGet(int *handle, int number)
{
    *handle = number;
    return number >= 0 && number < world.devices ? SUCCESS : INVALID_DEVICE;
}

Result cuDeviceGetName(char *name, int bytes, int)
{
    snprintf(name, bytes, "%s", NAME);
    return SUCCESS;
}

Result cuDeviceTotalMem_v2(size_t *bytes, int)
{
    *bytes = MEMORY_BYTES;
    return SUCCESS;
}

Result cuDeviceGetPCIBusId(char *, int, int)
{
    return INVALID_VALUE;
}

Result cuDeviceGetAttribute(int *value, int attribute, int)
{
    switch (attribute) {
    case 8:
        *value = 48 << 10;
        break; /* shared memory of a block */
    case 10:
        *value = 32;
        break; /* lanes of a warp */
    case 13:
        *value = 1000000;
        break; /* kHz: the emulation's clock64 counts nanoseconds */
    case 16:
        *value = MULTIPROCESSORS;
        break; /* multiprocessors */
    case 19:
        *value = 1;
        break; /* the device can access host memory */
    case 75:
        *value = 9;
        break; /* compute capability, major number; no real device has 9.9, or accepts its cubins */
    case 76:
        *value = 9;
        break; /* compute capability, minor number */
    default:
        *value = 0;
        break;
    }
    return SUCCESS;
}

Result cuDevicePrimaryCtxRetain(char **context, int number)
{
    *context = &world.contexts[number];
    return SUCCESS;
}

Result cuDevicePrimaryCtxRelease_v2(int)
{
    return SUCCESS;
}

Result cuCtxSetCurrent(const char *context)
{
    const bool is_valid = context >= world.contexts && context < world.contexts + world.devices;
    device = is_valid ? (int)(context - world.contexts) : -1;
    return is_valid ? SUCCESS : INVALID_CONTEXT;
}

Result cuStreamCreate(Stream **stream, unsigned)
{
    GODWIT_REQUIRE_CONTEXT();
    *stream = new Stream;
    std::lock_guard guard(world.mutex);
    world.streams[*stream] = device;
    return SUCCESS;
}

Result cuStreamDestroy_v2(Stream *stream)
{
    {
        std::lock_guard guard(world.mutex);
        world.streams.erase(stream);
    }
    delete stream;
    return SUCCESS;
}

/* Waits for a stream. The default stream never has work. */
Result cuStreamSynchronize(Stream *stream)
{
    GODWIT_REQUIRE_CONTEXT();
    if (stream) {
        stream->wait();
    }
    return SUCCESS;
}

Result cuStreamQuery(Stream *stream)
{
    GODWIT_REQUIRE_CONTEXT();
    return stream->is_idle() ? SUCCESS : NOT_READY;
}

Result cuEventCreate(std::shared_ptr<Event> **event, unsigned)
{
    GODWIT_REQUIRE_CONTEXT();
    *event = new std::shared_ptr<Event>(new Event);
    return SUCCESS;
}

Result cuEventDestroy_v2(std::shared_ptr<Event> *event)
{
    delete event;
    return SUCCESS;
}

Result cuEventRecord(std::shared_ptr<Event> *event, Stream *stream)
{
    GODWIT_REQUIRE_CONTEXT();
    const std::shared_ptr<Event> recorded = *event;
    const uint64_t number = recorded->record();
    stream->push([=] { recorded->reach(number); });
    return SUCCESS;
}

Result cuStreamWaitEvent(Stream *stream, std::shared_ptr<Event> *event, unsigned)
{
    GODWIT_REQUIRE_CONTEXT();
    const std::shared_ptr<Event> awaited = *event;
    const uint64_t number = awaited->last();
    stream->push([=] { awaited->wait(number); });
    return SUCCESS;
}

Result cuEventQuery(std::shared_ptr<Event> *event)
{
    GODWIT_REQUIRE_CONTEXT();
    return (*event)->is_reached() ? SUCCESS : NOT_READY;
}

Result cuModuleLoadData(Module **module, const void *cubin)
{
    GODWIT_REQUIRE_CONTEXT();
    uint64_t bytes = 0;
    memcpy(&bytes, cubin, sizeof(bytes));
    /* The file needs a new name, because the loader treats two files of one name as the same
     * library. */
    char path[] = "/tmp/godwit-emulation-XXXXXX";
    const int file = mkstemp(path);
    if (file < 0 || write(file, (const char *)cubin + sizeof(bytes), bytes) != (ssize_t)bytes) {
        fail("cannot write the module to /tmp");
    }
    close(file);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    if (!library) {
        return INVALID_IMAGE;
    }
    *module = new Module{library};
    return SUCCESS;
}

Result cuModuleUnload(Module *module)
{
    GODWIT_REQUIRE_CONTEXT();
    wait_for_all();
    dlclose(module->library);
    delete module;
    return SUCCESS;
}

Result cuModuleGetFunction(const Kernel **kernel, Module *module, const char *name)
{
    GODWIT_REQUIRE_CONTEXT();
    *kernel = (const Kernel *)dlsym(module->library, ("emulated_" + std::string(name)).c_str());
    if (!*kernel) {
        return NOT_FOUND;
    }
    *(*kernel)->host = pause_kernel;
    return SUCCESS;
}

Result cuModuleGetGlobal_v2(Address *address, size_t *bytes, Module *module, const char *name)
{
    GODWIT_REQUIRE_CONTEXT();
    void *variable = dlsym(module->library, name);
    Dl_info info;
    const ElfW(Sym) *symbol = nullptr;
    if (!variable || !dladdr1(variable, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol) {
        return NOT_FOUND;
    }
    *address = (Address)variable;
    *bytes = symbol->st_size;
    return SUCCESS;
}

Result cuFuncSetAttribute(const Kernel *, int, int value)
{
    GODWIT_REQUIRE_CONTEXT();
    return value <= SHARED_BYTES_MAX ? SUCCESS : INVALID_VALUE;
}

Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *groups, const Kernel *, int, size_t)
{
    *groups = UNIT_GROUPS;
    return SUCCESS;
}

Result cuLaunchKernel(const Kernel *kernel, unsigned blocks, unsigned, unsigned, unsigned threads,
                      unsigned, unsigned, unsigned, Stream *stream, void **arguments, void **)
{
    GODWIT_REQUIRE_CONTEXT();
    if (blocks == 0 || threads == 0 || threads > 1024) {
        return INVALID_VALUE;
    }
    launch(Launch(kernel, blocks, threads, arguments), stream);
    return SUCCESS;
}

Result cuGraphCreate(Graph **graph, unsigned)
{
    GODWIT_REQUIRE_CONTEXT();
    *graph = new Graph;
    return SUCCESS;
}

Result cuGraphDestroy(Graph *graph)
{
    delete graph;
    return SUCCESS;
}

/* Sets the kernel of a graph. A graph has one kernel. */
Result cuGraphAddKernelNode_v2(Graph **node, Graph *graph, void *, size_t, const KernelNode *kernel)
{
    GODWIT_REQUIRE_CONTEXT();
    *node = graph;
    return graph->set(*kernel);
}

Result cuGraphInstantiateWithFlags(Graph **exec, const Graph *graph, unsigned long long)
{
    GODWIT_REQUIRE_CONTEXT();
    *exec = new Graph(*graph);
    return SUCCESS;
}

Result cuGraphExecDestroy(Graph *exec)
{
    return cuGraphDestroy(exec);
}

Result cuGraphExecKernelNodeSetParams_v2(Graph *exec, Graph *, const KernelNode *kernel)
{
    GODWIT_REQUIRE_CONTEXT();
    return exec->set(*kernel);
}

Result cuGraphLaunch(const Graph *exec, Stream *stream)
{
    GODWIT_REQUIRE_CONTEXT();
    launch(*exec->kernel, stream);
    return SUCCESS;
}
}
