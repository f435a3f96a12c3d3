"""The references that come with the program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from service.database.engine import writing
from service.references.bundle import Bundle, load_bundle
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
        try:
            _install(engine, bundle)
        except IntegrityError:  # another process was installing it at the same moment
            _install(engine, bundle)
        installed.append(f"{bundle.description.slug} {bundle.description.version}")
    return installed


def _install(engine: Engine, bundle: Bundle) -> None:
    with writing(engine) as session:
        ReferenceRepository(session).install(bundle)
