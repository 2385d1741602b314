/* A module with its own data type, for any server with the module API of Redis 5.0.6. Every machine must load the data that
 * the module saves through the API on another. It is compiled for the target against the header of the server's tree.
 *
 * PLUMB.SET KEY SIGNED UNSIGNED DOUBLE TEXT, PLUMB.GET KEY. PLUMB.NOTE TEXT and PLUMB.NOTE: write and read a note, which
 * is auxiliary data of an RDB file. PLUMB.PACK KEY and PLUMB.UNPACK KEY BYTES: convert a value to a string, and back.
 * PLUMB.UNLINKED: the total effort of freeing the values that were unlinked. PLUMB.PUSH KEY NUMBER: appends the number, a
 * text, and the opposite number to a list, by a call of another command.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redismodule.h"

/* Since Redis 6.0, as is this event. */
#ifdef REDISMODULE_EVENT_LOADING_PROGRESS
#define SAVES_LONG_DOUBLES
#endif

enum { ENCODING = 3, NOTE_BYTES = 64, MEMORY_USAGE = 1 << 20 };

struct value {
    int64_t whole;
    uint64_t natural;
    double real;
    float small;
    long double long_real;
    RedisModuleString *text;
};

static RedisModuleType *type;
static char note[NOTE_BYTES];
static uint64_t noted;

static void save(RedisModuleIO *io, void *content) {
    const struct value *value = content;
    RedisModule_SaveSigned(io, value->whole);
    RedisModule_SaveUnsigned(io, value->natural);
    RedisModule_SaveDouble(io, value->real);
    RedisModule_SaveFloat(io, value->small);
#ifdef SAVES_LONG_DOUBLES
    RedisModule_SaveLongDouble(io, value->long_real);
#endif
    RedisModule_SaveString(io, value->text);
}

static void *load(RedisModuleIO *io, int version) {
    struct value *value;
    /* RM_LoadDataTypeFromString passes no version. */
    if (version != ENCODING && version != 0) return NULL;
    value = RedisModule_Calloc(1, sizeof(*value));
    value->whole = RedisModule_LoadSigned(io);
    value->natural = RedisModule_LoadUnsigned(io);
    value->real = RedisModule_LoadDouble(io);
    value->small = RedisModule_LoadFloat(io);
#ifdef SAVES_LONG_DOUBLES
    value->long_real = RedisModule_LoadLongDouble(io);
#else
    value->long_real = value->real;
#endif
    value->text = RedisModule_LoadString(io);
    return value;
}

static void release(void *content) {
    struct value *value = content;
    RedisModule_FreeString(NULL, value->text);
    RedisModule_Free(value);
}

static void rewrite(RedisModuleIO *io, RedisModuleString *key, void *content) {
    const struct value *value = content;
    char real[40];
    snprintf(real, sizeof(real), "%.17g", value->real);
    char natural[24];
    snprintf(natural, sizeof(natural), "%" PRIu64, value->natural);
    RedisModule_EmitAOF(io, "PLUMB.SET", "slccs", key, (long long)value->whole, natural, real, value->text);
}

static size_t memory_usage(const void *content) {
    size_t length;
    RedisModule_StringPtrLen(((const struct value *)content)->text, &length);
    return MEMORY_USAGE + length;
}

static void digest(RedisModuleDigest *md, void *content) {
    const struct value *value = content;
    size_t length;
    const char *text = RedisModule_StringPtrLen(value->text, &length);
    RedisModule_DigestAddLongLong(md, value->whole);
    RedisModule_DigestAddStringBuffer(md, (void *)text, length);
    RedisModule_DigestEndSequence(md);
}

static long long effort;

/* Since Redis 6.2. */
#if REDISMODULE_TYPE_METHOD_VERSION >= 3
static size_t free_effort(RedisModuleString *key, const void *content) {
    size_t length;
    (void)key;
    RedisModule_StringPtrLen(((const struct value *)content)->text, &length);
    return length;
}

static void unlinked(RedisModuleString *key, const void *content) {
    effort += (long long)free_effort(key, content);
}

