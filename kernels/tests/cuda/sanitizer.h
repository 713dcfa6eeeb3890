/* What the thread sanitizer is told of the emulation (emulation.h), where that is compiled for it.
 */
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

/*
 * For the thread sanitizer every fiber is a thread of its own, and only barriers order what they
 * do: what a barrier is missing for is a data race, whatever order the fibers ran in.
 */
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

/* While one of these is there, what the emulation itself reads and writes is no business of the
 * sanitizer's. */
struct Unseen {
    Unseen()
    {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }

    ~Unseen()
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

struct Unseen {
    /* So that nobody takes it for an unused variable. */
    Unseen()
    {
    }
};
#endif

} // namespace emulation

#endif
