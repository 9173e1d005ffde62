"""Jobs that are a model's tasks: the model's times, and what each task has of them."""

from __future__ import annotations

from records import Job as StoredJob
from records import Store
from records.queue import batches, model_tasks
from records.queue.model_tasks import ModelTask, Part, Timed
from server.jobs.answers import shown
from server.schemas import Job, JobTask, JobTasks, ModelTimes


def members(store: Store, job: StoredJob) -> list[StoredJob]:
    """The jobs of the model whose task a job is, in their order; the job alone if it is of none.
    Asked to stop or to go on, a model does so as a whole."""
    if job.batch_id is None or not model_tasks.of_batch(store, job.batch_id):
        return [job]
    return list(batches.batch_of(store, job.batch_id).jobs)


def times_of(store: Store, batch_id: str | None) -> ModelTimes | None:
    """The times of a model; None for no batch, or one that is no model."""
    tasks = [] if batch_id is None else model_tasks.of_batch(store, batch_id)
    if batch_id is None or not tasks:
        return None
    return _shown(model_tasks.times(tasks, batches.batch_of(store, batch_id).jobs))


def with_model(store: Store, job: Job) -> Job:
    """The job with the times of its model, if it is a task of one."""
    model = times_of(store, job.batch_id)
    return job if model is None else job.model_copy(update={"model": model})


def tasks_of(store: Store, job_id: str) -> JobTasks:
    """What is tuned together with a job. Raises NoRecord."""
    job = store.job(job_id)
    batch_id = job.batch_id
    jobs = [job] if batch_id is None else list(batches.batch_of(store, batch_id).jobs)
    of = {one.id: one for one in shown(store, jobs)}
    tasks = [] if batch_id is None else model_tasks.of_batch(store, batch_id)
    is_model = bool(tasks)
    if not tasks:
        tasks = [_alone(n, one, of[one.id].workload_name) for n, one in enumerate(jobs)]
    times = model_tasks.times(tasks, jobs)
    model = _shown(times) if is_model else None
    return JobTasks(
        batch_id=batch_id,
        trials_requested=sum(one.trials_requested for one in jobs),
        trials_done=sum(one.trials_done for one in jobs),
        model=model,
        tasks=[_task(of[t.task.job_id], t, model) for t in times.tasks],
    )


def _alone(number: int, job: StoredJob, title: str) -> ModelTask:
    weight = float(job.options.get("weight", 1.0))
    return ModelTask(job.id, Part(number, title, weight, 0.0))


def _task(job: Job, timed: Timed, model: ModelTimes | None) -> JobTask:
    part, seconds = timed.task.part, timed.seconds
    share = None
    if timed.taken and seconds is not None and model is not None:
        share = seconds / model.estimated_seconds
    return JobTask(
        job_id=job.id,
        kernel=part.kernel,
        title=part.title,
        weight=part.weight,
        workload_key=job.workload_key,
        state=job.state,
        trials_requested=job.trials_requested,
        trials_done=job.trials_done,
        best_seconds=job.best_seconds,
        seconds=seconds,
        share=share,
        gain=job.gain,
        taken=timed.taken,
        error=job.error,
    )


def _shown(times: model_tasks.ModelTimes) -> ModelTimes:
    return ModelTimes(
        estimated_seconds=times.estimated,
        untuned_seconds=times.untuned,
        rest_seconds=times.rest,
        gain=times.untuned / times.estimated if times.estimated else 1.0,
    )
