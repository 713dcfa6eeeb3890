static uint64_t digest_of(const void *data, uint64_t bytes, uint64_t digest)
{
    for (uint64_t i = 0; i < bytes; i++) {
        digest = (digest ^ ((const uint8_t *)data)[i]) * 1099511628211u;
    }
    return digest;
}

static uint32_t drawn;
static uint32_t draw(void)
{
    drawn ^= drawn << 13;
    drawn ^= drawn >> 17;
    drawn ^= drawn << 5;
    return drawn;
}

static void fill(uint32_t seed)
{
    drawn = seed;
    for (int i = 0; i < 1024; i++) {
        table[i] = draw();
        sorted[i] = (uint32_t)i * 64u;
        flat[i] = draw();
    }
    for (int i = 0; i < 256; i++) {
        keys_[i] = draw();
        unique[i] = (uint32_t)i * 77u & 255;
        cells[i] = (struct cell){draw(), draw(), draw() & 3 ? &cells[draw() & 255] : 0, draw(), draw()};
        out[i] = out_2[i] = results_[i] = marks[i] = order[i] = draw();
        wide[i][0] = wide[i][1] = wide[i][2] = wide[i][3] = draw();
        pairs[i] = (struct pair){draw(), draw()};
        sout[i] = shist[i & 63] = (int32_t)(draw() & 0xff);
        hist[i & 63] = draw();
    }
    stats = (struct stats){1, 2, {3, 4, 5}};
    total = total_2 = total_3 = atomic = draw();
    most = draw() >> 9, least = draw(), flag = last = 0, stotal = 5, file_index = -1;
}

static uint64_t digest(void)
{
    uint64_t found = 14695981039346656037u;
#define ADD(data) found = digest_of(&data, sizeof(data), found)
    ADD(table), ADD(out), ADD(out_2), ADD(results_), ADD(wide), ADD(flat), ADD(hist), ADD(marks), ADD(order), ADD(sout);
    ADD(shist), ADD(stotal), ADD(file_index), ADD(pairs), ADD(stats), ADD(total), ADD(total_2), ADD(total_3);
    ADD(atomic), ADD(most), ADD(least), ADD(flag), ADD(last), ADD(keys_);
    for (int i = 0; i < 256; i++) {
        ADD(cells[i].key), ADD(cells[i].value), ADD(cells[i].count), ADD(cells[i].sum);
    }
    return found;
}

static uint64_t result(int shape, unsigned size, int n)
{
    group = size;
    fill(2463534242u + (uint32_t)n);
    shapes[shape](keys_, results_, n);
    return digest();
}

int main(void)
{
    static const int sizes[] = {0, 1, 7, 40, 200};
    static const unsigned groups[] = {7, 32, 64};
    for (int shape = 0; shape < (int)(sizeof(shapes) / sizeof(*shapes)); shape++) {
        for (int s = 0; s < 5; s++) {
            const uint64_t expected = result(shape, 1, sizes[s]);
            for (int g = 0; g < 3; g++) {
                if (result(shape, groups[g], sizes[s]) != expected) {
                    printf("shape_%d differs in groups of %u, %d lookups\n", numbers[shape], groups[g], sizes[s]);
                }
            }
        }
    }
    return 0;
}
