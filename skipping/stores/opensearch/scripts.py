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

# Half of the bits of a full filter are set, so most keys fail after two bits.
_UNSET_BITS = """
def values = doc[params.field];
if (values.size() == 0) return false;
BytesRef value = values.value;
if (value.length < params.least) return false;
byte[] bytes = value.bytes;
int start = value.offset;
List bits = params.bits;
int slices = params.slices;
for (int key = 0, end = 0; key < params.keys; key++) {
  int at = end;
  end += slices;
  while (at < end) {
    int bit = (int) bits.get(at);
    if ((bytes[start + (bit >> 3)] >> (bit & 7) & 1) == 0) break;
    at++;
  }
  if (at == end) return false;
}
return true;
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

    Returns None if that needs more loops than a script is allowed.
    """
    bits = keys.flatten()
    positions = bits.to_numpy()
    slices = keys.type.list_size
    in_range = not len(positions) or 0 <= positions.min() <= positions.max() < 2**31
    if not in_range or len(positions) + len(keys) >= _TURNS:
        return None
    params = {
        "field": field,
        "least": int(positions.max()) // 8 + 1 if len(positions) else 0,
        "bits": bits.to_pylist(),
        "slices": slices,
        "keys": len(keys),
    }
    return {"script": {"script": {"source": _UNSET_BITS, "params": params}}}
