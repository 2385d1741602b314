"""Requests whose replies must not depend on the width of `long`, `size_t` and `time_t`, or on the sign of `char`. They
are in groups. A target may refuse a request because its number does not fit a 32-bit `long`;
no other request reads what such a request changes. The groups cover every number in harness/protocol/refusals.toml. The
expected replies are those of the native build. If the documentation specifies a reply, test_width.py states it.
"""

from __future__ import annotations

from typing import Any

Requests = list[tuple[Any, ...]]

WORDS = [(1 << bits) + offset for bits in (7, 8, 15, 16, 31, 32, 33, 53, 62, 63) for offset in (-1, 0, 1)]
"""Numbers around every limit of signed and unsigned words of 8 to 64 bits, and of the integers that a double holds
exactly.
"""
SIGNED = sorted({n for word in WORDS for n in (word, -word)} | {0})
SMALL = list(range(-130, -120)) + list(range(-5, 5)) + list(range(120, 260))
"""Numbers for which a byte's sign matters."""
LONG_TEXT = "0123456789" * 10


def groups() -> dict[str, Requests]:
    """Name -> the requests. A server that does not know one refuses it on every machine."""
    return {
        "offsets of bits": _bit_offsets(),
        "offsets of bytes": _byte_offsets(),
        "indices of lists": _list_indices(),
        "ranks and limits": _ranks(),
        "counters": _counters(),
        "small numbers in every encoding": _small_numbers(),
        "counts of scans": _counts(),
        "counts, limits and numbers of keys": _how_many(),
        "settings": _settings(),
        "times": _times(),
        "numbers of scripts": _scripts(),
        "identifiers of streams": _streams(),
    }


def _bit_offsets() -> Requests:
    reading: Requests = [("SET", "k", LONG_TEXT)]
    for n in SIGNED:
        reading += [("GETBIT", "k", n), ("BITCOUNT", "k", n, -1), ("BITCOUNT", "k", 0, n)]
        reading += [("BITPOS", "k", 1, n), ("BITPOS", "k", 0, 0, n), ("GETBIT", "none", n)]
    writing: Requests = [("SETBIT", "k", n, 1) for n in SIGNED if not 0 <= n < 1 << 32]
    fields: Requests = [("BITFIELD", "k", "GET", "u8", n) for n in SIGNED]
    fields += [("BITFIELD", "k", "GET", "i5", f"#{n}") for n in SIGNED]
    by_bit: Requests = [("BITCOUNT", "k", a, n, "BIT") for n in SIGNED for a in (0, n)]
    by_bit += [("BITPOS", "k", 1, n, -1, "BIT") for n in SIGNED]
    return [*reading, *writing, *fields, ("SET", "k", LONG_TEXT), *by_bit]


def _byte_offsets() -> Requests:
    chosen: Requests = [("SET", "k", LONG_TEXT)]
    for n in SIGNED:
        chosen += [("GETRANGE", "k", n, -1), ("GETRANGE", "k", 0, n), ("GETRANGE", "k", n, n)]
    # Servers refuse a string beyond the size limit. Its length must not wrap to a short one.
    chosen += [("SETRANGE", "k", n, "x") for n in SIGNED if not 0 <= n < 1 << 29] + [("GET", "k")]
    return chosen


def _list_indices() -> Requests:
    chosen: Requests = [("RPUSH", "l", *"abcdef")]
    for n in SIGNED:
        chosen += [("LINDEX", "l", n), ("LRANGE", "l", n, -1), ("LRANGE", "l", 0, n), ("LREM", "l", n, "none")]
        # Some 64-bit releases cut the index to 32 bits (docs/FOUND.md): test_width.py tests the other indices.
        if -(1 << 31) <= n < -6 or 6 <= n < 1 << 31:
            chosen += [("LSET", "l", n, "x")]
    chosen += [("LTRIM", "l", 0, n) for n in SIGNED if n >= 5] + [("LRANGE", "l", 0, -1)]
    popping = [
        ("RPUSH", "l", *"abcdef"),
        ("LPOS", "l", "b", "RANK", (1 << 31) + 1),
        ("LPOS", "l", "b", "MAXLEN", 1 << 32),
    ]
    return chosen + popping


