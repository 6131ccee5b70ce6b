"""Count wording that a stranger would stumble over, and fail if there is more than before.

    python .ci/wording.py               compare with the maximums in .ci/wording.json
    python .ci/wording.py --list AREA   print each place of an area: docs, java, product, tests
    python .ci/wording.py --lower       write today's counts as the new maximums, where lower

Two things are counted: functions named by a participle, and phrases of a translated English. A
hit is a place to look at. CONTRIBUTING.md has the rules for names and sentences.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LIMITS = ROOT / ".ci" / "wording.json"

PARTICIPLES = (
    r"[a-z]+ed|bound|broken|built|chosen|cut|dealt|drawn|found|given|held|hidden|kept|known|left"
    r"|let|lost|made|meant|put|said|seen|shown|spelt|taken|told|written"
)
PARTICIPLE = re.compile(
    rf"_*(?!is_|has_|was_|are_|test_)(?:[a-z]+_)*?(?:{PARTICIPLES})"
    r"(?:_(?:by|of|to|from|in|for|with|at|up|on)\w*)?"
)
"""Not a name with a verb in front that takes one, such as `is_cached`."""

PHRASES = {
    "pruned": r"\bdisprov\w+",
    "in vain": r"\bin vain\b",
    "asked, told, said": r"\b(is|are|was|be|it) (asked|told|said)\b"
    r"|\b(asks|tells|says) (of|about|the index|whether|what)\b",
    "who + verb": r"\b(who|whoever) (asks|has|keeps|reads|writes|waits|names|owns|gets|got|ends)\b",
    "so many, as many": r"\b(so|as) many\b",
    "want of": r"\bwant of\b",
    "least, greatest value": r"\b(least|greatest) (value|and|values)\b",
    "of which": r"\bof which\b",
    "all the same": r"\ball the same\b",
    "by itself": r"\bby (itself|themselves)\b",
    "the store is away": r"\b(store|node|cluster|server)\b[^.]{0,20}\bis away\b",
    "dear, fleeting": r"\b(too )?dear\b|\bfleeting\b",
    "leg": r"\blegs?\b",
    "house, room": r"\b(house|rooms?)\b",
    "what stands": r"\b(what|it) stands\b",
    "beside (with)": r"\bbeside (it|them|each|the)\b",
    "is none": r"\b(is|are) (?-i:none)\b",
    "given up": r"\bgiven up\b",
}
PATTERN = re.compile(
    "|".join(f"(?P<p{i}>{pattern})" for i, pattern in enumerate(PHRASES.values())), re.IGNORECASE
)


class Hit(NamedTuple):
    """A place: `rule` is "names", or the phrase."""

    path: str
    line: int
    rule: str
    text: str


def area(path: str) -> str:
    """Return which maximum counts for a file."""
    if path.endswith(".md"):
        return "docs"
    if path.endswith(".java"):
        return "java"
    return "tests" if path.startswith("tests/") else "product"


def names(path: str, text: str) -> Iterator[Hit]:
    """Find functions that a participle names. Tests and properties may have such names."""
    if not path.endswith(".py"):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorated = any("property" in ast.dump(item) for item in node.decorator_list)
            if not decorated and PARTICIPLE.fullmatch(node.name):
                yield Hit(path, node.lineno, "names", node.name)


def prose(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Find what people read, with line numbers: pages, comments and texts."""
    if path.endswith(".md"):
        yield from enumerate(text.splitlines(), 1)
    elif path.endswith(".java"):
        for match in re.finditer(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"', text, re.DOTALL):
            first = text.count("\n", 0, match.start()) + 1
            yield from enumerate(match[0].splitlines(), first)
    else:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if (
                token.type in (tokenize.COMMENT, tokenize.STRING)
                or "FSTRING" in (tokenize.tok_name[token.type])
            ):
                yield from enumerate(token.string.splitlines(), token.start[0])


def hits(path: str, text: str) -> Iterator[Hit]:
    """Find all places of one file."""
    yield from names(path, text)
    for line, words in prose(path, text):
        for match in PATTERN.finditer(words):
            rule = list(PHRASES)[int(str(match.lastgroup)[1:])] if match.lastgroup else ""
            yield Hit(path, line, rule, words.strip()[:100])


def every_hit() -> Iterator[Hit]:
    """Read the files that git has or would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    for path in listed.split("\0"):
        if not path.endswith((".py", ".java", ".md")) or not (ROOT / path).is_file():
            continue
        if not path.startswith(".ci/") and path != "tests/test_wording.py":
            yield from hits(path, (ROOT / path).read_text())


def counts(found: list[Hit]) -> dict[str, dict[str, int]]:
    """Count names and phrases for each area."""
    result = {name: {"names": 0, "phrases": 0} for name in ("docs", "java", "product", "tests")}
    for hit in found:
        result[area(hit.path)]["names" if hit.rule == "names" else "phrases"] += 1
    return result


def main(arguments: list[str]) -> int:
    """Compare, list or lower."""
    parser = argparse.ArgumentParser(description="Count wording that a stranger stumbles over.")
    parser.add_argument("--list", metavar="AREA", choices=["docs", "java", "product", "tests"])
    parser.add_argument("--lower", action="store_true")
    options = parser.parse_args(arguments)
    found = list(every_hit())
    if options.list:
        for hit in found:
            if area(hit.path) == options.list:
                print(f"{hit.path}:{hit.line}: {hit.rule}: {hit.text}")
        return 0
    limits, today = json.loads(LIMITS.read_text()), counts(found)
    code = 0
    for name, counted in today.items():
        for what, number in counted.items():
            limit = limits[name][what]
            if number > limit:
                code = 1
                print(f"{name}: {number} {what}, the maximum is {limit}; see --list {name}")
            elif options.lower:
                limits[name][what] = number
            elif number < limit:
                print(f"{name}: {number} {what}, the maximum is {limit}; run --lower")
    if options.lower:
        LIMITS.write_text(json.dumps(limits, indent=2) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