static void *copy(RedisModuleString *from, RedisModuleString *to, const void *content) {
    struct value *made = RedisModule_Alloc(sizeof(*made));
    (void)from;
    (void)to;
    *made = *(const struct value *)content;
    RedisModule_RetainString(NULL, made->text);
    return made;
}
#endif

static void save_note(RedisModuleIO *io, int when) {
    RedisModule_SaveUnsigned(io, (uint64_t)when);
    RedisModule_SaveUnsigned(io, noted);
    RedisModule_SaveStringBuffer(io, note, strlen(note));
}

static int load_note(RedisModuleIO *io, int version, int when) {
    size_t length;
    char *text;
    if (version != ENCODING || RedisModule_LoadUnsigned(io) != (uint64_t)when) return REDISMODULE_ERR;
    noted = RedisModule_LoadUnsigned(io);
    text = RedisModule_LoadStringBuffer(io, &length);
    if (length >= sizeof(note)) return REDISMODULE_ERR;
    memcpy(note, text, length);
    note[length] = 0;
    RedisModule_Free(text);
    return REDISMODULE_OK;
}

static int set(RedisModuleCtx *context, RedisModuleString **words, int count) {
    RedisModuleKey *key;
    struct value *value;
    long long whole;
    double real;
    char *end;
    if (count != 6) return RedisModule_WrongArity(context);
    errno = 0;
    uint64_t natural = strtoull(RedisModule_StringPtrLen(words[3], NULL), &end, 10);
    if (errno || *end || RedisModule_StringToLongLong(words[2], &whole) != REDISMODULE_OK ||
        RedisModule_StringToDouble(words[4], &real) != REDISMODULE_OK)
        return RedisModule_ReplyWithError(context, "ERR not a number");
    key = RedisModule_OpenKey(context, words[1], REDISMODULE_READ | REDISMODULE_WRITE);
    value = RedisModule_Calloc(1, sizeof(*value));
    value->whole = whole;
    value->natural = natural;
    value->real = real;
    value->small = (float)real;
    value->long_real = real;
    value->text = words[5];
    RedisModule_RetainString(NULL, value->text);
    RedisModule_ModuleTypeSetValue(key, type, value);
    RedisModule_CloseKey(key);
    RedisModule_ReplicateVerbatim(context);
    return RedisModule_ReplyWithSimpleString(context, "OK");
}

static void reply_with_number(RedisModuleCtx *context, const char *format, double number) {
    char text[48];
    RedisModule_ReplyWithStringBuffer(context, text, (size_t)snprintf(text, sizeof(text), format, number));
}

