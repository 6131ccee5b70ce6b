"""Numbers of generations: each counts a change, and no two histories of an index share a number.

A store that is restored from a backup continues to count from there. With a plain counter it would
reach an old number again with other entries, and a driver with cached entries would give ordinals
to the wrong files. So the upper half of a number counts, and the lower half is random.
"""

from __future__ import annotations

import secrets

from providers.errors import Rewound
from skipping.stores import Generation

REMEMBERED = 64
"""The number of remembered generations. A reader further behind reads all entries again."""

_DRAWN = 31  # bits; all 63 fit the long of SQLite, OpenSearch and Java


def next_generation(generation: Generation) -> Generation:
    """Return a new generation after this one.

    >>> 0 < next_generation(0) < next_generation(next_generation(0))
    True
    """
    return epoch_of(generation) + (1 << _DRAWN) + secrets.randbits(_DRAWN)


def empty_generation(generation: Generation) -> Generation:
    """Return the generation after this one for an index without entries: the same for every caller.

    >>> empty_generation(0) == empty_generation(5) == 1 << 31
    True
    """
    return epoch_of(generation) + (1 << _DRAWN)


def epoch_of(generation: Generation) -> Generation:
    """Return the generation without its random half: the smallest with the same count.

    >>> epoch_of(0), epoch_of(next_generation(0)) == 1 << 31
    (0, True)
    """
    return generation >> _DRAWN << _DRAWN


def rewound_error(location: str, index: str) -> Rewound:
    """Return the error for a generation that the store does not remember."""
    return Rewound(
        f"the store {location} does not remember this generation of index {index}: it was "
        "restored, or has changed many times since; read its entries again"
    )
