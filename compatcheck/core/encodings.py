"""Encodings that a file may declare for itself: those people write text in, each read in time that its size bounds.

Python has codecs of other kinds under the same names, some of which take time that grows with the square of the text
(``punycode``, ``idna``), or undo escapes (``unicode_escape``).
"""

import codecs

from compatcheck.core.pattern import lazy_compile

_PUNCTUATION = lazy_compile(r"[-_ ]+")
_TEXT = lazy_compile(
    r"(?:(?:iso)?latin|l)\d+|utf8(?:sig)?|u8|utf(?:16|32)(?:le|be)?|(?:us)?ascii|(?:iso)?8859\d+"
    r"|(?:cp|windows|ibm)\d{3,5}"
    r"|gb2312|gbk|936|gb18030|big5(?:hkscs|tw)?|(?:s|shift)jis(?:2004|x0213)?|euc(?:jp|kr|cn|jis2004|jisx0213)|ujis"
    r"|koi8[rtu]|mac(?:roman|latin2|cyrillic|greek|turkish)"
)


def is_text_encoding(name: str) -> bool:
    """Tell whether an encoding, by any of its names, is one that text is written in."""
    if _TEXT.fullmatch(_PUNCTUATION.sub("", name.lower())) is None:
        return False
    try:
        codecs.lookup(name)
    except LookupError:
        return False
    return True
