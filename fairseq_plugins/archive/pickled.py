"""The pickle in a checkpoint, read once without building anything: are its numbers such as the file can hold?

``torch.load`` allocates what the pickle asks for, and takes the sizes of tensors from it, before it looks at the bytes
of the weights. So a changed number would hold the machine, or read memory that is not the file's.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from fairseq_plugins.errors import UserError

BYTES = {
    **dict.fromkeys(("ComplexDoubleStorage",), 16),
    **dict.fromkeys(("DoubleStorage", "LongStorage", "ComplexFloatStorage"), 8),
    **dict.fromkeys(("FloatStorage", "IntStorage"), 4),
    **dict.fromkeys(("HalfStorage", "BFloat16Storage", "ShortStorage"), 2),
}
"""Of an element, by the class of a storage; 1 of all others."""
TENSORS = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3")
"""Functions of ``torch._utils`` that take a storage, an offset, a shape and strides."""


class Storage(NamedTuple):
    """Memory that the pickle refers to: its record, and how many elements of how many bytes it should hold."""

    key: str
    elements: int
    element_bytes: int


class _Called:
    """What stands for every object that a class or function of the pickle would have made; it keeps nothing else."""

    name = ""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.arguments = (*arguments, *named.values())

    def __call__(self, *arguments: Any, **named: Any) -> _Called:
        """Stand for what a function of the pickle would have returned: another function, if it is called."""
        return type(self)(*arguments, **named)

    def __setstate__(self, state: Any) -> None:
        """Ignore what would have been the attributes."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Ignore an entry."""

    def append(self, value: Any) -> None:
        """Ignore an element."""

    def extend(self, values: Any) -> None:
        """Ignore elements."""

    add = append


class _Bounded:
    """A stream that is never asked for more than ``limit`` bytes: a file allocates them before it looks what it has."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._read, self.readline, self._limit = stream.read, stream.readline, limit

    def read(self, size: int) -> bytes:
        """As of a file.

        Raises:
            UnpicklingError: the size is above the limit.
        """
        if size > self._limit:
            raise pickle.UnpicklingError(f"{size} bytes are more than the file has")
        return self._read(size)


class _Reader(pickle._Unpickler):  # type: ignore[name-defined,misc]
    """An unpickler, in Python, that finds no class: each is one that only remembers its arguments.

    The one in C would allocate a table as long as the largest index that the file names. A bytearray would be allocated
    before it is read; torch never writes one.
    """

    dispatch = {code: load for code, load in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]}  # type: ignore[attr-defined]

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        super().__init__(_Bounded(stream, limit), encoding="utf-8", errors="replace")
        self.calls: list[_Called] = []
        self.storages: list[Storage] = []

    def find_class(self, module: str, name: str) -> Any:
        calls = self.calls

        class Called(_Called):
            def __init__(self, *arguments: Any, **named: Any) -> None:
                super().__init__(*arguments, **named)
                calls.append(self)

        Called.name = name
        return Called

    def get_extension(self, code: int) -> None:
        raise pickle.UnpicklingError("an extension is no plain data")

    def persistent_load(self, pid: Any) -> Storage:
        kind, storage, key, _, elements = pid[:5]
        if kind != "storage" or not _is_count(elements):
            raise pickle.UnpicklingError("not a storage")
        self.storages.append(Storage(str(key), elements, BYTES.get(storage.name, 1)))
        return self.storages[-1]


def require_plausible(
    path: Path, stream: IO[bytes], limit: int, sizes: Mapping[str, int] | None = None, pickles: int = 1
) -> None:
    """Check the numbers of the last of ``pickles`` pickles that follow each other in ``stream``.

    Args:
        path: names the file in messages.
        stream: at the first pickle.
        limit: bytes of the whole file.
        sizes: bytes of each record of a storage; None where they follow the pickle without names.
        pickles: how many there are.

    Raises:
        UserError: it is no pickle, or a number in it is larger than the file, or than the record that it speaks of.
    """
    try:
        for _ in range(pickles):
            reader = _Reader(stream, limit)
            reader.load()
        problem = next(_problems(reader, limit, sizes), None)
    # The unpickler fails in as many ways as a pickle can be wrong, a lack of memory among them.
    except Exception as error:
        raise UserError(f"checkpoint {path} is truncated or not a checkpoint") from error
    if problem:
        raise UserError(f"checkpoint {path} is damaged: {problem}")


def _problems(reader: _Reader, limit: int, sizes: Mapping[str, int] | None) -> Iterator[str]:
    whole = {storage.key: storage.elements * storage.element_bytes for storage in reader.storages}
    for key, size in whole.items():
        if size > (limit if sizes is None else sizes.get(key, -1)):
            yield f"its record 'data/{key}' should have {size:,} bytes"
    if sum(whole.values()) > limit:
        yield f"its weights should have {sum(whole.values()):,} bytes"
    for call in reader.calls:
        if call.name in TENSORS:
            yield from _problems_of_tensor(call.arguments, limit)
        else:
            largest = max(map(_product, call.arguments), default=0)
            if largest > limit:
                yield f"'{call.name}' should have {largest:,} elements"


def _problems_of_tensor(arguments: tuple[Any, ...], limit: int) -> Iterator[str]:
    storage, offset, shape, strides = arguments[:4]
    counts = [offset, *shape, *strides]
    if not isinstance(storage, Storage) or len(shape) != len(strides) or not all(map(_is_count, counts)):
        yield "a tensor has no shape"
        return
    elements = math.prod(shape)
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    if elements and (last >= storage.elements or elements * storage.element_bytes > limit):
        yield f"a tensor of shape {tuple(shape)} does not fit into its record 'data/{storage.key}'"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _product(argument: Any) -> int:
    """The elements that an argument could ask for: of a number itself, of a shape the product."""
    if isinstance(argument, tuple):
        return math.prod(abs(one) if isinstance(one, int) else 1 for one in argument)
    return abs(argument) if isinstance(argument, int) else 0
