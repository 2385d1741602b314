"""What a server wrote, made harmless to look at: no reader's terminal, browser or CI obeys it. Text stays text.

A finding quotes replies and logs, that is bytes which a broken or hostile server chose. Every writer of the report
passes them through here before it escapes them for its own format.
"""

from __future__ import annotations

import re

# C0 and C1 but for tab and newline; line and paragraph separators; surrogates, which no encoding can hold; and the
# controls that reorder text (UAX 9), with which source can be made to look like what it is not (CVE-2021-42574).
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff]"
)


def visible(text: str) -> str:
    """The same text with every character that shows nothing, or does something, as its escape; newlines stay."""
    return _UNSEEN.sub(_escape, text)


def one_line(text: str) -> str:
    """The same, with newlines and tabs as escapes too: it cannot begin a line of its own."""
    return re.sub(r"[\n\t]", _escape, visible(text))


def _escape(match: re.Match[str]) -> str:
    named = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}
    code = ord(match[0])
    return named.get(match[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
