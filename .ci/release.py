"""Make a release: version, changelog, packages from a clean clone, tried where nothing else is.

    python .ci/release.py VERSION [--index FOLDER]

Nothing is uploaded and nothing tagged: the commands are printed. `--index` writes the packages as
an index in a folder, from which `pip install --index-url file://FOLDER/simple` installs.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAME = "lakehouse-file-skipping"
VERSION = re.compile(r'^version = "(.+)"$', re.MULTILINE)


class ReleaseError(Exception):
    """Something that whoever releases must put right."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a program, and return what it prints."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        raise ReleaseError(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def set_version(version: str, root: Path) -> bool:
    """Write version and date; return whether anything changed."""
    if not re.fullmatch(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", version):
        raise ReleaseError(f"{version!r} is not a version such as 0.1.0 or 0.2.0rc1")
    project, changelog = root / "pyproject.toml", root / "CHANGELOG.md"
    before = project.read_text(), changelog.read_text()
    today = datetime.date.today().isoformat()
    text = re.sub(
        rf"^## \[{re.escape(version)}\] - unreleased$",
        f"## [{version}] - {today}",
        before[1],
        flags=re.MULTILINE,
    )
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE):
        raise ReleaseError(f"CHANGELOG.md has no section: ## [{version}] - unreleased")
    project.write_text(VERSION.sub(f'version = "{version}"', before[0], count=1))
    changelog.write_text(text)
    return before != (project.read_text(), changelog.read_text())


def build(folder: Path) -> tuple[Path, Path]:
    """Build sdist and wheel from a clone, so that nothing untracked gets in."""
    clone = folder / "clone"
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, clone)
    run(sys.executable, ".ci/jars.py", "--all", cwd=clone)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", cwd=clone)
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    (wheel,) = (folder / "dist").glob("*.whl")
    return sdist, wheel


def example() -> str:
    """Return the block of the quickstart that needs neither Spark nor another extra."""
    page = (ROOT / "docs" / "quickstart.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if "lake/departures" in block)
    return str(block)


def try_out(wheel: Path, version: str, folder: Path) -> None:
    """Install the wheel in an empty environment, and use it there."""
    venv.create(folder / "environment")
    python = folder / "environment" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    constraints = ROOT / ".ci" / "constraints.txt"
    run(*pip, "--python", python, "install", "-c", constraints, wheel)
    said = run(python.with_name("file-skipping"), "--version", cwd=folder).strip()
    if said != version:
        raise ReleaseError(f"the wheel reports version {said}, not {version}")
    printed = run(python, "-c", example(), cwd=folder)
    if "1 of 10 files" not in printed:
        raise ReleaseError(f"the example of the quickstart skipped no file:\n{printed}")


def publish(packages: tuple[Path, ...], index: Path) -> None:
    """Add packages to an index: a folder for each project, with a page of links."""
    folder = index / "simple" / NAME
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        if (folder / package.name).exists():
            raise ReleaseError(f"{package.name} is published already; raise the version")
        shutil.copy(package, folder)
    links = [
        f'<a href="{file.name}#sha256={hashlib.sha256(file.read_bytes()).hexdigest()}">'
        f"{file.name}</a><br>"
        for file in sorted(folder.iterdir())
        if file.name != "index.html"
    ]
    (folder / "index.html").write_text("\n".join(["<!DOCTYPE html>", *links, ""]))
    (index / "simple" / "index.html").write_text(f'<!DOCTYPE html>\n<a href="{NAME}/">{NAME}</a>\n')


def release(version: str, index: Path | None) -> None:
    """Do all steps."""
    if changed := run("git", "status", "--porcelain").strip():
        raise ReleaseError(f"commit or remove these first:\n{changed}")
    if set_version(version, ROOT):
        subject = f"release: set the version to {version}"
        run("git", "commit", "--quiet", "-m", subject, "pyproject.toml", "CHANGELOG.md")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        packages = build(folder)
        try_out(packages[1], version, folder)
        if index is not None:
            publish(packages, index)
        else:
            (ROOT / "dist").mkdir(exist_ok=True)
            for package in packages:
                shutil.copy(package, ROOT / "dist")
    print(f"{NAME} {version} is built and tried. Read CHANGELOG.md once more, then:")
    print(f"  git tag --annotate v{version} --message {version} && git push --follow-tags")
    if index is None:
        print(f"  twine upload --repository NAME dist/*{version}*  # NAME as in your .pypirc")


def main(arguments: list[str]) -> int:
    """Release; the exit code is 1, and the reason printed, if something must be put right."""
    parser = argparse.ArgumentParser(description="Make a release.")
    parser.add_argument("version")
    parser.add_argument("--index", type=Path, metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        release(options.version, options.index and options.index.absolute())
    except ReleaseError as error:
        print(f"not released: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
