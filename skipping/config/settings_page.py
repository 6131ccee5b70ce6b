"""Generate the table in docs/settings.md: `python -m skipping.config.settings_page` prints it."""

from __future__ import annotations

from skipping.config.settings import PREFIX, SETTINGS


def page() -> str:
    """Return a Markdown table of all settings, in the order of `SETTINGS`."""
    rows = [f"| `{PREFIX}` | default | takes | meaning |", "|---|---|---|---|"]
    for setting in SETTINGS:
        default = f"`{setting.default}`" if setting.default else ""
        rows.append(f"| `{setting.key}` | {default} | {setting.takes} | {setting.meaning} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(page())
