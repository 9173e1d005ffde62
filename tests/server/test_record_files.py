"""The programs of records as files, over the API and from the pages."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import httpx
import pages_data
import pytest
from html_check import problems_of
from serving import serving

from records import Store
from server.programs.rendering import stem_of
from server.routes.files import kinds_of
from server.settings import Settings

HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "tuning.db"
    return path, pages_data.fill(path)


@pytest.fixture(scope="module")
def client(database):
    with serving(Settings(db=str(database[0]), jobs_at_once=0)) as client:
        yield client


@pytest.fixture(scope="module")
def best(database) -> int:
    with Store(database[0]) as store:
        found = store.job(database[1].tuned).best_record_id
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "media_type", "part"),
    [
        ("py", "text/x-python", b"def apply(sch)"),
        ("ll", "text/plain", b"define void @"),
        ("s", "text/plain", b".text"),
        ("o", "application/octet-stream", b"\x7fELF"),
        ("h", "text/x-c", b"int matmul("),
    ],
)
def test_a_program_as_a_file(client, best, kind, media_type, part):
    answer = client.get(f"/v1/records/{best}/files/{kind}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith(media_type)
    assert part in answer.content
    name = answer.headers["content-disposition"]
    assert re.fullmatch(rf'attachment; filename="matmul(-{best})?\.{kind}"', name)
    again = {"If-None-Match": answer.headers["etag"]}
    assert client.get(f"/v1/records/{best}/files/{kind}", headers=again).status_code == 304


def test_a_c_program_calls_what_was_downloaded(client, database, tmp_path: Path):
    job = database[1].tuned
    for kind in ("o", "h"):
        answer = client.get(f"/v1/jobs/{job[:12]}/best/{kind}")
        (tmp_path / f"matmul.{kind}").write_bytes(answer.content)
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "matmul.h"\n'
        "static float a[4096], b[4096], c[4096];\n"
        "int main(void) {\n  for (int i = 0; i < 4096; i++) { a[i] = 1; b[i] = 2; }\n"
        '  int rc = matmul(a, b, c, NULL, 1);\n  printf("%d %g %g", rc, c[0], c[4095]);\n'
        "  return 0;\n}\n"
    )
    build = ["cc", "main.c", "matmul.o", "-o", "main", "-lm", "-lpthread"]
    subprocess.run(build, cwd=tmp_path, check=True, timeout=60)
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "0 128 128"


def test_what_there_is_none_of_is_refused(client, database, best):
    assert client.get(f"/v1/records/{best}/files/exe").status_code == 422
    refused = client.get(f"/v1/records/{best}/files/cu")
    assert (refused.status_code, "has the files py, ll, s, o, h" in refused.text) == (409, True)
    assert client.get("/v1/records/99999/files/py").status_code == 404
    assert client.get(f"/v1/jobs/{database[1].queued}/best/py").status_code == 404
    assert kinds_of("cuda -arch=sm_90") == ["py", "cu"]


def test_the_listing_links_assembly_to_loops(client, best):
    found = client.get(f"/v1/records/{best}/listing").raise_for_status().json()
    script = found["script"].splitlines()
    assert found["linked"]
    sources = {line["source"] for line in found["assembly"]} - {None}
    assert sources
    assert all(re.match(r"\s+(for |with T\.block)", script[n - 1]) for n in sources)
    page = client.get(f"/records/{best}/listing", headers=HTML)
    assert page.status_code == 200
    assert problems_of(page.text) == []
    assert page.text.count('id="asm') == len(found["assembly"]) + 1
    for source in sources:
        assert f'href="#ir{source}"' in page.text


def test_a_record_begins_with_its_schedule(client: httpx.Client, best):
    page = client.get(f"/records/{best}", headers=HTML).text
    assert problems_of(page) == []
    first = re.search(r'<pre id="([^"]+)" class="whole"', page)
    assert first is not None
    assert first[1] == "text-apply"
    assert page.index("text-apply") < page.index('id="text-schedule"')
    for kind in ("py", "ll", "s", "o", "h"):
        assert f'href="/v1/records/{best}/files/{kind}" download' in page


@pytest.mark.parametrize(
    ("name", "stem"),
    [("matmul", "matmul"), ("1x", "program_1x"), ("é/", "program___"), ("", "program_")],
)
def test_names_of_files(name, stem):
    assert stem_of(name) == stem
