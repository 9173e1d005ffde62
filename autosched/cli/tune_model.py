"""`autosched tune MODEL.onnx`."""

from __future__ import annotations

import argparse
import json

from autosched.cli.model import check_folder, read_model, show_progress
from autosched.cli.tune import ends_in_order, interrupted, tuning_options
from autosched.errors import TuningError, WorkloadError
from autosched.tuning.pools import PoolAddress
from autosched.tuning.run.model_tasks import extract_tasks
from autosched.tuning.run.model_tuning import tune

TRIALS = 64
"""For each kernel, where no number is given."""


def tune_model(options: argparse.Namespace) -> int:
    """Tune a model's kernels and print what became of them."""
    if not options.workload.endswith(".onnx"):
        raise WorkloadError(f"{options.workload} is compiled; give the ONNX file that it is from")
    if options.args or options.layout_rewrite is not None or options.form is not None:
        raise WorkloadError(
            "a model takes no arguments, no --layout-rewrite and no --as; see --shape, and "
            "autosched show MODEL.onnx for its kernels"
        )
    if PoolAddress.parse(options.pool).is_cluster and options.target is None:
        raise TuningError(
            f"--target is missing: say what the model is for, such as the target of a worker of "
            f"{options.pool}"
        )
    target = "llvm" if options.target is None else options.target
    if options.output is not None:
        check_folder("-o", options.output)
    module = read_model(options.workload, options)
    kernels = len(extract_tasks(module, target, precision=options.precision)[0])
    trials = options.trials or TRIALS * max(kernels, 1)
    try:
        with ends_in_order():
            result = tune(
                module,
                tuning_options(options, trials, options.pool, ()),
                target,
                options.db,
                progress=show_progress,
                precision=options.precision,
            )
    except KeyboardInterrupt:
        return interrupted(options.db)
    if options.output is not None:
        result.model.save(options.output)
    print(json.dumps(result.as_json()) if options.json else result.as_text())
    return 0
