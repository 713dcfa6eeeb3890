/*
 * Runs one submission through the kernel gw_chunk or gw_persistent. The kernels' CUDA source text
 * precedes this file.
 *
 *   PROGRAM input output
 *
 * The input file and the output file are sequences of arrays in the machine's byte order.
 *
 *   input    Header | arena | images | image_offsets | descriptors | parameters | outcomes | bins
 *   output   arena | descriptors | outcomes | trails
 *
 * In the arena, the address sanitizer permits accesses only to the packet buffers.
 */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes)   ((void)(address))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address))
#endif

struct Header {
    uint64_t arena_bytes, images_bytes, instances, packets, bins, blocks, threads, seed, mode;
    uint64_t bin_packets; /* of a mailbox slot */
};

template <typename T> struct Array {
    T *values;
    uint64_t count;

    explicit Array(uint64_t number)
        : values((T *)aligned_alloc(64, (number * sizeof(T) + 63) / 64 * 64)), count(number)
    {
        /* The fill value 0xcd exposes uninitialised memory, because tests would accept zeros. */
        memset((void *)values, 0xcd, count * sizeof(T));
    }

    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;

    ~Array()
    {
        free((void *)values);
    }

    void read(FILE *file)
    {
        if (fread(values, sizeof(T), count, file) != count) {
            emulation::fail("the input is too short");
        }
    }

    void write(FILE *file) const
    {
        if (fwrite(values, sizeof(T), count, file) != count) {
            emulation::fail("the output cannot be written");
        }
    }
};

/* Ways in which the kernel's work-groups get their packets. */
enum Mode : uint64_t { IN_PLACE, BY_GROUP, PERSISTENT };

/* Arrays with one element per packet. Host memory and device memory use the same layout. */
struct Arrays {
    static constexpr size_t ALIGN = 64, COUNT = 4;
    static constexpr size_t SIZES[COUNT] = {sizeof(gw_u64), sizeof(gw_descriptor),
                                            sizeof(gw_outcome), sizeof(gw_u32)};

    uint64_t packets;
    Array<gw_u8> memory;
    gw_u64 *parameters = (gw_u64 *)at(0);
    gw_descriptor *descriptors = (gw_descriptor *)at(1);
    gw_outcome *outcomes = (gw_outcome *)at(2);
    gw_u32 *trails = (gw_u32 *)at(3);

    explicit Arrays(uint64_t packets) : packets(packets), memory(offset(packets, COUNT))
    {
        for (size_t i = 0; i < COUNT; i++) {
            const uint64_t end = offset(packets, i) + packets * SIZES[i];
            ASAN_POISON_MEMORY_REGION(memory.values + end, offset(packets, i + 1) - end);
        }
    }

    ~Arrays()
    {
        ASAN_UNPOISON_MEMORY_REGION(memory.values, memory.count);
    }

    /* Returns the offset of an array in bytes. Kernels must not access the gap between two
     * arrays. */
    static uint64_t offset(uint64_t packets, size_t array)
    {
        uint64_t at = 0;
        for (size_t i = 0; i < array; i++) {
            at += (packets * SIZES[i] + ALIGN - 1) / ALIGN * ALIGN + ALIGN;
        }
        return at;
    }

    gw_u8 *at(size_t array)
    {
        return memory.values + offset(packets, array);
    }

    /* Copies some of the arrays, as copy engines do. */
    void copy(Arrays &from, size_t first, size_t end)
    {
        for (size_t i = first; i < end; i++) {
            memcpy(at(i), from.at(i), packets * SIZES[i]);
        }
    }
};

/* Number of slots in a mailbox. */
constexpr gw_u32 SLOTS = 4;

/* Emulated host of all persistent work-groups. It serves one work-group after another, and posts a
 * few packet batches at a time. It stops a work-group after the last batch. */
struct Host {
    Array<gw_bin> &bins;
    Array<gw_descriptor> &descriptors;
    Array<gw_u64> &parameters;
    Array<gw_outcome> &outcomes;
    Array<gw_u32> &trails;
    uint64_t blocks, bin_packets, box_bytes;
    Array<gw_u8> boxes;
    uint64_t block = 0, next = 0, oldest = 0, random;
    gw_u32 posted = 0, collected = 0;

