"""The fixtures of quantised checkpoints: small, complete, and made by others."""

import numpy as np
import pytest
import scheme_fixtures

FIXTURES = [x for group in scheme_fixtures.by_scheme().values() for x in group]


def test_they_are_small():
    files = list(scheme_fixtures.FOLDER.glob("*.safetensors"))
    assert len(files) == len(FIXTURES) > 60
    assert sum(path.stat().st_size for path in files) < 1_500_000


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda x: x.name)
def test_each_says_who_made_it_and_what_it_means(fixture):
    assert fixture.parts
    assert fixture.by
    assert not any("shapejit" in function for function in fixture.by)
    packages = {function.partition(".")[0].removesuffix("_extension") for function in fixture.by}
    assert packages <= {
        {"nvidia-modelopt": "modelopt"}.get(name, name).replace("-", "_")
        for name in fixture.versions
    }
    assert fixture.expected or fixture.codes is not None


def test_gptq_is_scale_times_code_less_zero():
    fixture = scheme_fixtures.named("gptq-4bit-act-order")
    parts = fixture.parts
    nibbles = np.arange(0, 32, 4)
    codes = (parts["qweight"].view(np.uint32)[:, None, :] >> nibbles[:, None] & 15).reshape(96, 40)
    zeros = (parts["qzeros"].view(np.uint32)[..., None] >> nibbles & 15).reshape(3, 40) + 1
    assert np.array_equal(codes, fixture.codes)
    at = parts["g_idx"]
    made = (codes - zeros.astype(np.float32)[at]) * parts["scales"].astype(np.float32)[at]
    assert np.array_equal(made.T, fixture.expected["float32"])
