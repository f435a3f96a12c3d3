"""The kinds of channels. A kind is one short file with a class; it is listed in `KINDS` and nowhere else."""

from __future__ import annotations

from service.channels.alertmanager import Alertmanager
from service.channels.apprise import Apprise
from service.channels.discord import Discord
from service.channels.google_chat import GoogleChat
from service.channels.kind import ChannelKind
from service.channels.mattermost import Mattermost
from service.channels.slack import Slack
from service.channels.teams import Teams
from service.channels.webhook import StandardWebhook

KINDS: dict[str, ChannelKind] = {
    kind.name: kind
    for kind in (
        StandardWebhook(),
        Slack(),
        Discord(),
        GoogleChat(),
        Teams(),
        Mattermost(),
        Alertmanager(),
        Apprise(),
    )
}
