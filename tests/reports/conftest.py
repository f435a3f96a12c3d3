from __future__ import annotations

from judged_fixtures import client, world

__all__ = ["client", "world"]
