"""The folder that large messages go through: one a session, which nobody else can open.

It is removed with the session, or at exit. What processes left that were killed is removed when
the next session starts: a folder's name says whose it is.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import weakref
from pathlib import Path

from providers.errors import SkippingError

__all__ = ["Folder"]

_NAME = re.compile(r"skipping-([0-9]+)-([0-9]+)-\w+")
_MESSAGE = re.compile(r"[0-9a-f-]{36}\.message")

_MOST = 2**31
"""Bytes of a message at most: no array of Java's holds more."""


class Folder:
    """A private folder of this process's."""

    def __init__(self) -> None:
        _remove_leftovers()
        own = f"skipping-{os.getpid()}-{_start_ticks(os.getpid())}-"
        self.path = Path(tempfile.mkdtemp(prefix=own))
        self._end = weakref.finalize(self, _remove, self.path, os.getpid())

    def read(self, name: str) -> bytes:
        """The message in a file of the folder's; raises SkippingError for any other name or file.

        A file of somebody else's, or one that has a second name, is not read, nor is a link.
        """
        if not _MESSAGE.fullmatch(name):
            raise SkippingError("no message has this name")
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        except OSError as error:
            raise SkippingError("the message does not exist") from error
        finally:
            os.close(folder)
        with open(file, "rb") as opened:
            found = os.fstat(file)
            own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            if not own or found.st_nlink != 1 or found.st_mode & 0o077 or found.st_size > _MOST:
                raise SkippingError("the file is not a message from Java")
            return opened.read(found.st_size)

    def remove(self) -> None:
        """Remove it with what is in it; once is enough."""
        self._end()


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:  # a fork's exit leaves the folder to its parent
        shutil.rmtree(path, ignore_errors=True)


def _remove_leftovers() -> None:
    """Remove the folders of this user's dead processes."""
    for path in Path(tempfile.gettempdir()).glob("skipping-*"):
        match = _NAME.fullmatch(path.name)
        if match is None or _runs(int(match[1]), int(match[2])):
            continue
        try:
            found = path.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            # Links in it are removed, not followed.
            shutil.rmtree(path, ignore_errors=True)


def _runs(process: int, started: int) -> bool:
    """Whether a process runs, and is not another one with the same number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return started in (0, _start_ticks(process))


def _start_ticks(process: int) -> int:
    """When a process started, in ticks since the host did; 0 where the kernel does not tell.

    Not psutil's `create_time`, which is by the clock: a corrected clock would make us another one.
    """
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return 0
    # The second field is the command in parentheses, which may hold blanks and parentheses.
    return int(text.rpartition(")")[2].split()[19])
