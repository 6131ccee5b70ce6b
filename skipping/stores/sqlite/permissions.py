"""Who else could write the files of a store: then its answers cannot be trusted.

SQLite replays what it finds beside a file under the names of its journal and its log, whoever made
it. So a user who may only create files in the folder of a store could exchange all of it. Trusted
are root, the user of this process, and those who share the folder with it by its group. Nobody
else may write the folder, the file or what lies beside it, or own one of them.

Folders above may belong to anybody, because whoever chose the path chose them, but one that every
user may write has to be sticky, as /tmp is, and what lies in it has to be root's or our own.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from pathlib import Path

from providers.errors import StoreError

__all__ = ["check_folder_permissions", "check_permissions", "side_files"]

_MOST_LINKS = 40


def side_files(path: Path) -> list[Path]:
    """The names of the files that SQLite has beside a file; they get its mode."""
    return [path.with_name(f"{path.name}-{side}") for side in ("wal", "shm", "journal")]


def check_permissions(path: Path) -> None:
    """Raise StoreError if somebody who is not trusted may write a store, or wrote beside it.

    Links are followed, as SQLite does. Raises OSError where something is not there.
    """
    path = _resolve(path)
    folder = _check_folder(path.parent)
    owners = {*_ours(), folder.st_uid}
    for each in (path, *side_files(path)):
        try:
            found = each.lstat()
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"{each} is beside a store, and no file: move it away")
        if found.st_mode & stat.S_IWOTH:
            raise StoreError(
                f"every user may write {each}, so it is not trusted: check who did, or create the "
                f"indexes anew, and chmod o-w {each}"
            )
        shared = folder.st_mode & stat.S_IWGRP and _is_member(found, folder.st_gid)
        if found.st_uid not in owners and not shared:
            raise StoreError(
                f"{each} belongs to another user ({_name(found.st_uid)}), so it is not trusted: "
                "move it away, or chown it"
            )


def check_folder_permissions(folder: Path) -> None:
    """As `check_permissions`, for the folder in which a store is to be made."""
    _check_folder(_resolve(folder, is_folder=True))


def _check_folder(folder: Path) -> os.stat_result:
    """The folder of a store, which has no links in its path."""
    found = folder.stat()
    if found.st_mode & stat.S_IWOTH:
        raise StoreError(
            f"every user may write the folder {folder}, so a store in it is not trusted: name "
            f"another folder, or chmod o-w {folder}"
        )
    if found.st_uid not in _ours() and found.st_gid not in {os.getegid(), *os.getgroups()}:
        raise StoreError(
            f"the folder {folder} belongs to another user ({_name(found.st_uid)}), so a store in "
            "it is not trusted: name another folder, or chown it, or chgrp it to a group of yours"
        )
    return found


def _resolve(path: Path, *, is_folder: bool = False) -> Path:
    """The path without links; raises StoreError where any user can exchange a folder of it."""
    here, left, links = Path(path.anchor), list(path.parts[1:]), 0
    while left:
        name = left.pop(0)
        if name == "..":
            here = here.parent
            continue
        folder, found = here.stat(), (here / name).lstat()
        # The file itself is not looked at: its own folder may not be open to every user at all.
        if folder.st_mode & stat.S_IWOTH and (left or is_folder or stat.S_ISLNK(found.st_mode)):
            if not folder.st_mode & stat.S_ISVTX:
                raise StoreError(
                    f"every user may exchange {here / name}, so a store in it is not trusted: "
                    f"name another folder, or chmod o-w {here}"
                )
            if found.st_uid not in _ours():
                raise StoreError(
                    f"{here / name} was made by another user ({_name(found.st_uid)}) in a folder "
                    "that every user may write, so it is not trusted: name another"
                )
        if not stat.S_ISLNK(found.st_mode):
            here /= name
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = Path(os.readlink(here / name))
        if target.is_absolute():
            here = Path(target.anchor)
        left[:0] = target.parts[1:] if target.is_absolute() else target.parts
    return here


def _ours() -> tuple[int, int]:
    return 0, os.geteuid()


def _is_member(found: os.stat_result, group: int) -> bool:
    """Whether the owner of a file is of a group."""
    try:
        owner = pwd.getpwuid(found.st_uid)
    except KeyError:  # as in containers, whose users have no names
        return found.st_gid == group
    return group in os.getgrouplist(owner.pw_name, owner.pw_gid)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