    Host(const Header &header, Array<gw_bin> &bins, Array<gw_descriptor> &descriptors,
         Array<gw_u64> &parameters, Array<gw_outcome> &outcomes, Array<gw_u32> &trails)
        : bins(bins), descriptors(descriptors), parameters(parameters), outcomes(outcomes),
          trails(trails), blocks(header.blocks), bin_packets(header.bin_packets),
          box_bytes(sizeof(gw_mailbox) + SLOTS * GW_MAILBOX_SLOT_BYTES(bin_packets)),
          boxes(header.blocks * box_bytes), random(header.seed)
    {
        /* The counters start just below 2^32, so that tests cover their wrap-around. */
        for (uint64_t i = 0; i < blocks; i++) {
            *box(i) = gw_mailbox{};
            box(i)->posted = box(i)->finished = 0u - 2 * SLOTS;
        }
        begin(0);
    }

    gw_mailbox *box(uint64_t group)
    {
        return (gw_mailbox *)(boxes.values + group * box_bytes);
    }

    void begin(uint64_t group)
    {
        block = next = oldest = group;
        if (group < blocks) {
            posted = collected = box(group)->posted;
        }
    }

    gw_u8 *slot(gw_u32 count)
    {
        return (gw_u8 *)(box(block) + 1) + count % SLOTS * GW_MAILBOX_SLOT_BYTES(bin_packets);
    }

    /* Posts the next packet batch to the mailbox of the current work-group. Batch i of the
     * submission belongs to work-group i % blocks. */
    void post()
    {
        gw_bin bin = bins.values[next];
        if (bin.count > bin_packets) {
            emulation::fail("a bin is too large for a mailbox slot");
        }
        gw_u8 *at = slot(posted);
        memset(at, 0xcd, GW_MAILBOX_SLOT_BYTES(bin_packets));
        memcpy(at + GW_MAILBOX_SLOT_DESCRIPTORS, descriptors.values + bin.first, bin.count * 16);
        memcpy(at + GW_MAILBOX_SLOT_PARAMETERS(bin_packets), parameters.values + bin.first,
               bin.count * 8);
        bin.first = 0;
        memcpy(at, &bin, sizeof(bin));
        posted++;
        box(block)->extent = extent(descriptors.values + bins.values[next].first, bin.count);
        box(block)->posted = posted;
        next += blocks;
    }

    /* Returns the address range of a batch's buffers. At random, it returns the range of the
     * previous batch instead, because kernels must accept outdated ranges. */
    gw_u64 extent(const gw_descriptor *buffers, gw_u32 count)
    {
        gw_u32 units = 0;
        for (gw_u32 i = 0; i < count; i++) {
            if (buffers[i].buffer != buffers[0].buffer + units) {
                units = GW_EXTENT_UNITS_MAX + 1;
                break;
            }
            units += buffers[i].room;
        }
        if (random >> 50 & 1) {
            return box(block)->extent;
        }
        return (gw_u64)(posted & 0xffff) << 48 |
               (units > GW_EXTENT_UNITS_MAX ? 0 : (gw_u64)units << 32 | buffers[0].buffer);
    }

    void collect()
    {
        const gw_bin bin = bins.values[oldest];
        const gw_u8 *at = slot(collected++);
        memcpy((void *)(descriptors.values + bin.first), at + GW_MAILBOX_SLOT_DESCRIPTORS,
               bin.count * 16);
        memcpy((void *)(outcomes.values + bin.first), at + GW_MAILBOX_SLOT_OUTCOMES(bin_packets),
               bin.count * 8);
        memcpy(trails.values + bin.first, at + GW_MAILBOX_SLOT_TRAILS(bin_packets), bin.count * 4);
        oldest += blocks;
    }

    /* Acts as the emulated host whenever a persistent work-group polls its mailbox. */
    void poll()
    {
        if (emulation::block.index.x != block) {
            finish(block);
            begin(block + 1);
        }
        if (box(block)->running != GW_MAILBOX_POLLING) {
            emulation::fail(
                "a group polls its mailbox but has not set running to GW_MAILBOX_POLLING");
        }
        while (collected != box(block)->finished) {
            collect();
        }
        /* Post up to three batches, if there are free slots. */
        random = random * 6364136223846793005u + 1442695040888963407u;
        for (uint64_t count = random >> 40 & 3;
             count != 0 && posted - collected < SLOTS && next < bins.count; count--) {
            post();
        }
        if (oldest >= bins.count) {
            box(block)->stop = 1;
        }
    }

    void finish(uint64_t group)
    {
        if (box(group)->running != GW_MAILBOX_ENDED || oldest < bins.count) {
            emulation::fail(
                "a group has ended too early, or has not set running to GW_MAILBOX_ENDED");
        }
    }
};

