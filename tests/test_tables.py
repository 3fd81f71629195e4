"""The printed tables of schemes and of formats."""

import json

import numpy as np
import pytest

import shapejit as sj
from shapejit.__main__ import main


def test_reprs_are_tables_of_a_line_for_each_row():
    for table, facts in ((sj.schemes, "fp8:block"), (sj.formats, "awq:gemm")):
        first, *lines = repr(table).splitlines()
        assert [line.split()[0] for line in lines] == list(table)
        assert any(line.startswith(facts) for line in lines)
        assert max(map(len, (first, *lines))) < 90
        assert len(repr(table)) < 4000
    assert "in,out" in next(x for x in repr(sj.formats).splitlines() if x.startswith("awq:gemm"))


def test_schemes_are_listed_with_what_can_be_done(capsys):
    assert main(["schemes"]) == 0
    assert capsys.readouterr().out == f"{sj.schemes!r}\n"
    assert main(["schemes", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(sj.schemes)
    assert rows["fp8:block"]["project"] == "compressed-tensors"
    assert rows["gguf:iq4_nl"]["decode"] == "library gguf"


@pytest.mark.parametrize("name", list(sj.schemes))
def test_what_is_said_to_be_encoded_is(name):
    scheme = sj.schemes[name]
    if not scheme.encodes:
        with pytest.raises(sj.FormatError, match="can only be decoded"):
            scheme.encode(np.ones((256, 256), np.float32))
        return
    parts = scheme.encode(np.ones((256, 256), np.float32))
    assert scheme.converts
    assert scheme.decode(parts).shape == (256, 256)
    same = scheme.convert(parts, name)
    assert {key: t.tobytes() for key, t in same.items()} == {
        k: t.tobytes() for k, t in parts.items()
    }
