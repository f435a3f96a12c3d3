"""What a kind of channel has to say about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from service.channels.safety import check_url
from service.channels.sending import Reply, Sender


@dataclass(frozen=True, slots=True)
class Post:
    """One HTTP request that a channel makes."""

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message on its way. `message_id` is the same at every attempt; `now` in unix seconds; `previous` is the
    secret before the present one while both are in use."""

    url: str
    message: Mapping[str, Any]
    message_id: str
    now: float
    secret: str | None = None
    previous: str | None = None
    picture: bytes | None = None  # PNG, for a kind that takes it inside the message


PictureForm = Literal["inside", "address"]


class ChannelKind(Protocol):
    """How messages (`service.alerts.message.compose`) are written for one sort of receiver."""

    @property
    def name(self) -> str:
        """The word users choose it by."""
        ...

    @property
    def picture(self) -> PictureForm | None:
        """How it takes a picture: inside the message, by an address in it (`message["picture"]`), or not at all."""
        ...

    def secret(self, given: str | None) -> str | None:
        """The secret to keep for a new channel, made here where none is given.

        Raises:
            ValueError: `given` is no secret of this kind; the message says what one looks like.
        """
        ...

    def check(self, url: str, *, allow_private: bool) -> None:
        """Whether a channel may have this address.

        Raises:
            UnsafeAddressError: it must not be used; the message says why.
        """
        ...

    def shown(self, url: str) -> str:
        """The address without what must stay secret in it."""
        ...

    def deliver(self, sender: Sender, outgoing: Outgoing) -> Reply:
        """Send a message and read the answer.

        Raises:
            SendError: no answer came.
        """
        ...


class HttpKind(ABC):
    """A receiver of one JSON body at an address that is itself the secret, so that only its host is shown."""

    name = ""
    picture: PictureForm | None = "address"

    @abstractmethod
    def payload(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message in the receiver's form, inside its limits."""

    def secret(self, given: str | None) -> str | None:
        if given is not None:
            raise ValueError(f"is not used by {self.name} channels: leave it out")
        return None

    def check(self, url: str, *, allow_private: bool) -> None:
        check_url(url, allow_private=allow_private)

    def shown(self, url: str) -> str:
        parsed = urlsplit(url)
        return f"{parsed.scheme}://{parsed.netloc}/…"

    def write(self, outgoing: Outgoing) -> Post:
        """The request that carries a message."""
        body = msgspec.json.encode(self.payload(outgoing.message))
        return Post({"content-type": "application/json", "user-agent": "pacenote"}, body)

    def deliver(self, sender: Sender, outgoing: Outgoing) -> Reply:
        post = self.write(outgoing)
        return sender.post(outgoing.url, post.headers, post.body)
