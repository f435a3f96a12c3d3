"""The kinds of channels. A kind is one short file with a class; it is listed in `KINDS` and nowhere else."""

from __future__ import annotations

from service.channels.kind import ChannelKind
from service.channels.slack import Slack
from service.channels.webhook import StandardWebhook

KINDS: dict[str, ChannelKind] = {kind.name: kind for kind in (StandardWebhook(), Slack())}
