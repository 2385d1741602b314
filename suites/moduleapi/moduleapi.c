/* A module without a data type. Its commands pass their numbers and bytes to the module API of Redis 7.0, and reply with
 * everything that it returns. test_moduleapi.py has the models, requests.toml the requests.
 *
 * Replies contain doubles as text of 17 digits, and errno by name, because its numbers differ between machines.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "redismodule.h"

enum { HOUR = 3600000 /* Milliseconds. */ };

typedef RedisModuleCtx Context;
typedef RedisModuleString Text;

static const char *text_of(const Text *word) { return RedisModule_StringPtrLen(word, NULL); }

static int is(const Text *word, const char *text) { return strcmp(text_of(word), text) == 0; }

static long long number_of(const Text *word) {
    long long number = 0;
    RedisModule_StringToLongLong(word, &number);
    return number;
}

static double real_of(const Text *word) {
    double number = 0;
    RedisModule_StringToDouble(word, &number);
    return number;
}

static void reply_real(Context *context, double number) {
    char text[40];
    RedisModule_ReplyWithStringBuffer(context, text, (size_t)snprintf(text, sizeof(text), "%.17g", number));
}

static void reply_natural(Context *context, uint64_t number) {
    char text[24];
    RedisModule_ReplyWithStringBuffer(context, text, (size_t)snprintf(text, sizeof(text), "%" PRIu64, number));
}

static void reply_text(Context *context, Text *text) {
    if (text) RedisModule_ReplyWithString(context, text);
    else RedisModule_ReplyWithNull(context);
}

static void reply_status(Context *context, int status) {
    RedisModule_ReplyWithSimpleString(context, status == REDISMODULE_OK ? "OK" : "ERR");
}

static void reply_errno(Context *context, int number) {
    const char *name = number == 0           ? "0"
                       : number == EINVAL    ? "EINVAL"
                       : number == ENOENT    ? "ENOENT"
                       : number == ENOTSUP   ? "ENOTSUP"
                       : number == EBADF     ? "EBADF"
                       : number == EDOM      ? "EDOM"
                       : number == EEXIST    ? "EEXIST"
                       : number == EFBIG     ? "EFBIG"
                       : number == EACCES    ? "EACCES"
                       : number == EPERM     ? "EPERM"
                       : number == ENETDOWN  ? "ENETDOWN"
                       : number == ESPIPE    ? "ESPIPE"
                       : number == EROFS     ? "EROFS"
                       : number == ENOSPC    ? "ENOSPC"
                                             : "another";
    RedisModule_ReplyWithSimpleString(context, name);
}

/* Replies with the result of a call that changes a key, errno after it, and the key's new length. */
static int reply_change(Context *context, int status, RedisModuleKey *key) {
    int number = errno;
    RedisModule_ReplyWithArray(context, 3);
    reply_status(context, status);
    reply_errno(context, number);
    RedisModule_ReplyWithLongLong(context, (long long)RedisModule_ValueLength(key));
    return REDISMODULE_OK;
}

static RedisModuleKey *opened(Context *context, Text *name) {
    return RedisModule_OpenKey(context, name, REDISMODULE_READ | REDISMODULE_WRITE);
}

/* Replies with the type and the value of a reply of RM_Call. */
static void tell(Context *context, RedisModuleCallReply *reply) {
    const char *text, *format;
    size_t length;
    RedisModuleCallReply *key, *value, *attribute;
    if (reply == NULL) {
        RedisModule_ReplyWithArray(context, 2);
        RedisModule_ReplyWithSimpleString(context, "none");
        reply_errno(context, errno);
        return;
    }
    attribute = RedisModule_CallReplyAttribute(reply);
    if (attribute) {
        RedisModule_ReplyWithArray(context, 2);
        tell(context, attribute);
    }
    length = RedisModule_CallReplyLength(reply);
    switch (RedisModule_CallReplyType(reply)) {
    case REDISMODULE_REPLY_STRING:
    case REDISMODULE_REPLY_ERROR:
        RedisModule_ReplyWithArray(context, 2);
        RedisModule_ReplyWithCString(
            context, RedisModule_CallReplyType(reply) == REDISMODULE_REPLY_STRING ? "string" : "error");
        text = RedisModule_CallReplyStringPtr(reply, &length);
        RedisModule_ReplyWithStringBuffer(context, text, length);
        break;
    case REDISMODULE_REPLY_INTEGER:
        RedisModule_ReplyWithArray(context, 3);
        RedisModule_ReplyWithCString(context, "integer");
        RedisModule_ReplyWithLongLong(context, RedisModule_CallReplyInteger(reply));
        reply_text(context, RedisModule_CreateStringFromCallReply(reply));
        break;
    case REDISMODULE_REPLY_DOUBLE:
        RedisModule_ReplyWithArray(context, 2);
        RedisModule_ReplyWithCString(context, "double");
        reply_real(context, RedisModule_CallReplyDouble(reply));
        break;
    case REDISMODULE_REPLY_BOOL:
        RedisModule_ReplyWithArray(context, 2);
        RedisModule_ReplyWithCString(context, "bool");
        RedisModule_ReplyWithLongLong(context, RedisModule_CallReplyBool(reply));
        break;
    case REDISMODULE_REPLY_BIG_NUMBER:
        RedisModule_ReplyWithArray(context, 2);
        RedisModule_ReplyWithCString(context, "big number");
        text = RedisModule_CallReplyBigNumber(reply, &length);
        RedisModule_ReplyWithStringBuffer(context, text, length);
        break;
    case REDISMODULE_REPLY_VERBATIM_STRING:
        RedisModule_ReplyWithArray(context, 3);
        RedisModule_ReplyWithCString(context, "verbatim");
        text = RedisModule_CallReplyVerbatim(reply, &length, &format);
        RedisModule_ReplyWithStringBuffer(context, text, length);
        RedisModule_ReplyWithStringBuffer(context, format, 3);
        break;
    case REDISMODULE_REPLY_ARRAY:
    case REDISMODULE_REPLY_SET:
        RedisModule_ReplyWithArray(context, (long)length + 1);
        if (RedisModule_CallReplyType(reply) == REDISMODULE_REPLY_ARRAY) {
            RedisModule_ReplyWithCString(context, "array");
            for (size_t at = 0; at < length; at++) tell(context, RedisModule_CallReplyArrayElement(reply, at));
        } else {
            RedisModule_ReplyWithCString(context, "set");
            for (size_t at = 0; at < length; at++) tell(context, RedisModule_CallReplySetElement(reply, at));
        }
        break;
    case REDISMODULE_REPLY_MAP:
    case REDISMODULE_REPLY_ATTRIBUTE:
        RedisModule_ReplyWithArray(context, 2 * (long)length + 1);
        if (RedisModule_CallReplyType(reply) == REDISMODULE_REPLY_MAP) {
            RedisModule_ReplyWithCString(context, "map");
            for (size_t at = 0; at < length; at++) {
                RedisModule_CallReplyMapElement(reply, at, &key, &value);
                tell(context, key);
                tell(context, value);
            }
        } else {
            RedisModule_ReplyWithCString(context, "attribute");
            for (size_t at = 0; at < length; at++) {
                RedisModule_CallReplyAttributeElement(reply, at, &key, &value);
                tell(context, key);
                tell(context, value);
            }
        }
        break;
    default:
        RedisModule_ReplyWithCString(
            context, RedisModule_CallReplyType(reply) == REDISMODULE_REPLY_NULL ? "null" : "unknown");
    }
}

/* API.CALL FORMAT COMMAND WORD...: the last letter of the format takes the words. */
static int call(Context *context, Text **words, int count) {
    RedisModuleCallReply *reply;
    const char *format, *name, *bytes;
    size_t length;
    if (count < 4) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    format = text_of(words[1]);
    name = text_of(words[2]);
    errno = 0;
    switch (format[strlen(format) - 1]) {
    case 's':
        reply = RedisModule_Call(context, name, format, words[3]);
        break;
    case 'c':
        reply = RedisModule_Call(context, name, format, text_of(words[3]));
        break;
    case 'b':
        bytes = RedisModule_StringPtrLen(words[3], &length);
        reply = RedisModule_Call(context, name, format, bytes, length);
        break;
    case 'l':
        reply = RedisModule_Call(context, name, format, number_of(words[3]));
        break;
    case 'v':
        reply = RedisModule_Call(context, name, format, words + 3, (size_t)count - 3);
        break;
    default:
        return RedisModule_ReplyWithError(context, "ERR a format ends with s, c, b, l or v");
    }
    tell(context, reply);
    return REDISMODULE_OK;
}

/* API.MIX NUMBER BYTES: numbers of 64 bits among pointers, which some machines pass in pairs of registers. */
static int mix(Context *context, Text **words, int count) {
    size_t length;
    const char *bytes;
    long long number;
    if (count != 3) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    number = number_of(words[1]);
    bytes = RedisModule_StringPtrLen(words[2], &length);
    tell(context, RedisModule_Call(context, "API.ECHO", "lclsbllvl", number, "text", -number, words[2], bytes, length,
                                   number, number, words + 1, (size_t)2, number));
    return REDISMODULE_OK;
}

static int echo(Context *context, Text **words, int count) {
    RedisModule_ReplyWithArray(context, count - 1);
    for (int at = 1; at < count; at++) RedisModule_ReplyWithString(context, words[at]);
    return REDISMODULE_OK;
}

