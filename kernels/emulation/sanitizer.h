/* Tells the thread sanitizer about the fibers and barriers of the CUDA emulation (emulation.h). */
#ifndef GODWIT_CUDA_SANITIZER_H
#define GODWIT_CUDA_SANITIZER_H

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#include <string>

extern "C" void AnnotateIgnoreReadsBegin(const char *file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char *file, int line);
extern "C" void AnnotateIgnoreWritesBegin(const char *file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char *file, int line);
#endif

namespace emulation
{

/* Makes the thread sanitizer treat each fiber as a thread, and only barriers as synchronisation.
 * The sanitizer then reports a missing barrier as a data race, in whatever order the fibers run. */
#if defined(__SANITIZE_THREAD__)
struct Sanitizer {
    void *fiber = nullptr;

    void create(unsigned warp)
    {
        destroy();
        fiber = __tsan_create_fiber(0);
        __tsan_set_fiber_name(fiber, ("warp " + std::to_string(warp)).c_str());
    }

    void destroy()
    {
        if (fiber) {
            __tsan_destroy_fiber(fiber);
        }
        fiber = nullptr;
    }

    void current()
    {
        fiber = __tsan_get_current_fiber();
    }

    void enter() const
    {
        __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
    }

    static void release(void *barrier)
    {
        __tsan_release(barrier);
    }

    static void acquire(void *barrier)
    {
        __tsan_acquire(barrier);
    }
};

/* Makes the sanitizer ignore all memory accesses of the current thread, as long as the object
 * exists. It covers accesses that no kernel makes. */
struct IgnoredAccesses {
    IgnoredAccesses()
    {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }

    ~IgnoredAccesses()
    {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
};
#else
struct Sanitizer {
    void create(unsigned)
    {
    }

    void destroy()
    {
    }

    void current()
    {
    }

    void enter() const
    {
    }

    static void release(void *)
    {
    }

    static void acquire(void *)
    {
    }
};

struct IgnoredAccesses {
    /* The constructor prevents warnings about unused variables. */
    IgnoredAccesses()
    {
    }
};
#endif

} // namespace emulation

#endif
