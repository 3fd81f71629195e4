"""Values that are not, or not quite, numbers and sequences."""

import array
import collections
import decimal
import enum
import fractions

import ml_dtypes
import numpy as np

import shapejit as sj


class Index:
    """Something that `operator.index` takes, which does as it likes."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = 0

    def __index__(self):
        self.asked += 1
        answer = self.answers[self.asked % len(self.answers)]
        sj.reshape(sj.asarray(np.zeros((2, 3)).T), -1)  # a call within a call
        if isinstance(answer, Exception):
            raise answer
        return answer


class Int(int):
    """An int whose methods lie."""

    def __int__(self):
        return 10**6

    __index__ = __neg__ = __abs__ = __int__

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


class Size(enum.IntEnum):
    TWO = 2


class Lying(list):
    """A list that has another length than it says, and other items each time."""

    def __len__(self):
        return super().__len__() + 3

    def __iter__(self):
        self.append(2)
        return super().__iter__()


class LyingTuple(tuple):
    """The same for a tuple, which C code reads behind Python's back."""

    __slots__ = ()

    def __len__(self):
        return 100

    def __iter__(self):
        return iter((7, 8, 9))

    def __getitem__(self, index):
        return 5


BOOLS = [True, False, np.True_, np.False_]
NO_SIZES = [
    1.0, float("nan"), float("inf"), np.float32(2), 1j, "3", b"3", None, [1], (2,), {}, ...,
    slice(1), object(), int, np.array([3]), np.array(2.0), fractions.Fraction(3),
    decimal.Decimal(3), np.datetime64(3, "s"), np.timedelta64(3, "s"), ml_dtypes.bfloat16(2),
]  # fmt: skip


def token(random):
    """Something in the place of a size."""
    return random.choice(
        [
            *[random.choice(NO_SIZES)] * 3,
            *[random.choice(BOOLS)] * 3,
            *[random.choice([-1, 0, 1, 2, 3])] * 4,
            random.choice([-2, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64, 2**70]),
            random.choice([np.int8(2), np.uint64(2**63), np.int64(-1), np.array(3), Size.TWO]),
            ml_dtypes.int4(3),
            Int(random.randint(-2, 6)),
            Index(random.choice([[3], [2, 3, 2**70], [ValueError("no")], [TypeError("no")]])),
        ]
    )


def sequence(random, items):
    """Something in the place of a sequence of these."""
    return random.choice(
        [
            list, tuple, list, tuple, list, tuple, Lying, LyingTuple, iter, set_or_list,
            collections.deque, collections.UserList, in_array, in_array, ints, nested, padded,
            lambda items: np.ma.array(ints(items)),
            lambda items: range(10**30), lambda items: items[0] if items else 0,
            lambda items: "23", lambda items: b"23", lambda items: None,
            lambda items: dict.fromkeys(range(len(items)), 2),
            lambda items: memoryview(bytes(len(items))),
        ]
    )(items)  # fmt: skip


def set_or_list(items):
    try:
        return set(items)
    except (TypeError, OverflowError):  # a NumPy integer beside a larger one
        return list(items)


def in_array(items):
    """An ndarray, of objects if need be."""
    try:
        return np.array(items)
    except (TypeError, ValueError, OverflowError):
        made = np.empty(len(items), object)
        made[...] = [*map(type, items)]
        return made


def ints(items):
    """Those that are ints in an array of C ints, strided, or of another byte order."""
    kept = [i for i in items if type(i) is int and -1 <= i < 2**15]
    made = np.array([*kept, *kept], random_order(len(kept)))[: len(kept)]
    return array.array("q", kept) if len(kept) % 3 == 0 else made


def random_order(number):
    return [np.int64, ">i8", np.int16, np.int32, np.float64][number % 5]


def nested(items):
    return [items, items]


def padded(items):
    return [*items, *[1] * 70]


def bools_in(value):
    """Whether it holds a bool, where it can be known without asking it anything."""
    return type(value) in (list, tuple) and any(isinstance(v, bool | np.bool_) for v in value)
