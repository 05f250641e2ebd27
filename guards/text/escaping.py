"""Text from files and from the file system, made safe to print: no control characters, one line."""

from __future__ import annotations

# how Python spells bytes of a file name that are not UTF-8 (PEP 383)
_BYTES = range(0xDC80, 0xDD00)


def printable(text: str, keep: str = "") -> str:
    r"""Return the text with an escape for each character that is not printable, but for those in
    ``keep``.

    A terminal obeys control characters, and UTF-8 has no lone surrogates: both are written out.

    >>> print(printable("\x1b]0;title\x07"), printable("caf\udce9.py"), printable("\u202eabc"))
    \x1b]0;title\x07 caf\xe9.py \u202eabc
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    number = ord(character)
    if number in _BYTES:
        return f"\\x{number & 0xFF:02x}"
    return character.encode("unicode_escape").decode("ascii")


def encodable(text: str) -> str:
    r"""Return the text with an escape for each lone surrogate, which UTF-8 has not; all else stays.

    >>> print(encodable("caf\udce9.py\n"), end="")
    caf\xe9.py
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(_escaped(each) if "\ud800" <= each <= "\udfff" else each for each in text)
    return text
