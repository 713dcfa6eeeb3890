/*
 * Lookups of libxml2 2.9.14: hash.c.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/*
 * hash.c: chained hash tables
 *
 * Reference: Your favorite introductory book on algorithms
 *
 * Copyright (C) 2000,2012 Bjorn Reese and Daniel Veillard.
 *
 * Permission to use, copy, modify, and distribute this software for any
 * purpose with or without fee is hereby granted, provided that the above
 * copyright notice and this permission notice appear in all copies.
 *
 * THIS SOFTWARE IS PROVIDED ``AS IS'' AND WITHOUT ANY EXPRESS OR IMPLIED
 * WARRANTIES, INCLUDING, WITHOUT LIMITATION, THE IMPLIED WARRANTIES OF
 * MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE. THE AUTHORS AND
 * CONTRIBUTORS ACCEPT NO RESPONSIBILITY IN ANY CONCEIVABLE MANNER.
 *
 * Author: breese@users.sourceforge.net
 */
#include "public.h"

typedef unsigned char xmlChar;
typedef struct _xmlHashEntry xmlHashEntry;
typedef xmlHashEntry *xmlHashEntryPtr;
struct _xmlHashEntry {
    struct _xmlHashEntry *next;
    xmlChar *name;
    xmlChar *name2;
    xmlChar *name3;
    void *payload;
    int valid;
};
typedef struct {
    struct _xmlHashEntry *table;
    int size;
    int nbElems;
    void *dict;
} *xmlHashTablePtr;
static int xmlStrEqual(const xmlChar *str1, const xmlChar *str2)
{
    if (str1 == str2) {
        return 1;
    }
    if (str1 == NULL || str2 == NULL) {
        return 0;
    }
    do {
        if (*str1++ != *str2) {
            return 0;
        }
    } while (*str2++);
    return 1;
}
static unsigned long xmlHashComputeKey(xmlHashTablePtr table, const xmlChar *name, const xmlChar *name2,
                                       const xmlChar *name3)
{
    unsigned long value = name2 != NULL || name3 != NULL;
    for (; *name; name++) {
        value = scramble(value ^ *name);
    }
    return value % (unsigned long)table->size;
}

static void *
xmlHashLookup3(xmlHashTablePtr table, const xmlChar *name,
           const xmlChar *name2, const xmlChar *name3) {
    unsigned long key;
    xmlHashEntryPtr entry;

    if (table == NULL)
    return(NULL);
    if (name == NULL)
    return(NULL);
    key = xmlHashComputeKey(table, name, name2, name3);
    g_expensive(&table->table[key]);
    if (table->table[key].valid == 0)
    return(NULL);
    if (table->dict) {
    for (entry = &(table->table[key]); entry != NULL; entry = entry->next) {
        if ((entry->name == name) &&
        (entry->name2 == name2) &&
        (entry->name3 == name3))
        return(entry->payload);
    }
    }
    for (entry = &(table->table[key]); entry != NULL; entry = entry->next) {
    g_expensive(entry->name);
    if ((xmlStrEqual(entry->name, name)) &&
        (xmlStrEqual(entry->name2, name2)) &&
        (xmlStrEqual(entry->name3, name3)))
        return(entry->payload);
    }
    return(NULL);
}

static xmlHashTablePtr table;
static xmlChar (*names)[12];
static void libxml2_hash_build(void)
{
    table = take(sizeof *table);
    table->size = (int)entries;
    table->table = take(entries * sizeof *table->table);
    for (uint32_t entry = 0; entry < entries; entry++) {
        xmlChar *name = take(12);
        snprintf((char *)name, 12, "%08x", key_of(entry));
        xmlHashEntryPtr place = &table->table[xmlHashComputeKey(table, name, NULL, NULL)];
        if (place->valid) {
            xmlHashEntryPtr added = take(sizeof *added);
            added->next = place->next;
            place->next = added;
            place = added;
        }
        place->name = name;
        place->payload = (void *)(uintptr_t)(entry + 1);
        place->valid = 1;
    }
    names = take(queries * sizeof *names);
    for (uint32_t i = 0; i < queries; i++) {
        snprintf((char *)names[i], sizeof names[i], "%08x", keys[i]);
    }
}
static uint64_t libxml2_hash(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        answers[i] = (uintptr_t)xmlHashLookup3(table, names[i], NULL, NULL);
    }
    return 0;
}

MAIN(LOOKUP(libxml2_hash))
