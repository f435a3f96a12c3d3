"""Text from outside (names of runs, sentences with them) made harmless for a chat's markup and cut to its limits."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from service.alerts.message import cut

SIGNS = {"alert.firing": "🔴", "alert.updated": "🟠 Update:", "alert.resolved": "🟢 Resolved:", "channel.test": "🔔"}
PICTURE = "The run's gap to its reference"  # for those who cannot see it
STILL = "🔴 Still firing:"
COLOURS = {"alert.firing": 0xC62828, "alert.updated": 0xEF6C00, "alert.resolved": 0x2E7D32, "channel.test": 0x1565C0}
_OVERRIDES = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}


def one_line(text: str) -> str:
    """White space as single blanks; no control characters, no marks that override the direction of writing."""
    shown = (" " if c.isspace() else c for c in text if c.isspace() or not _is_control(c))
    return " ".join("".join(shown).split())


def shorter(text: str, limit: int) -> str:
    """`cut` by UTF-16 units, of which a character beyond the basic plane has two."""
    kept = units = 0
    for kept, character in enumerate(text):  # noqa: B007 (how many characters fit is the answer)
        units += 2 if ord(character) > 0xFFFF else 1
        if units > limit:
            break
    else:
        return text
    return cut(text, kept)


def fitted(write: Callable[[int], dict[str, Any]], limits: Sequence[int], size: Callable[[Any], int], most: int) -> Any:
    """What `write` makes with the first of these limits of characters of one text that keeps the whole below `most`."""
    body: dict[str, Any] = {}
    for limit in limits:
        body = write(limit)
        if size(body) < most:
            break
    return body


def encoded_bytes(body: Any) -> int:
    """Bytes of a body on the network."""
    return len(msgspec.json.encode(body))


def backslashed(text: str, marks: str) -> str:
    """One line in which each of these marks stands for itself."""
    return "".join(f"\\{c}" if c in marks else c for c in one_line(text))


def cut_escaped(text: str, limit: int, marks: str) -> str:
    """`backslashed`, no longer than `limit` UTF-16 units, without half an escape at its end."""
    plain = one_line(text)
    room = limit
    while True:
        written = backslashed(shorter(plain, room), marks)
        excess = len(written.encode("utf-16-le", "surrogatepass")) // 2 - limit
        if excess <= 0:
            return written
        room -= max(excess // 2, 1)


def title_line(message: Mapping[str, Any]) -> str:
    """The title with the sign of what happened before it."""
    said_again = message.get("change", {}).get("kind") in ("unmuted", "repeated") and "members" not in message
    return one_line(f"{STILL if said_again else SIGNS[message['type']]} {message['title']}")


def subject_line(message: Mapping[str, Any]) -> str:
    """Which run, against which reference; empty for a test message."""
    if "run" not in message:
        return ""
    run, reference = message["run"], message["reference"]
    against = f"{reference['slug']} {reference['version']}"
    return one_line(f"{run['project']} / {run['name']} / {run['stage']} against {against}")


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs") or unicodedata.bidirectional(character) in _OVERRIDES
