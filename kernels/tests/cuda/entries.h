/*
 * The kernels of a text as the emulated driver calls them: goes behind the text, and the
 * emulated compiler names each kernel behind that.
 */
#include <tuple>
#include <utility>

namespace emulation
{

struct Kernel {
    void *(*take)(void **arguments); /* copies them */
    /* One block, on the calling thread of the system. */
    void (*run)(void *taken, unsigned index, unsigned blocks, unsigned threads, uint64_t seed);
    void (*drop)(void *taken);
    std::function<void()> *host; /* called whenever a group looks for what the host wrote */
};

template <auto kernel> struct Entry;

template <typename... P, void (*kernel)(P...)> struct Entry<kernel> {
    using Arguments = std::tuple<P...>;

    template <size_t... I>
    static void *take_each([[maybe_unused]] void **arguments, std::index_sequence<I...>)
    {
        return new Arguments(*(P *)arguments[I]...);
    }

    static void *take(void **arguments)
    {
        return take_each(arguments, std::index_sequence_for<P...>{});
    }

    static void run(void *taken, unsigned index, unsigned blocks, unsigned threads, uint64_t seed)
    {
        launch_block(index, blocks, threads, seed,
                     [=] { std::apply(kernel, *(const Arguments *)taken); });
    }

    static void drop(void *taken)
    {
        delete (Arguments *)taken;
    }
};

} // namespace emulation

#define EMULATED_KERNEL(name)                                                                      \
    extern "C" const emulation::Kernel emulated_##name = {                                         \
        emulation::Entry<name>::take, emulation::Entry<name>::run, emulation::Entry<name>::drop,   \
        &emulation::host};
