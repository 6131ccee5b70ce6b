"""Check that no untrusted user could have written the files of a store.

SQLite replays a journal or log next to a file, no matter who wrote it. So a user who can only
create files in a store's folder could replace the whole store. Trusted users are root, the user of
this process, and the members of the folder's group. No other user may be able to write the folder,
the file or its side files, or own one of them.

Parent folders can belong to anyone, because they were chosen with the path. But one that every user
can write must be sticky, as /tmp is, and its entries on the path must belong to root or to us.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from pathlib import Path

from providers.errors import StoreError

_MOST_LINKS = 40


def side_files(path: Path) -> list[Path]:
    """Return the paths of SQLite's side files, which get the mode of the file."""
    return [path.with_name(f"{path.name}-{side}") for side in ("wal", "shm", "journal")]


def check_permissions(path: Path) -> None:
    """Raise StoreError if an untrusted user can write a store, or owns one of its files.

    Follows links, as SQLite does. Raises OSError if a folder or file does not exist.
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
            raise StoreError(f"{each} is next to a store, but is not a file: move it away")
        if found.st_mode & stat.S_IWOTH:
            raise StoreError(
                f"every user may write {each}, so it is not trusted: check who wrote it, or create "
                f"the indexes again, and chmod o-w {each}"
            )
        shared = folder.st_mode & stat.S_IWGRP and _is_member(found, folder.st_gid)
        if found.st_uid not in owners and not shared:
            raise StoreError(
                f"{each} belongs to another user ({_name(found.st_uid)}), so it is not trusted: "
                "move it away, or chown it"
            )


def check_folder_permissions(folder: Path) -> None:
    """Check the folder of a new store as `check_permissions` does."""
    _check_folder(_resolve(folder, is_folder=True))


def _check_folder(folder: Path) -> os.stat_result:
    """Check the folder of a store; its path has no links."""
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
    """Resolve links; raise StoreError if any user can replace a folder of the path."""
    here, left, links = Path(path.anchor), list(path.parts[1:]), 0
    while left:
        name = left.pop(0)
        if name == "..":
            here = here.parent
            continue
        folder, found = here.stat(), (here / name).lstat()
        # The file itself is checked elsewhere: its own folder must not be open to every user.
        if folder.st_mode & stat.S_IWOTH and (left or is_folder or stat.S_ISLNK(found.st_mode)):
            if not folder.st_mode & stat.S_ISVTX:
                raise StoreError(
                    f"every user can replace {here / name}, so a store in it is not trusted: "
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
