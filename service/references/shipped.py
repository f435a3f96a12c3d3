"""The references that come with the program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Engine

from service.database.engine import writing
from service.references.bundle import load_bundle
from service.references.repository import ReferenceRepository

BUNDLES = Path(__file__).parent / "bundles"


def shipped_bundles() -> Iterator[Path]:
    """The folder of each shipped bundle, by slug."""
    yield from sorted(path.parent for path in BUNDLES.glob("*/reference.toml"))


def install_shipped(engine: Engine) -> list[str]:
    """Install every shipped bundle that is not there yet; returns "slug version" of each.

    Raises:
        BundleError: a shipped bundle is damaged.
        ConflictError: the same version is installed with other content.
    """
    installed: list[str] = []
    for path in shipped_bundles():
        bundle = load_bundle(path)
        with writing(engine) as session:
            reference = ReferenceRepository(session).install(bundle)
            installed.append(f"{reference.slug} {reference.version}")
    return installed
