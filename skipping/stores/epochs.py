"""Numbers of generations: each counts one more change, and no two histories of an index share one.

A store that was restored from a backup counts on from there, and one day comes to where it had been
before. Were it only counted, whoever remembers the lost history would take the new one for it: its
ordinals would name other files. So half of a number is the count, the other half is drawn anew.
"""

from __future__ import annotations

import secrets

from providers.errors import Rewound
from skipping.stores import Generation

__all__ = ["REMEMBERED", "alike", "empty_generation", "next_generation", "rewound_error"]

REMEMBERED = 64
"""So many generations back are followed from; whoever is further behind reads everything again."""

_DRAWN = 31  # bits; all 63 fit the long of SQLite, OpenSearch and Java


def next_generation(generation: Generation) -> Generation:
    """One after it that nobody else draws.

    >>> 0 < next_generation(0) < next_generation(next_generation(0))
    True
    """
    return alike(generation) + (1 << _DRAWN) + secrets.randbits(_DRAWN)


def empty_generation(generation: Generation) -> Generation:
    """One after it in which nothing is left: the same for everybody, who all know as little.

    >>> empty_generation(0) == empty_generation(5) == 1 << 31
    True
    """
    return alike(generation) + (1 << _DRAWN)


def alike(generation: Generation) -> Generation:
    """The least that counts as many changes, of whatever history.

    >>> alike(0), alike(next_generation(0)) == 1 << 31
    (0, True)
    """
    return generation >> _DRAWN << _DRAWN


def rewound_error(location: str, index: str) -> Rewound:
    """What to raise for a generation that is none of those before the present one."""
    return Rewound(
        f"the store {location} does not know this past of index {index}, as after a restore: "
        "it went back to an earlier state, or far on; ask again"
    )
