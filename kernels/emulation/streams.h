/* OS threads of the emulated CUDA driver (driver.cpp). They run kernel blocks and stream
 * operations. */
#ifndef GODWIT_EMULATED_STREAMS_H
#define GODWIT_EMULATED_STREAMS_H

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

/* Pool of OS threads that run CUDA blocks. It grows to the largest number of concurrent blocks. */
class Pool
{
  public:
    void run(std::function<void()> work)
    {
        std::lock_guard guard(mutex);
        waiting.push_back(std::move(work));
        if (idle < waiting.size()) {
            std::thread([this] { serve(); }).detach();
        }
        more.notify_one();
    }

  private:
    void serve()
    {
        std::unique_lock lock(mutex);
        for (;;) {
            idle++;
            more.wait(lock, [this] { return !waiting.empty(); });
            idle--;
            const std::function<void()> work = std::move(waiting.front());
            waiting.pop_front();
            lock.unlock();
            work();
            lock.lock();
        }
    }

    std::mutex mutex;
    std::condition_variable more;
    std::deque<std::function<void()>> waiting;
    size_t idle = 0;
};

/* An emulated CUDA stream. It runs its operations in order, on its own OS thread. */
class Stream
{
  public:
    Stream() : thread([this] { serve(); })
    {
    }

    ~Stream()
    {
        {
            std::lock_guard guard(mutex);
            closing = true;
        }
        changed.notify_all();
        thread.join();
    }

    void push(std::function<void()> work)
    {
        {
            std::lock_guard guard(mutex);
            queue.push_back(std::move(work));
        }
        changed.notify_all();
    }

    bool is_idle()
    {
        std::lock_guard guard(mutex);
        return queue.empty();
    }

    void wait()
    {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return queue.empty(); });
    }

  private:
    void serve()
    {
        std::unique_lock lock(mutex);
        for (;;) {
            changed.wait(lock, [this] { return closing || !queue.empty(); });
            if (queue.empty()) {
                return;
            }
            const std::function<void()> &work = queue.front();
            lock.unlock();
            work();
            lock.lock();
            queue.pop_front();
            changed.notify_all();
        }
    }

    std::mutex mutex;
    std::condition_variable changed;
    /* The first operation is in progress. */
    std::deque<std::function<void()>> queue;
    bool closing = false;
    std::thread thread;
};

/* Emulated CUDA event, which marks a position in a stream. It counts how often the stream has
 * recorded and reached the position. */
class Event
{
  public:
    uint64_t record()
    {
        std::lock_guard guard(mutex);
        return ++recorded;
    }

    uint64_t last()
    {
        std::lock_guard guard(mutex);
        return recorded;
    }

    void reach(uint64_t number)
    {
        {
            std::lock_guard guard(mutex);
            reached = number;
        }
        changed.notify_all();
    }

    bool is_reached()
    {
        std::lock_guard guard(mutex);
        return reached >= recorded;
    }

    void wait(uint64_t number)
    {
        std::unique_lock lock(mutex);
        changed.wait(lock, [=] { return reached >= number; });
    }

  private:
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t recorded = 0, reached = 0;
};

#endif
