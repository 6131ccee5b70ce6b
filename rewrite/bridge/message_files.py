"""Read large messages from files that Java writes into a private folder, one for each session.

The folder is removed with the session, or at exit. A killed process leaves its folder behind; the
next session removes it, because the folder's name contains the process id.
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

_NAME = re.compile(r"skipping-([0-9]+)-([0-9]+)-\w+")
_MESSAGE = re.compile(r"[0-9a-f-]{36}\.message")

_MOST = 2**31
"""Maximum size of a message in bytes, which is that of a Java array."""


class Folder:
    """A private folder for messages from Java to this process."""

    def __init__(self) -> None:
        _remove_leftovers()
        own = f"skipping-{os.getpid()}-{_start_ticks(os.getpid())}-"
        self.path = Path(tempfile.mkdtemp(prefix=own))
        self._end = weakref.finalize(self, _remove, self.path, os.getpid())

    def read(self, name: str) -> bytes:
        """Return the message in a file of the folder.

        Raises SkippingError if the file's name does not have the form of a message's, or if the
        file is missing, a link, has several hard links, is too large, or belongs or is accessible
        to another user.
        """
        if not _MESSAGE.fullmatch(name):
            raise SkippingError(f"{name!r:.100} is not the name of a message file")
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        except OSError as error:
            raise SkippingError(f"cannot open the message file {name}: {error.strerror}") from error
        finally:
            os.close(folder)
        with open(file, "rb") as opened:
            status = os.fstat(file)
            is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
            is_private = status.st_nlink == 1 and not status.st_mode & 0o077
            if not is_own or not is_private or status.st_size > _MOST:
                raise SkippingError(f"the file {name} is not a message from Java")
            return opened.read(status.st_size)

    def remove(self) -> None:
        """Remove the folder and its files; further calls do nothing."""
        self._end()


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child must not remove its parent's folder
        shutil.rmtree(path, ignore_errors=True)


def _remove_leftovers() -> None:
    """Remove the folders of this user's processes that no longer run."""
    for path in Path(tempfile.gettempdir()).glob("skipping-*"):
        match = _NAME.fullmatch(path.name)
        if match is None or _is_running(int(match[1]), int(match[2])):
            continue
        try:
            status = path.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            # rmtree removes links without following them.
            shutil.rmtree(path, ignore_errors=True)


def _is_running(process: int, started: int) -> bool:
    """Return whether the process with this id and start time is still running."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return started in (0, _start_ticks(process))


def _start_ticks(process: int) -> int:
    """Return when a process started, in clock ticks since the host's boot; 0 if unknown.

    psutil's `create_time` would depend on the wall clock: if that is corrected, the same process
    gets another start time.
    """
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return 0
    # The second field is the command in parentheses, which may contain spaces and parentheses.
    return int(text.rpartition(")")[2].split()[19])