/* API.REPLY KIND WORD: a reply of each kind. */
static int reply(Context *context, Text **words, int count) {
    const char *bytes;
    size_t length;
    long double real = 0;
    Text *word;
    if (count != 3) return RedisModule_WrongArity(context);
    word = words[2];
    bytes = RedisModule_StringPtrLen(word, &length);
    if (is(words[1], "integer")) return RedisModule_ReplyWithLongLong(context, number_of(word));
    if (is(words[1], "double")) return RedisModule_ReplyWithDouble(context, real_of(word));
    if (is(words[1], "long-double")) {
        RedisModule_StringToLongDouble(word, &real);
        return RedisModule_ReplyWithLongDouble(context, real);
    }
    if (is(words[1], "big-number")) return RedisModule_ReplyWithBigNumber(context, bytes, length);
    if (is(words[1], "verbatim")) return RedisModule_ReplyWithVerbatimString(context, bytes, length);
    if (is(words[1], "markdown")) return RedisModule_ReplyWithVerbatimStringType(context, bytes, length, "mkd");
    if (is(words[1], "bool")) return RedisModule_ReplyWithBool(context, (int)number_of(word));
    if (is(words[1], "null")) return RedisModule_ReplyWithNull(context);
    if (is(words[1], "null-array")) return RedisModule_ReplyWithNullArray(context);
    if (is(words[1], "empty-array")) return RedisModule_ReplyWithEmptyArray(context);
    if (is(words[1], "empty-string")) return RedisModule_ReplyWithEmptyString(context);
    if (is(words[1], "error")) return RedisModule_ReplyWithError(context, bytes);
    if (is(words[1], "map")) {
        RedisModule_ReplyWithMap(context, 1);
        RedisModule_ReplyWithLongLong(context, number_of(word));
        return RedisModule_ReplyWithDouble(context, real_of(word));
    }
    if (is(words[1], "set")) {
        RedisModule_ReplyWithSet(context, REDISMODULE_POSTPONED_LEN);
        RedisModule_ReplyWithLongLong(context, number_of(word));
        RedisModule_ReplySetSetLength(context, 1);
        return REDISMODULE_OK;
    }
    if (is(words[1], "postponed")) {
        RedisModule_ReplyWithArray(context, REDISMODULE_POSTPONED_LEN);
        RedisModule_ReplyWithMap(context, REDISMODULE_POSTPONED_LEN);
        RedisModule_ReplyWithCString(context, "number");
        RedisModule_ReplyWithLongLong(context, number_of(word));
        RedisModule_ReplySetMapLength(context, 1);
        RedisModule_ReplySetArrayLength(context, 1);
        return REDISMODULE_OK;
    }
    if (is(words[1], "attribute")) {
        /* A RESP2 client receives no attribute. */
        if (RedisModule_ReplyWithAttribute(context, 1) == REDISMODULE_OK) {
            RedisModule_ReplyWithCString(context, "number");
            RedisModule_ReplyWithLongLong(context, number_of(word));
        }
        return RedisModule_ReplyWithCString(context, "with an attribute");
    }
    return RedisModule_ReplyWithError(context, "ERR no such kind");
}

/* API.PASS COMMAND WORD...: another command's reply, unchanged. */
static int pass(Context *context, Text **words, int count) {
    RedisModuleCallReply *passed;
    if (count < 3) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    passed = RedisModule_Call(context, text_of(words[1]), "0v", words + 2, (size_t)count - 2);
    if (passed == NULL) return RedisModule_ReplyWithError(context, "ERR not called");
    return RedisModule_ReplyWithCallReply(context, passed);
}

/* API.CONVERT TEXT: the text as a number of each kind, or ERR. */
static int convert(Context *context, Text **words, int count) {
    long long whole;
    unsigned long long natural;
    double real;
    long double long_real;
    RedisModuleStreamID id;
    if (count != 2) return RedisModule_WrongArity(context);
    RedisModule_ReplyWithArray(context, 5);
    if (RedisModule_StringToLongLong(words[1], &whole) == REDISMODULE_OK)
        RedisModule_ReplyWithLongLong(context, whole);
    else reply_status(context, REDISMODULE_ERR);
    if (RedisModule_StringToULongLong(words[1], &natural) == REDISMODULE_OK) reply_natural(context, natural);
    else reply_status(context, REDISMODULE_ERR);
    if (RedisModule_StringToDouble(words[1], &real) == REDISMODULE_OK) reply_real(context, real);
    else reply_status(context, REDISMODULE_ERR);
    if (RedisModule_StringToLongDouble(words[1], &long_real) == REDISMODULE_OK) reply_real(context, (double)long_real);
    else reply_status(context, REDISMODULE_ERR);
    if (RedisModule_StringToStreamID(words[1], &id) == REDISMODULE_OK) {
        RedisModule_ReplyWithArray(context, 2);
        reply_natural(context, id.ms);
        reply_natural(context, id.seq);
    } else reply_status(context, REDISMODULE_ERR);
    return REDISMODULE_OK;
}

/* API.COMPOSE NUMBER REAL: strings made from numbers. */
static int compose(Context *context, Text **words, int count) {
    long long whole;
    double real;
    RedisModuleStreamID id;
    Text *made;
    if (count != 3) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    whole = number_of(words[1]);
    real = real_of(words[2]);
    id.ms = (uint64_t)whole;
    id.seq = ~(uint64_t)whole;
    made = RedisModule_CreateStringFromString(context, words[1]);
    RedisModule_StringAppendBuffer(context, made, "\0and", 4);
    RedisModule_TrimStringAllocation(made);
    RedisModule_ReplyWithArray(context, 9);
    reply_text(context, RedisModule_CreateStringFromLongLong(context, whole));
    reply_text(context, RedisModule_CreateStringFromULongLong(context, (unsigned long long)whole));
    reply_text(context, RedisModule_CreateStringFromDouble(context, real));
    reply_text(context, RedisModule_CreateStringFromLongDouble(context, real, 1));
    reply_text(context, RedisModule_CreateStringFromStreamID(context, &id));
    reply_text(context, RedisModule_CreateStringPrintf(context, "%d %lld %s %llu %.3g %c", -1, whole, "text",
                                                       (unsigned long long)whole, real, 'c'));
    reply_text(context, made);
    RedisModule_ReplyWithLongLong(context, RedisModule_StringCompare(words[1], words[2]));
    RedisModule_ReplyWithLongLong(context, RedisModule_StringCompare(words[2], words[1]));
    return REDISMODULE_OK;
}

/* API.LIST KEY GET|SET|INSERT|DELETE|PUSH|POP INDEX WORD */
static int list(Context *context, Text **words, int count) {
    RedisModuleKey *key;
    long at;
    int status;
    if (count != 5) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    key = opened(context, words[1]);
    at = (long)number_of(words[3]);
    errno = 0;
    if (is(words[2], "GET") || is(words[2], "POP")) {
        Text *found = is(words[2], "GET") ? RedisModule_ListGet(key, at)
                                          : RedisModule_ListPop(key, at < 0 ? REDISMODULE_LIST_TAIL : REDISMODULE_LIST_HEAD);
        RedisModule_ReplyWithArray(context, 2);
        reply_text(context, found);
        reply_errno(context, errno);
        return REDISMODULE_OK;
    }
    if (is(words[2], "SET")) status = RedisModule_ListSet(key, at, words[4]);
    else if (is(words[2], "INSERT")) status = RedisModule_ListInsert(key, at, words[4]);
    else if (is(words[2], "DELETE")) status = RedisModule_ListDelete(key, at);
    else status = RedisModule_ListPush(key, at < 0 ? REDISMODULE_LIST_TAIL : REDISMODULE_LIST_HEAD, words[4]);
    return reply_change(context, status, key);
}

/* API.HASH.SET KEY FLAGS FIELD VALUE FIELD VALUE: no VALUE of three dashes, which deletes the field. */
static int hash_set(Context *context, Text **words, int count) {
    RedisModuleKey *key;
    Text *first, *second;
    int flags, changed;
    if (count != 7) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    key = opened(context, words[1]);
    flags = (int)number_of(words[2]);
    first = is(words[4], "---") ? REDISMODULE_HASH_DELETE : words[4];
    second = is(words[6], "---") ? REDISMODULE_HASH_DELETE : words[6];
    errno = 0;
    if (flags & REDISMODULE_HASH_CFIELDS)
        changed = RedisModule_HashSet(key, flags, text_of(words[3]), first, text_of(words[5]), second, NULL);
    else changed = RedisModule_HashSet(key, flags, words[3], first, words[5], second, NULL);
    RedisModule_ReplyWithArray(context, 3);
    RedisModule_ReplyWithLongLong(context, changed);
    reply_errno(context, errno);
    RedisModule_ReplyWithLongLong(context, (long long)RedisModule_ValueLength(key));
    return REDISMODULE_OK;
}

/* API.HASH.GET KEY FIELD FIELD: values, and whether they exist. */
static int hash_get(Context *context, Text **words, int count) {
    RedisModuleKey *key;
    Text *first = NULL, *second = NULL;
    int one = -1, other = -1;
    if (count != 4) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    key = opened(context, words[1]);
    errno = 0;
    RedisModule_HashGet(key, REDISMODULE_HASH_NONE, words[2], &first, words[3], &second, NULL);
    RedisModule_HashGet(key, REDISMODULE_HASH_EXISTS | REDISMODULE_HASH_CFIELDS, text_of(words[2]), &one,
                        text_of(words[3]), &other, NULL);
    RedisModule_ReplyWithArray(context, 5);
    reply_text(context, first);
    reply_text(context, second);
    RedisModule_ReplyWithLongLong(context, one);
    RedisModule_ReplyWithLongLong(context, other);
    reply_errno(context, errno);
    return REDISMODULE_OK;
}

