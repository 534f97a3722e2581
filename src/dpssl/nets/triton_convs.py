"""The Triton kernels of nets.conv_kernels, which says what each computes. Importing this needs Triton.

A place is SPAN pixels side by side in one image row. Channels-last, the SPAN + 2 pixels that its result depends on in
one row are contiguous: a window of K columns, K = (SPAN + 2) * channels, rounded up to a power of two. So a convolution
is three matrix products, one for each row of the filter, with the weights laid out K x (SPAN * channels) and zero where
a pixel of the window does not reach a pixel of the place. A program takes T places (of one or more images) and walks
down STRIP image rows: each window is loaded once and multiplied for all three output rows it belongs to.
"""

import triton
import triton.language as tl


@triton.jit
def _load_pixels(
    x, first, row, n_places, offset: tl.constexpr, PIXELS: tl.constexpr, K: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, SPAN: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """(T, K): the PIXELS pixels from `offset` beside each of the places from `first` on, in image row `row`; zero
    outside of the image."""
    ACROSS: tl.constexpr = (W + SPAN - 1) // SPAN
    place = first + tl.arange(0, T)
    k = tl.arange(0, K)
    first_image = first // ACROSS
    left = (place % ACROSS) * SPAN + offset
    where = (((place // ACROSS - first_image) * H + row) * W + left)[:, None] * C + k[None, :]
    pixel = left[:, None] + (k // C)[None, :]
    inside = (pixel >= 0) & (pixel < W) & ((place < n_places) & (row >= 0) & (row < H))[:, None]
    if K > PIXELS * C:
        inside = inside & (k < PIXELS * C)[None, :]
    return tl.load(x + first_image.to(tl.int64) * (H * W * C) + where, inside, 0.0)


@triton.jit
def _load_weights(
    weight, down: tl.constexpr, K: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, SPAN: tl.constexpr,
    TURN: tl.constexpr,
):  # fmt: skip
    """(K, SPAN * CO): row `down` of the filter; with TURN rotated by half a turn, its input and output exchanged."""
    k = tl.arange(0, K)[:, None]
    n = tl.arange(0, SPAN * CO)[None, :]
    across = k // CI - n // CO
    reaches = (across >= 0) & (across < 3)
    if TURN:
        where = (k % CI) * (9 * CO) + (8 - 3 * down - across) * CO + n % CO
    else:
        where = (n % CO) * (9 * CI) + (3 * down + across) * CI + k % CI
    return tl.load(weight + where, reaches, 0.0)


@triton.jit(do_not_specialize=["n_places"])
def convolve(
    x, weight, y, n_places,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, K: tl.constexpr, SPAN: tl.constexpr,
    T: tl.constexpr, STRIP: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    N: tl.constexpr = SPAN * CO
    ACROSS: tl.constexpr = (W + SPAN - 1) // SPAN
    STRIPS: tl.constexpr = (H + STRIP - 1) // STRIP
    first = tl.program_id(0) // STRIPS * T
    top = tl.program_id(0) % STRIPS * STRIP
    upper = _load_weights(weight, 0, K, CI, CO, SPAN, TURN)
    middle = _load_weights(weight, 1, K, CI, CO, SPAN, TURN)
    lower = _load_weights(weight, 2, K, CI, CO, SPAN, TURN)

    place = first + tl.arange(0, T)
    n = tl.arange(0, N)
    left = (place % ACROSS) * SPAN
    first_image = first // ACROSS
    corner = (((place // ACROSS - first_image) * H) * W + left)[:, None] * CO + n[None, :]
    inside = (place < n_places)[:, None]
    if W % SPAN != 0:
        inside = inside & (left[:, None] + (n // CO)[None, :] < W)
    image_offset = first_image.to(tl.int64) * (H * W * CO)

    above = tl.zeros((T, N), tl.float32)  # of output row `row` - 1, which lacks the lower row of the filter
    here = tl.zeros((T, N), tl.float32)  # of output row `row`, which lacks the middle and the lower
    for row in range(top - 1, top + STRIP + 1):
        window = _load_pixels(x, first, row, n_places, -1, SPAN + 2, K, H, W, CI, SPAN, T)
        below = tl.dot(window, upper, input_precision="ieee")
        partly = tl.dot(window, middle, here, input_precision="ieee")
        result = tl.dot(window, lower, above, input_precision="ieee")  # last: to wait for it is to wait for all three
        above = partly
        here = below
        writes = inside & ((row > top) & (row <= H))
        where = image_offset + (row - 1) * (W * CO) + corner
        tl.store(y + where, result.to(y.dtype.element_ty), writes)


@triton.jit(do_not_specialize=["n_places", "n_walks"])
def weight_gradient(
    dy, x, partials, n_places, n_walks,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, K: tl.constexpr, SPAN: tl.constexpr,
    T: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    """Partial results (P, 3, K, SPAN * CO): products of each column of the window with each of the place.

    STRIP is even."""
    N: tl.constexpr = SPAN * CO
    STRIPS: tl.constexpr = (H + STRIP - 1) // STRIP
    upper = tl.zeros((K, N), tl.float32)
    middle = tl.zeros((K, N), tl.float32)
    lower = tl.zeros((K, N), tl.float32)
    for walk in range(tl.program_id(0), n_walks, tl.num_programs(0)):
        first = walk // STRIPS * T
        top = walk % STRIPS * STRIP
        above = _load_pixels(dy, first, top - 1, n_places, 0, SPAN, N, H, W, CO, SPAN, T)
        here = _load_pixels(dy, first, top, n_places, 0, SPAN, N, H, W, CO, SPAN, T)
        for row in range(top, top + STRIP, 2):  # two at a time: what is carried on was loaded in the same turn
            below = _load_pixels(dy, first, row + 1, n_places, 0, SPAN, N, H, W, CO, SPAN, T)
            window = _load_pixels(x, first, row, n_places, -1, SPAN + 2, K, H, W, CI, SPAN, T)
            columns = tl.trans(window)
            upper = tl.dot(columns, below, upper, input_precision="ieee")
            middle = tl.dot(columns, here, middle, input_precision="ieee")
            lower = tl.dot(columns, above, lower, input_precision="ieee")
            next_below = _load_pixels(dy, first, row + 2, n_places, 0, SPAN, N, H, W, CO, SPAN, T)
            window = _load_pixels(x, first, row + 1, n_places, -1, SPAN + 2, K, H, W, CI, SPAN, T)
            columns = tl.trans(window)
            upper = tl.dot(columns, next_below, upper, input_precision="ieee")
            middle = tl.dot(columns, below, middle, input_precision="ieee")
            lower = tl.dot(columns, here, lower, input_precision="ieee")
            above = below
            here = next_below
    to = partials + tl.program_id(0) * (3 * K * N) + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(to, upper)
    tl.store(to + K * N, middle)
    tl.store(to + 2 * K * N, lower)


@triton.jit(do_not_specialize=["n_partials"])
def finish_weight_gradient(
    partials, dweight, n_partials, CI: tl.constexpr, CO: tl.constexpr, K: tl.constexpr, SPAN: tl.constexpr,
    R: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Sums over the partial results and over the pixels of a place, P and one at a time, for R input channels."""
    tap = tl.program_id(0)
    element = tl.arange(0, R * CO)
    channel_in = tl.program_id(1) * R + element // CO
    channel_out = element % CO
    total = tl.zeros((P, R * CO), tl.float32)
    for begin in range(0, n_partials, P):
        part = begin + tl.arange(0, P)
        for pixel in tl.static_range(SPAN):
            column = (pixel + tap % 3) * CI + channel_in
            where = (tap // 3 * K + column) * (SPAN * CO) + pixel * CO + channel_out
            inside = (part < n_partials)[:, None] & (channel_in < CI)[None, :]
            total += tl.load(partials + part[:, None] * (3 * K * SPAN * CO) + where[None, :], inside, 0.0)
    tl.store(dweight + (channel_out * 9 + tap) * CI + channel_in, tl.sum(total, 0), channel_in < CI)
