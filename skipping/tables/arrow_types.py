"""Replace types within nested Arrow types."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


def replace_leaves(
    type: pa.DataType, replaced: Callable[[pa.DataType], pa.DataType]
) -> pa.DataType:
    """Replace each innermost type `t` of a nested type by `replaced(t)`.

    >>> replace_leaves(pa.list_(pa.string_view()), without_view)
    ListType(list<item: string>)
    """
    types = pa.types

    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(replace_leaves(field.type, replaced))

    if types.is_struct(type):
        return pa.struct([inner(field) for field in type])
    if types.is_list(type):
        return pa.list_(inner(type.value_field))
    if types.is_large_list(type):
        return pa.large_list(inner(type.value_field))
    if types.is_map(type):
        return pa.map_(inner(type.key_field), inner(type.item_field))
    return replaced(type)


def without_view(type: pa.DataType) -> pa.DataType:
    """Return `string` or `binary` for a view of them: Arrow cannot filter or compare views."""
    if pa.types.is_string_view(type):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(type) else type
