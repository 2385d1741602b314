"""What a server wrote, made harmless to look at: no reader's terminal, browser or CI obeys it. Text stays text.

A finding quotes replies and logs, that is bytes which a broken or hostile server chose. Every writer of the report
passes them through here before it escapes them for its own format, and so does whatever else is said of a server.
"""

from __future__ import annotations


def visible(text: str) -> str:
    r"""The same text, newlines and tabs included, with every character that shows nothing by itself as its escape.

    That is what Unicode calls not printable: controls, which terminals obey (`\x1b`), separators that begin a line, and
    marks that reorder or hide text (UAX 9), with which it can be made to look like what it is not (CVE-2021-42574); and
    letters and marks that are drawn as nothing.
    """
    if text.isprintable() and _INVISIBLE.isdisjoint(text):
        return text
    return "".join(_shown(one) if one not in "\n\t" else one for one in text)


def one_line(text: str) -> str:
    """The same, with newlines and tabs as escapes too: it cannot begin a line of its own."""
    return "".join(map(_shown, text))


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
