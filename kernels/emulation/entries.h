/* Wraps the kernels of a CUDA source text in functions that the emulated driver can call. The
 * emulated compiler includes this file after the source text. It then appends one EMULATED_KERNEL
 * line per kernel. */
#include <tuple>
#include <utility>

namespace emulation
{

struct Kernel {
    void *(*copy_arguments)(void **arguments); /* copies them to the heap */
    /* Runs one block on the calling OS thread. */
    void (*run)(void *arguments_copy, unsigned index, unsigned blocks, unsigned threads,
                uint64_t seed);
    void (*free_arguments)(void *arguments_copy);
    std::function<void()> *host; /* called whenever a group reads memory that the host writes */
};

template <auto kernel> struct Entry;

template <typename... P, void (*kernel)(P...)> struct Entry<kernel> {
    using Arguments = std::tuple<P...>;

    template <size_t... I>
    static void *copy_each([[maybe_unused]] void **arguments, std::index_sequence<I...>)
    {
        return new Arguments(*(P *)arguments[I]...);
    }

    static void *copy_arguments(void **arguments)
    {
        return copy_each(arguments, std::index_sequence_for<P...>{});
    }

    static void run(void *arguments_copy, unsigned index, unsigned blocks, unsigned threads,
                    uint64_t seed)
    {
        launch_block(index, blocks, threads, seed,
                     [=] { std::apply(kernel, *(const Arguments *)arguments_copy); });
    }

    static void free_arguments(void *arguments_copy)
    {
        delete (Arguments *)arguments_copy;
    }
};

} // namespace emulation

#define EMULATED_KERNEL(name)                                                                      \
    extern "C" const emulation::Kernel emulated_##name = {                                         \
        emulation::Entry<name>::copy_arguments, emulation::Entry<name>::run,                       \
        emulation::Entry<name>::free_arguments, &emulation::host};
