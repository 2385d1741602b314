/* The reply reader of hiredis: it gets each input as a whole, and byte by byte. */
#include "../deps/hiredis/hiredis.h"

#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const replies[] = {
    ":0\r\n",
    ":-1\r\n",
    ":2147483647\r\n",
    ":2147483648\r\n",
    ":-2147483648\r\n",
    ":-2147483649\r\n",
    ":4294967295\r\n",
    ":4294967296\r\n",
    ":9223372036854775807\r\n",
    ":-9223372036854775808\r\n",
    "+OK\r\n",
    "-ERR \x80\xff\r\n",
    "$-1\r\n",
    "$0\r\n\r\n",
    "*-1\r\n",
    "*0\r\n",
    "*3\r\n:4294967297\r\n*2\r\n$1\r\na\r\n*1\r\n$-1\r\n+\xe4\r\n",
};

/* First bytes that no version of the protocol defines. */
static const unsigned char strange[] = {0, 1, 7, 8, 9, 27, 34, 63, 65, 92, 127, 128, 195, 255};

static void show(const redisReply *reply)
{
    number(reply->type);
    switch (reply->type) {
    case REDIS_REPLY_INTEGER:
        number(reply->integer);
        break;
    case REDIS_REPLY_ARRAY:
        unsigned_number(reply->elements);
        for (size_t i = 0; i < reply->elements; i++) show(reply->element[i]);
        break;
    case REDIS_REPLY_NIL:
        break;
    default:
        bytes(reply->str, (size_t)reply->len);
    }
}

static void read_in_pieces(const char *input, size_t length, size_t piece)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    for (size_t at = 0; at < length && reply == NULL && reader->err == 0; at += piece) {
        redisReaderFeed(reader, input + at, length - at < piece ? length - at : piece);
        redisReaderGetReply(reader, &reply);
    }
    if (reply != NULL) {
        show(reply);
        freeReplyObject(reply);
    } else {
        bytes(reader->errstr, strlen(reader->errstr));
    }
    redisReaderFree(reader);
}

static void input_is(const char *input, size_t length)
{
    char *key = malloc(2 * length + 1);

    for (size_t i = 0; i < length; i++) sprintf(key + 2 * i, "%02x", (unsigned char)input[i]);
    line("input %s", key);
    read_in_pieces(input, length, length);
    read_in_pieces(input, length, 1);
    end();
    free(key);
}

void unit_reader(void)
{
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) input_is(replies[i], strlen(replies[i]));
    for (size_t i = 0; i < lengths_count; i++) {
        unsigned char *data = place_pattern(0, lengths[i], (unsigned)lengths[i]);
        char *input = malloc(lengths[i] + 32);
        int head = sprintf(input, "$%zu\r\n", lengths[i]);

        memcpy(input + head, data, lengths[i]);
        memcpy(input + head + lengths[i], "\r\n", 2);
        input_is(input, (size_t)head + lengths[i] + 2);
        free(input);
        release(data);
    }
    for (size_t i = 0; i < sizeof strange; i++) {
        char input[] = {(char)strange[i], '1', '\r', '\n'};

        input_is(input, sizeof input);
    }
}
