"""What a reader sees of a page, and a name that tries to be markup."""

from __future__ import annotations

import re
from html import unescape

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}\u202e\U0001f4a5"


def text_of(html: str) -> str:
    """What a reader sees, in one line."""
    body = html.split("<main", 1)[1].split("</main>", 1)[0]
    return re.sub(r"[ \n\t]+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))
