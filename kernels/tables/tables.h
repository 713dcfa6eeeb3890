/*
 * Tables that Godwit builds from a declaration. For each table shape, one header defines the layout
 * and the lookup. A source text includes only the shapes that its functions use. The header of a
 * table has 128 bytes. It is part of the function's image header, and offsets count from the first
 * byte of the image.
 *
 * The rows of all shapes except exact are stored once: entries of a table with equal rows refer to
 * the same row. A row does not change while an entry refers to it. A change writes a new row and
 * then the entry, with one store, and lookups read an entry with one load (GW_ONCE). A lookup
 * therefore sees the complete old or the complete new row.
 */
#ifndef GODWIT_TABLES_H
#define GODWIT_TABLES_H

#define GW_TABLE_NONE         0xffffffffu /* result of a lookup without an entry */
#define GW_TABLE_HEADER_BYTES 128

#endif
