"""A job in the local pool: its program, its inputs and reference in sealed memory, its baseline."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from autosched.codegen.artifact import Artifact
from autosched.errors import MeasureError
from autosched.schedule import Trace
from autosched.tir.canonical import workload_key
from autosched.tir.nodes import PrimFunc
from measure.local.build import BuildReply
from measure.local.runner import JobSpec
from measure.status import MeasureResult, Status
from measure.verify.given import given_inputs
from measure.verify.inputs import RECIPES, Recipe, input_specs, recipes_of
from measure.verify.tolerance import tolerance_of

if TYPE_CHECKING:
    from measure.local.slot import Slot

SECONDS_A_BYTE = 2e-8  # generous, for copying, comparing and describing a job's data
HANDLING_SECONDS = 0.5


@dataclass
class Job:
    """What `LocalPool.open_job` gives; see `measure.pool.JobHandle`. Made usable by `prepare`."""

    func: PrimFunc
    func_pickle: bytes
    key: str
    seed: int
    baseline_trace: Trace
    baseline: MeasureResult = field(default_factory=lambda: MeasureResult(Status.CANCELLED))
    recipe: Recipe = RECIPES[0]
    spec: JobSpec = field(init=False)
    fd: int = -1

    @property
    def handling_seconds(self) -> float:
        """Time allowed for handling the job's data, on top of the candidate's own."""
        return HANDLING_SECONDS + self.spec.size * SECONDS_A_BYTE

    def close(self) -> None:
        """Give up the memory."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def machine_memory() -> int:
    """This machine's memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def prepare(job: Job, slot: Slot, reference: BuildReply, baseline: BuildReply) -> None:
    """Make inputs that mean something and the reference, and time the baseline.

    Raises MeasureError if one was not built or does not run, or if they disagree.
    """
    maker = reference.artifact
    if not isinstance(maker, Artifact) or baseline.artifact is None:
        error = reference.error or baseline.error
        raise MeasureError(f"the untransformed {job.func.name} does not build: {error}")
    params = maker.given
    key = workload_key(job.func)
    given = given_inputs(key)
    job.spec = JobSpec(
        key=job.key,
        workload=key,
        seed=job.seed,
        params=params,
        inputs=tuple(
            replace(spec, given=spec.param.name in given) for spec in input_specs(job.func, params)
        ),
        tolerance=tolerance_of(job.func),
        threads=slot.host_threads,
        where=slot.where,
        aligned=slot.options.aligned,
    )
    rooms = [("this machine", machine_memory())]
    if slot.where is not None:
        rooms = [(slot.gpu().model, slot.gpu().memory_bytes), *rooms]
    for name, there in rooms:
        if job.spec.size > there:
            raise MeasureError(
                f"the arrays of {job.func.name} take {job.spec.size / 2**30:.4g} GiB, and {name} "
                f"has {there / 2**30:.4g} GiB of memory; tune a smaller size"
            )
    try:
        job.fd = os.memfd_create(f"autosched-{job.key}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as e:  # no descriptors left
        raise MeasureError(f"no memory for the arrays of {job.func.name}: {e}") from e
    try:
        os.ftruncate(job.fd, job.spec.size)
        for offset, param in zip(job.spec.offsets, params, strict=True):
            if param.name in given:
                # Not mapped: a mapping would keep the file from being sealed.
                with open(job.fd, "wb", closefd=False) as file:
                    file.seek(offset)
                    file.write(given[param.name].tobytes())
        _make_reference(job, slot, maker)
        examined = slot.examine(job)
        if examined.fault:
            raise MeasureError(
                f"{examined.fault}. What is wrong is not the schedule, so nothing is measured: "
                "report the program as a fault of the code generator"
            )
        # From here on nothing can change the inputs and the reference, however wild the code.
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(job.fd, fcntl.F_ADD_SEALS, seals)
        job.baseline = slot.run(job, baseline, None, slot.options.baseline_timeout)
        if job.baseline.status not in (Status.OK, Status.RUN_TIMEOUT):
            raise MeasureError(
                f"the untransformed {job.func.name} and its reference disagree: "
                f"{job.baseline.status}: {job.baseline.error}"
            )
        if examined.missing:
            text = "\n".join(t for t in (job.baseline.error, examined.missing) if t)
            job.baseline = replace(job.baseline, error=text)
    except BaseException:
        job.close()
        raise


def _make_reference(job: Job, slot: Slot, artifact: Artifact) -> None:
    """Fill the job's memory by the best recipe."""
    tried: list[tuple[tuple[float, float], int]] = []
    errors: list[str] = []
    recipes = recipes_of(job.func)
    for place, job.recipe in enumerate(recipes):
        reply = slot.make_reference(job, artifact)
        if isinstance(reply, str):
            errors.append(f"with {job.recipe.name} inputs: {reply}")
        elif reply == (1.0, 1.0):
            return
        else:
            tried.append((reply, -place))
    if not tried:
        found = "\n".join(errors)
        raise MeasureError(f"the reference of {job.func.name} does not run:\n{found}")
    # None is perfect: some programs give infinities, or one value, whatever goes in.
    job.recipe = recipes[-max(tried)[1]]
    reply = slot.make_reference(job, artifact)
    if isinstance(reply, str):
        raise MeasureError(f"the reference of {job.func.name} runs only at times: {reply}")
