/*
 * Runs one chunk through gw_chunk: goes behind the CUDA text of the kernels.
 *
 *   PROGRAM input output
 *
 * Both files are arrays of the machine's own byte order, one after another.
 *   input    Header | arena | images | image_offsets | descriptors | parameters | outcomes | bins
 *   output   arena | descriptors | outcomes
 *
 * Under the address sanitizer only the packets' windows of the arena may be touched.
 */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes)   ((void)(address))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address))
#endif

struct Header {
    uint64_t arena_bytes, images_bytes, instances, packets, bins, blocks, threads, seed, by_group;
};

template <typename T> struct Array {
    T *values;
    uint64_t count;

    explicit Array(uint64_t number)
        : values((T *)aligned_alloc(64, (number * sizeof(T) + 63) / 64 * 64)), count(number)
    {
        /* What nobody has written yet must not be taken for zeros. */
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
    arena.read(input);
    images.read(input);
    image_offsets.read(input);
    descriptors.read(input);
    parameters.read(input);
    outcomes.read(input);
    bins.read(input);
    fclose(input);

    Array<gw_u8> shadow(header.by_group ? header.arena_bytes : 0);
    Array<gw_reach> reaches(header.instances);
    for (uint64_t i = 0; i < header.instances; i++) {
        reaches.values[i] = gw_reach{GW_REACH_ALL, GW_REACH_ALL};
    }
    Array<gw_u32> cycles(header.bins);
    gw_u32 next_bin = 0;
    gw_device device;
    device.shadow = header.by_group ? shadow.values : arena.values;
    device.host = arena.values;
    device.images = images.values;
    device.image_offsets = image_offsets.values;
    device.reaches = reaches.values;
    ASAN_POISON_MEMORY_REGION(device.shadow, header.arena_bytes);
    for (uint64_t i = 0; i < header.packets; i++) {
        ASAN_UNPOISON_MEMORY_REGION(device.shadow +
                                        (uint64_t)descriptors.values[i].window * GW_WINDOW_UNIT,
                                    (size_t)descriptors.values[i].room * GW_WINDOW_UNIT);
    }
    emulation::launch(header.blocks, header.threads, header.seed, [&] {
        gw_chunk(device, descriptors.values, parameters.values, outcomes.values, bins.values,
                 (gw_u32)header.bins, &next_bin, cycles.values, (gw_u32)header.by_group);
    });
    ASAN_UNPOISON_MEMORY_REGION(device.shadow, header.arena_bytes);

    FILE *output = fopen(argv[2], "wb");
    if (!output) {
        emulation::fail("the output cannot be opened");
    }
    arena.write(output);
    descriptors.write(output);
    outcomes.write(output);
    fclose(output);
    return 0;
}
