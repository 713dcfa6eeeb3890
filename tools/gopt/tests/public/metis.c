/*
 * Lookups of METIS 5.1.0: libmetis/debug.c.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/*
 * Copyright & License Notice
 * ---------------------------
 *
 * Copyright 1995-2013, Regents of the University of Minnesota
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at
 *
 * http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or
 * implied. See the License for the specific language governing
 * permissions and limitations under the License.
 */
#include "public.h"

typedef int32_t idx_t;
typedef struct graph_t {
    idx_t nvtxs;
    idx_t *xadj;
    idx_t *adjncy;
    idx_t *adjwgt;
} graph_t;

static idx_t ComputeCut(graph_t *graph, idx_t *where)
{
  idx_t i, j, cut;

  if (graph->adjwgt == NULL) {
    for (cut=0, i=0; i<graph->nvtxs; i++) {
      for (j=graph->xadj[i]; j<graph->xadj[i+1]; j++) g_expensive(&where[graph->adjncy[j]]);
      for (j=graph->xadj[i]; j<graph->xadj[i+1]; j++)
        if (where[i] != where[graph->adjncy[j]])
          cut++;
    }
  }
  else {
    for (cut=0, i=0; i<graph->nvtxs; i++) {
      for (j=graph->xadj[i]; j<graph->xadj[i+1]; j++) g_expensive(&where[graph->adjncy[j]]);
      for (j=graph->xadj[i]; j<graph->xadj[i+1]; j++)
        if (where[i] != where[graph->adjncy[j]])
          cut += graph->adjwgt[j];
    }
  }

  return cut/2;
}

static graph_t graph;
static idx_t *where;
static void metis_cut_build(void)
{
    graph.nvtxs = (idx_t)entries;
    graph.xadj = take((entries + 1ull) * sizeof *graph.xadj);
    graph.adjncy = take(entries * 8ull * sizeof *graph.adjncy);
    where = take(entries * sizeof *where);
    for (uint32_t i = 0; i < entries; i++) {
        where[i] = (idx_t)(i % 7);
        graph.xadj[i + 1] = graph.xadj[i] + (idx_t)(scramble(i) % 9);
        for (idx_t j = graph.xadj[i]; j < graph.xadj[i + 1]; j++) {
            graph.adjncy[j] = (idx_t)(scramble((uint64_t)j + 5) % entries);
        }
    }
}
static uint64_t metis_cut(void)
{
    return (uint64_t)ComputeCut(&graph, where);
}
static void metis_weighted_cut_build(void)
{
    graph.adjwgt = take(entries * 8ull * sizeof *graph.adjwgt);
    for (idx_t j = 0; j < graph.xadj[entries]; j++) {
        graph.adjwgt[j] = (idx_t)(scramble((uint64_t)j) % 10);
    }
}
static uint64_t metis_weighted_cut(void)
{
    return (uint64_t)ComputeCut(&graph, where);
}
MAIN(LOOKUP(metis_cut), LOOKUP(metis_weighted_cut))