/* API.HASH.EXPIRY KEY FIELD: when the field expires, and when the first one does. */
static int hash_expiry(Context *context, Text **words, int count) {
    if (count != 3) return RedisModule_WrongArity(context);
#ifdef REDISMODULE_HASH_EXPIRE_TIME /* Since Redis 8. */
    RedisModuleKey *key;
    mstime_t moment = 0;
    RedisModule_AutoMemory(context);
    key = opened(context, words[1]);
    RedisModule_HashGet(key, REDISMODULE_HASH_EXPIRE_TIME, words[2], &moment, NULL);
    RedisModule_ReplyWithArray(context, 2);
    RedisModule_ReplyWithLongLong(context, moment);
    return RedisModule_ReplyWithLongLong(context, RedisModule_HashFieldMinExpire(key));
#else
    (void)words;
    return RedisModule_ReplyWithError(context, "ERR not in this release");
#endif
}

/* API.ZSET.ADD KEY FLAGS SCORE MEMBER, and API.ZSET.INCR. */
static int zset_change(Context *context, Text **words, int count) {
    RedisModuleKey *key;
    int flags, status;
    double score = 0;
    if (count != 5) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    key = opened(context, words[1]);
    flags = (int)number_of(words[2]);
    if (is(words[0], "API.ZSET.ADD")) {
        status = RedisModule_ZsetAdd(key, real_of(words[3]), words[4], &flags);
        if (RedisModule_ZsetScore(key, words[4], &score) != REDISMODULE_OK) score = 0;
    } else status = RedisModule_ZsetIncrby(key, real_of(words[3]), words[4], &flags, &score);
    RedisModule_ReplyWithArray(context, 3);
    reply_status(context, status);
    RedisModule_ReplyWithLongLong(context, flags);
    reply_real(context, score);
    return REDISMODULE_OK;
}

/* API.ZSET.REM KEY MEMBER */
static int zset_remove(Context *context, Text **words, int count) {
    int deleted = -1;
    if (count != 3) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    RedisModule_ReplyWithArray(context, 2);
    reply_status(context, RedisModule_ZsetRem(opened(context, words[1]), words[2], &deleted));
    RedisModule_ReplyWithLongLong(context, deleted);
    return REDISMODULE_OK;
}

/* API.ZSET.RANGE KEY SCORE|LEX FIRST|LAST MINIMUM MAXIMUM WITHOUT-MINIMUM WITHOUT-MAXIMUM: members and scores. */
static int zset_range(Context *context, Text **words, int count) {
    RedisModuleKey *key;
    long listed = 0;
    double score;
    int first, status, less, more;
    if (count != 8) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    key = opened(context, words[1]);
    first = is(words[3], "FIRST");
    less = (int)number_of(words[6]);
    more = (int)number_of(words[7]);
    if (is(words[2], "SCORE"))
        status = (first ? RedisModule_ZsetFirstInScoreRange : RedisModule_ZsetLastInScoreRange)(
            key, real_of(words[4]), real_of(words[5]), less, more);
    else
        status = (first ? RedisModule_ZsetFirstInLexRange : RedisModule_ZsetLastInLexRange)(key, words[4], words[5]);
    if (status != REDISMODULE_OK) return RedisModule_ReplyWithError(context, "ERR no range");
    RedisModule_ReplyWithArray(context, REDISMODULE_POSTPONED_LEN);
    while (!RedisModule_ZsetRangeEndReached(key)) {
        reply_text(context, RedisModule_ZsetRangeCurrentElement(key, &score));
        reply_real(context, score);
        listed += 2;
        if (first) RedisModule_ZsetRangeNext(key);
        else RedisModule_ZsetRangePrev(key);
    }
    RedisModule_ZsetRangeStop(key);
    RedisModule_ReplySetArrayLength(context, listed);
    return REDISMODULE_OK;
}

static void reply_id(Context *context, const RedisModuleStreamID *id) {
    reply_text(context, RedisModule_CreateStringFromStreamID(context, id));
}

/* API.STREAM.ADD KEY ID FIELD VALUE... */
static int stream_add(Context *context, Text **words, int count) {
    RedisModuleKey *key;
    RedisModuleStreamID id;
    int status;
    if (count < 5) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    if (RedisModule_StringToStreamID(words[2], &id) != REDISMODULE_OK)
        return RedisModule_ReplyWithError(context, "ERR no identifier");
    key = opened(context, words[1]);
    errno = 0;
    status = RedisModule_StreamAdd(key, 0, &id, words + 3, (count - 3) / 2);
    return reply_change(context, status, key);
}

/* API.STREAM.RANGE KEY FLAGS START END DELETE: each identifier, number of fields and fields; "-" or "+" is no limit.
 */
static int stream_range(Context *context, Text **words, int count) {
    RedisModuleKey *key;
    RedisModuleStreamID start, end, id;
    int from, until;
    long fields, listed = 0;
    Text *field, *value;
    if (count != 6) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    from = RedisModule_StringToStreamID(words[3], &start) == REDISMODULE_OK && !is(words[3], "-") && !is(words[3], "+");
    until = RedisModule_StringToStreamID(words[4], &end) == REDISMODULE_OK && !is(words[4], "-") && !is(words[4], "+");
    key = opened(context, words[1]);
    errno = 0;
    if (RedisModule_StreamIteratorStart(key, (int)number_of(words[2]), from ? &start : NULL, until ? &end : NULL) !=
        REDISMODULE_OK) {
        reply_errno(context, errno);
        return REDISMODULE_OK;
    }
    RedisModule_ReplyWithArray(context, REDISMODULE_POSTPONED_LEN);
    while (RedisModule_StreamIteratorNextID(key, &id, &fields) == REDISMODULE_OK) {
        reply_id(context, &id);
        RedisModule_ReplyWithLongLong(context, fields);
        listed += 2;
        while (RedisModule_StreamIteratorNextField(key, &field, &value) == REDISMODULE_OK) {
            reply_text(context, field);
            reply_text(context, value);
            listed += 2;
        }
        if (is(words[5], "1")) RedisModule_StreamIteratorDelete(key);
    }
    RedisModule_StreamIteratorStop(key);
    RedisModule_ReplySetArrayLength(context, listed);
    return REDISMODULE_OK;
}

/* API.STREAM.CUT KEY LENGTH|ID|DELETE LIMIT: trims to a length or from an identifier, or deletes one entry. */
static int stream_cut(Context *context, Text **words, int count) {
    RedisModuleKey *key;
    RedisModuleStreamID id = {0, 0};
    long long removed;
    if (count != 4) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    key = opened(context, words[1]);
    RedisModule_StringToStreamID(words[3], &id);
    errno = 0;
    if (is(words[2], "LENGTH")) removed = RedisModule_StreamTrimByLength(key, 0, number_of(words[3]));
    else if (is(words[2], "ID")) removed = RedisModule_StreamTrimByID(key, 0, &id);
    else removed = RedisModule_StreamDelete(key, &id);
    RedisModule_ReplyWithArray(context, 2);
    RedisModule_ReplyWithLongLong(context, removed);
    reply_errno(context, errno);
    return REDISMODULE_OK;
}

/* API.KEY KEY: type, length, moment of expiry, hours until then, hours since use, frequency, and whether it exists. A
 * moment within 30000 years is in hours too.
 */
static int key_facts(Context *context, Text **words, int count) {
    RedisModuleKey *key;
    long long frequency = -2;
    mstime_t idle = -2, moment;
    if (count != 2) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    key = opened(context, words[1]);
    moment = RedisModule_GetAbsExpire(key);
    RedisModule_GetLRU(key, &idle);
    RedisModule_GetLFU(key, &frequency);
    RedisModule_ReplyWithArray(context, 7);
    RedisModule_ReplyWithLongLong(context, RedisModule_KeyType(key));
    RedisModule_ReplyWithLongLong(context, (long long)RedisModule_ValueLength(key));
    /* Seconds pass between two machines' replies; hours rarely do. */
    RedisModule_ReplyWithLongLong(context, moment >> 50 ? moment : moment / HOUR);
    RedisModule_ReplyWithLongLong(context, (RedisModule_GetExpire(key) + HOUR / 2) / HOUR);
    RedisModule_ReplyWithLongLong(context, (idle + HOUR / 2) / HOUR);
    RedisModule_ReplyWithLongLong(context, frequency);
    RedisModule_ReplyWithLongLong(context, RedisModule_KeyExists(context, words[1]));
    return REDISMODULE_OK;
}

/* API.KEY.SET KEY EXPIRY|MOMENT|IDLE|FREQUENCY|TRUNCATE|STRING NUMBER */
static int key_set(Context *context, Text **words, int count) {
    RedisModuleKey *key;
    long long number;
    int status;
    if (count != 4) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    key = opened(context, words[1]);
    number = number_of(words[3]);
    if (is(words[2], "EXPIRY")) status = RedisModule_SetExpire(key, number);
    else if (is(words[2], "MOMENT")) status = RedisModule_SetAbsExpire(key, number);
    else if (is(words[2], "IDLE")) status = RedisModule_SetLRU(key, number);
    else if (is(words[2], "FREQUENCY")) status = RedisModule_SetLFU(key, number);
    else if (is(words[2], "TRUNCATE")) status = RedisModule_StringTruncate(key, (size_t)number);
    else status = RedisModule_StringSet(key, words[3]);
    reply_status(context, status);
    return REDISMODULE_OK;
}

static int ticks;

static void tick(Context *context, void *data) {
    (void)context;
    ticks += (int)(intptr_t)data;
}