def _ranks() -> Requests:
    chosen: Requests = [("ZADD", "z", *[part for n in range(6) for part in (n, f"m{n}")])]
    for n in SIGNED:
        chosen += [("ZRANGE", "z", n, -1), ("ZREVRANGE", "z", 0, n), ("ZRANGEBYSCORE", "z", n, "+inf")]
        chosen += [("ZRANGEBYSCORE", "z", "-inf", "+inf", "LIMIT", n, 2), ("ZCOUNT", "z", "-inf", n)]
        chosen += [("ZRANGEBYSCORE", "z", "-inf", "+inf", "LIMIT", 1, n), ("ZREMRANGEBYRANK", "z", n, -100)]
    chosen += [("RPUSH", "sorted", 3, 1, 2)]
    chosen += [("SORT", "sorted", "LIMIT", n, 2) for n in SIGNED] + [("SORT", "sorted", "LIMIT", 0, n) for n in SIGNED]
    return chosen


def _counters() -> Requests:
    chosen: Requests = []
    for n in SIGNED:
        chosen += [("SET", "n", n), ("INCR", "n"), ("SET", "n", n), ("DECR", "n"), ("DEL", "n"), ("INCRBY", "n", n)]
        chosen += [
            ("DECRBY", "n", n),
            ("GET", "n"),
            ("HSET", "h", "f", n),
            ("HINCRBY", "h", "f", -1),
            ("HGET", "h", "f"),
        ]
        chosen += [("HSET", "h", "sum", 1 if n < 0 else -1), ("HINCRBY", "h", "sum", n), ("HGET", "h", "sum")]
        chosen += [("ZADD", "z", n, "m"), ("ZSCORE", "z", "m"), ("ZINCRBY", "z", 1, "m")]
        # INCRBYFLOAT uses `long double`: 64 bits on 32-bit ARM, 80 or 128 elsewhere. All hold whole numbers up to 2^52.
        chosen += [("SET", "f", n), ("INCRBYFLOAT", "f", 1)] if abs(n) <= 1 << 52 else []
    return chosen


def _small_numbers() -> Requests:
    chosen: Requests = []
    numbers = SMALL + SIGNED
    for name, add, show in (
        ("l", ("RPUSH", "l", *numbers), ("LRANGE", "l", 0, -1)),
        ("z", ("ZADD", "z", *[part for n in numbers for part in (n, n)]), ("ZRANGE", "z", 0, -1, "WITHSCORES")),
        ("h", ("HMSET", "h", *[part for n in numbers for part in (n, n)]), ("HGET", "h", -128)),
    ):
        chosen += [("DEL", name), add, show, ("DUMP", name)]
    for some in ([-1, 1], [-128, 127], [-129, 128], [-32768, 32767], [-32769, 5], [1 << 31, -1], [-(1 << 63), -1]):
        chosen += [("DEL", "s"), ("SADD", "s", *some), ("SORT", "s"), ("DUMP", "s"), ("OBJECT", "ENCODING", "s")]
        chosen += [("SISMEMBER", "s", n) for n in SMALL]
    for byte in range(256):
        raw = bytes([byte])
        chosen += [("SET", raw, raw * 3), ("GETRANGE", raw, 1, 1), ("GETBIT", raw, 8), ("BITCOUNT", raw)]
        chosen += [("RPUSH", b"list" + raw, raw), ("DUMP", b"list" + raw), ("ZADD", "lex", 0, raw)]
    chosen += [("KEYS", b"[%c-%c]" % (byte, byte)) for byte in range(128, 256)]
    chosen += [("ZRANGE", "lex", 0, -1), ("SORT", "lex", "ALPHA", "LIMIT", 0, 10)]
    return chosen


