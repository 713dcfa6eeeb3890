/* Runs the bins of a chunk with kernels that are compiled with sanitizers. `sanitized.rs` writes
 * the input file and reads the output file. A problem of a kernel ends the program.
 *
 * RUN_BIN names the function that runs a bin. NATIVE_FORMS lists the native forms of this CPU. */
#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dialect/dialect.h"
#include "functions.h"
#include "dialect/loops_cpu.h"

void RUN_BIN(gw_u32 kernel, const gw_bin_call *call);

typedef void run_native(gw_u32 kernel, const gw_bin_call *call);

#define NATIVE_FORM(name) run_native gw_native_##name;
NATIVE_FORMS
#undef NATIVE_FORM

/* Native forms, in the order of NATIVE_FORMS. */
static run_native *const natives[] = {
#define NATIVE_FORM(name) gw_native_##name,
    NATIVE_FORMS
#undef NATIVE_FORM
        NULL,
};

/* Numbers at the start of the input. */
typedef struct header {
    gw_u64 arena_bytes;
    gw_u64 images_bytes;
    gw_u64 images;
    gw_u64 packets;
    gw_u64 bins;
    gw_u64 group; /* interleaved packets of the gopt form */
} header;

static void fail(const char *what)
{
    fprintf(stderr, "cannot %s\n", what);
    exit(2);
}

/* Returns memory with the next bytes of the input. No other object is adjacent to it. */
static void *next(FILE *input, gw_u64 bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (memory == NULL || fread(memory, 1, bytes, input) != bytes) {
        fail("read the input");
    }
    ASAN_POISON_MEMORY_REGION((gw_u8 *)memory + bytes, (bytes + 63) / 64 * 64 + 64 - bytes);
    return memory;
}

int main(int count, char **arguments)
{
    header head;
    FILE *input = count == 3 ? fopen(arguments[1], "rb") : NULL;
    if (input == NULL || fread(&head, sizeof head, 1, input) != 1) {
        fail("open the input");
    }
    gw_u8 *arena = next(input, head.arena_bytes);
    gw_u8 *images = next(input, head.images_bytes);
    gw_u64 *offsets = next(input, head.images * sizeof *offsets);
    gw_descriptor *descriptors = next(input, head.packets * sizeof *descriptors);
    gw_u64 *parameters = next(input, head.packets * sizeof *parameters);
    gw_outcome *outcomes = next(input, head.packets * sizeof *outcomes);
    gw_bin *bins = next(input, head.bins * sizeof *bins);
    gw_u32 *forms = next(input, head.bins * sizeof *forms); /* index in `natives`, or ~0 */
    fclose(input);

    for (gw_u64 index = 0; index < head.bins; index++) {
        const gw_bin *bin = &bins[index];
        /* Only the buffers of the bin may be accessed. */
        ASAN_POISON_MEMORY_REGION(arena, head.arena_bytes);
        for (gw_u32 packet = bin->first; packet < bin->first + bin->count; packet++) {
            ASAN_UNPOISON_MEMORY_REGION(arena + (gw_u64)descriptors[packet].buffer * GW_BUFFER_UNIT,
                                        (gw_u64)descriptors[packet].room * GW_BUFFER_UNIT);
        }
        const gw_bin_call call = {
            .arena = arena,
            .image = images + offsets[bin->instance],
            .descriptors = descriptors + bin->first,
            .parameters = parameters + bin->first,
            .outcomes = outcomes + bin->first,
            .count = bin->count,
            .variant = bin->variant,
            .group = (gw_u32)head.group,
        };
        if (forms[index] != ~0u) {
            natives[forms[index]](bin->kernel, &call);
            continue;
        }
        RUN_BIN(bin->kernel, &call);
    }
    ASAN_UNPOISON_MEMORY_REGION(arena, head.arena_bytes);
    FILE *output = fopen(arguments[2], "wb");
    if (output == NULL || fwrite(arena, 1, head.arena_bytes, output) != head.arena_bytes ||
        fwrite(descriptors, sizeof *descriptors, head.packets, output) != head.packets ||
        fwrite(outcomes, sizeof *outcomes, head.packets, output) != head.packets ||
        fclose(output) != 0) {
        fail("write the output");
    }
    return 0;
}
