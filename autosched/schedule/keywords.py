"""Keywords of TVM's primitives, for programs that were written for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from autosched.checks import shown
from autosched.errors import ScheduleError

_T = TypeVar("_T", bound=type)
_PLACE = {"block_or_loop": "place"}
_ANNOTATION = {**_PLACE, "ann_key": "key", "ann_val": "value"}
_SCOPE = {"storage_scope": "scope"}
_UNIT = frozenset({"preserve_unit_iters"})
_AT = frozenset({"preserve_unit_loops"})

RENAMED: Mapping[str, Mapping[str, str]] = {
    "__init__": {"mod": "target"},
    "bind": {"thread_axis": "thread"},
    "cache_read": {**_SCOPE, "read_buffer_index": "buffer", "consumer_blocks": "consumers"},
    "cache_write": {**_SCOPE, "write_buffer_index": "index"},
    "cache_index": _SCOPE,
    "reindex_cache_read": {**_SCOPE, "read_buffer_index": "buffer_index"},
    "reindex_cache_write": {**_SCOPE, "write_buffer_index": "buffer_index"},
    "set_scope": {**_SCOPE, "buffer_index": "index"},
    "annotate": _ANNOTATION,
    "unannotate": _ANNOTATION,
    "add_unit_loop": _PLACE,
    "get_child_blocks": _PLACE,
    "tensorize": {**_PLACE, "tensor_intrin": "intrin"},
    "blockize": {"target": "loop"},
    "pad_einsum": {"padding": "padding_"},
}
"""By method, the keyword here for each that TVM has and that is another one here."""
WITHOUT_MEANING: Mapping[str, frozenset[str]] = {
    "__init__": frozenset({"debug_mask", "error_render_level", "enable_check"}),
    "get_block": frozenset({"func_name"}),
    "split": _UNIT | {"disable_predication"},
    "fuse": _UNIT,
    "loop_partition": _UNIT,
    "blockize": _UNIT,
    "tensorize": _UNIT,
    "compute_at": _AT,
    "reverse_compute_at": _AT,
    "transform_layout": frozenset({"assume_injective_transform"}),
}
"""By method, keywords that change nothing here: every program is checked, and loops and axes of one
point stay."""
ONLY: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "compute_at": {"index": (-1,)},
    "reverse_compute_at": {"index": (-1,)},
    "cache_write": {"consumer_blocks": (None, [], ())},
    "cache_index": {"cse_thresh": (0,)},
}
"""By method, keywords of which some values are what is done here; others are refused."""


def predecessors_keywords(cls: _T) -> _T:
    """Let the methods of a class take the keywords of TVM beside their own."""
    for name in {**RENAMED, **WITHOUT_MEANING, **ONLY}:
        setattr(cls, name, _translating(getattr(cls, name), name))
    return cls


def _translating(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    renamed, only = RENAMED.get(name, {}), ONLY.get(name, {})
    idle = WITHOUT_MEANING.get(name, frozenset())

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.keys().isdisjoint((*renamed, *only, *idle)):
            return method(self, *args, **kwargs)
        kept: dict[str, Any] = {}
        for key, value in kwargs.items():
            if key in only and not any(value is x or value == x for x in only[key]):
                have = " or ".join(map(repr, only[key]))
                raise ScheduleError(f"{name}: {key} is {shown(value)}; expected {have}")
            own = renamed.get(key, key)
            if own in kept:
                raise ScheduleError(f"{name}: {own} and {key} are one argument; give one of them")
            none = key == "consumer_blocks" and value is None
            if key not in only and key not in idle and not none:
                kept[own] = value
        return method(self, *args, **kept)

    return call
