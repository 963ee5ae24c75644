"""Like records as columns: what a page holds of two years of nights, in a tenth of the room.

``static/page.js`` turns columns back into records; the two describe one format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def flatten(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``record`` without nesting: ``{"gpu": {"name": x}}`` is ``{"gpu.name": x}``."""
    flat = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def columns(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """``records``, flattened, as ``{key: column}``; a key that a record lacks is null there.

    A column is ``{"all": value}`` where every record has the same value, ``{"of": distinct values,
    "at": an index into them for each record}`` where values recur, else ``{"each": values}``.
    """
    flat = [flatten(record) for record in records]
    keys = dict.fromkeys(key for record in flat for key in record)
    return {key: _column([record.get(key) for record in flat]) for key in keys}


def _column(values: list[Any]) -> dict[str, Any]:
    distinct: dict[str, int] = {}  # by JSON text, for lists cannot be keys and 1 == True
    at = [distinct.setdefault(json.dumps(value), len(distinct)) for value in values]
    if len(distinct) == 1:
        return {"all": values[0]}
    if len(distinct) <= len(values) // 2:
        return {"of": [json.loads(text) for text in distinct], "at": at}
    return {"each": values}


def script_json(value: Any) -> str:
    """``value`` as JSON that can stand in a ``<script>`` element or file: no ``<``, ``>``, ``&``.

    Raises ValueError for NaN and infinities, which JSON doesn't have.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text
