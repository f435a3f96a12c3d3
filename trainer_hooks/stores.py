"""Where spools are kept: a local folder, or any address fsspec knows (gs://, s3://, memory://)."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

try:
    import fcntl
except ImportError:  # Windows: no lock, so a sync there may also send what a living process sends; that is harmless
    fcntl = None  # type: ignore[assignment]


class Entry(NamedTuple):
    """A file of a store; `modified` in unix seconds, 0 where the store does not say."""

    name: str
    size: int
    modified: float


class Store(Protocol):
    """Named byte files of one folder; a name may hold "/". Every method may raise OSError, and a store behind fsspec
    whatever its package raises."""

    address: str
    appends: bool  # whether a file can grow; if not, files are written once, whole

    def list(self) -> list[Entry]: ...
    def names(self, folder: str) -> list[str]: ...
    def reader(self, name: str) -> Callable[[int, int], bytes]: ...
    def get(self, name: str) -> bytes | None: ...
    def put(self, name: str, data: bytes) -> None: ...
    def append(self, name: str, data: bytes) -> None: ...
    def remove(self, name: str) -> None: ...
    def in_use(self, name: str) -> bool: ...
    def claim(self, name: str) -> bool: ...


class _FileReader:
    """Reads one open file, which stays readable if it is removed meanwhile."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file

    def __call__(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(size)

    def __del__(self) -> None:
        self._file.close()


class LocalStore:
    """A folder of this machine."""

    appends = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = str(folder)

    def list(self) -> list[Entry]:
        """The files of the folder; none if there is no folder."""
        entries: list[Entry] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder) as found:
            for item in found:
                with contextlib.suppress(FileNotFoundError):
                    state = item.stat()
                    entries.append(Entry(item.name, state.st_size, state.st_mtime))
        return entries

    def names(self, folder: str) -> list[str]:
        """What is directly in a folder below ("" for the store itself), files and folders; none if it is not there."""
        try:
            return [path.name for path in (self.folder / folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def reader(self, name: str) -> Callable[[int, int], bytes]:
        """A function (offset, size) → bytes."""
        return _FileReader((self.folder / name).open("rb", buffering=0))

    def get(self, name: str) -> bytes | None:
        """The whole file, or None."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, name: str, data: bytes) -> None:
        """Writes the whole file at once: readers see the old one or the new one."""
        new = self.folder / f"{name}.{os.getpid()}.new"
        try:
            if "/" in name:
                new.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(data)
            new.replace(self.folder / name)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            raise

    def append(self, name: str, data: bytes) -> None:
        """Adds to the end of the file."""
        with (self.folder / name).open("ab") as file:
            file.write(data)

    def remove(self, name: str) -> None:
        """Removes the file if it is there."""
        (self.folder / name).unlink(missing_ok=True)

    def in_use(self, name: str) -> bool:
        """Whether a living process writes this file."""
        if fcntl is None:
            return False
        try:
            with (self.folder / name).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def claim(self, name: str) -> bool:
        """Makes an empty file; False if there was one. Raises OSError where no file can be made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            os.close(os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True


class Appender:
    """The open end of a local file, locked for as long as this process lives."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.end = os.fstat(self._descriptor).st_size
        if fcntl is not None:
            with contextlib.suppress(OSError):  # network file systems without locks
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, data: bytes) -> None:
        """Adds all of `data`, or raises OSError with the file as it was before (as far as the disk lets it)."""
        assert self._descriptor is not None
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.end)
            raise
        self.end += len(data)

    def sync(self) -> None:
        """Waits until the disk has everything."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def gone(self) -> bool:
        """Whether the file was removed: what is written now, nobody could open any more."""
        try:
            return self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0
        except OSError:  # a stale handle of a network file system
            return True

    def close(self) -> None:
        """Closes the file and gives up the lock."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):  # of a disk that is gone; the descriptor is free all the same
                os.close(descriptor)


class RemoteStore:
    """A folder behind fsspec, whose objects are written whole."""

    appends = False

    def __init__(self, address: str) -> None:
        import fsspec  # pyright: ignore[reportMissingTypeStubs]  # only here: most runs have a local spool

        self.address = address
        files, root = cast("tuple[Any, str]", fsspec.core.url_to_fs(address))  # pyright: ignore[reportUnknownMemberType]
        self._files: Any = files
        self._root = root.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def list(self) -> list[Entry]:
        """The objects of the folder; none if there is no folder."""
        try:
            found = self._files.ls(self._root, detail=True, refresh=True)
        except FileNotFoundError:
            return []
        return [Entry(str(i["name"]).rsplit("/", 1)[-1], int(i.get("size") or 0), 0.0) for i in found]

    def names(self, folder: str) -> list[str]:
        """What is directly in a folder below ("" for the store itself); none if it is not there."""
        path = self._path(folder) if folder else self._root
        try:
            found = self._files.ls(path, detail=False, refresh=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [str(item).rstrip("/").rsplit("/", 1)[-1] for item in found]

    def reader(self, name: str) -> Callable[[int, int], bytes]:
        """A function (offset, size) → bytes; the object is read once, whole."""
        data = self.get(name)
        if data is None:
            raise FileNotFoundError(name)
        return lambda offset, size: data[offset : offset + size]

    def get(self, name: str) -> bytes | None:
        """The whole object, or None."""
        try:
            return cast("bytes", self._files.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def put(self, name: str, data: bytes) -> None:
        """Writes the whole object."""
        path = self._path(name)
        try:
            self._files.pipe_file(path, data)
        except FileNotFoundError:  # a file system whose folders must be made; an object store has none
            self._files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self._files.pipe_file(path, data)

    def append(self, name: str, data: bytes) -> None:
        """Reads the object and writes it again, longer: for rare small files only."""
        self.put(name, (self.get(name) or b"") + data)

    def remove(self, name: str) -> None:
        """Removes the object if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def in_use(self, name: str) -> bool:
        """Not known for an object: sending what a living process also sends is harmless."""
        return False

    def claim(self, name: str) -> bool:
        """Not known for an object store either."""
        return True


def open_store(address: str) -> Store:
    """The store at a folder, a file:// address or any other that fsspec knows.

    Raises ImportError, ValueError or OSError if there can be none, and what a package behind fsspec raises.
    """
    if address.startswith("file://"):
        return LocalStore(Path(address.removeprefix("file://")).expanduser())
    return RemoteStore(address) if "://" in address else LocalStore(Path(address).expanduser())


def check_address(address: str) -> None:
    """Raises ImportError or ValueError where no store can be opened at an fsspec address. Connects to nothing."""
    if not address.startswith("file://"):
        import fsspec  # pyright: ignore[reportMissingTypeStubs]

        fsspec.get_filesystem_class(address.partition("://")[0])  # pyright: ignore[reportUnknownMemberType]


def default_folder() -> str:
    """Where spools go if PACENOTE_SPOOL_DIR is not set: the user's data folder, or one beside other temporary files for
    a user without a home (a container's bare user id)."""
    base = os.environ.get("XDG_DATA_HOME")
    if not base:
        try:
            base = str(Path.home() / ".local" / "share")
        except RuntimeError:
            import tempfile  # only here: most have a home

            base = str(Path(tempfile.gettempdir()) / f"pacenote-{os.getuid()}")
    return str(Path(base) / "pacenote" / "spool")
