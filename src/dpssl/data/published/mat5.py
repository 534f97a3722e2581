"""Arrays of numbers out of a MATLAB 5 file, as far as SVHN needs it.

Comes in: bytes. Goes out: numpy arrays by name. scipy.io.loadmat reads far more kinds of files, but files with a few
flipped bits make it crash the process (scipy 1.17, uncompressed arrays); this reads a tag only inside what there is.
Format: MathWorks, "MAT-File Format", Level 5. Little-endian, as every PC writes it.
"""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

HEADER_BYTES, LITTLE_ENDIAN = 128, b"\x00\x01IM"  # version 1.0 and the mark of the byte order end the header
MATRIX, COMPRESSED, INT32, UINT32 = 14, 15, 5, 6
NUMBER_TYPES = {1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
NUMBER_CLASSES = range(6, 16)  # double to uint64; below are cells, structures, texts and sparse arrays
COMPLEX = 0x0800
MOST_DIMENSIONS = 32


def read_mat5(content: bytes, wanted: tuple[str, ...], most_bytes: int) -> dict[str, NDArray[np.generic]]:
    """The arrays called `wanted`, of at most `most_bytes` each uncompressed; a ValueError says what is wrong."""
    if len(content) < HEADER_BYTES or content[HEADER_BYTES - 4 : HEADER_BYTES] != LITTLE_ENDIAN:
        raise ValueError("no little-endian MATLAB 5 file")
    arrays = {}
    at, view = HEADER_BYTES, memoryview(content)
    while at < len(view):
        kind, element, at = _element(view, at)
        if kind == COMPRESSED:
            kind, element, _ = _element(_uncompressed(element, most_bytes), 0)
        if kind == MATRIX and (name := _name(element)) in wanted:
            arrays[name] = _numbers(element)
    return arrays


def _element(view: memoryview, at: int) -> tuple[int, memoryview, int]:
    """Kind and data of the element at `at`, and where the next one starts."""
    if at + 8 > len(view):
        raise ValueError("cut short")
    kind, size = struct.unpack_from("<II", view, at)
    if kind >> 16:  # four bytes or fewer stand in the tag itself
        kind, size, start, after = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        if size > 4:
            raise ValueError(f"a short element of {size} bytes")
    else:
        start = at + 8
        after = start + size + (0 if kind == COMPRESSED else -size % 8)
    if start + size > len(view):
        raise ValueError("cut short")
    return kind, view[start : start + size], after


def _uncompressed(packed: memoryview, most_bytes: int) -> memoryview:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(packed, most_bytes)
    if not unpacker.eof:
        raise ValueError("an array that is cut short or too large")
    return memoryview(data)


def _name(matrix: memoryview) -> str:
    """An array is a row of elements: its flags, lengths, name and real part."""
    at = 0
    for _ in range(2):
        _, _, at = _element(matrix, at)
    return bytes(_element(matrix, at)[1]).decode("latin-1")


def _numbers(matrix: memoryview) -> NDArray[np.generic]:
    flags_kind, flags, at = _element(matrix, 0)
    lengths_kind, lengths, at = _element(matrix, at)
    _, _, at = _element(matrix, at)
    kind, numbers, _ = _element(matrix, at)
    if flags_kind != UINT32 or len(flags) < 4 or lengths_kind != INT32 or len(lengths) % 4:
        raise ValueError("an array without its flags or lengths")
    flag_bits = struct.unpack_from("<I", flags)[0]
    if flag_bits & COMPLEX or flag_bits & 0xFF not in NUMBER_CLASSES or kind not in NUMBER_TYPES:
        raise ValueError("an array of something else than real numbers")
    shape = np.frombuffer(lengths, "<i4").tolist()
    if not 2 <= len(shape) <= MOST_DIMENSIONS or min(shape) < 0:
        raise ValueError(f"an array of shape {shape}")
    # numpy's own ValueError tells of bytes that are no whole number of values, or not as many as the shape has
    return np.frombuffer(numbers, NUMBER_TYPES[kind]).reshape(shape, order="F")