/* API.TIMER MILLISECONDS: what remains of it at once, and of another one that ends first; both are stopped. */
static int timer(Context *context, Text **words, int count) {
    RedisModuleTimerID id, sooner;
    uint64_t remaining = 0;
    void *data = NULL, *stopped = NULL;
    if (count != 2) return RedisModule_WrongArity(context);
    id = RedisModule_CreateTimer(context, number_of(words[1]), tick, (void *)(intptr_t)100);
    sooner = RedisModule_CreateTimer(context, number_of(words[1]) / 2, tick, (void *)(intptr_t)200);
    RedisModule_ReplyWithArray(context, 6);
    reply_status(context, RedisModule_GetTimerInfo(context, id, &remaining, &data));
    reply_natural(context, remaining);
    RedisModule_ReplyWithLongLong(context, (long long)(intptr_t)data);
    reply_status(context, RedisModule_StopTimer(context, sooner, &stopped));
    RedisModule_ReplyWithLongLong(context, (long long)(intptr_t)stopped);
    RedisModule_StopTimer(context, id, NULL);
    reply_status(context, RedisModule_GetTimerInfo(context, id, &remaining, &data));
    return REDISMODULE_OK;
}

/* API.TICK MILLISECONDS: starts a timer that counts; API.TICK -1: the count. */
static int count_ticks(Context *context, Text **words, int count) {
    if (count != 2) return RedisModule_WrongArity(context);
    if (number_of(words[1]) >= 0) RedisModule_CreateTimer(context, number_of(words[1]), tick, (void *)(intptr_t)1);
    return RedisModule_ReplyWithLongLong(context, ticks);
}

/* The events since the last request: their names, with their numbers. */
static char events[2000];

static void happened(const char *format, const char *name, long long number) {
    size_t used = strlen(events);
    snprintf(events + used, sizeof(events) - used, format, name, number);
}

static int key_event(Context *context, int kind, const char *event, Text *key) {
    (void)context;
    (void)key;
    happened("%s:%lld ", event, kind);
    return REDISMODULE_OK;
}

static void server_event(Context *context, RedisModuleEvent event, uint64_t sub, void *data) {
    (void)context;
    if (event.id == REDISMODULE_EVENT_FLUSHDB) {
        const RedisModuleFlushInfo *flush = data;
        happened("%s:%lld ", sub == REDISMODULE_SUBEVENT_FLUSHDB_START ? "flush" : "flushed", flush->dbnum);
    } else if (event.id == REDISMODULE_EVENT_SWAPDB) {
        const RedisModuleSwapDbInfo *swap = data;
        happened("%s:%lld ", "swap", swap->dbnum_first * 100 + swap->dbnum_second);
    } else if (event.id == REDISMODULE_EVENT_CONFIG) {
        const RedisModuleConfigChange *change = data;
        for (uint32_t at = 0; at < change->num_changes; at++) happened("%s:%lld ", change->config_names[at], at);
    }
}

/* API.EVENTS: events so far; API.EVENTS KIND: with one of the module's own. */
static int tell_events(Context *context, Text **words, int count) {
    if (count > 2) return RedisModule_WrongArity(context);
    if (count == 2) RedisModule_NotifyKeyspaceEvent(context, (int)number_of(words[1]), "own", words[1]);
    RedisModule_ReplyWithCString(context, events);
    events[0] = 0;
    return REDISMODULE_OK;
}

struct wait {
    RedisModuleBlockedClient *client;
    long long microseconds;
    long long number;
};

static void *answer_later(void *data) {
    struct wait *wait = data;
    Context *context;
    usleep((useconds_t)wait->microseconds);
    context = RedisModule_GetThreadSafeContext(wait->client);
    RedisModule_ThreadSafeContextLock(context);
    RedisModule_FreeCallReply(RedisModule_Call(context, "INCRBY", "cl", "waited", wait->number));
    RedisModule_ThreadSafeContextUnlock(context);
    RedisModule_FreeThreadSafeContext(context);
    RedisModule_UnblockClient(wait->client, wait);
    return NULL;
}

static int on_answer(Context *context, Text **words, int count) {
    const struct wait *wait = RedisModule_GetBlockedClientPrivateData(context);
    (void)words;
    (void)count;
    return RedisModule_ReplyWithLongLong(context, wait->number);
}

static int on_timeout(Context *context, Text **words, int count) {
    (void)words;
    (void)count;
    return RedisModule_ReplyWithSimpleString(context, "timed out");
}

static void after_answer(Context *context, void *data) {
    (void)context;
    RedisModule_Free(data);
}

/* API.BLOCK TIMEOUT DELAY NUMBER: in milliseconds; a thread adds the number to `waited`, and replies with it. */
static int block(Context *context, Text **words, int count) {
    struct wait *wait;
    pthread_t thread;
    if (count != 4) return RedisModule_WrongArity(context);
    wait = RedisModule_Calloc(1, sizeof(*wait));
    wait->microseconds = 1000 * number_of(words[2]);
    wait->number = number_of(words[3]);
    wait->client = RedisModule_BlockClient(context, on_answer, on_timeout, after_answer, number_of(words[1]));
    if (pthread_create(&thread, NULL, answer_later, wait) != 0) {
        RedisModule_AbortBlock(wait->client);
        RedisModule_Free(wait);
        return RedisModule_ReplyWithError(context, "ERR no thread");
    }
    pthread_detach(thread);
    return REDISMODULE_OK;
}

/* API.DICT OPERATOR SEEK KEY...: number of keys, those from SEEK on and those back from it with the order in which
 * they came, and what lookups say before and after the last key is replaced and deleted.
 */
static int dictionary(Context *context, Text **words, int count) {
    RedisModuleDict *keys;
    RedisModuleDictIter *place;
    long listed;
    size_t length;
    void *data, *name;
    Text *key;
    int missing = -1, last = count - 1;
    if (count < 4) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    keys = RedisModule_CreateDict(context);
    for (int at = 3; at < count; at++) RedisModule_DictSet(keys, words[at], (void *)(intptr_t)at);
    RedisModule_ReplyWithArray(context, 6);
    reply_natural(context, RedisModule_DictSize(keys));
    for (int back = 0; back < 2; back++) {
        RedisModule_ReplyWithArray(context, REDISMODULE_POSTPONED_LEN);
        listed = 0;
        place = RedisModule_DictIteratorStart(keys, text_of(words[1]), words[2]);
        if (back) {
            while ((key = RedisModule_DictPrev(context, place, &data)) != NULL) {
                reply_text(context, key);
                RedisModule_ReplyWithLongLong(context, (long long)(intptr_t)data);
                listed += 2;
            }
        } else {
            while ((name = RedisModule_DictNextC(place, &length, &data)) != NULL) {
                RedisModule_ReplyWithStringBuffer(context, name, length);
                RedisModule_ReplyWithLongLong(context, (long long)(intptr_t)data);
                listed += 2;
            }
        }
        RedisModule_DictIteratorStop(place);
        RedisModule_ReplySetArrayLength(context, listed);
    }
    RedisModule_DictReplace(keys, words[last], (void *)(intptr_t)-1);
    RedisModule_ReplyWithLongLong(context, (long long)(intptr_t)RedisModule_DictGet(keys, words[last], &missing));
    data = NULL;
    RedisModule_DictDel(keys, words[last], &data);
    RedisModule_ReplyWithLongLong(context, (long long)(intptr_t)data);
    RedisModule_DictGet(keys, words[last], &missing);
    RedisModule_ReplyWithLongLong(context, missing);
    RedisModule_FreeDict(context, keys);
    return REDISMODULE_OK;
}

/* API.DICT.C SEEK KEY...: by pointers and lengths: number of keys whose lookup is wrong, the key from SEEK on, whether
 * it is larger than the first key, and the keys around the last one.
 */
static int dictionary_of_bytes(Context *context, Text **words, int count) {
    RedisModuleDict *keys;
    RedisModuleDictIter *place;
    size_t length;
    void *data = NULL, *name;
    Text *key;
    int missing, wrong = 0, last = count - 1;
    if (count < 4) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    keys = RedisModule_CreateDict(context);
    for (int at = 2; at < count; at++) {
        name = (void *)RedisModule_StringPtrLen(words[at], &length);
        if (RedisModule_DictSetC(keys, name, length, words) != REDISMODULE_OK) wrong++;
        RedisModule_DictReplaceC(keys, name, length, (void *)(intptr_t)at);
    }
    for (int at = 2; at < count; at++) {
        name = (void *)RedisModule_StringPtrLen(words[at], &length);
        if (RedisModule_DictGetC(keys, name, length, &missing) != (void *)(intptr_t)at || missing) wrong++;
    }
    RedisModule_ReplyWithArray(context, 7);
    RedisModule_ReplyWithLongLong(context, wrong);
    name = (void *)RedisModule_StringPtrLen(words[1], &length);
    place = RedisModule_DictIteratorStartC(keys, ">=", name, length);
    key = RedisModule_DictNext(context, place, &data);
    reply_text(context, key);
    RedisModule_ReplyWithLongLong(context, key ? (long long)(intptr_t)data : -1);
    RedisModule_ReplyWithLongLong(context, key ? RedisModule_DictCompare(place, ">", words[2]) : -1);
    name = (void *)RedisModule_StringPtrLen(words[last], &length);
    RedisModule_DictIteratorReseekC(place, "<", name, length);
    name = RedisModule_DictPrevC(place, &length, &data);
    RedisModule_ReplyWithStringBuffer(context, name ? name : "none", name ? length : 4);
    RedisModule_DictIteratorReseek(place, "==", words[last]);
    RedisModule_DictNextC(place, &length, &data);
    RedisModule_ReplyWithLongLong(context, (long long)(intptr_t)data);
    name = (void *)RedisModule_StringPtrLen(words[last], &length);
    RedisModule_ReplyWithLongLong(context, RedisModule_DictCompareC(place, "==", name, length));
    RedisModule_DictIteratorStop(place);
    RedisModule_DictDelC(keys, name, length, NULL);
    RedisModule_FreeDict(context, keys);
    return REDISMODULE_OK;
}

