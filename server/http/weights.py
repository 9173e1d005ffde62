"""What a request accepts: names with weights, in Accept and Accept-Encoding (RFC 9110, 12.4.2)."""

from __future__ import annotations

import re

from starlette.datastructures import Headers

_WEIGHT = re.compile(r"0(\.\d{0,9})?|1(\.0{0,9})?", re.ASCII)


def weights(headers: Headers, name: str) -> dict[str, float]:
    """Name in small letters -> weight, from 0, which forbids, to 1, of what a header lists; the
    largest, where one stands several times. What is no weight counts as none given, which is 1."""
    found: dict[str, float] = {}
    for item in ",".join(headers.getlist(name)).lower().split(","):
        what, *parameters = (part.strip() for part in item.split(";"))
        given = (p.partition("=") for p in parameters)
        texts = (text.strip() for key, _, text in given if key.strip() == "q")
        weight = next((float(text) for text in texts if _WEIGHT.fullmatch(text)), 1.0)
        found[what] = max(weight, found.get(what, 0.0))
    return found


def rank(accepted: dict[str, float], media_type: str) -> tuple[float, int]:
    """How much a media type is wanted, to be compared: its weight, then how closely it is named.
    One that nothing names comes before one that is forbidden."""
    kind = media_type.partition("/")[0]
    for closeness, name in ((2, media_type), (1, f"{kind}/*"), (0, "*/*")):
        if name in accepted:
            return accepted[name] or -1.0, closeness
    return 0.0, 0