int main(int argc, char **argv)
{
    FILE *input = argc == 3 ? fopen(argv[1], "rb") : nullptr;
    Header header;
    if (!input || fread(&header, sizeof(header), 1, input) != 1) {
        emulation::fail("usage: PROGRAM input output");
    }
    Array<gw_u8> arena(header.arena_bytes);
    Array<gw_u8> images(header.images_bytes);
    Array<gw_u64> image_offsets(header.instances);
    Array<gw_descriptor> descriptors(header.packets);
    Array<gw_u64> parameters(header.packets);
    Array<gw_outcome> outcomes(header.packets);
    Array<gw_bin> bins(header.bins);
    Array<gw_u32> trails(header.packets);
    arena.read(input);
    images.read(input);
    image_offsets.read(input);
    descriptors.read(input);
    parameters.read(input);
    outcomes.read(input);
    bins.read(input);
    fclose(input);

    Array<gw_u8> shadow(header.mode == IN_PLACE ? 0 : header.arena_bytes);
    Array<gw_reach> reaches(header.instances);
    for (uint64_t i = 0; i < header.instances; i++) {
        reaches.values[i] = gw_reach{GW_REACH_ALL, GW_REACH_ALL};
    }
    Array<gw_u32> cycles(header.bins);
    gw_counters counters = {};
    gw_u32 done = 0;
    gw_device device;
    device.shadow = header.mode == IN_PLACE ? arena.values : shadow.values;
    device.host = arena.values;
    device.images = images.values;
    device.image_offsets = image_offsets.values;
    device.reaches = reaches.values;
    ASAN_POISON_MEMORY_REGION(device.shadow, header.arena_bytes);
    for (uint64_t i = 0; i < header.packets; i++) {
        ASAN_UNPOISON_MEMORY_REGION(device.shadow +
                                        (uint64_t)descriptors.values[i].buffer * GW_BUFFER_UNIT,
                                    (size_t)descriptors.values[i].room * GW_BUFFER_UNIT);
    }
    if (header.mode == PERSISTENT) {
        Host host(header, bins, descriptors, parameters, outcomes, trails);
        Array<gw_u8> scratch(header.blocks * (GW_MAILBOX_SLOT_BYTES(header.bin_packets) +
                                              GW_CHAIN_SCRATCH_BYTES(header.bin_packets)));
        memset(scratch.values, 0, scratch.count);
        emulation::host = [&] { host.poll(); };
        emulation::launch(header.blocks, header.threads, header.seed, [&] {
            gw_persistent(device, host.boxes.values, host.box_bytes, SLOTS,
                          (gw_u32)header.bin_packets, scratch.values);
        });
        host.finish(header.blocks - 1);
    } else {
        const gw_u32 chain_packets = ((gw_u32)header.packets + 15) / 16 * 16;
        Array<gw_u8> scratch(GW_CHAIN_SCRATCH_BYTES((uint64_t)chain_packets));
        memset(scratch.values, 0, scratch.count);
        Arrays host_arrays(header.packets), device_arrays(header.packets);
        memcpy(host_arrays.parameters, parameters.values, header.packets * sizeof(gw_u64));
        memcpy((void *)host_arrays.descriptors, descriptors.values,
               header.packets * sizeof(gw_descriptor));
        memcpy((void *)host_arrays.outcomes, outcomes.values, header.packets * sizeof(gw_outcome));
        const bool by_group = header.mode == BY_GROUP;
        if (!by_group) {
            device_arrays.copy(host_arrays, 0, 3);
        }
        emulation::launch(header.blocks, header.threads, header.seed, [&] {
            gw_chunk(device, by_group ? (gw_host_arrays)host_arrays.parameters : 0,
                     device_arrays.parameters, device_arrays.descriptors, device_arrays.outcomes,
                     device_arrays.trails, bins.values, (gw_u32)header.bins, &counters,
                     cycles.values, scratch.values, chain_packets, by_group ? &done : nullptr);
        });
        if (done != by_group || counters.next_bin != 0 || counters.ended != 0) {
            emulation::fail(
                "the groups have ended without setting the done flag or resetting their counters");
        }
        if (!by_group) {
            host_arrays.copy(device_arrays, 1, 4);
        }
        memcpy((void *)outcomes.values, host_arrays.outcomes, header.packets * sizeof(gw_outcome));
        memcpy(trails.values, host_arrays.trails, header.packets * sizeof(gw_u32));
        memcpy((void *)descriptors.values, host_arrays.descriptors,
               header.packets * sizeof(gw_descriptor));
    }
    ASAN_UNPOISON_MEMORY_REGION(device.shadow, header.arena_bytes);

    FILE *output = fopen(argv[2], "wb");
    if (!output) {
        emulation::fail("the output cannot be opened");
    }
    arena.write(output);
    descriptors.write(output);
    outcomes.write(output);
    trails.write(output);
    fclose(output);
    return 0;
}