struct scan {
    Context *context;
    long listed;
};

static void on_key(Context *context, Text *name, RedisModuleKey *key, void *data) {
    (void)key;
    reply_text(context, name);
    ((struct scan *)data)->listed++;
}

static void on_element(RedisModuleKey *key, Text *field, Text *value, void *data) {
    struct scan *scan = data;
    (void)key;
    reply_text(scan->context, field);
    reply_text(scan->context, value);
    scan->listed += 2;
}

/* API.SCAN: every key; API.SCAN KEY: its elements and their values. */
static int scan_all(Context *context, Text **words, int count) {
    struct scan scan = {context, 0};
    RedisModuleScanCursor *cursor;
    if (count > 2) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    cursor = RedisModule_ScanCursorCreate();
    RedisModule_ReplyWithArray(context, REDISMODULE_POSTPONED_LEN);
    if (count == 1)
        while (RedisModule_Scan(context, cursor, on_key, &scan)) {}
    else {
        RedisModuleKey *key = opened(context, words[1]);
        while (key && RedisModule_ScanKey(key, cursor, on_element, &scan)) {}
    }
    RedisModule_ScanCursorDestroy(cursor);
    RedisModule_ReplySetArrayLength(context, scan.listed);
    return REDISMODULE_OK;
}

/* API.FILTERED FIRST ... LAST becomes API.ECHO inserted FIRST ... */
static void rewrite(RedisModuleCommandFilterCtx *request) {
    int count = RedisModule_CommandFilterArgsCount(request);
    if (!is(RedisModule_CommandFilterArgGet(request, 0), "API.FILTERED")) return;
    RedisModule_CommandFilterArgReplace(request, 0, RedisModule_CreateString(NULL, "API.ECHO", 8));
    RedisModule_CommandFilterArgInsert(request, 1, RedisModule_CreateString(NULL, "inserted", 8));
    RedisModule_CommandFilterArgDelete(request, count);
}

/* API.SERVER SECTION FIELD: the field of INFO as each kind of number, with the errors of reading it. */
static int server_info(Context *context, Text **words, int count) {
    RedisModuleServerInfoData *data;
    const char *field;
    int error = 0;
    if (count != 3) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    field = text_of(words[2]);
    data = RedisModule_GetServerInfo(context, text_of(words[1]));
    RedisModule_ReplyWithArray(context, 8);
    RedisModule_ReplyWithLongLong(context, RedisModule_ServerInfoGetFieldSigned(data, field, &error));
    RedisModule_ReplyWithLongLong(context, error);
    reply_natural(context, RedisModule_ServerInfoGetFieldUnsigned(data, field, &error));
    RedisModule_ReplyWithLongLong(context, error);
    reply_real(context, RedisModule_ServerInfoGetFieldDouble(data, field, &error));
    RedisModule_ReplyWithLongLong(context, error);
    reply_text(context, RedisModule_ServerInfoGetField(context, data, field));
    field = RedisModule_ServerInfoGetFieldC(data, field);
    RedisModule_ReplyWithCString(context, field ? field : "none");
    RedisModule_FreeServerInfo(context, data);
    return REDISMODULE_OK;
}

static Text *info_name;

static void tell_info(RedisModuleInfoCtx *info, int crashes) {
    RedisModule_InfoAddSection(info, "numbers");
    RedisModule_InfoAddFieldLongLong(info, "crash", crashes);
    RedisModule_InfoAddFieldLongLong(info, "least", INT64_MIN);
    RedisModule_InfoAddFieldLongLong(info, "beyond", INT64_C(-1) - UINT32_MAX);
    RedisModule_InfoAddFieldULongLong(info, "most", UINT64_MAX);
    RedisModule_InfoAddFieldDouble(info, "real", -4294967297.5);
    RedisModule_InfoAddFieldCString(info, "text", "plain");
    RedisModule_InfoAddFieldString(info, "name", info_name);
    RedisModule_InfoBeginDictField(info, "all");
    RedisModule_InfoAddFieldLongLong(info, "one", INT64_C(1) << 40);
    RedisModule_InfoAddFieldULongLong(info, "two", UINT64_C(1) << 63);
    RedisModule_InfoEndDictField(info);
}

/* API.CLOCK: milliseconds since 1970, how the monotonic clock advances, and since Redis 7.2 microseconds, as kept and
 * as read.
 */
static int tell_clock(Context *context, Text **words, int count) {
    uint64_t before = RedisModule_MonotonicMicroseconds();
    (void)words;
    if (count != 1) return RedisModule_WrongArity(context);
    usleep(2000);
    RedisModule_ReplyWithArray(context, REDISMODULE_POSTPONED_LEN);
    RedisModule_ReplyWithLongLong(context, RedisModule_Milliseconds());
    RedisModule_ReplyWithLongLong(context, (long long)(RedisModule_MonotonicMicroseconds() - before));
#ifdef REDISMODULE_AUTH_HANDLED
    RedisModule_ReplyWithLongLong(context, RedisModule_CachedMicroseconds());
    RedisModule_ReplyWithLongLong(context, RedisModule_Microseconds());
    RedisModule_ReplySetArrayLength(context, 4);
#else
    RedisModule_ReplySetArrayLength(context, 2);
#endif
    return REDISMODULE_OK;
}

/* API.RANDOM: 16 bytes, and 32 hexadecimal digits. */
static int random_bytes(Context *context, Text **words, int count) {
    unsigned char bytes[16];
    char digits[32];
    (void)words;
    if (count != 1) return RedisModule_WrongArity(context);
    RedisModule_GetRandomBytes(bytes, sizeof(bytes));
    RedisModule_GetRandomHexChars(digits, sizeof(digits));
    RedisModule_ReplyWithArray(context, 2);
    RedisModule_ReplyWithStringBuffer(context, (const char *)bytes, sizeof(bytes));
    return RedisModule_ReplyWithStringBuffer(context, digits, sizeof(digits));
}

/* API.CLIENT OFFSET NAME: names the client whose identifier lies OFFSET from this one's, and tells of it. */
static int name_client(Context *context, Text **words, int count) {
    RedisModuleClientInfo info = {.version = REDISMODULE_CLIENTINFO_VERSION};
    uint64_t id;
    if (count != 3) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    id = RedisModule_GetClientId(context) + (uint64_t)number_of(words[1]);
    RedisModule_ReplyWithArray(context, 7);
    reply_status(context, RedisModule_SetClientNameById(id, words[2]));
    reply_text(context, RedisModule_GetClientNameById(context, id));
    reply_text(context, RedisModule_GetClientUserNameById(context, id));
    reply_status(context, RedisModule_GetClientInfoById(&info, id));
    reply_natural(context, info.flags);
    RedisModule_ReplyWithLongLong(context, info.id == id);
    RedisModule_ReplyWithLongLong(context, info.db);
    return REDISMODULE_OK;
}

/* API.DATABASE NUMBER: selects it, and counts its keys. */
static int database(Context *context, Text **words, int count) {
    int before;
    if (count != 2) return RedisModule_WrongArity(context);
    before = RedisModule_GetSelectedDb(context);
    RedisModule_ReplyWithArray(context, 4);
    RedisModule_ReplyWithLongLong(context, before);
    reply_status(context, RedisModule_SelectDb(context, (int)number_of(words[1])));
    RedisModule_ReplyWithLongLong(context, RedisModule_GetSelectedDb(context));
    reply_natural(context, RedisModule_DbSize(context));
    RedisModule_SelectDb(context, before);
    return REDISMODULE_OK;
}

/* API.REPLICATE NUMBER BYTES: commands for replicas by the letters of RM_Replicate, and by "!", which is done here too.
 */
static int replicate(Context *context, Text **words, int count) {
    size_t length;
    const char *bytes;
    if (count != 3) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    bytes = RedisModule_StringPtrLen(words[2], &length);
    RedisModule_Replicate(context, "RPUSH", "cllbsv", "replicated", number_of(words[1]), -number_of(words[1]), bytes,
                          length, words[2], words + 1, (size_t)2);
    RedisModule_Call(context, "RPUSH", "!clb", "called", number_of(words[1]), bytes, length);
    return RedisModule_ReplyWithSimpleString(context, "OK");
}

/* API.VERBATIM WORD...: appends the words to the list `verbatim`, and is replicated verbatim. */
static int replicate_verbatim(Context *context, Text **words, int count) {
    if (count < 2) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    for (int at = 1; at < count; at++) {
        RedisModuleKey *key = opened(context, RedisModule_CreateString(context, "verbatim", 8));
        RedisModule_ListPush(key, REDISMODULE_LIST_TAIL, words[at]);
        RedisModule_CloseKey(key);
    }
    RedisModule_ReplicateVerbatim(context);
    return RedisModule_ReplyWithSimpleString(context, "OK");
}

/* API.PROTOCOL COMMAND WORD...: another command's reply as the bytes of RESP. */
static int tell_protocol(Context *context, Text **words, int count) {
    RedisModuleCallReply *called;
    const char *bytes;
    size_t length;
    if (count < 3) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    called = RedisModule_Call(context, text_of(words[1]), "3v", words + 2, (size_t)count - 2);
    if (called == NULL) return RedisModule_ReplyWithError(context, "ERR not called");
    bytes = RedisModule_CallReplyProto(called, &length);
    return RedisModule_ReplyWithStringBuffer(context, bytes, length);
}