def _counts() -> Requests:
    # There is only one key, because the order of several would differ between servers. A cursor for the last bucket
    # alone gets an empty database, because a random seed determines that bucket's keys.
    chosen: Requests = [("SCAN", (1 << 64) - 1), ("SADD", "s", 1, 2, 3)]
    chosen += [("SCAN", 0, "COUNT", n) for n in SIGNED if n <= 0 or n >= 1 << 62]
    chosen += [("SRANDMEMBER", "s", n) for n in SIGNED if n == 0 or n >= 1 << 62]
    chosen += [("SCAN", 1 << 63), ("SCAN", 1 << 64), ("SSCAN", "s", 1 << 32)]
    return chosen


def _how_many() -> Requests:
    """Counts for absent keys: commands that pop or move elements change nothing, whether refused or not."""
    old: Requests = [("SRANDMEMBER", "none", n) for n in SIGNED]
    old += [("LTRIM", "none", n, n) for n in SIGNED]
    old += [("HSET", "hash", "f", "v"), ("ZADD", "sorted", 1, "m"), ("SADD", "set", 1)]
    old += [("HSCAN", "hash", 1 << 32), ("ZSCAN", "sorted", 1 << 32)]
    lexical, leaving, popping, popping_many = list[Any](), list[Any](), list[Any](), list[Any]()
    for n in SIGNED:
        old += [("ZUNIONSTORE", "to", n, "none"), ("ZINTERSTORE", "to", n, "none"), ("BITPOS", "none", n)]
        old += [("ZREVRANGEBYSCORE", "none", 1, 0, "LIMIT", n, n), ("ZRANGE", "none", 0, n)]
        old += [("ZREVRANGE", "none", n, 0), ("ZREMRANGEBYRANK", "none", 0, n)]
        # On an absent key a scan would ignore the words after its cursor. Of a few elements it returns all, whatever
        # the count.
        old += [("HSCAN", "hash", 0, "COUNT", n), ("ZSCAN", "sorted", 0, "COUNT", n), ("SSCAN", "set", 0, "COUNT", n)]
        lexical += [(name, "none", "-", "+", "LIMIT", n, n) for name in ("ZRANGEBYLEX", "ZREVRANGEBYLEX")]
        lexical += [("SPOP", "none", n)]
        leaving += [("ZPOPMIN", "none", n), ("ZPOPMAX", "none", n)]
        popping += [("LPOP", "none", n), ("RPOP", "none", n), ("COPY", "none", "to", "DB", n), ("MOVE", "none", n)]
        popping += [("HRANDFIELD", "none", n), ("ZRANDMEMBER", "none", n), ("ZDIFFSTORE", "to", n, "none")]
        popping += [(name, n, "none") for name in ("ZUNION", "ZINTER", "ZDIFF")]
        popping += [("ZRANGE", "none", 0, 1, "BYSCORE", "LIMIT", n, n), ("ZRANGESTORE", "to", "none", n, n)]
        popping += [("ZRANGESTORE", "to", "none", 0, 1, "BYSCORE", "LIMIT", n, n)]
        popping += [("XAUTOCLAIM", "none", "group", "one", 0, 0, "COUNT", n)]
        popping += [("LPOS", "none", "x", option, n) for option in ("RANK", "COUNT", "MAXLEN")]
        popping += [("SELECT", n)] if not 0 <= n < 16 else []
        popping_many += [(name, n, "none") for name in ("SINTERCARD", "ZINTERCARD")]
        popping_many += [(name, 1, "none", "LIMIT", n) for name in ("SINTERCARD", "ZINTERCARD")]
        for name, where in (("LMPOP", "LEFT"), ("ZMPOP", "MIN")):
            popping_many += [(name, n, "none", where), (name, 1, "none", where, "COUNT", n)]
            # Blocking commands take time, so two numbers must be enough.
            if n in {1 << 31, 1 << 62}:
                popping_many += [
                    (f"B{name}", "0.01", n, "none", where),
                    (f"B{name}", "0.01", 1, "none", where, "COUNT", n),
                ]
        popping_many += [("SORT_RO", "none", "LIMIT", n, n)]
    # WAIT for more replicas than exist would block.
    waiting: Requests = [("WAIT", n, 1) for n in SIGNED if n <= 0]
    return old + waiting + lexical + leaving + popping + popping_many


