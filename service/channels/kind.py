"""What a kind of channel has to say about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Post:
    """One HTTP request that a channel makes."""

    headers: Mapping[str, str]
    body: bytes


class ChannelKind(Protocol):
    """How messages (`service.alerts.message.compose`) are written for one sort of receiver."""

    @property
    def name(self) -> str:
        """The word users choose it by."""
        ...

    def secret(self, given: str | None) -> str | None:
        """The secret to keep for a new channel, made here where none is given.

        Raises:
            ValueError: `given` is no secret of this kind; the message says what one looks like.
        """
        ...

    def shown(self, url: str) -> str:
        """The address without what must stay secret in it."""
        ...

    def write(self, message: Mapping[str, Any], message_id: str, now: float, secret: str | None) -> Post:
        """The request that carries a message. `message_id` is the same at every attempt; `now` is in unix seconds."""
        ...