enum { BLOCKS = 64, EVENTS = 16 /* Of Redis 7.0. */ };

/* API.MEMORY: how many blocks of the pool are misaligned, how many lost their content, and whether a block is at least
 * as large as requested and keeps its content when it grows.
 */
static int use_memory(Context *context, Text **words, int count) {
    unsigned char *blocks[BLOCKS + 1], *grown;
    size_t boundary;
    int misaligned = 0, lost = 0;
    char *copy;
    (void)words;
    if (count != 1) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    for (size_t size = 1; size <= BLOCKS; size++) {
        blocks[size] = RedisModule_PoolAlloc(context, size);
        /* A word's boundary, or in a smaller block that of the next power of two. */
        for (boundary = 1; boundary < size && boundary < sizeof(void *);) boundary *= 2;
        if ((uintptr_t)blocks[size] % boundary) misaligned++;
        memset(blocks[size], (int)size, size);
    }
    for (size_t size = 1; size <= BLOCKS; size++)
        for (size_t at = 0; at < size; at++)
            if (blocks[size][at] != size) lost++;
    grown = RedisModule_TryAlloc ? RedisModule_TryAlloc(100) : NULL;
    if (grown == NULL) return RedisModule_ReplyWithError(context, "ERR no memory");
    memset(grown, 7, 100);
    grown = RedisModule_Realloc(grown, 100000);
    memset(grown + 100, 8, 100000 - 100);
    copy = RedisModule_Strdup("copied");
    RedisModule_ReplyWithArray(context, 6);
    RedisModule_ReplyWithLongLong(context, misaligned);
    RedisModule_ReplyWithLongLong(context, lost);
    RedisModule_ReplyWithLongLong(context, grown[0] == 7 && grown[99] == 7 && grown[100] == 8 && grown[99999] == 8);
    RedisModule_ReplyWithLongLong(context, RedisModule_MallocSize(grown) >= 100000);
    RedisModule_ReplyWithLongLong(context, RedisModule_MallocUsableSize(grown) >= 100000);
    RedisModule_ReplyWithCString(context, copy);
    RedisModule_Free(grown);
    RedisModule_Free(copy);
    return REDISMODULE_OK;
}

/* API.ABOUT: what a module may know of its server, and how many of its events and their parts it offers. */
static int about_server(Context *context, Text **words, int count) {
    (void)words;
    if (count != 1) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    RedisModule_ReplyWithArray(context, REDISMODULE_POSTPONED_LEN);
    RedisModule_ReplyWithLongLong(context, RedisModule_GetServerVersion());
    RedisModule_ReplyWithLongLong(context, RedisModule_GetTypeMethodVersion());
    RedisModule_ReplyWithLongLong(context, RedisModule_GetContextFlags(context));
    RedisModule_ReplyWithLongLong(context, RedisModule_GetContextFlagsAll());
    RedisModule_ReplyWithLongLong(context, RedisModule_GetKeyspaceNotificationFlagsAll());
    RedisModule_ReplyWithLongLong(context, RedisModule_GetNotifyKeyspaceEvents());
    reply_real(context, RedisModule_GetUsedMemoryRatio());
    for (uint64_t id = 0; id < EVENTS; id++) {
        RedisModuleEvent event = {id, 1};
        long long parts = 0;
        for (int bit = 0; bit < 16; bit++) parts |= (long long)RedisModule_IsSubEventSupported(event, bit) << bit;
        /* A part number beyond 32 bits: no event has such a part. */
        parts += RedisModule_IsSubEventSupported(event, INT64_C(1) << 32);
        RedisModule_ReplyWithLongLong(context, parts);
    }
    RedisModule_ReplySetArrayLength(context, 7 + EVENTS);
    return REDISMODULE_OK;
}

/* API.BYTES KEY OFFSET BYTES: writes into a string's memory, and replies with its name, its database and the string. */
static int write_bytes(Context *context, Text **words, int count) {
    RedisModuleKey *key;
    const char *bytes;
    char *memory;
    size_t length, room, at;
    if (count != 4) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    key = opened(context, words[1]);
    at = (size_t)number_of(words[2]);
    bytes = RedisModule_StringPtrLen(words[3], &length);
    memory = RedisModule_StringDMA(key, &room, REDISMODULE_READ | REDISMODULE_WRITE);
    if (memory && at <= room && length <= room - at) memcpy(memory + at, bytes, length);
    RedisModule_ReplyWithArray(context, 3);
    bytes = RedisModule_StringPtrLen(RedisModule_GetKeyNameFromModuleKey(key), &length);
    RedisModule_ReplyWithStringBuffer(context, bytes, length);
    RedisModule_ReplyWithLongLong(context, RedisModule_GetDbIdFromModuleKey(key));
    if (memory) RedisModule_ReplyWithStringBuffer(context, memory, room);
    else RedisModule_ReplyWithNull(context);
    return REDISMODULE_OK;
}

/* API.LATENCY EVENT MILLISECONDS */
static int add_latency(Context *context, Text **words, int count) {
    if (count != 3) return RedisModule_WrongArity(context);
    RedisModule_LatencyAddSample(text_of(words[1]), number_of(words[2]));
    return RedisModule_ReplyWithSimpleString(context, "OK");
}

/* API.USER RULES COMMAND WORD...: a user with these rules: how the server writes them, and whether it may give the
 * command, read the first word as a key, and publish to it as a channel.
 */
static int judge_user(Context *context, Text **words, int count) {
    RedisModuleUser *user;
    Text *described, *error = NULL;
    int status;
    if (count < 4) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    user = RedisModule_CreateModuleUser("someone");
    RedisModule_SetModuleUserACL(user, "on");
    status = RedisModule_SetModuleUserACLString(context, user, text_of(words[1]), &error);
    RedisModule_ReplyWithArray(context, 7);
    reply_status(context, status);
    reply_text(context, error);
    described = RedisModule_GetModuleUserACLString(user);
    reply_text(context, described);
    errno = 0;
    reply_status(context, RedisModule_ACLCheckCommandPermissions(user, words + 2, count - 2));
    reply_errno(context, errno);
    reply_status(context, RedisModule_ACLCheckKeyPermissions(user, words[3], REDISMODULE_CMD_KEY_ACCESS));
    reply_status(context, RedisModule_ACLCheckChannelPermissions(user, words[3], REDISMODULE_CMD_CHANNEL_PUBLISH));
    RedisModule_FreeString(NULL, described);
    RedisModule_FreeModuleUser(user);
    return REDISMODULE_OK;
}

static RedisModuleUser *guest;
static uint64_t left = UINT64_MAX;

static void change_user(uint64_t client, void *data) {
    left = client + (uint64_t)(uintptr_t)data;
}

/* API.LOGIN RULES: gives its client a user with these rules, and replies with the client's number; without rules, with
 * the number of the client that was the last to leave the user, and the user's name.
 */
static int log_in(Context *context, Text **words, int count) {
    uint64_t client = 0;
    if (count > 2) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    RedisModule_ReplyWithArray(context, 2);
    if (count == 1) {
        reply_natural(context, left);
        reply_text(context, RedisModule_GetCurrentUserName(context));
        return REDISMODULE_OK;
    }
    if (guest == NULL) guest = RedisModule_CreateModuleUser("guest");
    RedisModule_SetModuleUserACLString(context, guest, text_of(words[1]), NULL);
    reply_status(context, RedisModule_AuthenticateClientWithUser(context, guest, change_user, (void *)1, &client));
    reply_natural(context, client);
    return REDISMODULE_OK;
}

/* AUTH blocked NUMBER: a thread adds the number to `waited`, and then the client has the user of API.LOGIN. */
#ifdef REDISMODULE_AUTH_HANDLED /* Since Redis 7.2. */
static int after_wait(Context *context, Text *name, Text *password, Text **error) {
    (void)name;
    (void)password;
    (void)error;
    return RedisModule_AuthenticateClientWithUser(context, guest, NULL, NULL, NULL) == REDISMODULE_OK
               ? REDISMODULE_AUTH_HANDLED
               : REDISMODULE_AUTH_NOT_HANDLED;
}

static int authenticate(Context *context, Text *name, Text *password, Text **error) {
    struct wait *wait;
    pthread_t thread;
    (void)error;
    if (!is(name, "blocked") || guest == NULL) return REDISMODULE_AUTH_NOT_HANDLED;
    wait = RedisModule_Calloc(1, sizeof(*wait));
    wait->number = number_of(password);
    wait->client = RedisModule_BlockClientOnAuth(context, after_wait, after_answer);
    if (pthread_create(&thread, NULL, answer_later, wait) != 0) abort();
    pthread_detach(thread);
    return REDISMODULE_AUTH_HANDLED;
}
#endif

/* How the last child ended: its status, the signal, and the data given for it. */
static long long ended[3];

static void on_end(int status, int signal, void *data) {
    ended[0] = status;
    ended[1] = signal;
    ended[2] = (long long)(intptr_t)data;
}

/* API.FORK STATUS MILLISECONDS: a child reports that it is a quarter done, and ends with this status after this time;
 * API.FORK: how the last child ended; API.FORK CHILD: ends the child.
 */
