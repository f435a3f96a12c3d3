"""Keeps channel addresses and secrets unreadable in the database (Fernet: AES-128-CBC with HMAC-SHA-256).

The key comes from `PACENOTE_SECRET_KEY` (several, comma-separated, while keys are changed: the first one seals), else
from a file in the user's data folder, made at first use and readable by its owner alone. Values without the mark of
this vault are taken as they are: databases from before it hold them so.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import os
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from platformdirs import user_data_path

from service.settings import Settings

MARK = "sealed:"


class VaultError(Exception):
    """A value cannot be opened, or the key cannot be used; the message says what to do."""


class Vault:
    """Seals and opens texts. Any thread may use it."""

    def __init__(self, keys: str) -> None:
        named = [key.strip() for key in keys.split(",") if key.strip()]
        try:
            self._cipher = MultiFernet([Fernet(key) for key in named])
        except ValueError as error:
            raise VaultError(
                "PACENOTE_SECRET_KEY must be the base64 of 32 bytes; "
                "`python -c 'import base64, os; print(base64.urlsafe_b64encode(os.urandom(32)).decode())'` makes one"
            ) from error
        self._signing = [hashlib.sha256(b"pacenote signatures" + key.encode()).digest() for key in named]

    def seal(self, text: str) -> str:
        """The text, unreadable."""
        return MARK + self._cipher.encrypt(text.encode()).decode()

    def sign(self, text: str) -> str:
        """What only a holder of the key can say of a text: HMAC-SHA-256 in hex."""
        return hmac.digest(self._signing[0], text.encode(), "sha256").hex()

    def verifies(self, text: str, signature: str) -> bool:
        """Whether `sign` said so, with any of the keys."""
        known = (hmac.digest(key, text.encode(), "sha256").hex() for key in self._signing)
        return any(hmac.compare_digest(each.encode(), signature.encode()) for each in known)

    def open(self, kept: str) -> str:
        """The text that was sealed.

        Raises:
            VaultError: it was sealed with a key that is not here.
        """
        if not kept.startswith(MARK):
            return kept
        try:
            return self._cipher.decrypt(kept.removeprefix(MARK)).decode()
        except InvalidToken as error:
            raise VaultError(
                "the channel was stored under another key: set PACENOTE_SECRET_KEY to that key, "
                "or delete the channel and add it again"
            ) from error


def vault_of(settings: Settings) -> Vault:
    """The vault of this process, from the setting or from the key file.

    Raises:
        VaultError: the setting is no key, or the file cannot be made or read.
    """
    configured = settings.secret_key.get_secret_value() if settings.secret_key else ""
    return _opened(configured, user_data_path("pacenote") / "secret.key")


@functools.cache
def _opened(configured: str, path: Path) -> Vault:
    if configured:
        return Vault(configured)
    try:
        return Vault(_key_of(path))
    except OSError as error:
        raise VaultError(f"the key file {path} cannot be used ({error.strerror}); set PACENOTE_SECRET_KEY") from error


def _key_of(path: Path) -> str:
    """The key in a file; made whole under another name first, so that two processes never read half of one."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_text().strip()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(Fernet.generate_key().decode())
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):
        os.link(fresh, path)
    fresh.unlink()
    return path.read_text().strip()
