"""Secrets are unreadable without their key, outlive a change of the key, and the key file is its owner's alone."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from service.channels import vault
from service.channels.vault import Vault, VaultError


def key() -> str:
    return Fernet.generate_key().decode()


def test_what_is_sealed_is_opened_again_and_says_nothing() -> None:
    held = Vault(key())
    sealed = held.seal("https://hooks.example.com/hush")
    assert held.open(sealed) == "https://hooks.example.com/hush"
    assert "hush" not in sealed
    assert held.open("https://as.it.was") == "https://as.it.was"


def test_a_new_key_before_the_old_one_opens_both() -> None:
    old, new = key(), key()
    sealed = Vault(old).seal("x")
    both = Vault(f"{new}, {old}")
    assert both.open(sealed) == "x"
    assert Vault(new).open(both.seal("y")) == "y"


def test_another_key_is_said_in_one_line() -> None:
    with pytest.raises(VaultError, match="under another key: set PACENOTE_SECRET_KEY") as said:
        Vault(key()).open(Vault(key()).seal("x"))
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("given", ["short", "é", "a" * 43])
def test_what_is_no_key_is_said_in_one_line(given: str) -> None:
    with pytest.raises(VaultError, match="must be the base64 of 32 bytes"):
        Vault(given)


def test_the_key_file_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret.key"
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: vault._key_of(path), range(32)))
    assert made == {path.read_text()}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["secret.key"]
