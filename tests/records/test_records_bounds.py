"""How long what others wrote may be: errors and arguments."""

from __future__ import annotations

import io
import json

from records_factory import WORKLOAD, failure, with_job

from records import Store, import_jsonl
from records.logs.lines import encode_line
from records.types import ERROR_LENGTH, shortened


def test_an_error_keeps_its_beginning_and_its_end(tmp_path) -> None:
    long = "begin " + "x" * (1 << 20) + " end"
    with with_job(Store(tmp_path / "x.db")) as store:
        (stored,) = store.add_records([failure(0, error=long)])
        assert stored.error is not None
        assert len(stored.error) <= ERROR_LENGTH
        assert stored.error.startswith("begin ")
        assert stored.error.endswith(" end")
        assert "characters left out" in stored.error
        line = json.loads(encode_line(failure(1, job_id="j2"))) | {"error": long}
        import_jsonl(store, io.BytesIO(json.dumps(line).encode() + b"\n"))
        assert all(len(r.error or "") <= ERROR_LENGTH for r in store.records())
        store.update_job(stored.job_id, error=long)
        assert len(store.job(stored.job_id).error or "") <= ERROR_LENGTH


def test_a_short_text_stays() -> None:
    assert shortened("a" * 100, 100) == "a" * 100
    assert len(shortened("a" * 1000, 200)) <= 200


def test_arguments_that_are_too_long_are_refused(tmp_path) -> None:
    line = json.loads(encode_line(WORKLOAD)) | {"args": ["x" * 100_000]}
    with Store(tmp_path / "x.db") as store:
        report = import_jsonl(store, io.BytesIO(json.dumps(line).encode() + b"\n"))
        assert "args: expected at most 4000 characters" in report.refused[0][1]
