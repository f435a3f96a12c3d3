"""Reading and installing references."""

from __future__ import annotations

import time

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.database.models import Reference, ReferenceRun, Run
from service.errors import ConflictError
from service.references.bundle import Bundle
from service.references.install import install_rows, install_series


class ReferenceRepository:
    """References by slug and version; the newest version is the one installed last."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def current(self, slug: str) -> Reference | None:
        """The newest version."""
        return self.session.scalars(
            select(Reference).where(Reference.slug == slug).order_by(Reference.id.desc()).limit(1)
        ).first()

    def version(self, slug: str, version: str) -> Reference | None:
        """One version."""
        return self.session.scalars(
            select(Reference).where(Reference.slug == slug, Reference.version == version)
        ).one_or_none()

    def versions(self, slug: str) -> list[str]:
        """Every version, the newest first."""
        found = select(Reference.version).where(Reference.slug == slug).order_by(Reference.id.desc())
        return list(self.session.scalars(found))

    def all_current(self) -> list[Reference]:
        """The newest version of every reference, by slug."""
        newest: dict[str, Reference] = {}
        for reference in self.session.scalars(select(Reference).order_by(Reference.slug, Reference.id)):
            newest[reference.slug] = reference
        return list(newest.values())

    def run_of(self, reference_id: int, stage: str, sibling: str = "") -> Run | None:
        """The run that holds a stage's curve, of the reference itself or of one healthy rerun."""
        return self.session.scalars(
            select(Run)
            .join(ReferenceRun, ReferenceRun.run_id == Run.id)
            .where(
                ReferenceRun.reference_id == reference_id, ReferenceRun.stage == stage, ReferenceRun.sibling == sibling
            )
        ).one_or_none()

    def siblings(self, reference_id: int, stage: str) -> list[Run]:
        """The runs of the healthy reruns of a stage, by name."""
        found = (
            select(Run)
            .join(ReferenceRun, ReferenceRun.run_id == Run.id)
            .where(ReferenceRun.reference_id == reference_id, ReferenceRun.stage == stage, ReferenceRun.sibling != "")
            .order_by(ReferenceRun.sibling)
        )
        return list(self.session.scalars(found))

    def curves(self, reference_id: int) -> list[tuple[ReferenceRun, Run]]:
        """Every run of a reference with its stage and sibling name."""
        found = (
            select(ReferenceRun, Run)
            .join(Run, ReferenceRun.run_id == Run.id)
            .where(ReferenceRun.reference_id == reference_id)
            .order_by(ReferenceRun.stage, ReferenceRun.sibling)
        )
        return [(link, run) for link, run in self.session.execute(found)]

    def install(self, bundle: Bundle) -> Reference:
        """Store a bundle. The same content again, or the same files, change nothing.

        Raises:
            ConflictError: this version is there with other content; a version is never edited.
        """
        description = bundle.description
        present = self.version(description.slug, description.version)
        if present is not None:
            if present.digest not in (bundle.digest, bundle.files_digest):  # which stands in older databases
                raise ConflictError(
                    f"{description.slug} version {description.version} is installed with other content. "
                    "A version is never edited: give the changed bundle a new version in reference.toml."
                )
            return present
        reference = Reference(
            slug=description.slug,
            version=description.version,
            title=description.title,
            digest=bundle.digest,
            description=bundle.to_json(),
            installed_at=time.time(),
        )
        self.session.add(reference)
        self.session.flush()
        for series in bundle.series:
            run = install_series(self.session, description, series)
            link = ReferenceRun(reference_id=reference.id, stage=series.stage, sibling=series.sibling, run_id=run.id)
            self.session.add(link)
            expected = next((one for one in bundle.rows if one.stage == series.stage and not series.sibling), None)
            if expected is not None:
                install_rows(self.session, run, expected)
        self.session.flush()
        return reference
