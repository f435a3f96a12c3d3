"""Settings, from the environment (`PACENOTE_…`) or given by a command."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from urllib.parse import urlsplit

from platformdirs import user_data_path
from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import URL


def sqlite_url(path: Path) -> str:
    """The address of a SQLite file; characters that mean something in an address are escaped."""
    return URL.create("sqlite", database=str(path)).render_as_string()


def default_database_url() -> str:
    """SQLite in the user's data folder."""
    return sqlite_url(user_data_path("pacenote") / "pacenote.db")


class Settings(BaseSettings):
    """What a service process needs to know. Every field can be set as `PACENOTE_<FIELD>`."""

    model_config = SettingsConfigDict(env_prefix="PACENOTE_")

    database_url: str = Field(default_factory=default_database_url)
    host: str = "127.0.0.1"
    port: int = 8350
    token: SecretStr | None = None
    public_url: str | None = Field(
        default=None, description="Address of the pages as browsers see it, sub-path included."
    )
    worker: bool = Field(default=True, description="Seal, judge and deliver inside this process.")
    max_body_bytes: int = Field(default=8 * 1024 * 1024, gt=0)
    max_metric_name_bytes: int = Field(default=256, gt=0)
    max_metrics_per_run: int = Field(default=2000, gt=0)
    alert_clear_seconds: float = Field(
        default=60.0, ge=0.0, description="How long every rule must say no before an alert is resolved."
    )
    alert_clear_level: float = Field(
        default=0.8, gt=0.0, le=1.0, description="Share of its limit below which a gap must come back to be cleared."
    )
    max_judgement_lag_seconds: float = Field(
        default=300.0, ge=0.0, description="How long data may wait to be judged while /readyz says ready; 0: for ever."
    )
    judging_memory_mib: int = Field(
        default=1024, gt=0, description="What a judging process keeps of runs: about 160 bytes a step and run."
    )
    secret_key: SecretStr | None = Field(
        default=None, description="Base64 of 32 bytes that seals channel addresses and secrets in the database."
    )
    allow_private_channels: bool = Field(
        default=False, description="Let channels send to loopback and private addresses, and over plain http."
    )

    picture_links: bool = Field(
        default=False, description="Give chats that fetch pictures an address; they must be able to reach public_url."
    )

    @field_validator("public_url")
    @classmethod
    def _an_address(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "")
        if value and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ValueError("must be an address such as https://pacenote.example.org")
        return value or None

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def base_url(self) -> str:
        """Address of the pages, without a final slash; this machine's name where the service listens everywhere."""
        everywhere = self.host in ("", "0.0.0.0", "::")
        host = socket.gethostname() if everywhere else f"[{self.host}]" if ":" in self.host else self.host
        return (self.public_url or f"http://{host}:{self.port}").rstrip("/")

    @property
    def root_path(self) -> str:
        """What every path begins with behind a proxy that serves a sub-path: the path of `public_url`."""
        return urlsplit(self.public_url or "").path.rstrip("/")
