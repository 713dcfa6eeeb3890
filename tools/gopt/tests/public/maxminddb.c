/*
 * Lookups of libmaxminddb 1.7.1: src/maxminddb.c.
 * Changes: lines with g_expensive, types without unused members, no records of 28 bits, the
 * tables and batch loops at the end.
 */
/*
 * Copyright 2013-2022 MaxMind, Inc.
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */
#include "public.h"

#include <assert.h>
#include <stdbool.h>

typedef unsigned short sa_family_t;
#define AF_INET 2
#define MMDB_SUCCESS (0)
#define MMDB_CORRUPT_SEARCH_TREE_ERROR (4)
#define MMDB_UNKNOWN_DATABASE_FORMAT_ERROR (6)
#define MMDB_DATA_SECTION_SEPARATOR (16)
typedef struct MMDB_entry_s {
    uint32_t offset;
} MMDB_entry_s;
typedef struct MMDB_lookup_result_s {
    bool found_entry;
    MMDB_entry_s entry;
    uint16_t netmask;
} MMDB_lookup_result_s;
typedef struct MMDB_s {
    const uint8_t *file_content;
    const uint8_t *data_section;
    uint32_t data_section_size;
    uint16_t full_record_byte_size;
    uint16_t depth;
    struct {
        uint16_t netmask;
        uint32_t node_value;
    } ipv4_start_node;
    struct {
        uint32_t node_count;
        uint16_t ip_version;
    } metadata;
} MMDB_s;
typedef struct record_info_s {
    uint16_t record_length;
    uint32_t (*left_record_getter)(const uint8_t *);
    uint32_t (*right_record_getter)(const uint8_t *);
    uint8_t right_record_offset;
} record_info_s;

static uint32_t get_uint32(const uint8_t *p) {
    return p[0] * 16777216U + p[1] * 65536 + p[2] * 256 + p[3];
}

static uint32_t get_uint24(const uint8_t *p) {
    return p[0] * 65536U + p[1] * 256 + p[2];
}

/* The function without the records of 28 bits. */
static record_info_s record_info_for_database(const MMDB_s *const mmdb) {
    record_info_s record_info = {.record_length = mmdb->full_record_byte_size,
                                 .right_record_offset = 0};

    if (record_info.record_length == 6) {
        record_info.left_record_getter = &get_uint24;
        record_info.right_record_getter = &get_uint24;
        record_info.right_record_offset = 3;
    } else if (record_info.record_length == 8) {
        record_info.left_record_getter = &get_uint32;
        record_info.right_record_getter = &get_uint32;
        record_info.right_record_offset = 4;
    } else {
        assert(false);
    }

    return record_info;
}

static uint32_t data_section_offset_for_record(const MMDB_s *const mmdb,
                                               uint64_t record) {
    return (uint32_t)record - mmdb->metadata.node_count -
           MMDB_DATA_SECTION_SEPARATOR;
}

static int find_address_in_search_tree(const MMDB_s *const mmdb,
                                       uint8_t const *address,
                                       sa_family_t address_family,
                                       MMDB_lookup_result_s *result) {
    record_info_s record_info = record_info_for_database(mmdb);
    if (0 == record_info.right_record_offset) {
        return MMDB_UNKNOWN_DATABASE_FORMAT_ERROR;
    }

    uint32_t value = 0;
    uint16_t current_bit = 0;
    if (mmdb->metadata.ip_version == 6 && address_family == AF_INET) {
        value = mmdb->ipv4_start_node.node_value;
        current_bit = mmdb->ipv4_start_node.netmask;
    }

    uint32_t node_count = mmdb->metadata.node_count;
    const uint8_t *search_tree = mmdb->file_content;
    const uint8_t *record_pointer;
    for (; current_bit < mmdb->depth && value < node_count; current_bit++) {
        uint8_t bit =
            1U & (address[current_bit >> 3] >> (7 - (current_bit % 8)));

        g_expensive(&search_tree[value * record_info.record_length]);
        record_pointer = &search_tree[value * record_info.record_length];
        if (record_pointer + record_info.record_length > mmdb->data_section) {
            return MMDB_CORRUPT_SEARCH_TREE_ERROR;
        }
        if (bit) {
            record_pointer += record_info.right_record_offset;
            value = record_info.right_record_getter(record_pointer);
        } else {
            value = record_info.left_record_getter(record_pointer);
        }
    }

    result->netmask = current_bit;

    if (value >= node_count + mmdb->data_section_size) {
        // The pointer points off the end of the database.
        return MMDB_CORRUPT_SEARCH_TREE_ERROR;
    }

    if (value == node_count) {
        // record is empty
        result->found_entry = false;
        return MMDB_SUCCESS;
    }
    result->found_entry = true;
    result->entry.offset = data_section_offset_for_record(mmdb, value);

    return MMDB_SUCCESS;
}

static MMDB_s database;
static uint8_t (*addresses)[4];
static void maxminddb_address_build(void)
{
    /* Each node has two records: a child, a place in the data section, or the number of nodes. */
    const uint32_t most = entries * 12 + 64;
    uint32_t (*nodes)[2] = take(most * sizeof *nodes), count = 1;
    for (uint32_t entry = 0; entry < entries; entry++) {
        const uint32_t ip = key_of(entry), length = 16 + entry % 13;
        uint32_t node = 0;
        for (uint32_t bit = 0; bit < length; bit++) {
            uint32_t *record = &nodes[node][ip >> (31 - bit) & 1];
            if (bit + 1 == length) {
                *record = *record ? *record : UINT32_MAX - entry;
            } else if (*record > most || (*record == 0 && count == most)) {
                break;
            }
            *record = *record ? *record : count++;
            node = *record;
        }
    }
    database.full_record_byte_size = 8;
    database.depth = 32;
    database.metadata.ip_version = 4;
    database.metadata.node_count = count;
    database.data_section_size = entries + MMDB_DATA_SECTION_SEPARATOR;
    uint8_t *bytes = take(count * 8ull);
    for (uint32_t i = 0; i < 2 * count; i++) {
        const uint32_t found = nodes[i / 2][i % 2];
        const uint32_t value = !found         ? count
                               : found > most ? count + MMDB_DATA_SECTION_SEPARATOR + (UINT32_MAX - found)
                                              : found;
        for (int byte = 0; byte < 4; byte++) {
            bytes[i * 4ull + (uint32_t)byte] = (uint8_t)(value >> (24 - 8 * byte));
        }
    }
    database.file_content = bytes;
    database.data_section = bytes + count * 8ull;
    addresses = take(queries * sizeof *addresses);
    for (uint32_t i = 0; i < queries; i++) {
        for (int byte = 0; byte < 4; byte++) {
            addresses[i][byte] = (uint8_t)(keys[i] >> (24 - 8 * byte));
        }
    }
}
static uint64_t maxminddb_address(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        MMDB_lookup_result_s result = {0};
        const int status = find_address_in_search_tree(&database, addresses[i], AF_INET, &result);
        answers[i] = status ? UINT64_MAX : (uint64_t)result.netmask << 40 | (result.entry.offset + result.found_entry);
    }
    return 0;
}

MAIN(LOOKUP(maxminddb_address))
