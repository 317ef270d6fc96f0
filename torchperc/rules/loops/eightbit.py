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
from numba.extending import intrinsic

SCALE, OFFSET, ERROR, LABEL = 0, 1, 2, 3
"""Places in the four numbers in single precision that are kept with the codes of a row."""
HEAD, STEP = 16, 16
"""Bytes of those numbers in front of the codes of a row; codes worked on together: a row has a multiple of them."""
_LINE = 64  # bytes that come from memory together
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


def _constant(value, size):
    return ir.Constant(ir.VectorType(_F32, size), [ir.Constant(_F32, value)] * size)


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
    """What ``body(j, values)`` makes of the starting values for j = 0, size, … below the count, which is not 0."""
    before, loop, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.branch(loop)
    builder.position_at_end(loop)
    j, values = builder.phi(_I64), [builder.phi(start.type) for start in starts]
    made = body(j, values)
    following = builder.add(j, _I64(size))
    j.add_incoming(_I64(0), before)
    j.add_incoming(following, loop)
    for value, start, new in zip(values, starts, made, strict=True):
        value.add_incoming(start, before)
        value.add_incoming(new, loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
    builder.position_at_end(after)
    return made


def _rounded(builder, vector):
    """Each number to the nearest integer."""
    name = f"llvm.rint.v{vector.type.count}f32"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector.type, [vector.type]), name)
    return builder.call(function, [vector])


def _length(context, builder, kind, array):
    return builder.extract_value(context.make_array(kind)(context, builder, array).shape, 0)


# --- encoding -----------------------------------------------------------------------------------------------------


@intrinsic
def _extent(typingctx, row):
    """The smallest and the largest number of a row whose length is a multiple of STEP."""

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
        far = _everywhere(builder, ir.Constant(element, 1000.0), size), _everywhere(builder, ir.Constant(element, -1000.0), size)

        def body(j, values):
            place = _vector(builder, _address(context, builder, signature.args[0], args[0], j), element, size)
            x = builder.fsub(builder.load(place, align=4), offset)
            inside = builder.select(builder.fcmp_ordered("<", x, far[0]), x, far[0])
            inside = builder.select(builder.fcmp_ordered(">", inside, far[1]), inside, far[1])
            wide = builder.fptosi(inside, ir.VectorType(_I32, size))
            code = builder.trunc(wide, ir.VectorType(_I8, size))
            place = _vector(builder, _address(context, builder, signature.args[2], args[2], j), _I8, size)
            builder.store(code, place, align=1)
            back = builder.sitofp(builder.sext(code, wide.type), x.type)
            return [builder.or_(values[0], builder.fcmp_unordered("!=", back, x))]

        start = ir.Constant(ir.VectorType(ir.IntType(1), size), None)
        count = _length(context, builder, signature.args[0], args[0])
        (differs,) = _along(builder, count, size, [start], body)
        return builder.not_(_folded(builder, differs, builder.or_))

    return types.boolean(row, row.dtype, codes), codegen


@intrinsic
def _encode_nearest(typingctx, row, offset, inverse, codes):
    """codes = (row − offset)·inverse to the nearest integer, and the sum of squares of what that leaves."""

    def codegen(context, builder, signature, args):
        element, size = context.get_data_type(row.dtype), 8
        offset, inverse = _everywhere(builder, args[1], size), _everywhere(builder, args[2], size)
        low, high = _constant(-128.0, size), _constant(127.0, size)

        def body(j, values):
            place = _vector(builder, _address(context, builder, signature.args[0], args[0], j), element, size)
            z = builder.fsub(builder.load(place, align=4), offset)
            z = builder.fmul(z if element == _F32 else builder.fptrunc(z, low.type), inverse)
            q = builder.select(builder.fcmp_ordered("<", z, high), z, high)
            q = _rounded(builder, builder.select(builder.fcmp_ordered(">", q, low), q, low))
            code = builder.trunc(builder.fptosi(q, ir.VectorType(_I32, size)), ir.VectorType(_I8, size))
            place = _vector(builder, _address(context, builder, signature.args[3], args[3], j), _I8, size)
            builder.store(code, place, align=1)
            left = builder.fsub(z, q)
            return [builder.fadd(values[0], builder.fmul(left, left, flags=_FLAGS), flags=_FLAGS)]

        count = _length(context, builder, signature.args[0], args[0])
        (total,) = _along(builder, count, size, [_constant(0.0, size)], body)
        return _folded(builder, total, lambda a, b: builder.fadd(a, b, flags=_FLAGS))

    return types.float32(row, row.dtype, types.float32, codes), codegen


@njit(cache=True, nogil=True)
def encode(X, y, codes, numbers, step, low, high):
    """Encode every ``step``-th row of X from low to high: row low + m·step is row m of the copy.

    Args:
        X: samples (N, d).
        y: their labels, kept with the codes.
        codes: int8 (M, HEAD + D), D ≥ d a multiple of STEP.
        numbers: float32 (M, 4), the first bytes of a row of codes, see SCALE.
        step: how far apart the rows are.
        low: the first.
        high: behind the last.
    """
    width = X.shape[1]
    row, own = np.empty(codes.shape[1] - HEAD, X.dtype), np.empty(codes.shape[1] - HEAD, np.int8)
    number, single, root = X.dtype.type, np.float32, np.float32(math.sqrt(width) * (1.0 + 1e-6))
    rounding = single(1.01 + 1.2e-7 * width)
    offset = number(0)  # of the last row of integers: likely that of the next
    for m in range((high - low + step - 1) // step):
        i, place = np.uint64(low + m * step), np.uint64(m)
        for j in range(np.uint64(width)):
            row[j] = X[i, j]
        row[width:] = row[0]
        whole = row[0] == np.floor(row[0]) and row[width - 1] == np.floor(row[width - 1])
        if whole:
            row[width:] = offset
            whole = _encode_integers(row, offset, own)
            row[width:] = row[0]
        scale, error, base = single(1), single(0), offset
        if not whole:
            least, most = _extent(row)
            base = number(0) if least >= number(-128) and most <= number(127) else least + number(128)
            if row[0] == np.floor(row[0]) and most - least <= number(255) and abs(base) < number(2**20):
                row[width:] = base
                whole = _encode_integers(row, base, own)
            if whole:
                offset = base
            else:
                scale = max(single(most / number(254) - least / number(254)), single(1e-30))
                base = number(single(most / number(2) + least / number(2)))
                row[width:] = base
                total = _encode_nearest(row, base, single(1) / scale, own)
                error = scale * (single(math.sqrt(total)) * rounding + single(1e-4) * root)
                if not (scale < single(1e30) and abs(base) < number(1e30)):
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
                    weights = widened(
                        signature.args[2], args[2], _I16, builder.add(args[3], _I64(number)), j
                    )
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


@intrinsic
def come(typingctx, codes, i):
    """Have a row come from memory before it is needed."""

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place, address = _I8.as_pointer(), builder.bitcast(array.data, _I8.as_pointer())
        address = builder.gep(address, [builder.mul(args[1], builder.extract_value(array.strides, 0))])
        kind = ir.FunctionType(ir.VoidType(), [place, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        width = builder.extract_value(array.shape, 1)
        with cgutils.for_range_slice(builder, _I64(0), width, _I64(_LINE), intp=_I64) as (offset, _):
            builder.call(function, [builder.gep(address, [offset]), _I32(0), _I32(3), _I32(1)])
        return context.get_dummy_value()

    return types.void(codes, types.int64), codegen
