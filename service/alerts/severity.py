"""How bad alerts are, the mildest first."""

from __future__ import annotations

SEVERITIES = ("info", "warning", "critical")


def at_least(severity: str | None) -> tuple[str, ...]:
    """The severities that are no milder than this one; none for None, which asks for no particular ones."""
    return SEVERITIES[SEVERITIES.index(severity) :] if severity else ()
