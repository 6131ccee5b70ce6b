"""Pass large messages through a private folder, one for each session.

The folder is removed with the session, or at exit. A killed process leaves its folder, which the
next session removes: the folder's name contains the process.
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
"""Maximum size of a message in bytes: a Java array holds no more."""


class Folder:
    """A private folder of this process."""

    def __init__(self) -> None:
        _remove_leftovers()
        own = f"skipping-{os.getpid()}-{_start_ticks(os.getpid())}-"
        self.path = Path(tempfile.mkdtemp(prefix=own))
        self._end = weakref.finalize(self, _remove, self.path, os.getpid())

    def read(self, name: str) -> bytes:
        """Return the message in a file of the folder.

        Raises SkippingError for a name that is no message's, a link, a file with a second name,
        and a file that another user owns or can access.
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
        """Remove the folder and its files; further calls do nothing."""
        self._end()


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child must not remove its parent's folder
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
    """Return whether a process runs, and is not a new process with the same number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return started in (0, _start_ticks(process))


def _start_ticks(process: int) -> int:
    """Return a process's start in ticks since the host's start; 0 if the kernel does not report it.

    psutil's `create_time` depends on the clock: after a correction it differs for one process.
    """
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return 0
    # The second field is the command in parentheses, which may hold blanks and parentheses.
    return int(text.rpartition(")")[2].split()[19])
