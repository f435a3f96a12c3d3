"""The words that users choose by. They stand apart so that the command line need not load what is behind them."""

from __future__ import annotations

from enum import StrEnum


class KindName(StrEnum):
    """Kinds of channels; a test keeps them equal to `service.channels.kinds.KINDS`."""

    webhook = "webhook"
    slack = "slack"
    discord = "discord"
    google_chat = "google_chat"
    teams = "teams"
    mattermost = "mattermost"
    alertmanager = "alertmanager"
    apprise = "apprise"


class SeverityName(StrEnum):
    """How bad an alert is, the mildest first."""

    info = "info"
    warning = "warning"
    critical = "critical"


class AlertStateName(StrEnum):
    """Where an alert is in its life. `open` is what is not resolved yet."""

    open = "open"
    firing = "firing"
    acknowledged = "acknowledged"
    resolved = "resolved"


class DeliveryStateName(StrEnum):
    """What became of a message. `failed` is what was given up."""

    pending = "pending"
    delivered = "delivered"
    failed = "failed"


class GroupName(StrEnum):
    """What one message may be about."""

    none = "none"
    run = "run"
    project = "project"
