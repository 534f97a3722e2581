"""CIFAR's Python files, which are pickles, read without the pickle module: as data, never as a program.

Comes in: bytes. Goes out: dicts, lists, tuples, byte strings, numbers and uint8 arrays. A pickle is a program for a
stack machine. `read_pickle` steps through it with the two dozen instructions those files use and knows three names,
the ones by which numpy stores an array; they stand for values of this module and are never looked up. Any other
instruction or name is refused before it could act. The standard library's machine, even where names are restricted,
reserves whatever memory a flipped bit in an index asks for.
"""

import pickletools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpssl.errors import InputError

_MARK = object()
RECONSTRUCT, NDARRAY, DTYPE = "numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"
BYTES_DTYPE = "u1"


@dataclass(frozen=True)
class _Name:
    """One of the three names; stands for nothing until it is called."""

    name: str


@dataclass
class _Array:
    """An array that waits for its content: (version, shape, dtype, is_fortran, bytes)."""

    content: NDArray[np.uint8] | None = None


@dataclass(frozen=True)
class _Dtype:
    """`numpy.dtype("u1", …)`; the state a pickle gives it afterwards says nothing more about single bytes."""


@dataclass
class _Machine:
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def since_mark(self) -> list[Any]:
        at = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        taken = self.stack[at + 1 :]
        del self.stack[at:]
        return taken


def read_pickle(content: bytes) -> Any:
    """The value in a pickle that holds nothing but plain data and uint8 arrays; an InputError says what else it has."""
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name == "STOP":
                (value,) = machine.stack
                return _finished(value)
            _step(machine, opcode.name, argument)
    except InputError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(f"is cut short or damaged ({error})") from error
    raise InputError("is cut short: it does not end")


def _step(machine: _Machine, name: str, argument: Any) -> None:
    stack = machine.stack
    match name:
        case "PROTO":
            pass
        case "MARK":
            stack.append(_MARK)
        case "NONE" | "NEWTRUE" | "NEWFALSE":
            stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
        case "BININT" | "BININT1" | "BININT2":
            stack.append(argument)
        case "BINSTRING" | "SHORT_BINSTRING":  # Python 2's str
            stack.append(argument.encode("latin-1"))
        case "EMPTY_DICT" | "EMPTY_LIST" | "EMPTY_TUPLE":
            stack.append({"EMPTY_DICT": {}, "EMPTY_LIST": [], "EMPTY_TUPLE": ()}[name])
        case "APPEND":
            item = stack.pop()
            _expect(stack[-1], list).append(item)
        case "APPENDS":
            items = machine.since_mark()
            _expect(stack[-1], list).extend(items)
        case "SETITEM":
            value, key = stack.pop(), stack.pop()
            _expect(stack[-1], dict)[_expect(key, bytes)] = value
        case "SETITEMS":
            items = machine.since_mark()
            target = _expect(stack[-1], dict)
            target.update(zip((_expect(key, bytes) for key in items[::2]), items[1::2], strict=True))
        case "TUPLE":
            stack.append(tuple(machine.since_mark()))
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            size = int(name[-1])
            if len(stack) < size:
                raise ValueError("its stack is empty")
            stack[-size:] = [tuple(stack[-size:])]
        case "BINPUT" | "LONG_BINPUT":
            machine.memo[argument] = stack[-1]
        case "BINGET" | "LONG_BINGET":
            stack.append(machine.memo[argument])
        case "GLOBAL":
            if argument not in (RECONSTRUCT, NDARRAY, DTYPE):
                raise InputError(f"asks for {argument.replace(' ', '.')!r}, which the published file does not contain")
            stack.append(_Name(argument))
        case "REDUCE":
            arguments, called = _expect(stack.pop(), tuple), stack.pop()
            stack.append(_call(called, arguments))
        case "BUILD":
            state = _expect(stack.pop(), tuple)
            _set_state(stack[-1], state)
        case _:
            raise InputError(f"has the instruction {name}, which the published file does not contain")


def _call(called: Any, arguments: tuple[Any, ...]) -> _Array | _Dtype:
    """The two calls by which numpy starts an array: `_reconstruct(ndarray, (0,), b"b")` and `dtype(b"u1", 0, 1)`."""
    if called == _Name(RECONSTRUCT) and arguments == (_Name(NDARRAY), (0,), b"b"):
        return _Array()
    if called == _Name(DTYPE) and arguments[:1] == (BYTES_DTYPE.encode(),):
        return _Dtype()
    raise InputError("makes something else than an array of bytes, which the published file does not contain")


def _set_state(made: Any, state: tuple[Any, ...]) -> None:
    if isinstance(made, _Dtype):
        return
    _, shape, dtype, is_fortran, content = state
    sizes = all(isinstance(side, int) and side >= 0 for side in _expect(shape, tuple))
    if not isinstance(made, _Array) or not isinstance(dtype, _Dtype) or not sizes:
        raise ValueError("an array without shape and type")
    pixels = np.frombuffer(_expect(content, bytes), dtype=np.uint8)
    made.content = pixels.reshape(shape, order="F" if is_fortran else "C")


def _finished(value: Any) -> Any:
    """The value with its arrays in place; they stand in dicts only."""
    if not isinstance(value, dict):
        raise InputError("holds no dict, which the published file is")
    return {key: item.content if isinstance(item, _Array) else item for key, item in value.items()}


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"a {type(value).__name__} where a {kind.__name__} belongs")
    return value
