"""Escapes untrusted text, so that no terminal, browser or CI runner interprets it.

A finding quotes replies and logs: bytes that a broken or hostile server chose. Every report format passes such text
through this module before it applies its own escapes, and so do all messages that quote a server.
"""

from __future__ import annotations

import json
import os


def as_utf8(name: str) -> str:
    r"""A file's name, an argument or a variable as text, with `\xXX` for each byte that is not UTF-8.

    Linux takes any bytes. Python reads the others as surrogates, which no document and no stream can contain.
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def visible(text: str) -> str:
    r"""Escape every invisible character except newlines and tabs.

    These are the characters that Unicode calls not printable: controls, which terminals obey (`\x1b`), line separators,
    and marks that reorder or hide text (UAX 9), which can make it look like something else (CVE-2021-42574). Letters
    and marks without a visible shape are also escaped.
    """
    if _is_plain(text):
        return text
    return "".join(_shown(character) if character not in "\n\t" else character for character in text)


def visible_json(text: str) -> str:
    """A JSON document in which every invisible character of its texts is an escape. Its content stays the same."""
    return "\n".join(map(_line_of_json, text.split("\n")))


def _line_of_json(line: str) -> str:
    # Documents are large, and hardly any line has such a character.
    if _is_plain(line):
        return line
    return "".join(one if one == "\t" or _shown(one) == one else json.dumps(one)[1:-1] for one in line)


def one_line(text: str) -> str:
    """Also escape newlines and tabs, so that the text cannot begin a new line."""
    return "".join(map(_shown, text))


def _is_plain(text: str) -> bool:
    """Whether nothing in a text, which may be a whole document, needs an escape."""
    return text.replace("\n", "").replace("\t", "").isprintable() and _INVISIBLE.isdisjoint(text)


def _shown(character: str) -> str:
    if character.isprintable() and character not in _INVISIBLE:
        return character
    code = ord(character)
    short = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}.get(character)
    return short or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


_INVISIBLE = frozenset(
    map(
        chr,
        # Default_Ignorable_Code_Point (UAX 44) of the characters that count as printable: joiner, fillers, selectors.
        (
            *(0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0),
            *(*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),
        ),
    )
)
