"""Number the generations of an index: no two of its histories share a number.

A store that is restored from a backup continues to count from there. A plain counter would reach an
old number again with other entries, and a driver with cached entries would give ordinals to the
wrong files. So the upper half of a number counts, and the lower half is random.
"""

from __future__ import annotations

import secrets

from skipping.stores import Generation

_DRAWN = 31  # bits; all 63 fit the long of SQLite, OpenSearch and Java


def next_generation(generation: Generation) -> Generation:
    """Return a new generation after this one.

    >>> 0 < next_generation(0) < next_generation(next_generation(0))
    True
    """
    return epoch_of(generation) + (1 << _DRAWN) + secrets.randbits(_DRAWN)


def epoch_of(generation: Generation) -> Generation:
    """Return the generation without its random half: the smallest with the same count.

    >>> epoch_of(0), epoch_of(next_generation(0)) == 1 << 31
    (0, True)
    """
    return generation >> _DRAWN << _DRAWN
