"""Scripts over doc values that run inside the cluster, if it allows them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from providers.errors import StoreError
from skipping.stores.entries import bitmap_of
from skipping.stores.opensearch.client import Body

WORDS = 2**16
"""Maximum of words of a bitmap in a response: four million ordinals."""

ANY_FILTER: Body = {"script": {"script": "return false"}}
"""A query that fails if the cluster does not allow scripts in queries."""

_TURNS = 1_000_000  # maximum of loops of a script

_BITMAP: Body = {
    "init_script": "state.w = new long[params.n];",
    "map_script": "int o = (int) doc['ordinal'].value; state.w[o >> 6] |= (1L << (o & 63));",
    "combine_script": "return state.w",
    "reduce_script": (
        "long[] r = new long[params.n]; for (s in states) { if (s != null) {"
        " for (int i = 0; i < params.n; i++) { r[i] |= s[i]; } } } return r;"
    ),
}

_HALF = 15
"""Bits of a position in each of two characters, so that none is a surrogate of UTF-16."""

# Half of the bits of a full filter are set, so most keys fail after two bits. One loop over a
# string takes a third of the time of two loops over a list.
_UNSET_BITS = """
def values = doc[params.field];
if (values.size() == 0) return false;
BytesRef value = values.value;
if (value.length < params.least) return false;
byte[] bytes = value.bytes;
int start = value.offset;
String bits = params.bits;
int last = bits.length();
if (last == 0) return true;
int key = params.key;
int at = 0;
int end = key;
while (true) {
  int bit = (int) bits.charAt(at) << 15 | (int) bits.charAt(at + 1);
  if ((bytes[start + (bit >> 3)] >> (bit & 7) & 1) == 0) {
    if (end == last) return true;
    at = end;
    end += key;
  } else {
    at += 2;
    if (at == end) return false;
  }
}
"""


def bitmap(n: int) -> Body:
    """Return an aggregation of the ordinals of all documents as `n` words of 64 bits."""
    return {"scripted_metric": {**_BITMAP, "params": {"n": n}}}


def bitmap_words(values: Sequence[int] | None, n: int) -> BitMap:
    """Return the ordinals in the `n` words of a bitmap; without documents, there are no words.

    Raises StoreError for more words, because each takes sixty times its bytes in memory.
    """
    try:
        if len(values or ()) > n:
            raise ValueError(f"it has {len(values or ())} words, not {n}")
        packed = np.array(values or (), np.int64).view(np.uint8)
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"the response has no bitmap: {error}") from error
    return bitmap_of(np.flatnonzero(np.unpackbits(packed, bitorder="little")))


def unset_bits(field: str, keys: pa.FixedSizeListArray) -> Body | None:
    """Return a query for documents in which every key has a bit that is not set.

    Returns None for keys without bits, and if that needs more loops than a script is allowed.
    """
    bits, slices = keys.flatten().to_numpy(), keys.type.list_size
    in_range = not len(bits) or 0 <= bits.min() <= bits.max() < 1 << 2 * _HALF
    if not slices or not in_range or len(bits) >= _TURNS:
        return None
    halves = np.stack([bits >> _HALF, bits & (1 << _HALF) - 1], axis=1)
    params = {
        "field": field,
        "least": int(bits.max()) // 8 + 1 if len(bits) else 0,
        "bits": halves.astype("<u2").tobytes().decode("utf-16-le"),
        "key": 2 * slices,
    }
    return {"script": {"script": {"source": _UNSET_BITS, "params": params}}}
