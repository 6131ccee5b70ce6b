"""Check the subjects of commits: `part: verb what`, imperative, at most 72 characters.

    python .ci/subjects.py              commits after BASE
    python .ci/subjects.py REV..HEAD    those of a range
    python .ci/subjects.py FILE         a message that git is about to commit

A shallow checkout may lack BASE. Then the commits that are there and younger are checked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BASE = "5ab5258a1248060efa54372af46731f2269a69ad"
SINCE = "2026-11-28T08:28:51+00:00"
"""When BASE was committed: earlier subjects follow no rule."""
MOST = 72
FORM = re.compile(r"(?:[a-z][\w./-]*)(?:, [a-z][\w./-]*)*: (?P<first>[A-Za-z][\w-]*)(?:[ ,;].*)?")
NO_VERB = re.compile(
    r"(?:a|an|the|all|no|some|new|more|now|and|as|in|of|on|with|when|where|what|who|fixes|adds"
    r"|\w+ed|\w+ing|\w+[a-rt-z]s)",
    re.IGNORECASE,
)
VERBS = {"bring", "embed", "feed", "focus", "need", "proceed", "ring", "seed", "shed", "speed",
         "spring", "string", "swing", "bias", "canvas"}  # fmt: skip


def fault(subject: str) -> str | None:
    """Return what is wrong with a subject, or None.

    >>> fault("join: prune the fact side of right outer joins")
    >>> fault("join: pruned the fact side")
    '"pruned" is not an imperative: begin with a verb such as add, prune or fix'
    >>> fault("Fixed it")
    'it has no part: write "part: verb what", such as "join: prune the fact side"'
    """
    if len(subject) > MOST:
        return f"it has {len(subject)} characters, the maximum is {MOST}"
    match = FORM.fullmatch(subject)
    if match is None:
        return 'it has no part: write "part: verb what", such as "join: prune the fact side"'
    first = match["first"]
    if first.lower() not in VERBS and NO_VERB.fullmatch(first):
        return f'"{first}" is not an imperative: begin with a verb such as add, prune or fix'
    return None


def git(*arguments: str) -> str:
    """Run git, and return what it prints."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def commits(revisions: str | None) -> list[tuple[str, str]]:
    """Return hash and subject of the commits to check; none without a git checkout."""
    if subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True).returncode:
        print("subjects of commits are not checked: this is no git checkout", file=sys.stderr)
        return []
    which = [revisions] if revisions else [f"--since={SINCE}", "HEAD"]
    if not revisions:
        command = ["git", "merge-base", "--is-ancestor", BASE, "HEAD"]
        if subprocess.run(command, capture_output=True).returncode == 0:
            which = [f"{BASE}..HEAD"]
    lines = git("log", "--no-merges", "--format=%h\t%s", *which).splitlines()
    return [(line.partition("\t")[0], line.partition("\t")[2]) for line in lines]


def main(arguments: list[str]) -> int:
    """Print each fault; the exit code is 1 if there is one."""
    given = arguments[0] if arguments else None
    if given and Path(given).is_file():
        lines = [line for line in Path(given).read_text().splitlines() if not line.startswith("#")]
        found = [("this commit", lines[0] if lines else "")]
        found = [(name, subject) for name, subject in found if not subject.startswith("Merge ")]
    else:
        found = commits(given)
    faults = [(name, subject, wrong) for name, subject in found if (wrong := fault(subject))]
    for name, subject, wrong in faults:
        print(f"{name}: {subject!r}: {wrong}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
