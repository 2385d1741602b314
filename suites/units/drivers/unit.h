/*
 * Shared by the drivers of all units. A driver calls functions of the server and writes their results, one line a call:
 *
 *     > KEY: VALUE [VALUE ...]
 *
 * KEY describes the input, in words that suites/units/expectations.py parses. There is one value for each place of the
 * input in memory. The drivers judge nothing.
 */
#ifndef PLUMBLINE_UNIT_H
#define PLUMBLINE_UNIT_H

#include <stddef.h>
#include <stdint.h>

/* A server may declare the C library's functions deprecated so that its own files do not call them; drivers do. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* The number of places for data, which are 0, 1, 2, … bytes past a boundary. */
#define OFFSETS 16
#define BOUNDARY 64

/* Lengths around those of words, blocks (SipHash 8, SHA 64), SDS headers and LZF runs. */
extern const size_t lengths[];
extern const size_t lengths_count;

/* A name whose prefix depends on the server's family: FAMILY(Popcount) is redisPopcount or serverPopcount. */
#ifdef PLUMBLINE_VALKEY
#define FAMILY(name) server##name
#else
#define FAMILY(name) redis##name
#endif

/* Memory for exactly `length` bytes that begins `offset` bytes (less than BOUNDARY) past a boundary. */
unsigned char *place(size_t offset, size_t length);
void release(unsigned char *placed);

/* Bytes of all values that depend only on seed and position: expectations.pattern() computes the same. */
void fill(unsigned char *to, size_t length, unsigned seed);
unsigned char *place_pattern(size_t offset, size_t length, unsigned seed);
unsigned char *place_copy(size_t offset, const void *from, size_t length);

/* Write a line: its key and further words of the key, its values, its end. */
void line(const char *format, ...) __attribute__((format(printf, 1, 2)));
void more(const char *word);
void more_number(size_t number);
void number(long long value);
void unsigned_number(unsigned long long value);
void bytes(const void *from, size_t length);
void digest(const void *from, size_t length);
void end(void);

#endif
