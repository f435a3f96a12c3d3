"""A bundle's files, from a folder or a `.pacenote` archive, and their digest."""

from __future__ import annotations

import hashlib
import lzma
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from service.references.series_file import BundleError

MAX_FILES = 1000
MAX_BYTES = 512 * 1024 * 1024
DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, NotImplementedError)


def bundle_files(path: Path) -> dict[str, bytes]:
    """Every file of the bundle by its path inside it; hidden files are left out.

    Nothing is written to disk: an archive is read in memory, and never beyond MAX_FILES and MAX_BYTES.

    Raises:
        BundleError: no such folder or archive, or one that is unsafe to read.
    """
    if path.is_dir():
        return _folder(path)
    if not path.exists():
        raise BundleError(f"{path}: no such bundle")
    try:
        with zipfile.ZipFile(path) as archive:
            return _archive(path, archive)
    except zipfile.BadZipFile:
        raise BundleError(f"{path}: neither a folder nor a .pacenote archive (a zip file)") from None


def digest(files: dict[str, bytes]) -> str:
    """SHA-256 over names and contents, in hex: the same for a folder and for its archive."""
    total = hashlib.sha256()
    for name in sorted(files):
        for part in (name.encode(), files[name]):
            total.update(len(part).to_bytes(8, "big"))
            total.update(part)
    return total.hexdigest()


def _folder(path: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    total = 0
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if _hidden(name.parts) or file.is_dir():
            continue
        if file.is_symlink():
            raise BundleError(f"{path}: {name} is a link; a bundle holds plain files only")
        total += file.stat().st_size
        _check_size(path, len(files) + 1, total)
        files[name.as_posix()] = file.read_bytes()
    return files


def _archive(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    total = 0
    for entry in archive.infolist():
        name = PurePosixPath(entry.filename.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or ":" in entry.filename:
            raise BundleError(f"{path}: {entry.filename!r} points outside the archive")
        if entry.external_attr >> 16 & 0o170000 == 0o120000:
            raise BundleError(f"{path}: {name} is a link; a bundle holds plain files only")
        if entry.is_dir() or _hidden(name.parts):
            continue
        if name.as_posix() in files:
            raise BundleError(f"{path}: holds {name} twice")
        if entry.flag_bits & 1:
            raise BundleError(f"{path}: {name} is encrypted")
        try:
            with archive.open(entry) as file:  # the size in the entry may lie: read no more than is left
                content = file.read(MAX_BYTES - total + 1)
        except DAMAGED as error:
            raise BundleError(f"{path}: {name} cannot be read ({error})") from error
        total += len(content)
        _check_size(path, len(files) + 1, total)
        files[name.as_posix()] = content
    return files


def _check_size(path: Path, count: int, total: int) -> None:
    if count > MAX_FILES or total > MAX_BYTES:
        raise BundleError(f"{path}: too large (over {MAX_FILES} files or {MAX_BYTES // 2**20} MiB)")


def _hidden(parts: tuple[str, ...]) -> bool:
    return any(part.startswith(".") or part in ("__pycache__", "__MACOSX") for part in parts)
