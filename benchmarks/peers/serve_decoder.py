"""onnxruntime on a decoder whose cache grows; the other end of `Peer`, run by its own Python."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np
import onnxruntime


def main() -> None:
    """Answer a line of JSON for each line that asks for a turn: a loop of steps, the cache of each
    an input of the next, up to the length."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    session = onnxruntime.InferenceSession(options.model, settings)
    token, *cache = session.get_inputs()
    first = options.length - options.steps
    start = [np.zeros([first if n == "n" else n for n in c.shape], np.float32) for c in cache]
    _answer({"ready": True, "about": {"onnxruntime": onnxruntime.__version__}})
    for _ in sys.stdin:
        seconds, past = [], start
        for _ in range(options.steps):
            keys = dict(zip((c.name for c in cache), past, strict=True))
            given = {token.name: np.array([[1]]), **keys}
            began = time.perf_counter()
            _, *past = session.run(None, given)
            seconds.append(time.perf_counter() - began)
        _answer({"min": float(np.median(seconds)), "call": 0.0})


def _answer(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