static int fork_child(Context *context, Text **words, int count) {
    int child, status;
    if (count > 3) return RedisModule_WrongArity(context);
    if (count == 2) {
        reply_status(context, RedisModule_KillForkChild((int)number_of(words[1])));
        return REDISMODULE_OK;
    }
    if (count == 1) {
        RedisModule_ReplyWithArray(context, 3);
        for (int at = 0; at < 3; at++) RedisModule_ReplyWithLongLong(context, ended[at]);
        return REDISMODULE_OK;
    }
    status = (int)number_of(words[1]);
    child = RedisModule_Fork(on_end, (void *)(intptr_t)(-1 - status));
    if (child == 0) {
        RedisModule_SendChildHeartbeat(0.25);
        usleep((useconds_t)(1000 * number_of(words[2])));
        RedisModule_ExitFromChild(status);
    }
    return RedisModule_ReplyWithLongLong(context, child);
}

struct pipe {
    int ends[2];
    int64_t number;
};

static void on_readable(int end, void *data, int mask) {
    struct pipe *pipe = data;
    int64_t number = 0;
    if (read(end, &number, sizeof(number)) == sizeof(number)) happened("%s:%lld ", "readable", number + mask);
    RedisModule_EventLoopDel(end, REDISMODULE_EVENTLOOP_READABLE);
    close(pipe->ends[0]);
    close(pipe->ends[1]);
    RedisModule_Free(pipe);
}

static void write_once(void *data) {
    struct pipe *pipe = data;
    happened("%s:%lld ", "once", pipe->number);
    if (write(pipe->ends[1], &pipe->number, sizeof(pipe->number)) != sizeof(pipe->number)) abort();
}

/* API.LOOP NUMBER: the server's event loop writes a number into a pipe and reads it, which API.EVENTS reports. */
static int use_loop(Context *context, Text **words, int count) {
    struct pipe *made;
    if (count != 2) return RedisModule_WrongArity(context);
    made = RedisModule_Calloc(1, sizeof(*made));
    made->number = number_of(words[1]);
    if (pipe(made->ends) != 0) {
        RedisModule_Free(made);
        return RedisModule_ReplyWithError(context, "ERR no pipe");
    }
    reply_status(context, RedisModule_EventLoopAdd(made->ends[0], REDISMODULE_EVENTLOOP_READABLE, on_readable, made));
    RedisModule_EventLoopAddOneShot(write_once, made);
    return REDISMODULE_OK;
}

static int on_ready(Context *context, Text **words, int count) {
    Text *name = RedisModule_GetBlockedClientReadyKey(context);
    RedisModuleKey *key = RedisModule_OpenKey(context, name, REDISMODULE_READ);
    size_t length = key ? RedisModule_ValueLength(key) : 0;
    (void)words;
    (void)count;
    if (key) RedisModule_CloseKey(key);
    /* The client continues to wait. */
    if (length < 2) return REDISMODULE_ERR;
    RedisModule_ReplyWithArray(context, 3);
    RedisModule_ReplyWithString(context, name);
    RedisModule_ReplyWithLongLong(context, (long long)length);
    RedisModule_ReplyWithLongLong(context, RedisModule_IsBlockedReplyRequest(context));
    return REDISMODULE_OK;
}

/* API.AWAIT TIMEOUT KEY...: until one of the lists or strings has two elements or bytes. */
static int await_key(Context *context, Text **words, int count) {
    if (count < 3) return RedisModule_WrongArity(context);
    RedisModule_BlockClientOnKeys(context, on_ready, on_timeout, after_answer, number_of(words[1]), words + 2,
                                  count - 2, RedisModule_Alloc(1));
    return REDISMODULE_OK;
}

/* API.READY KEY: makes the clients that wait for the key check it again. */
static int make_ready(Context *context, Text **words, int count) {
    if (count != 2) return RedisModule_WrongArity(context);
    RedisModule_SignalKeyAsReady(context, words[1]);
    return RedisModule_ReplyWithSimpleString(context, "OK");
}

/* API.KEYS COMMAND WORD...: the positions of a command's keys, each with its flags. */
static int find_keys(Context *context, Text **words, int count) {
    int found = 0, *positions, *flags = NULL;
    if (count < 2) return RedisModule_WrongArity(context);
    errno = 0;
    positions = RedisModule_GetCommandKeysWithFlags(context, words + 1, count - 1, &found, &flags);
    if (positions == NULL) {
        reply_errno(context, errno);
        return REDISMODULE_OK;
    }
    RedisModule_ReplyWithArray(context, 2L * found);
    for (int at = 0; at < found; at++) {
        RedisModule_ReplyWithLongLong(context, positions[at]);
        RedisModule_ReplyWithLongLong(context, flags[at]);
    }
    RedisModule_Free(positions);
    RedisModule_Free(flags);
    return REDISMODULE_OK;
}

/* API.SOURCE.OF WORD KEY...: reports its keys when the server requests them. */
static int tell_keys(Context *context, Text **words, int count) {
    if (RedisModule_IsKeysPositionRequest(context)) {
        RedisModule_KeyAtPosWithFlags(context, 2, REDISMODULE_CMD_KEY_OW | REDISMODULE_CMD_KEY_UPDATE);
        for (int at = 3; at < count; at++) RedisModule_KeyAtPos(context, at);
        return REDISMODULE_OK;
    }
    return echo(context, words, count);
}

