/*
 * Lookups of tinycdb 0.78: cdb_find.c, cdb_hash.c, cdb_unpack.c.
 * Changes: lines with g_expensive, types without unused members, the tables and batch loops at the
 * end.
 */
/* cdb_find.c: cdb_find routine
 *
 * This file is a part of tinycdb package by Michael Tokarev, mjt@corpit.ru.
 * Public domain.
 */
#include "public.h"

#include <errno.h>

struct cdb {
  unsigned cdb_fsize;
  unsigned cdb_dend;
  const unsigned char *cdb_mem;
  unsigned cdb_vpos, cdb_vlen;
  unsigned cdb_kpos, cdb_klen;
};

static unsigned
cdb_hash(const void *buf, unsigned len)
{
  register const unsigned char *p = (const unsigned char *)buf;
  register const unsigned char *end = p + len;
  register unsigned hash = 5381;    /* start value */
  while (p < end)
    hash = (hash + (hash << 5)) ^ *p++;
  return hash;
}

static unsigned
cdb_unpack(const unsigned char buf[4])
{
  unsigned n = buf[3];
  n <<= 8; n |= buf[2];
  n <<= 8; n |= buf[1];
  n <<= 8; n |= buf[0];
  return n;
}

static int
cdb_find(struct cdb *cdbp, const void *key, unsigned klen)
{
  const unsigned char *htp; /* hash table pointer */
  const unsigned char *htab;    /* hash table */
  const unsigned char *htend;   /* end of hash table */
  unsigned httodo;      /* ht bytes left to look */
  unsigned pos, n;

  unsigned hval;

  if (klen >= cdbp->cdb_dend)   /* if key size is too large */
    return 0;

  hval = cdb_hash(key, klen);

  /* find (pos,n) hash table to use */
  /* first 2048 bytes (toc) are always available */
  /* (hval % 256) * 8 */
  htp = cdbp->cdb_mem + ((hval << 3) & 2047); /* index in toc (256x8) */
  n = cdb_unpack(htp + 4);  /* table size */
  if (!n)           /* empty table */
    return 0;           /* not found */
  httodo = n << 3;      /* bytes of htab to lookup */
  pos = cdb_unpack(htp);    /* htab position */
  if (n > (cdbp->cdb_fsize >> 3) /* overflow of httodo ? */
      || pos < cdbp->cdb_dend /* is htab inside data section ? */
      || pos > cdbp->cdb_fsize /* htab start within file ? */
      || httodo > cdbp->cdb_fsize - pos) /* entrie htab within file ? */
    return errno = EPROTO, -1;

  htab = cdbp->cdb_mem + pos;   /* htab pointer */
  htend = htab + httodo;    /* after end of htab */
  /* htab starting position: rest of hval modulo htsize, 8bytes per elt */
  htp = htab + (((hval >> 8) % n) << 3);

  g_expensive(htp);
  for(;;) {
    pos = cdb_unpack(htp + 4);  /* record position */
    if (!pos)
      return 0;
    if (cdb_unpack(htp) == hval) {
      if (pos > cdbp->cdb_dend - 8) /* key+val lengths */
    return errno = EPROTO, -1;
      g_expensive(cdbp->cdb_mem + pos);
      if (cdb_unpack(cdbp->cdb_mem + pos) == klen) {
    if (cdbp->cdb_dend - klen < pos + 8)
      return errno = EPROTO, -1;
    if (memcmp(key, cdbp->cdb_mem + pos + 8, klen) == 0) {
      n = cdb_unpack(cdbp->cdb_mem + pos + 4);
      pos += 8;
      if (cdbp->cdb_dend < n || cdbp->cdb_dend - n < pos + klen)
        return errno = EPROTO, -1;
      cdbp->cdb_kpos = pos;
      cdbp->cdb_klen = klen;
      cdbp->cdb_vpos = pos + klen;
      cdbp->cdb_vlen = n;
      return 1;
    }
      }
    }
    httodo -= 8;
    if (!httodo)
      return 0;
    if ((htp += 8) >= htend)
      htp = htab;
  }

}

static void pack(unsigned value, unsigned char *place)
{
    for (int byte = 0; byte < 4; byte++) {
        place[byte] = (unsigned char)(value >> 8 * byte);
    }
}

static struct cdb file;
static void tinycdb_find_build(void)
{
    /* 256 positions and sizes, the records, and 256 hash tables. */
    unsigned counts[256] = {0}, positions[256];
    for (uint32_t entry = 0; entry < entries; entry++) {
        const uint32_t key = key_of(entry);
        counts[cdb_hash(&key, sizeof key) & 255] += 2;
    }
    file.cdb_dend = 2048 + entries * 16;
    file.cdb_fsize = file.cdb_dend + entries * 16;
    unsigned char *bytes = take(file.cdb_fsize);
    for (unsigned table = 0, at = file.cdb_dend; table < 256; table++) {
        positions[table] = at;
        pack(at, bytes + 8 * table);
        pack(counts[table], bytes + 8 * table + 4);
        at += 8 * counts[table];
    }
    for (uint32_t entry = 0; entry < entries; entry++) {
        const uint32_t key = key_of(entry), record = 2048 + entry * 16;
        const unsigned hval = cdb_hash(&key, sizeof key), table = hval & 255;
        pack(sizeof key, bytes + record);
        pack(sizeof entry, bytes + record + 4);
        memcpy(bytes + record + 8, &key, sizeof key);
        memcpy(bytes + record + 12, &entry, sizeof entry);
        unsigned slot = (hval >> 8) % counts[table];
        while (cdb_unpack(bytes + positions[table] + 8 * slot + 4)) {
            slot = (slot + 1) % counts[table];
        }
        pack(hval, bytes + positions[table] + 8 * slot);
        pack(record, bytes + positions[table] + 8 * slot + 4);
    }
    file.cdb_mem = bytes;
}
static uint64_t tinycdb_find(void)
{
    for (uint32_t i = 0; i < queries; i++) {
        struct cdb own = file;
        answers[i] = cdb_find(&own, &keys[i], sizeof keys[i]) > 0 ? cdb_unpack(own.cdb_mem + own.cdb_vpos) : UINT64_MAX;
    }
    return 0;
}

MAIN(LOOKUP(tinycdb_find))
