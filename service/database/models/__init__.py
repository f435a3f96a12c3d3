"""Every table, in one place for migrations and repositories."""

from service.database.models.alerts import (
    Alert,
    AlertChange,
    Channel,
    Delivery,
    DeliveryAttempt,
    JudgementRow,
    VerdictRow,
)
from service.database.models.base import Base
from service.database.models.judging import DeclaredDeviation, JudgingChange, RuleSetting
from service.database.models.points import Chunk, Fingerprint, ItemResult, Journal, Metric, Receipt
from service.database.models.references import Reference, ReferenceRun
from service.database.models.runs import Event, Project, Run, RunNote, RunState, RunWork, Segment

__all__ = [
    "Alert",
    "AlertChange",
    "Base",
    "Channel",
    "Chunk",
    "DeclaredDeviation",
    "Delivery",
    "DeliveryAttempt",
    "Event",
    "Fingerprint",
    "ItemResult",
    "Journal",
    "JudgementRow",
    "JudgingChange",
    "Metric",
    "Project",
    "Receipt",
    "Reference",
    "ReferenceRun",
    "RuleSetting",
    "Run",
    "RunNote",
    "RunState",
    "RunWork",
    "Segment",
    "VerdictRow",
]
