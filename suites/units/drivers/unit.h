/*
 * What all drivers of units share. A driver calls functions of the server and writes what they gave, a line a call:
 *
 *     > KEY: VALUE [VALUE ...]
 *
 * KEY is what went in, in words that suites/units/expectations.py reads again; there are as many values as there were
 * places. Nothing is judged here.
 */
#ifndef PLUMBLINE_UNIT_H
#define PLUMBLINE_UNIT_H

#include <stddef.h>
#include <stdint.h>

/* At so many places data are put: so many bytes past a boundary. */
#define OFFSETS 16
#define BOUNDARY 64

/* Lengths around every word, block (SipHash 8, SHA 64), SDS header and LZF run. */
extern const size_t lengths[];
extern const size_t lengths_count;

/* The name of something of the server whose prefix is its family: FAMILY(Popcount) is redisPopcount or serverPopcount. */
#ifdef PLUMBLINE_VALKEY
#define FAMILY(name) server##name
#else
#define FAMILY(name) redis##name
#endif

/* Memory for `length` bytes that begins `offset` bytes (less than BOUNDARY) past a boundary, with nothing behind it. */
unsigned char *place(size_t offset, size_t length);
void release(unsigned char *placed);

/* Bytes of all values, told by seed and position alone: expectations.pattern() knows them too. */
void fill(unsigned char *to, size_t length, unsigned seed);
unsigned char *place_pattern(size_t offset, size_t length, unsigned seed);
unsigned char *place_copy(size_t offset, const void *from, size_t length);

/* A line: its key and more words of that, its values, its end. */
void line(const char *format, ...) __attribute__((format(printf, 1, 2)));
void more(const char *word);
void more_number(size_t number);
void number(long long value);
void unsigned_number(unsigned long long value);
void bytes(const void *from, size_t length);
void digest(const void *from, size_t length);
void end(void);

#endif