def _settings() -> Requests:
    chosen: Requests = []
    for name in ("maxmemory", "slowlog-log-slower-than"):
        for value in ((1 << 31) - 1, 1 << 31, (1 << 32) + 5, 1 << 40):
            chosen += [("CONFIG", "SET", name, value), ("CONFIG", "GET", name)]
    chosen += [("CONFIG", "SET", "maxmemory", 0)]
    chosen += [("CONFIG", "SET", "slowlog-log-slower-than", -1)]
    return chosen


def _times() -> Requests:
    refused = [n for n in SIGNED if n >= 1 << 54 or -n >= 1 << 62]
    chosen: Requests = [("SET", "k", "v")]
    for n in refused:
        chosen += [("EXPIRE", "k", n), ("EXISTS", "k"), ("PERSIST", "k"), ("SET", "k", "v")]
    chosen += [("SETEX", "k", n, "v") for n in SIGNED if n <= 0 or n >= 1 << 54]
    absolute: Requests = []
    for n in [n for n in SIGNED if n > 1 << 33 and n < 1 << 54]:
        absolute += [("SET", "k", "v", "EXAT", n), ("EXPIRETIME", "k"), ("PEXPIRETIME", "k")]
        absolute += [("SET", "k", "v", "PXAT", n << 9), ("PEXPIRETIME", "k"), ("EXPIRETIME", "k")]
    return chosen + absolute


def _scripts() -> Requests:
    numbers = [1 << 31, (1 << 31) - 1, -(1 << 31) - 1, 1 << 32, 1 << 52, (1 << 53) - 1, -(1 << 53)]
    programs = [
        "return tonumber(ARGV[1])",
        "return tostring(tonumber(ARGV[1]))",
        "return cjson.encode({tonumber(ARGV[1])})",
        "return cmsgpack.pack(tonumber(ARGV[1]))",
        "return cmsgpack.unpack(cmsgpack.pack(tonumber(ARGV[1])))",
        "return redis.call('INCRBY', 'n', ARGV[1])",
        "return string.format('%d %.17g', tonumber(ARGV[1]), tonumber(ARGV[1]))",
    ]
    # The documentation defines `l` and `L` as the machine's `long`, through which `%d` converts: numbers must fit 32
    # bits.
    chosen: Requests = [("EVAL", program, 0, n) for n in numbers for program in programs[:-1]]
    chosen += [("EVAL", programs[-1], 0, n) for n in (0, -1, (1 << 31) - 1, -(1 << 31))]
    bits = ("band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror")
    chosen += [
        ("EVAL", f"return {{bit.{name}(ARGV[1], ARGV[2]), bit.tohex(ARGV[1])}}", 0, n, 5)
        for name in bits
        for n in (0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, -1, 0x100000001)
    ]
    return chosen


def _streams() -> Requests:
    unsigned = [n for n in WORDS if n < 1 << 64] + [(1 << 64) - 1]
    chosen: Requests = []
    for number, n in enumerate(sorted(unsigned)):
        chosen += [("XADD", "s", f"{n}-{n}", "f", number), ("XADD", "s", f"{n}-{n}", "f", "again")]
    chosen += [
        ("XRANGE", "s", "-", "+"),
        ("XLEN", "s"),
        ("XADD", "s", "*", "f", "after the last"),
        ("XINFO", "STREAM", "s"),
    ]
    for n in unsigned:
        chosen += [("XRANGE", "s", n, n), ("XREVRANGE", "s", f"{n}-0", "-", "COUNT", 1)]
        chosen += [("XREAD", "COUNT", 1, "STREAMS", "s", f"{n}-0")]
    chosen += [
        ("XADD", "s", f"{1 << 64}-0", "f", 1),
        ("XTRIM", "s", "MAXLEN", (1 << 31) - 1),
        ("XDEL", "s", f"{1 << 32}-{1 << 32}"),
    ]
    chosen += [("XLEN", "s"), ("DUMP", "s")]
    return chosen
