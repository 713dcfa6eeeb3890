/* Table and queries for a function of the G-Opt repository. */
#include "paper.h"

int batch_index = 0;
long long sum = 0;
#define STEPS 8
struct node {
    int id;
    struct node *neighbors[7];
};

#include "fragment.h"

int main(int count, char **arguments)
{
    group = count > 1 ? (unsigned)atoi(arguments[1]) : 1;
    struct node *n = calloc(480, sizeof *n);
    for (int i = 0; i < 480; i++) {
        n[i].id = i;
        for (int k = 0; k < 7; k++)
            n[i].neighbors[k] = &n[hash32(i * 7 + k) % 480];
    }
    for (int i = 0; i < 480; i += BATCH_SIZE)
        process_batch(&n[i]);
    printf("%d\n", sum > 0);
}
