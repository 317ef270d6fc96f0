"""Samples in eight bits: how a row is encoded, how far the code is from it, and inner products of codes and weights.

x̃_j = scale·q_j + offset with integers −128 ≤ q ≤ 127, and ‖x − x̃‖ ≤ error. Rows of integers that span at most 256
values are encoded without an error. The vector code is written out, since numba leaves these loops to scalars.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

SCALE, OFFSET, ERROR, LABEL = 0, 1, 2, 3
"""Places in the four numbers in single precision that are kept with the codes of a row."""
HEAD, STEP = 16, 16
"""Bytes of those numbers in front of the codes of a row; codes worked on together: a row has a multiple of them."""
LARGEST = 1e15
"""Scales and offsets beyond which the code of a row says nothing, so that no score of a code hides an overflow."""
_LINE, _AHEAD = 64, 6144  # bytes that come from memory together; and those between a row and one that is called
_FLAGS = ("reassoc", "contract", "nsz")
_I8, _I16, _I32, _I64, _F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()


# --- vectors in LLVM's language -----------------------------------------------------------------------------------


def _address(context, builder, kind, array, *index):
    made = context.make_array(kind)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, kind, made, index, wraparound=False)


def _vector(builder, address, element, size):
    return builder.bitcast(address, ir.VectorType(element, size).as_pointer())


def _everywhere(builder, value, size):
    """A vector of one number."""
    nothing = ir.Constant(ir.VectorType(value.type, size), ir.Undefined)
    zeros = ir.Constant(ir.VectorType(_I32, size), [0] * size)
    return builder.shuffle_vector(builder.insert_element(nothing, value, _I32(0)), nothing, zeros)


def _within(builder, vector, low, high):
    """Each number, or the limit that it is beyond."""
    low, high = (
        _everywhere(builder, ir.Constant(vector.type.element, limit), vector.type.count) for limit in (low, high)
    )
    vector = builder.select(builder.fcmp_ordered("<", vector, high), vector, high)
    return builder.select(builder.fcmp_ordered(">", vector, low), vector, low)


def _some(builder, vector, index):
    nothing = ir.Constant(vector.type, ir.Undefined)
    return builder.shuffle_vector(vector, nothing, ir.Constant(ir.VectorType(_I32, len(index)), list(index)))


def _folded(builder, vector, together):
    """One number from a vector, halves taken together until it is left."""
    size = vector.type.count
    while size > 1:
        size //= 2
        vector = together(_some(builder, vector, range(size)), _some(builder, vector, range(size, 2 * size)))
    return builder.extract_element(vector, _I32(0))


def _along(builder, count, size, starts, body):
    """What ``body(j, values)`` makes of the starting values for j = 0, size, … and at last count − size."""
    before, loop, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
    last = builder.sub(count, _I64(size))
    builder.branch(loop)
    builder.position_at_end(loop)
    j, values = builder.phi(_I64), [builder.phi(start.type) for start in starts]
    made = body(builder.select(builder.icmp_signed("<", j, last), j, last), values)
    following = builder.add(j, _I64(size))
    j.add_incoming(_I64(0), before)
    j.add_incoming(following, loop)
    for value, start, new in zip(values, starts, made, strict=True):
        value.add_incoming(start, before)
        value.add_incoming(new, loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
    builder.position_at_end(after)
    return made


def _to_integers(builder, vector):
    """Each number to the nearest integer, and that integer as the low bits of another: by adding what has no room for
    fractions.
    """
    single = vector.type.element == _F32
    large = _everywhere(
        builder, ir.Constant(vector.type.element, 1.5 * 2.0 ** (23 if single else 52)), vector.type.count
    )
    bits = ir.VectorType(_I32 if single else _I64, vector.type.count)
    moved = builder.fadd(vector, large)
    return builder.fsub(moved, large), builder.sub(builder.bitcast(moved, bits), builder.bitcast(large, bits))


def _length(context, builder, kind, array):
    return builder.extract_value(context.make_array(kind)(context, builder, array).shape, 0)


@intrinsic
def come(typingctx, codes, i):
    """Have a row come from memory before it is needed."""

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place, address = _I8.as_pointer(), builder.bitcast(array.data, _I8.as_pointer())
        address = builder.gep(address, [builder.mul(args[1], builder.extract_value(array.strides, 0))])
        kind = ir.FunctionType(ir.VoidType(), [place, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        width = builder.mul(builder.extract_value(array.shape, 1), builder.extract_value(array.strides, 1))
        with cgutils.for_range_slice(builder, _I64(0), width, _I64(_LINE), intp=_I64) as (offset, _):
            builder.call(function, [builder.gep(address, [offset]), _I32(0), _I32(3), _I32(1)])
        return context.get_dummy_value()

    return types.void(codes, types.int64), codegen


# --- encoding -----------------------------------------------------------------------------------------------------


@intrinsic
def extent(typingctx, row):
    """The smallest and the largest number of a row."""

    def codegen(context, builder, signature, args):
        kind, element = signature.args[0], context.get_data_type(row.dtype)
        first = _everywhere(builder, builder.load(_address(context, builder, kind, args[0], _I64(0))), 8)

        def less(a, b):
            return builder.select(builder.fcmp_ordered("<", a, b), a, b)

        def more(a, b):
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        def body(j, values):
            x = builder.load(_vector(builder, _address(context, builder, kind, args[0], j), element, 8), align=4)
            return less(x, values[0]), more(x, values[1])

        low, high = _along(builder, _length(context, builder, kind, args[0]), 8, [first, first], body)
        ends = [_folded(builder, low, less), _folded(builder, high, more)]
        return context.make_tuple(builder, signature.return_type, ends)

    return types.UniTuple(row.dtype, 2)(row), codegen


@intrinsic
def _encode_integers(typingctx, row, offset, codes):
    """codes = row − offset, and whether that is exact."""

    def codegen(context, builder, signature, args):
        element, size = context.get_data_type(row.dtype), 8
        offset = _everywhere(builder, args[1], size)
        bits = ir.VectorType(ir.IntType(8 * context.get_abi_sizeof(element)), size)

        def body(j, values):
            place = _vector(builder, _address(context, builder, signature.args[0], args[0], j), element, size)
            given = builder.load(place, align=4)
            x = builder.fsub(given, offset)
            nearest, code = _to_integers(builder, x)
            place = _vector(builder, _address(context, builder, signature.args[2], args[2], j), _I8, size)
            builder.store(builder.trunc(code, ir.VectorType(_I8, size)), place, align=1)
            left = builder.bitcast(builder.fsub(builder.fadd(nearest, offset), given), bits)
            far = builder.add(code, ir.Constant(bits, [bits.element(128)] * size))
            return builder.or_(values[0], left), builder.or_(values[1], far)

        count = _length(context, builder, signature.args[0], args[0])
        left, far = _along(builder, count, size, [ir.Constant(bits, None)] * 2, body)
        left, far = (_folded(builder, found, builder.or_) for found in (left, far))
        integer = builder.icmp_unsigned("==", builder.shl(left, left.type(1)), left.type(0))  # whatever the sign
        return builder.and_(integer, builder.icmp_unsigned("<", far, far.type(256)))

    return types.boolean(row, row.dtype, codes), codegen


def _nearest(code, precision):
    """A function of a row, offset, inverse and codes: codes = (row − offset)·inverse to the nearest integers.

    It returns the sum of squares of what that leaves, and the sum of the codes.
    """

    def nearest(typingctx, row, offset, inverse, codes):
        def codegen(context, builder, signature, args):
            element, size = context.get_data_type(row.dtype), 8
            number = context.get_data_type(precision)
            offset, inverse = _everywhere(builder, args[1], size), _everywhere(builder, args[2], size)
            half = float(2 ** (code.width - 1))

            def body(j, values):
                place = _vector(builder, _address(context, builder, signature.args[0], args[0], j), element, size)
                z = builder.fsub(builder.load(place, align=4), offset)
                if element != number:
                    z = (builder.fptrunc if number == _F32 else builder.fpext)(z, inverse.type)
                z = builder.fmul(z, inverse)
                q, integer = _to_integers(builder, _within(builder, z, -half, half - 1.0))
                place = _vector(builder, _address(context, builder, signature.args[3], args[3], j), code, size)
                builder.store(builder.trunc(integer, ir.VectorType(code, size)), place, align=code.width // 8)
                left = builder.fsub(z, q)
                squares = builder.fadd(values[0], builder.fmul(left, left, flags=_FLAGS), flags=_FLAGS)
                return squares, builder.fadd(values[1], q, flags=_FLAGS)

            count = _length(context, builder, signature.args[0], args[0])
            sums = _along(builder, count, size, [ir.Constant(inverse.type, None)] * 2, body)
            found = [_folded(builder, total, lambda a, b: builder.fadd(a, b, flags=_FLAGS)) for total in sums]
            return context.make_tuple(builder, signature.return_type, found)

        return types.UniTuple(precision, 2)(row, row.dtype, precision, codes), codegen

    return intrinsic(nearest)


_encode_nearest, encode_weights = _nearest(_I8, types.float32), _nearest(_I16, types.float64)


def _row(X, i, room):  # pragma: no cover - compiled
    """A row whose numbers lie side by side."""


@overload(_row)
def _row_of(X, i, room):
    if X.layout == "C":
        return lambda X, i, room: X[i]

    def copied(X, i, room):
        for j in range(np.uint64(X.shape[1])):
            room[j] = X[i, j]
        return room

    return copied


@njit(cache=True, nogil=True)
def encode(X, y, codes, numbers, step, low, high):
    """Encode every ``step``-th row of X from low to high: row low + m·step is row m of the copy.

    Args:
        X: samples (N, d), d ≥ 8.
        y: their labels, kept with the codes.
        codes: int8 (M, HEAD + D), D ≥ d a multiple of STEP.
        numbers: float32 (M, 4), the first bytes of a row of codes, see SCALE.
        step: how far apart the rows are.
        low: the first.
        high: behind the last.
    """
    width, single, number = X.shape[1], np.float32, X.dtype.type
    room, own = np.empty(width, X.dtype), np.zeros(codes.shape[1] - HEAD, np.int8)
    root, rounding = single(math.sqrt(width) * (1.0 + 1e-6)), single(1.01 + 1.2e-7 * width)
    offset = number(0)  # of the last row of integers: likely that of the next
    ahead = max(1, _AHEAD // (width * X.itemsize)) * step
    for m in range((high - low + step - 1) // step):
        i, place = np.uint64(low + m * step), np.uint64(m)
        come(X, min(low + m * step + ahead, high - 1))
        row = _row(X, i, room)
        scale, error, base = single(1), single(0), offset
        maybe = row[0] == np.floor(row[0]) and row[width - 1] == np.floor(row[width - 1])
        whole = maybe and _encode_integers(row, offset, own)
        if not whole:
            least, most = extent(row)
            if maybe:
                base = number(0) if least >= number(-128) and most <= number(127) else least + number(128)
                whole = abs(base) < number(2**20) and _encode_integers(row, base, own)
            if whole:
                offset = base
            else:
                scale = max(single(most / number(254) - least / number(254)), single(1e-30))
                base = number(single(most / number(2) + least / number(2)))
                total, _ = _encode_nearest(row, base, single(1) / scale, own)
                error = scale * (single(math.sqrt(total)) * rounding + single(1e-4) * root)
                if not (scale < single(LARGEST) and abs(base) < number(LARGEST)):
                    scale, base, error = single(1), number(0), single(np.inf)
        numbers[place, SCALE], numbers[place, OFFSET] = scale, single(base)
        numbers[place, ERROR], numbers[place, LABEL] = error, single(y[i])
        for j in range(np.uint64(len(own))):
            codes[place, j + np.uint64(HEAD)] = own[j]


# --- inner products -----------------------------------------------------------------------------------------------


def _dots(count):
    """A function of codes, the number of a row, weights and a class: q·v of so many classes."""

    def dots(typingctx, codes, i, v, k):
        def codegen(context, builder, signature, args):
            array = context.make_array(signature.args[2])(context, builder, args[2])
            wide, sums = ir.VectorType(_I32, STEP), ir.VectorType(_I32, STEP // 2)

            def widened(kind, array, element, *index):
                place = _vector(builder, _address(context, builder, kind, array, *index), element, STEP)
                return builder.sext(builder.load(place, align=element.width // 8), wide)

            def body(j, values):
                q = widened(signature.args[0], args[0], _I8, args[1], builder.add(j, _I64(HEAD)))
                made = []
                for number, value in enumerate(values):
                    weights = widened(signature.args[2], args[2], _I16, builder.add(args[3], _I64(number)), j)
                    product = builder.mul(q, weights)  # pairs of products are added in one instruction
                    pairs = (_some(builder, product, range(start, STEP, 2)) for start in (0, 1))
                    made.append(builder.add(value, builder.add(*pairs)))
                return made

            zeros = [ir.Constant(sums, None)] * count
            totals = _along(builder, builder.extract_value(array.shape, 1), STEP, zeros, body)
            found = [_folded(builder, total, builder.add) for total in totals]
            return context.make_tuple(builder, signature.return_type, found)

        return types.UniTuple(types.int32, count)(codes, types.int64, v, types.int64), codegen

    return intrinsic(dots)


dot, five_dots = _dots(1), _dots(5)