static int get(RedisModuleCtx *context, RedisModuleString **words, int count) {
    RedisModuleKey *key;
    const struct value *value;
    char natural[24];
    if (count != 2) return RedisModule_WrongArity(context);
    key = RedisModule_OpenKey(context, words[1], REDISMODULE_READ);
    if (key == NULL || RedisModule_ModuleTypeGetType(key) != type) {
        if (key) RedisModule_CloseKey(key);
        return RedisModule_ReplyWithNull(context);
    }
    value = RedisModule_ModuleTypeGetValue(key);
    RedisModule_ReplyWithArray(context, 6);
    RedisModule_ReplyWithLongLong(context, value->whole);
    snprintf(natural, sizeof(natural), "%" PRIu64, value->natural);
    RedisModule_ReplyWithStringBuffer(context, natural, strlen(natural));
    reply_with_number(context, "%.17g", value->real);
    reply_with_number(context, "%.9g", value->small);
    reply_with_number(context, "%.17g", (double)value->long_real);
    RedisModule_ReplyWithString(context, value->text);
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

static int keep_note(RedisModuleCtx *context, RedisModuleString **words, int count) {
    const char *text;
    size_t length;
    if (count > 2) return RedisModule_WrongArity(context);
    if (count == 2) {
        text = RedisModule_StringPtrLen(words[1], &length);
        if (length >= sizeof(note)) return RedisModule_ReplyWithError(context, "ERR a note is shorter");
        memcpy(note, text, length);
        note[length] = 0;
        noted += UINT64_C(1) << 40;
    }
    RedisModule_ReplyWithArray(context, 2);
    RedisModule_ReplyWithLongLong(context, (long long)noted);
    return RedisModule_ReplyWithStringBuffer(context, note, strlen(note));
}

static int pack(RedisModuleCtx *context, RedisModuleString **words, int count) {
    RedisModuleKey *key;
    if (count != 2) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    key = RedisModule_OpenKey(context, words[1], REDISMODULE_READ);
    if (RedisModule_ModuleTypeGetType(key) != type) return RedisModule_ReplyWithNull(context);
    return RedisModule_ReplyWithString(
        context, RedisModule_SaveDataTypeToString(context, RedisModule_ModuleTypeGetValue(key), type));
}

static int unpack(RedisModuleCtx *context, RedisModuleString **words, int count) {
    RedisModuleKey *key;
    void *content;
    if (count != 3) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    content = RedisModule_LoadDataTypeFromString(words[2], type);
    if (content == NULL) return RedisModule_ReplyWithError(context, "ERR not a value");
    key = RedisModule_OpenKey(context, words[1], REDISMODULE_READ | REDISMODULE_WRITE);
    RedisModule_ModuleTypeSetValue(key, type, content);
    return RedisModule_ReplyWithSimpleString(context, "OK");
}

/* Numbers of 64 bits among pointers, which some machines pass in pairs of registers. */
static int push(RedisModuleCtx *context, RedisModuleString **words, int count) {
    RedisModuleCallReply *reply;
    long long number;
    if (count != 3) return RedisModule_WrongArity(context);
    RedisModule_AutoMemory(context);
    if (RedisModule_StringToLongLong(words[2], &number) != REDISMODULE_OK)
        return RedisModule_ReplyWithError(context, "ERR not a number");
    reply = RedisModule_Call(context, "RPUSH", "slcl", words[1], number, "text", -number);
    if (reply == NULL) return RedisModule_ReplyWithError(context, "ERR not called");
    return RedisModule_ReplyWithCallReply(context, reply);
}

static int tell_unlinked(RedisModuleCtx *context, RedisModuleString **words, int count) {
    (void)words;
    if (count != 1) return RedisModule_WrongArity(context);
    return RedisModule_ReplyWithLongLong(context, effort);
}

int RedisModule_OnLoad(RedisModuleCtx *context, RedisModuleString **words, int count) {
    RedisModuleTypeMethods methods = {
        .version = REDISMODULE_TYPE_METHOD_VERSION,
        .rdb_load = load,
        .rdb_save = save,
        .aof_rewrite = rewrite,
        .free = release,
        .mem_usage = memory_usage,
        .digest = digest,
#if REDISMODULE_TYPE_METHOD_VERSION >= 3
        .free_effort = free_effort,
        .unlink = unlinked,
        .copy = copy,
#endif
        .aux_load = load_note,
        .aux_save = save_note,
        .aux_save_triggers = REDISMODULE_AUX_BEFORE_RDB | REDISMODULE_AUX_AFTER_RDB,
    };
    (void)words;
    (void)count;
    if (RedisModule_Init(context, "plumb", 1, REDISMODULE_APIVER_1) != REDISMODULE_OK) return REDISMODULE_ERR;
    type = RedisModule_CreateDataType(context, "plumbline", ENCODING, &methods);
    if (type == NULL) return REDISMODULE_ERR;
    if (RedisModule_CreateCommand(context, "plumb.set", set, "write deny-oom", 1, 1, 1) != REDISMODULE_OK ||
        RedisModule_CreateCommand(context, "plumb.get", get, "readonly", 1, 1, 1) != REDISMODULE_OK ||
        RedisModule_CreateCommand(context, "plumb.note", keep_note, "write", 0, 0, 0) != REDISMODULE_OK ||
        RedisModule_CreateCommand(context, "plumb.push", push, "write deny-oom", 1, 1, 1) != REDISMODULE_OK ||
        RedisModule_CreateCommand(context, "plumb.pack", pack, "readonly", 1, 1, 1) != REDISMODULE_OK ||
        RedisModule_CreateCommand(context, "plumb.unpack", unpack, "write deny-oom", 1, 1, 1) != REDISMODULE_OK ||
        RedisModule_CreateCommand(context, "plumb.unlinked", tell_unlinked, "readonly", 0, 0, 0) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    return REDISMODULE_OK;
}