static int describe(Context *context) {
    static RedisModuleCommandHistoryEntry history[] = {{"1.0", "first"}, {"2.0", "second"}, {0}};
    static RedisModuleCommandKeySpec keys[] = {
        {.notes = "by position",
         .flags = REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_VARIABLE_FLAGS,
         .begin_search_type = REDISMODULE_KSPEC_BS_INDEX,
         .bs.index.pos = 1,
         .find_keys_type = REDISMODULE_KSPEC_FK_RANGE,
         .fk.range = {0, 1, 0}},
        {.flags = REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_INSERT,
         .begin_search_type = REDISMODULE_KSPEC_BS_KEYWORD,
         .bs.keyword = {"TO", 2},
         .find_keys_type = REDISMODULE_KSPEC_FK_RANGE,
         .fk.range = {-1, 1, 0}},
        {.flags = REDISMODULE_CMD_KEY_RM | REDISMODULE_CMD_KEY_NOT_KEY,
         .begin_search_type = REDISMODULE_KSPEC_BS_KEYWORD,
         .bs.keyword = {"NUMBER", -2},
         .find_keys_type = REDISMODULE_KSPEC_FK_KEYNUM,
         .fk.keynum = {0, 1, 1}},
        {0}};
    static RedisModuleCommandArg either[] = {
        {.name = "whole", .type = REDISMODULE_ARG_TYPE_INTEGER, .key_spec_index = -1},
        {.name = "real", .type = REDISMODULE_ARG_TYPE_DOUBLE, .key_spec_index = -1, .token = "REAL"},
        {0}};
    static RedisModuleCommandArg words[] = {
        {.name = "source", .type = REDISMODULE_ARG_TYPE_KEY, .key_spec_index = 0},
        {.name = "number",
         .type = REDISMODULE_ARG_TYPE_ONEOF,
         .key_spec_index = -1,
         .flags = REDISMODULE_CMD_ARG_OPTIONAL | REDISMODULE_CMD_ARG_MULTIPLE,
         .since = "2.0",
         .subargs = either},
        {0}};
    const RedisModuleCommandInfo info = {.version = REDISMODULE_COMMAND_INFO_VERSION,
                                         .summary = "Does nothing",
                                         .complexity = "O(1)",
                                         .since = "1.0",
                                         .history = history,
                                         .tips = "first_tip second_tip:with_more",
                                         .arity = -2,
                                         .key_specs = keys,
                                         .args = words};
    if (RedisModule_CreateCommand(context, "api.source", NULL, "", 0, 0, 0) != REDISMODULE_OK ||
        RedisModule_CreateCommand(context, "api.source.of", tell_keys, "getkeys-api", 1, 1, 1) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    if (RedisModule_CreateSubcommand(RedisModule_GetCommand(context, "api.source"), "part", echo, "readonly fast", 2,
                                     -1, 2) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    return RedisModule_CreateCommand(context, "api.described", echo, "write", 0, 0, 0) == REDISMODULE_OK
               ? RedisModule_SetCommandInfo(RedisModule_GetCommand(context, "api.described"), &info)
               : REDISMODULE_ERR;
}

struct message {
    char sender[REDISMODULE_NODE_ID_LEN];
    uint64_t sum;
    uint32_t length;
    uint8_t kind;
};

static struct message messages[600];
static size_t heard;

static void hear(Context *context, const char *sender, uint8_t kind, const unsigned char *payload, uint32_t length) {
    struct message *message = &messages[heard];
    (void)context;
    if (heard == sizeof(messages) / sizeof(*messages)) return;
    *message = (struct message){.length = length, .kind = kind};
    memcpy(message->sender, sender, sizeof(message->sender));
    for (uint32_t at = 0; at < length; at++) message->sum = message->sum * 31 + payload[at];
    heard++;
}

/* API.SEND NODE KIND PAYLOAD: sends a message to a node of the cluster, or to all with NODE "*". */
static int send_message(Context *context, Text **words, int count) {
    size_t length;
    const char *payload;
    if (count != 4) return RedisModule_WrongArity(context);
    payload = RedisModule_StringPtrLen(words[3], &length);
    reply_status(context, RedisModule_SendClusterMessage(context, is(words[1], "*") ? NULL : text_of(words[1]),
                                                         (uint8_t)number_of(words[2]), payload, (uint32_t)length));
    return REDISMODULE_OK;
}

/* API.HEAR KIND: also receives messages of this kind. From the start it receives every kind but the last. */
static int hear_kind(Context *context, Text **words, int count) {
    if (count != 2) return RedisModule_WrongArity(context);
    RedisModule_RegisterClusterMessageReceiver(context, (uint8_t)number_of(words[1]), hear);
    return RedisModule_ReplyWithSimpleString(context, "OK");
}

/* API.HEARD: sender, kind, length and sum of every message since the last request. */
static int tell_heard(Context *context, Text **words, int count) {
    (void)words;
    if (count != 1) return RedisModule_WrongArity(context);
    RedisModule_ReplyWithArray(context, 4 * (long)heard);
    for (size_t at = 0; at < heard; at++) {
        RedisModule_ReplyWithStringBuffer(context, messages[at].sender, sizeof(messages[at].sender));
        RedisModule_ReplyWithLongLong(context, messages[at].kind);
        RedisModule_ReplyWithLongLong(context, messages[at].length);
        reply_natural(context, messages[at].sum);
    }
    heard = 0;
    return REDISMODULE_OK;
}

/* API.NODE IDENTIFIER: port and flags of a node of the cluster, the number of nodes, and the node's own identifier. */
static int tell_node(Context *context, Text **words, int count) {
    char address[64] = "", primary[REDISMODULE_NODE_ID_LEN + 1] = "";
    int port = -1, flags = -1;
    size_t nodes = 0;
    char **names;
    if (count != 2) return RedisModule_WrongArity(context);
    RedisModule_ReplyWithArray(context, 7);
    reply_status(context,
                 RedisModule_GetClusterNodeInfo(context, text_of(words[1]), address, primary, &port, &flags));
    RedisModule_ReplyWithCString(context, address);
    RedisModule_ReplyWithLongLong(context, port);
    RedisModule_ReplyWithLongLong(context, flags);
    names = RedisModule_GetClusterNodesList(context, &nodes);
    RedisModule_FreeClusterNodesList(names);
    RedisModule_ReplyWithLongLong(context, (long long)nodes);
    RedisModule_ReplyWithLongLong(context, (long long)RedisModule_GetClusterSize());
    return RedisModule_ReplyWithStringBuffer(context, RedisModule_GetMyClusterID(), REDISMODULE_NODE_ID_LEN);
}

static long long any, memory, few;
static int flag, one, several;
static Text *words_kept;

static long long get_number(const char *name, void *data) {
    (void)name;
    return *(long long *)data;
}

static int set_number(const char *name, long long value, void *data, Text **error) {
    (void)name;
    (void)error;
    *(long long *)data = value;
    return REDISMODULE_OK;
}

static int get_int(const char *name, void *data) {
    (void)name;
    return *(int *)data;
}

static int set_int(const char *name, int value, void *data, Text **error) {
    (void)name;
    (void)error;
    *(int *)data = value;
    return REDISMODULE_OK;
}

static Text *get_text(const char *name, void *data) {
    (void)name;
    return *(Text **)data;
}

static int set_text(const char *name, Text *value, void *data, Text **error) {
    (void)name;
    (void)error;
    if (words_kept) RedisModule_FreeString(NULL, words_kept);
    RedisModule_RetainString(NULL, value);
    *(Text **)data = value;
    return REDISMODULE_OK;
}

static int configure(Context *context) {
    static const char *names[] = {"least", "none", "most"};
    static const int values[] = {INT32_MIN + 1, 0, INT32_MAX};
    /* INT32_MIN is the server's mark for an unknown name. */
    static const char *bits[] = {"first", "middle", "last"};
    static const int positions[] = {1, 1 << 16, 1 << 30};
    int failed = 0;
    failed |= RedisModule_RegisterNumericConfig(context, "any", -4294967297, REDISMODULE_CONFIG_DEFAULT, INT64_MIN,
                                                INT64_MAX, get_number, set_number, NULL, &any);
    failed |= RedisModule_RegisterNumericConfig(context, "few", INT64_C(5000000000), REDISMODULE_CONFIG_DEFAULT,
                                                INT64_C(4294967296), INT64_C(1) << 40, get_number, set_number, NULL,
                                                &few);
    failed |= RedisModule_RegisterNumericConfig(context, "memory", INT64_C(1) << 33, REDISMODULE_CONFIG_MEMORY, 0,
                                                INT64_MAX, get_number, set_number, NULL, &memory);
    failed |= RedisModule_RegisterBoolConfig(context, "flag", 1, REDISMODULE_CONFIG_DEFAULT, get_int, set_int, NULL,
                                             &flag);
    failed |= RedisModule_RegisterEnumConfig(context, "one", INT32_MIN + 1, REDISMODULE_CONFIG_DEFAULT, names, values, 3,
                                             get_int, set_int, NULL, &one);
    failed |= RedisModule_RegisterEnumConfig(context, "several", 1, REDISMODULE_CONFIG_BITFLAGS, bits, positions, 3,
                                             get_int, set_int, NULL, &several);
    failed |= RedisModule_RegisterStringConfig(context, "text", "default text", REDISMODULE_CONFIG_DEFAULT, get_text,
                                               set_text, NULL, &words_kept);
    return failed || RedisModule_LoadConfigs(context) != REDISMODULE_OK ? REDISMODULE_ERR : REDISMODULE_OK;
}

/* It returns nothing in Redis 7, and a number in Redis 8. */
static int defragment(RedisModuleDefragCtx *context) {
    (void)context;
    return 0;
}

static int subscribe(Context *context) {
    return RedisModule_SubscribeToKeyspaceEvents(context, REDISMODULE_NOTIFY_ALL | REDISMODULE_NOTIFY_KEY_MISS,
                                                 key_event) != REDISMODULE_OK ||
                   RedisModule_SubscribeToServerEvent(context, RedisModuleEvent_FlushDB, server_event) !=
                       REDISMODULE_OK ||
                   RedisModule_SubscribeToServerEvent(context, RedisModuleEvent_SwapDB, server_event) !=
                       REDISMODULE_OK ||
                   RedisModule_SubscribeToServerEvent(context, RedisModuleEvent_Config, server_event) !=
                       REDISMODULE_OK
               ? REDISMODULE_ERR
               : REDISMODULE_OK;
}

/* The name under which the module is loaded: its first argument, which it reads before the API is there. A name of nine
 * characters gives a module an identifier of its own; all others share one.
 */
static const char *name_of_module(Context *context, Text **words, int count) {
    if (count == 0) return "moduleapi";
    RedisModule_GetApi = (int (*)(const char *, void *))(uintptr_t)((void **)context)[0];
    RedisModule_GetApi("RedisModule_StringPtrLen", (void *)&RedisModule_StringPtrLen);
    return text_of(words[0]);
}

int RedisModule_OnLoad(Context *context, Text **words, int count) {
    static const struct {
        const char *name;
        int (*function)(Context *, Text **, int);
    } commands[] = {
        {"api.about", about_server},    {"api.await", await_key},
        {"api.block", block},           {"api.bytes", write_bytes},
        {"api.call", call},             {"api.client", name_client},
        {"api.clock", tell_clock},      {"api.compose", compose},
        {"api.convert", convert},       {"api.database", database},
        {"api.dict", dictionary},       {"api.dict.c", dictionary_of_bytes},
        {"api.echo", echo},             {"api.events", tell_events},
        {"api.fork", fork_child},       {"api.hash.expiry", hash_expiry},
        {"api.hash.get", hash_get},     {"api.hash.set", hash_set},
        {"api.hear", hear_kind},        {"api.heard", tell_heard},
        {"api.key", key_facts},         {"api.key.set", key_set},
        {"api.keys", find_keys},        {"api.latency", add_latency},
        {"api.list", list},             {"api.login", log_in},
        {"api.loop", use_loop},         {"api.memory", use_memory},
        {"api.mix", mix},               {"api.node", tell_node},
        {"api.pass", pass},             {"api.protocol", tell_protocol},
        {"api.random", random_bytes},   {"api.ready", make_ready},
        {"api.replicate", replicate},   {"api.reply", reply},
        {"api.scan", scan_all},         {"api.send", send_message},
        {"api.server", server_info},    {"api.stream.add", stream_add},
        {"api.stream.cut", stream_cut}, {"api.stream.range", stream_range},
        {"api.tick", count_ticks},      {"api.timer", timer},
        {"api.user", judge_user},       {"api.verbatim", replicate_verbatim},
        {"api.zset.add", zset_change},  {"api.zset.incr", zset_change},
        {"api.zset.range", zset_range}, {"api.zset.rem", zset_remove},
    };
    if (RedisModule_Init(context, name_of_module(context, words, count), 1, REDISMODULE_APIVER_1) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    for (size_t at = 0; at < sizeof(commands) / sizeof(*commands); at++)
        if (RedisModule_CreateCommand(context, commands[at].name, commands[at].function, "write", 0, 0, 0) !=
            REDISMODULE_OK)
            return REDISMODULE_ERR;
    for (int kind = 0; kind < UINT8_MAX; kind++)
        RedisModule_RegisterClusterMessageReceiver(context, (uint8_t)kind, hear);
    if (RedisModule_RegisterCommandFilter(context, rewrite, 0) == NULL ||
        RedisModule_RegisterInfoFunc(context, tell_info) != REDISMODULE_OK ||
        RedisModule_RegisterDefragFunc(context, (void *)defragment) != REDISMODULE_OK ||
        subscribe(context) != REDISMODULE_OK || describe(context) != REDISMODULE_OK)
        return REDISMODULE_ERR;
#ifdef REDISMODULE_AUTH_HANDLED
    RedisModule_RegisterAuthCallback(context, authenticate);
#endif
    info_name = RedisModule_CreateString(NULL, "\x80 string", 8);
    return configure(context);
}
