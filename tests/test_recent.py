"""The bounded cache: what it drops, and the cost of keeping it bounded."""

import random

import pytest

from shapejit.runtime.recent import Recent


@pytest.mark.parametrize("weigh", [lambda _: 1, len, lambda text: 3 * len(text)])
@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_it_is_never_larger_than_it_may_be_and_keeps_what_is_new(size, weigh):
    chance, recent, put = random.Random(size), Recent(size, weigh), []
    for number in range(3000):
        key, text = chance.randrange(number + 1), "x" * chance.randint(1, 9)
        recent.put(key, text)
        put = [entry for entry in put if entry[0] != key] + [(key, text)]
        weights = [weigh(text) for _, text in put]
        kept = [key in recent for key, _ in put]
        assert recent.weight() == sum(w for w, left in zip(weights, kept, strict=True) if left)
        assert recent.weight() <= size or weights[-1] > size
        put = [entry for entry, left in zip(put, kept, strict=True) if left]
        assert all(recent.get(key) is text for key, text in put)
    assert recent.weight() > size // 2 or size < 32


def test_what_a_put_costs_does_not_grow_with_the_entries():
    weighed = []
    recent = Recent(10_000, lambda value: weighed.append(value) or 1)
    for number in range(50_000):
        recent.put(number, number)
    assert 49_999 in recent
    assert len(weighed) < 20 * 50_000
    recent.clear()
    assert recent.weight() == 0
    recent.put("after", 1)
    assert recent.get("after") == 1
