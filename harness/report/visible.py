"""What a server wrote, made harmless to look at: no reader's terminal, browser or CI obeys it. Text stays text.

A finding quotes replies and logs, that is bytes which a broken or hostile server chose. Every writer of the report
passes them through here before it escapes them for its own format.
"""

from __future__ import annotations


def visible(text: str) -> str:
    r"""The same text, newlines and tabs included, with every character that shows nothing by itself as its escape.

    That is what Unicode calls not printable: controls, which terminals obey (`\x1b`), separators that begin a line, and
    marks that reorder or hide text (UAX 9), with which it can be made to look like what it is not (CVE-2021-42574).
    """
    return text if text.isprintable() else "".join(_shown(one) if one not in "\n\t" else one for one in text)


def one_line(text: str) -> str:
    """The same, with newlines and tabs as escapes too: it cannot begin a line of its own."""
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    short = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}.get(character)
    return short or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
