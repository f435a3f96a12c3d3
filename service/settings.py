"""Settings, from the environment (`PACENOTE_…`) or given by a command."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from platformdirs import user_data_path
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


def default_database_url() -> str:
    """SQLite in the user's data folder."""
    return f"sqlite:///{user_data_path('pacenote') / 'pacenote.db'}"


class Settings(BaseSettings):
    """What a service process needs to know. Every field can be set as `PACENOTE_<FIELD>`."""

    model_config = SettingsConfigDict(env_prefix="PACENOTE_")

    database_url: str = Field(default_factory=default_database_url)
    host: str = "127.0.0.1"
    port: int = 8350
    token: SecretStr | None = None
    public_url: str | None = Field(default=None, description="Address that links in messages begin with.")
    worker: bool = Field(default=True, description="Seal, judge and deliver inside this process.")
    max_body_bytes: int = 8 * 1024 * 1024
    max_metric_name_bytes: int = 256
    max_metrics_per_run: int = 2000
    alert_clear_seconds: float = Field(
        default=60.0, ge=0.0, description="How long every rule must say no before an alert is resolved."
    )
    allow_private_channels: bool = Field(
        default=False, description="Let channels send to loopback and private addresses, and over plain http."
    )

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
        """Address of the pages, without a final slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (self.public_url or f"http://{host}:{self.port}").rstrip("/")

    @property
    def sqlite_path(self) -> Path | None:
        """The database file, if it is one."""
        prefix = "sqlite:///"
        return Path(self.database_url[len(prefix) :]) if self.database_url.startswith(prefix) else None
