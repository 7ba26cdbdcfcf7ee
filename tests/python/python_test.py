"""The module of tools/python: what it reads in the headers, calls, errors, ownership.

Every test ends with no object left.
"""

import copy
import ctypes
import decimal
import fractions
import functools
import gc
import operator
import os
import pathlib
import pickle
import re
import struct
import tempfile
import threading
import unittest
import ndarc as nd
from ndarc import binding
from ndarc.binding import headers, library
from case import Case, np, of_threads


class Headers(Case):
    def test_every_function_of_the_recorded_interface_is_read(self):
        recorded = set(re.findall(r"\b(nd_\w+)\(", pathlib.Path(os.environ["ND_INTERFACE"]).read_text()))
        self.assertGreater(len(recorded), 500)
        self.assertEqual(recorded - set(headers.functions), set())

    def test_every_function_that_is_read_is_in_the_library(self):
        self.assertEqual([name for name in headers.functions if not hasattr(library, name)], [])

    def test_options_begin_as_their_macros_say(self):
        options = nd.new_struct("nd_conv2d_options", padding=2)
        self.assertEqual((list(options.stride), list(options.padding), options.groups, options.version), ([1, 1], [2, 2], 1, 1))
        self.assertEqual(options.size, ctypes.sizeof(options))
        self.assertEqual(nd.new_struct("nd_adam_options").beta2, 0.999)
        with self.assertRaises(TypeError):
            nd.new_struct("nd_adam_options", beta3=1)

    def test_sizes_of_structs_are_the_librarys(self):
        # The library checks the size of each versioned struct that it is given.
        self.assertEqual(nd.manager_get_stats(None).live_objects, 0)
        self.assertGreaterEqual(nd.gc_get_stats().collections, 0)
        self.assertGreaterEqual(nd.memory_get_stats().size, 8)


class Calls(Case):
    def test_arguments_by_what_they_are(self):
        x = nd.arange(0, 6, 1, "float32")
        self.assertEqual(nd.reshape(x, [2, 3]).shape, (2, 3))
        self.assertEqual(nd.permute(nd.reshape(x, (2, 3)), [1, 0]).strides, (1, 3))
        self.assertEqual(nd.sum(x).item(), 15.0)
        self.assertEqual(nd.sum(nd.reshape(x, [2, 3]), [1], True).shape, (2, 1))
        self.assertEqual(nd.concat([x, x], 0).shape, (12,))
        self.assertEqual([part.shape for part in nd.split(x, [2, 4], 0)], [(2,), (4,)])
        self.assertEqual(len(nd.unstack(x, 0)), 6)
        self.assertEqual(nd.pad(x, [1, 2], 0, "constant").shape, (9,))
        self.assertEqual(nd.tensordot(x, x, [0], [0]).item(), 55.0)
        self.assertEqual(nd.rand(7, [3], "float64").dtype, "float64")
        self.assertEqual(nd.l1_loss(x, x, "sum").item(), 0.0)
        self.assertEqual(nd.full([], 2**64 - 1, "uint64").dtype, "uint64")
        self.assertEqual(nd.dtype_get_max("int64"), 2**63 - 1)
        self.assertEqual(nd.dtype_get_min("int64"), -(2**63))
        self.assertEqual(nd.to(x, "cpu:0").device, "cpu:0")

    def test_several_results(self):
        values, positions = nd.topk(nd.arange(0, 6, 1, "float32"), 2, 0, True)
        self.assertEqual((values[0].item(), positions[0].item()), (5.0, 5))
        self.assertEqual(len(nd.quantize(nd.ones([2, 4], "float32"), 8, 0, "float32", zeros=False)), 2)
        self.assertEqual(len(nd.quantize(nd.ones([2, 4], "float32"), 8, 0, "float32")), 3)

    def test_options_are_keywords(self):
        x, w = nd.ones([1, 1, 4, 4], "float32"), nd.ones([1, 1, 3, 3], "float32")
        self.assertEqual(nd.conv2d(x, w).shape, (1, 1, 2, 2))
        self.assertEqual(nd.conv2d(x, w, None, padding=1, stride=[1, 2]).shape, (1, 1, 4, 2))
        with self.assertRaises(TypeError):
            nd.conv2d(x, w, None, margin=1)

    def test_errors_are_exceptions_and_leave_nothing(self):
        x = nd.ones([2], "float32")
        with self.assertRaises(nd.Error) as caught:
            nd.add(x, nd.ones([3], "float32"))
        self.assertEqual(caught.exception.status, "ND_ERROR_SHAPE")
        self.assertIn("do not broadcast", str(caught.exception))
        self.assertEqual(nd.add(x, x)[1].item(), 2.0)  # the error is gone
        with self.assertRaises(nd.Error):
            nd.get_item(x)
        with self.assertRaises(nd.Error):  # what is missing is NULL
            nd.add(x)
        with self.assertRaises(TypeError):
            nd.full([2])
        with self.assertRaises(TypeError):
            nd.add(x, x, x)
        with self.assertRaises(ValueError):
            nd.l1_loss(x, x, "median")
        with self.assertRaises(AttributeError):
            nd.nonsense
        del caught

    def test_borrowed_handles_are_retained(self):
        x = nd.ones([2], "float32")
        x.requires_grad = True
        nd.sum(x * x).backward()
        grad = x.grad
        self.assertEqual(nd.get_count(grad), 2)
        del x
        self.assertEqual(grad[0].item(), 2.0)

    def test_indices_are_views(self):
        x = nd.reshape(nd.arange(0, 24, 1, "float64"), [2, 3, 4])
        self.assertEqual(x[1, 2, 3].item(), 23.0)
        self.assertEqual(x[..., 1:3].shape, (2, 3, 2))
        self.assertEqual(x[:, None, 0].shape, (2, 1, 4))
        self.assertTrue(nd.is_view_of(x[0], x))
        self.assertEqual([row[0].item() for row in x[0]], [0.0, 4.0, 8.0])
        self.assertEqual(x[0, 0, ::-1][0].item(), 3.0)
        self.assertEqual(x[0, 0, 2:0:-1].shape, (2,))
        with self.assertRaises(IndexError):
            x[5]

    def test_operators_with_numbers_that_an_integer_is_not(self):
        x = nd.tensor([1, 4]) if np else nd.full([2], 4, "int64")
        self.assertEqual((0.5 + x)[1].item(), 4.5)
        self.assertTrue((x < 4.5)[1].item())
        self.assertEqual((2.0 / x)[1].item(), 0.5)
        self.assertEqual((x // 2.5)[1].item(), 1.0)
        self.assertTrue((x == 4)[1].item())
        self.assertFalse((x != 4)[1].item())
        self.assertEqual(nd.full([], 2**64 - 1, "uint64").item(), 2**64 - 1)

    def test_numbers_that_c_does_not_hold(self):
        x = nd.ones([2], "float32")
        for wrong in (lambda: x + 2**70, lambda: nd.full([1], 2**64, "uint64"), lambda: nd.zeros([2**64 + 1], "float32"), lambda: nd.softmax(x, 2**32)):
            with self.assertRaises(OverflowError):
                wrong()

    def test_arguments_of_another_kind(self):
        x = nd.ones([2], "float32")
        with nd.manager("other") as other:
            for wrong in (lambda: nd.exp(3), lambda: nd.exp("x"), lambda: nd.maximum(x, 1), lambda: nd.clone(other), lambda: nd.manager_close(x)):
                with self.assertRaises(TypeError):
                    wrong()
            with self.assertRaises(TypeError):
                nd.conv2d(x, x, None, nd.new_struct("nd_adam_options"))
            with self.assertRaises(ValueError):
                nd.load_npy("a\0b")
            with self.assertRaises(TypeError):
                nd.ones([2], "floaty")

    def test_memory_that_is_too_short(self):
        self.assertEqual(nd.from_data(bytes(8), [2], "float32").shape, (2,))
        self.assertEqual(nd.from_data(bytes(4), [], "float32").shape, ())
        for wrong in (lambda: nd.from_data(bytes(7), [2], "float32"), lambda: nd.from_data(bytes(8), [2000000], "float32")):
            with self.assertRaises(ValueError):
                wrong()

    def test_padding_has_two_numbers_for_each_axis(self):
        x = nd.ones([2, 3], "float32")
        self.assertEqual(nd.pad(x, [1, 2], 0, "constant").shape, (2, 6))
        with self.assertRaises(ValueError):
            nd.pad(x, [1, 1, 1], 0, "constant")

    def test_as_many_outputs_as_were_asked_for(self):
        forward_of = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p))

        @forward_of
        def forward(context, ninputs, inputs, noutputs, outputs):
            for i in range(noutputs):
                made = nd.full([2], float(i), "float32")
                outputs[i] = library.nd_object_retain(ctypes.c_void_p(made.address))
            return 0

        @forward_of
        def backward(context, noutputs, grads, ninputs, results):
            return 0

        library.nd_object_retain.restype = ctypes.c_void_p
        function = nd.new_struct("nd_function")
        function.name = b"several"
        function.forward, function.backward = forward, backward
        x = nd.ones([2], "float32")
        for count in (1, 2, 5):
            outputs = nd.function_apply(function, None, [x], count)
            self.assertEqual([one[0].item() for one in outputs], [float(i) for i in range(count)])

    def test_tensors_that_only_the_call_holds(self):
        x = nd.arange(0, 4, 1, "float32")
        self.assertEqual(nd.stack((x[i] * float(i) for i in range(4)), 0)[3].item(), 9.0)
        self.assertEqual(nd.concat(map(lambda i: nd.full([2], float(i), "float32"), range(4)), 0)[7].item(), 3.0)
        self.assertEqual(nd.stack(x, 0).shape, (4,))

    def test_slices_are_those_of_lists(self):
        numbers = list(range(4))
        x = nd.arange(0, 4, 1, "float32")
        places = [None, -6, -5, -4, -1, 0, 1, 3, 4, 6]
        for start in places:
            for stop in places:
                for step in (None, 1, 2, -1, -2, -5):
                    taken = x[start:stop:step]
                    self.assertEqual([taken[i].item() for i in range(len(taken))], numbers[start:stop:step], (start, stop, step))

    def test_operators(self):
        x = nd.arange(1, 4, 1, "float32")
        for made, expected in ((x + 1, 4.0), (1 - x, -2.0), (x * x, 9.0), (6 / x, 2.0), (x**2, 9.0), (2**x, 8.0), (-x, -3.0), (x % 2, 1.0), (x // 2, 1.0)):
            self.assertEqual(made[2].item(), expected)
        self.assertTrue((x > 2)[2].item())
        self.assertEqual((x @ x).item(), 14.0)

    def test_numbers_on_either_side_follow_one_rule(self):
        """That of nd_add_scalar(): the tensor's dtype, and float32 where it is of integers and the number has a fraction."""
        for dtype in nd.DTYPES[1:]:
            x, is_float = nd.full([2], 3, dtype), "float" in dtype
            for number in (2, 2.0, 2.5, True, 1, float("inf")):
                of_rule = dtype if is_float or isinstance(number, int) or number.is_integer() else "float32"
                n = nd.full([2], number, of_rule)
                for apply, whole in ((operator.add, nd.add), (operator.sub, nd.sub), (operator.mul, nd.mul), (operator.truediv, nd.div),
                                     (operator.floordiv, nd.floor_divide), (operator.mod, nd.remainder), (operator.pow, nd.pow)):  # fmt: skip
                    direct, reflected = apply(x, number), apply(number, x)
                    expected = "float32" if apply is operator.truediv and not is_float else of_rule
                    self.assertEqual((direct.dtype, reflected.dtype), (expected, expected), (apply, dtype, number))
                    for made, known in ((direct, whole(x, n)), (reflected, whole(n, x))):
                        self.assertEqual(str(made[1].item()), str(known[1].item()), (apply, dtype, number))
        for large in (2**60 + 1, -(2**63)):
            x = nd.full([1], 1, "int64")
            self.assertEqual((x * large).item(), (large * x).item())
            self.assertEqual((large * x).item(), large)
            self.assertEqual((x / large).item(), 1 / large)
            self.assertEqual((large / x).item(), float(large))

    def test_numbers_that_the_tensor_does_not_hold_on_either_side(self):
        x = nd.full([2], 3, "uint8")
        for number in (300, -1, 300.0, 1e30):
            for apply in (operator.add, operator.sub, operator.mul, operator.pow, operator.floordiv, operator.mod):
                for call in (lambda: apply(x, number), lambda: apply(number, x)):
                    with self.assertRaises(nd.Error, msg=(apply, number)):
                        call()
            self.assertEqual(((x / number).dtype, (number / x).dtype), ("float32", "float32"))
            self.assertAlmostEqual((number / x)[1].item() / (number / 3), 1, 6)

    def test_comparisons_with_numbers(self):
        large = nd.full([1], 2**53 + 1, "int64")
        for number, less, equal in ((2.0**53, False, False), (2**53 + 1, False, True), (2.0**54, True, False)):
            self.assertEqual(((large < number).item(), (number > large).item()), (less, less))
            self.assertEqual(((large == number).item(), (number == large).item(), (large != number).item()), (equal, equal, not equal))
        for dtype in ("int8", "uint8", "int32", "uint64", "int64"):
            x = nd.full([1], 3, dtype)
            for number in (2**64, 1e30, 2.0**64, 2**2000, float("inf")):
                self.assertEqual([(x < number).item(), (x >= number).item(), (x == number).item(), (x != number).item()], [True, False, False, True])
                self.assertEqual([(x > -number).item(), (-number > x).item(), (-number == x).item()], [True, False, False])
            self.assertEqual([(x < float("nan")).item(), (x != float("nan")).item()], [False, True])
        small = nd.full([1], -128, "int8")
        self.assertEqual([(small == -128).item(), (small > -129).item(), (small < 127).item(), (small < 128).item()], [True, True, True, True])
        true = nd.full([1], True, "bool")
        for number, equal in ((True, True), (1, True), (1.0, True), (2, False), (0.5, False), (-1, False)):
            self.assertEqual(((true == number).item(), (number == true).item()), (equal, equal), number)

    def test_files_of_python_are_streams(self):
        x = nd.ones([3], "float32")
        with tempfile.TemporaryFile("w+") as file:
            nd.print(x, file)
            file.seek(0)
            self.assertIn("tensor([1., 1., 1.]", file.read())
        nd.set_name(x, "what is held")
        self.assertIn("what is held", nd.dump())


class Numbers(Case):
    """A number arrives as what it is, or not at all."""

    def test_real_numbers_are_floats(self):
        x = nd.full([1], 2.0, "float32")
        given = [fractions.Fraction(3, 2), decimal.Decimal("1.5"), 1.5]
        if np:
            given += [np.float16(1.5), np.float32(1.5), np.float64(1.5), np.longdouble(1.5), np.array(1.5, np.float32)]
        for number in given:
            self.assertEqual((nd.mul_scalar(x, number).item(), (x * number).item(), (number * x).item()), (3.0, 3.0, 3.0), repr(number))
            self.assertEqual(nd.full([1], number, "float64").item(), 1.5)
            self.assertEqual(nd.clip(x, 0, number).item(), 1.5)
            self.assertEqual(nd.fftfreq(4, number, "float64")[1].item(), 1 / 6)
            self.assertEqual(nd.new_struct("nd_sgd_options", rate=number).rate, 1.5)
            self.assertEqual(nd.quantile(nd.ones([4], "float32"), [decimal.Decimal("0.5")], 0).item(), 1.0)

    def test_integers_and_bools_stay_so(self):
        large = 2**63 - 1
        given = [large] + ([np.int64(large), np.uint64(large), np.array(large)] if np else [])
        for number in given:
            self.assertEqual(nd.full([1], number, "int64").item(), large)
        self.assertEqual([binding.Number.of(number).kind for number in (1.0, 1, 2**63, True)], [0, 1, 2, 2])
        for number in [True] + ([np.True_, np.array(True)] if np else []):
            self.assertIs(nd.full([], number, "bool").item(), True)
            self.assertEqual(nd.sum(nd.ones([2], "float32"), [0], number).shape, (1,))
        for number in [3] + ([np.int8(3), np.uint64(3), np.array(3)] if np else []):
            self.assertEqual(nd.ones([number], "float32").shape, (3,))
            self.assertEqual(nd.unsqueeze(nd.ones([2, 2, 2], "float32"), number).shape, (2, 2, 2, 1))
            self.assertEqual(nd.ones([2, 2, 2, 2], number).dtype, nd.DTYPES[3])

    def test_a_tensor_without_axes_is_its_item(self):
        x = nd.full([1], 2.0, "float64")
        for dtype, value in (("float32", 1.5), ("float16", 1.5), ("bfloat16", 1.5), ("int8", 3), ("bool", True), ("uint64", 2**64 - 1)):
            self.assertEqual(nd.full([], nd.full([], value, dtype), dtype).item(), value)
        self.assertEqual(nd.mul_scalar(x, nd.full([], 1.5, "float32")).item(), 3.0)
        weight = nd.full([], 1.5, "float32")
        weight.requires_grad = True
        for wrong in (nd.full([1], 1.5, "float32"), nd.ones([2], "float32"), weight):
            with self.assertRaises(TypeError):
                nd.mul_scalar(x, wrong)
        self.assertEqual(nd.mul_scalar(x, nd.detach(weight)).item(), 3.0)

    def test_what_is_no_number(self):
        x = nd.ones([2], "float32")
        wrong = ["7", b"7", None, [7], (7,), {}, 1j, object()]
        if np:
            wrong += [np.str_("7"), np.complex64(7), np.array([7]), np.array(1j), np.datetime64("2000")]
        for value in wrong:
            calls = (
                lambda: nd.mul_scalar(x, value),
                lambda: nd.full([1], value, "float32"),
                lambda: nd.clip(x, 0, value),
                lambda: nd.new_struct("nd_sgd_options", rate=value),
                lambda: nd.new_struct("nd_conv1d_options", stride=value),
                lambda: nd.softmax(x, value),
                lambda: nd.ones([value], "float32"),
                lambda: nd.rand(value, [2], "float32"),
                lambda: nd.sum(x, [0], value),
                lambda: nd.quantile(x, [value], 0),
                lambda: x + value,
                lambda: value + x,
            )
            for at, call in enumerate(calls):
                with self.assertRaises(TypeError, msg=f"{value!r} of {at}"):
                    call()

    def test_floats_are_no_integers(self):
        x = nd.ones([2], "float32")
        for value in (1.0, 0.5, float("nan"), fractions.Fraction(1), nd.ones([], "float32")) + ((np.float32(1), np.array(1.0)) if np else ()):
            calls = (
                lambda: nd.softmax(x, value),
                lambda: nd.ones([value], "float32"),
                lambda: nd.ones([2], value),
                lambda: nd.rand(value, [2], "float32"),
                lambda: nd.l1_loss(x, x, value),
                lambda: nd.sum(x, [value]),
                lambda: nd.sum(x, [0], value),
                lambda: nd.to(x, value),
                lambda: nd.new_struct("nd_conv2d_options", stride=[value, 1]),
                lambda: nd.new_struct("nd_conv1d_options", groups=value),
                lambda: nd.new_struct("nd_image_options", oriented=value),
                lambda: x[value],
            )
            for at, call in enumerate(calls):
                with self.assertRaises(TypeError, msg=f"{value!r} of {at}"):
                    call()

    def test_numbers_that_would_be_cut(self):
        x = nd.ones([2], "float32")
        for wrong in (
            lambda: nd.full([1], -(2**63) - 1, "int64"),
            lambda: nd.full([1], fractions.Fraction(10**400), "float64"),
            lambda: nd.ones([2], 2**33 + 4),
            lambda: nd.l1_loss(x, x, 2**32),
            lambda: nd.rand(2**64 + 1, [2], "float32"),
            lambda: nd.rand(-1, [2], "float32"),
            lambda: nd.rand((2**64, 0), [2], "float32"),
            lambda: nd.to(x, f"cpu:{2**32}"),
            lambda: nd.to(x, (2**32, 0)),
            lambda: nd.fftfreq(4, 10**400, "float64"),
            lambda: nd.new_struct("nd_conv2d_options", stride=[2**64 + 1, 1]),
            lambda: nd.new_struct("nd_conv1d_options", groups=-(2**63) - 1),
            lambda: nd.new_struct("nd_png_options", compression=2**32),
            lambda: nd.new_struct("nd_interpolate_options", mode=2**32),
            lambda: nd.new_struct("nd_attention_options", key=(2**64, 0)),
        ):
            with self.assertRaises(OverflowError):
                wrong()

    def test_structs_that_are_passed_as_such(self):
        x = nd.ones([2], "float32")
        self.assertEqual(nd.rand((7, 0), [1], "float32").item(), nd.rand(nd.new_struct("nd_key", seed=7), [1], "float32").item())
        self.assertEqual(nd.to(x, ("cpu", 0)).device, "cpu:0")
        for wrong in (lambda: nd.to(x, 0), lambda: nd.to(x, nd.key_new(1)), lambda: nd.to(x, (0,)), lambda: nd.rand(nd.get_device(x), [1], "float32")):
            with self.assertRaises(TypeError):
                wrong()


class Pointers(Case):
    """An int is no address, and what a pointer is given lives and is long enough."""

    def refuse(self, calls, error=TypeError):
        for at, call in enumerate(calls):
            with self.assertRaises(error, msg=f"call {at}"):
                call()

    def test_an_int_is_no_text(self):
        x, held, model = nd.ones([2], "float32"), nd.map_new(), nd.linear_module(1, 3, 2, False)
        for wrong in (3, True, 1.5, ["a"], bytearray(b"a"), x):
            self.refuse(
                (
                    lambda: nd.load_npy(wrong),
                    lambda: nd.save_npy(wrong, x),
                    lambda: nd.manager(wrong),
                    lambda: nd.set_name(x, wrong),
                    lambda: nd.map_get(held, wrong),
                    lambda: nd.map_set(held, wrong, x),
                    lambda: held[wrong],
                    lambda: nd.save_npz("a", [wrong], [x]),
                    lambda: nd.einsum(wrong, [x]),
                    lambda: nd.module_get_parameter(model, wrong),
                    lambda: nd.new_struct("nd_type", name=wrong),
                    lambda: nd.new_struct("nd_csv_options", separator="ab"),
                )
            )

    def test_texts_and_paths(self):
        x, held = nd.ones([2], "float32"), nd.map_new()
        for name in ("text", b"text"):
            nd.map_set(held, name, x)
            self.assertEqual(nd.map_get(held, name).address, x.address)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "x.npy")
            for given in (path, str(path), os.fsencode(path)):
                nd.save_npy(given, x)
                self.assertEqual(nd.load_npy(given).shape, (2,))

    def test_an_int_is_no_object(self):
        x, held, of_list = nd.ones([2], "float32"), nd.map_new(), nd.list_new()
        for wrong in (5, 2**40, True, "x", b"bytes", ctypes.c_int(5), ctypes.c_void_p(5), nd.new_struct("nd_adam_options"), nd.key_new(1)):
            self.refuse(
                (
                    lambda: nd.exp(wrong),
                    lambda: nd.add(x, wrong),
                    lambda: nd.concat([x, wrong], 0),
                    lambda: nd.set_name(wrong, "name"),
                    lambda: nd.get_count(wrong),
                    lambda: nd.close(wrong),
                    lambda: nd.list_append(of_list, wrong),
                    lambda: nd.map_set(held, "x", wrong),
                    lambda: nd.map_get(wrong, "x"),
                    lambda: nd.weak_new(wrong),
                    lambda: nd.object_release(wrong),
                    lambda: nd.object_retain(wrong),
                    lambda: nd.manager_close(wrong),
                    lambda: nd.module_forward(wrong, x),
                    lambda: nd.save_npz("a", ["x"], [wrong]),
                    lambda: nd.edge_set(ctypes.c_void_p(8), wrong),
                    lambda: nd.dump(wrong),
                    lambda: nd.Tensor(wrong),
                    lambda: nd.Manager(wrong),
                )
            )

    def test_a_scope_is_no_object(self):
        scope = nd.scope_begin()
        self.refuse((lambda: nd.get_count(scope), lambda: nd.object_release(scope), lambda: nd.set_name(scope, "scope")))
        nd.scope_end(scope)

    def test_an_int_is_no_struct(self):
        x = nd.ones([1, 1, 4, 4], "float32")
        for wrong in (5, ctypes.c_int(5), x, b"bytes", nd.new_struct("nd_adam_options"), [1]):
            self.refuse(
                (
                    lambda: nd.conv2d(x, x, None, wrong),
                    lambda: nd.function_apply(wrong, None, [x], 1),
                    lambda: nd.module_new(wrong, None, 0),
                    lambda: nd.manager_set_gc_policy(None, wrong),
                    lambda: nd.map_next(nd.map_new(), wrong),
                )
            )
        self.refuse((lambda: nd.map_next(nd.map_new(), ctypes.c_uint8(0)),))

    def test_an_int_is_no_function(self):
        x = nd.ones([2], "float32")
        for wrong in (5, "hook", b"hook", print, ctypes.c_int(5)):
            self.refuse(
                (
                    lambda: nd.register_hook(x, wrong),
                    lambda: nd.checkpoint(wrong, None, [x]),
                    lambda: nd.gc_set_cycle_callback(wrong),
                    lambda: nd.weak_set_callback(nd.weak_new(x), wrong),
                    lambda: nd.wrap(None, [0], "float32", wrong),
                    lambda: nd.new_struct("nd_function", forward=wrong),
                )
            )

    def test_an_int_is_no_memory(self):
        x = nd.ones([2], "float32")
        for wrong in (5, 2**40, "text", 1.5, x, [1, 2]):
            self.refuse(
                (
                    lambda: nd.from_data(wrong, [2], "float32"),
                    lambda: nd.copy_to_host(x, wrong, 8),
                    lambda: nd.decode_image(wrong, 8),
                    lambda: nd.get_name(x, wrong, 8),
                    lambda: nd.format(x, wrong, 8),
                    lambda: nd.wrap(wrong, [2], "float32"),
                    lambda: nd.call("nd_from_dlpack", wrong),
                    lambda: nd.from_dlpack_unversioned(wrong),
                    lambda: nd.new_struct("nd_memory_callback", data=wrong),
                    lambda: nd.print(x, wrong),
                    lambda: nd.gc_set_cycle_callback(None, wrong),
                )
            )

    def test_memory_that_is_written(self):
        x = nd.full([2], 1.5, "float32")
        nd.set_name(x, "named")
        for buffer in (bytearray(8), ctypes.create_string_buffer(8), memoryview(bytearray(8)), (ctypes.c_float * 2)()) + ((np.zeros(2, np.float32),) if np else ()):
            nd.copy_to_host(x, buffer, 8)
            self.assertEqual(bytes(buffer), struct.pack("ff", 1.5, 1.5))
            self.assertEqual(nd.from_data(buffer, [2], "float32")[1].item(), 1.5)
            nd.get_name(x, buffer, 8)
            self.assertEqual(bytes(buffer)[:6], b"named\0")
            self.refuse((lambda: nd.copy_to_host(x, buffer, 9), lambda: nd.get_name(x, buffer, 9), lambda: nd.format(x, buffer, 2**20)), ValueError)
            nd.copy_to_host(x, ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(buffer))), 8)
            self.assertEqual(bytes(buffer), struct.pack("ff", 1.5, 1.5))
        self.refuse((lambda: nd.copy_to_host(x, bytes(8), 8), lambda: nd.get_name(x, bytes(8), 8), lambda: nd.copy_to_host(x, memoryview(bytes(8)), 8)))
        every_second = memoryview(struct.pack("4f", 1, 2, 3, 4)).cast("f")[::2]
        self.assertEqual(nd.from_data(every_second, [2], "float32")[1].item(), 3.0)

    def test_a_struct_keeps_what_it_points_to(self):
        x = nd.full([2], 3.0, "float32")
        x.requires_grad = True
        options = nd.new_struct("nd_backward_options", grad=nd.full([2], 5.0, "float32"))
        gc.collect()
        nd.backward(x * 1, options)
        self.assertEqual(x.grad[1].item(), 5.0)
        options.grad = nd.full([2], 7.0, "float32")
        options.create_graph = False
        nd.backward(x * 1, options)
        self.assertEqual(x.grad[1].item(), 12.0)
        x.requires_grad = False

        def assign(name, value):
            setattr(options, name, value)

        self.refuse([lambda wrong=wrong: assign("grad", wrong) for wrong in (5, x.address, "x", nd.map_new())])
        self.refuse([lambda: assign("create_graph", 5), lambda: assign("create_graph", "no")])
        self.refuse([lambda: assign("gradient", x)], AttributeError)
        self.assertEqual(options.grad, options.__dict__["grad"].address)

    def test_texts_that_the_library_keeps(self):
        balance = nd.balance_begin(None, "".join(["a ", "file"]), 7)
        x = nd.ones([2], "float32")
        texts = [b"x" * 6 + bytes([i]) for i in range(100)]
        with self.assertRaisesRegex(nd.Error, "a file:7"):
            nd.balance_end(balance, None)
        del x, texts

    def test_a_release_is_not_that_of_python(self):
        x = nd.ones([2], "float32")
        nd.object_release(x)
        self.assertEqual((nd.get_count(x), x[1].item()), (1, 1.0))

    def test_files_that_are_not_written(self):
        x = nd.ones([2], "float32")
        with tempfile.NamedTemporaryFile() as file, open(file.name) as read:
            self.refuse((lambda: nd.print(x, read),), ValueError)


class Managers(Case):
    def test_a_block_closes_and_reports(self):
        with nd.manager("step") as step:
            x = nd.ones([100], "float32")
            y = nd.exp(x)
            del x
            self.assertEqual(step.stats.live_objects > 0, True)
        self.assertGreater(step.report.escaped_objects, 0)
        self.assertEqual(step.report.escaped_bytes, 400)
        self.assertAlmostEqual(y[0].item(), 2.718281, 5)

    def test_blocks_nest_and_survive_exceptions(self):
        with self.assertRaises(KeyError):
            with nd.manager("outer"), nd.manager("inner"):
                nd.ones([3], "float32")
                raise KeyError
        self.assertEqual(nd.get_size(nd.ones([3], "float32"), 0), 3)

    def test_blocks_that_are_left_out_of_order(self):
        def block():
            with nd.manager("generator"):
                yield

        first, second = block(), block()
        next(first)
        next(second)
        with self.assertRaises(RuntimeError):
            first.close()
        second.close()
        with nd.manager("again") as again:
            self.assertEqual(nd.manager_get_name(again), "again")
        # The first is left by hand, since its generator is gone.
        manager, _ = nd._blocks()[-1]
        manager.__exit__()

    def test_no_grad(self):
        x = nd.ones([2], "float32")
        x.requires_grad = True
        with nd.no_grad():
            self.assertFalse((x * x).requires_grad)
            with nd.enable_grad():
                self.assertTrue((x * x).requires_grad)
        self.assertTrue((x * x).requires_grad)

    def test_a_handle_of_another(self):
        address = nd.call("nd_ones", [3], "float32")
        seen = nd.Tensor.borrow(address.address)
        del address
        self.assertEqual(seen.shape, (3,))


class Program(Case):
    """A program in C in the same process, whose objects Python looks into."""

    def setUp(self):
        self.program = ctypes.CDLL(os.environ["ND_PROGRAM"])
        for name in ("weights", "layers", "manager"):
            getattr(self.program, f"program_{name}").restype = ctypes.c_void_p
        self.program.program_read.restype = ctypes.c_float
        self.program.program_write.argtypes = [ctypes.c_int, ctypes.c_float]
        self.assertEqual(self.program.program_begin(), 1)

    def tearDown(self):
        self.program.program_end()
        super().tearDown()

    def test_one_library_is_in_the_process(self):
        self.assertGreaterEqual(nd.manager_get_total_objects(None), 3)
        with open("/proc/self/maps") as maps:
            files = {line.split()[-1] for line in maps if "libnd.so" in line}
        self.assertEqual(len({os.path.realpath(file) for file in files}), 1, files)

    def test_its_tensor(self):
        before = self.program.program_count()
        seen = nd.Tensor.borrow(self.program.program_weights())
        self.assertEqual(self.program.program_count(), before + 1)
        text = ctypes.create_string_buffer(20)
        name = nd.get_name(seen, text, len(text))
        self.assertEqual((seen.shape, seen.dtype, seen.requires_grad, name), ((2, 3), "float32", True, "weights"))
        self.assertEqual([seen[i // 3, i % 3].item() for i in range(6)], [0, 1, 2, 3, 4, 5])
        self.assertEqual(nd.get_manager(seen).address, self.program.program_manager())
        del seen
        self.assertEqual(self.program.program_count(), before)

    def test_both_write_the_same_memory(self):
        seen = nd.Tensor.borrow(self.program.program_weights())
        self.program.program_write(4, 40.5)
        self.assertEqual(seen[1, 1].item(), 40.5)
        with nd.no_grad():
            nd.fill_(seen, 7)
        self.assertEqual([self.program.program_read(i) for i in range(6)], [7.0] * 6)

    def test_a_gradient_that_c_computed(self):
        seen = nd.Tensor.borrow(self.program.program_weights())
        self.assertEqual(self.program.program_train(), 1)
        self.assertEqual([seen.grad[i // 3, i % 3].item() for i in range(6)], [0, 2, 4, 6, 8, 10])

    def test_a_list_of_objects(self):
        layers = nd.List.borrow(self.program.program_layers())
        self.assertEqual(nd.list_get_size(layers), 2)
        self.assertEqual(nd.list_get(layers, 0).dtype, "int64")
        self.assertEqual(nd.list_get(layers, 1).address, self.program.program_weights())

    def test_it_lives_on_when_the_program_lets_go(self):
        seen = nd.Tensor.borrow(self.program.program_weights())
        self.program.program_end()
        self.assertEqual(seen[1, 2].item(), 5.0)
        del seen
        gc.collect()
        self.assertEqual(nd.manager_get_total_objects(None), 0)
        self.assertEqual(self.program.program_begin(), 1)


class Threads(Case):
    def test_classes_that_threads_make_at_once_are_the_same(self):
        for _ in range(100):
            before = binding._structs.pop("nd_conv2d_options", None), binding.handle_classes.pop("nd_graph", None)
            made, together = [], threading.Barrier(8)

            def work():
                together.wait()
                made.append((binding.struct_type("nd_conv2d_options"), binding.handle_class("nd_graph")))

            self.assertEqual(of_threads(work), [])
            self.assertEqual(len(set(made)), 1)
            for known, name, kind in zip((binding._structs, binding.handle_classes), ("nd_conv2d_options", "nd_graph"), before):
                known.update({name: kind} if kind else {})


class Consumed(Case):
    """What a function takes over stays whole for Python, too."""

    def test_children_and_schedules(self):
        linear = nd.linear_module(1, 3, 2, False)
        model = nd.sequential([linear, nd.relu_module()])
        x = nd.ones([4, 3], "float32")
        self.assertEqual(nd.module_forward(model, x).shape, nd.module_forward(linear, x).shape)
        del linear
        self.assertEqual(nd.module_forward(model, x).shape, (4, 2))
        product = nd.product_schedule([nd.exponential_schedule(0.9), nd.exponential_schedule(0.8)])
        del product
        first = nd.exponential_schedule(0.9)
        sequence = nd.sequence_schedule([first, nd.exponential_schedule(0.8)], [3])
        del sequence, first
        schedule, optimizer, factors = nd.multi_step_schedule(0.5, [1, 3]), nd.sgd(nd.linear_module(1, 3, 2, False)), []
        nd.schedule_start(schedule, optimizer)
        for _ in range(5):
            factors.append(nd.schedule_get_factor(schedule))
            nd.schedule_step(schedule)
        self.assertEqual(factors, [1.0, 0.5, 0.5, 0.25, 0.25])

    def test_refused_ones(self):
        with self.assertRaises(nd.Error):
            nd.sequential([nd.relu_module(), None])
        with self.assertRaises(TypeError):
            nd.sequential([nd.relu_module(), 5])

    def test_scopes(self):
        x = nd.ones([2], "float32")
        scope = nd.scope_begin()
        nd.scope_adopt(scope, x)
        nd.scope_end(scope)
        self.assertEqual(nd.get_item(nd.sum(x)), 2.0)


class Copies(Case):
    """No copy of a handle is an address alone."""

    def handles(self):
        model, manager, held = nd.sequential([nd.linear_module(1, 3, 2, False)]), nd.manager("copied"), nd.list_new()
        return nd.ones([2], "float32"), model, nd.sgd(model), manager, held, nd.map_new(), nd.weak_new(held), nd.state_new()

    def test_a_copy_is_another_handle_of_the_object(self):
        for handle in self.handles():
            before = nd.get_count(handle)
            copied = copy.copy(handle)
            self.assertIs(type(copied), type(handle))
            self.assertEqual((copied.address, nd.get_count(handle)), (handle.address, before + 1))
            del copied
            self.assertEqual(nd.get_count(handle), before)

    def test_a_copy_outlives_the_first_handle(self):
        x = nd.arange(0, 6, 1, "float32")
        x.label = "kept"
        y = copy.copy(x)
        del x
        self.assertEqual((y[5].item(), y.label, nd.get_count(y)), (5.0, "kept", 1))
        inside = copy.copy({"w": y})
        del y
        self.assertEqual(inside["w"][5].item(), 5.0)

    def test_no_handle_is_deep_copied_or_pickled(self):
        for handle in self.handles():
            before = nd.get_count(handle)
            for refused in (copy.deepcopy, *(functools.partial(pickle.dumps, protocol=p) for p in range(pickle.HIGHEST_PROTOCOL + 1))):
                for given in (handle, {"w": handle}):
                    with self.assertRaisesRegex(TypeError, type(handle).__name__):
                        refused(given)
            self.assertEqual(nd.get_count(handle), before)
        del handle, given, refused
        x = nd.ones([2], "float32")
        for refused, instead in ((copy.deepcopy, r"nd\.clone\(\)"), (pickle.dumps, r"nd\.save_npy\(\)")):
            with self.assertRaisesRegex(TypeError, instead):
                refused(x)

    def test_an_error_is_copied_whole(self):
        with self.assertRaises(nd.Error) as caught:
            nd.get_item(nd.ones([2], "float32"))
        for copied in (copy.copy(caught.exception), pickle.loads(pickle.dumps(caught.exception))):
            self.assertEqual((copied.status, str(copied)), (caught.exception.status, str(caught.exception)))
        del caught

    def test_what_its_own_function_ends_has_one_handle(self):
        scope, snapshot = nd.scope_begin(), nd.snapshot_new(None)
        for handle in (scope, snapshot):
            for refused in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaises(TypeError):
                    refused(handle)
        nd.snapshot_free(snapshot)
        nd.scope_end(scope)

    def test_what_else_holds_addresses_is_not_copied(self):
        held, x = nd.map_new(), nd.ones([2], "float32")
        nd.map_set(held, "x", x)
        options = nd.new_struct("nd_backward_options", grad=x)
        for given in (x.__dlpack__(), held.items(), iter(x), options):
            for refused in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaises((TypeError, ValueError)):
                    refused(given)
        del given
        key = nd.key_new(7)
        self.assertEqual(pickle.loads(pickle.dumps((key.seed, key.stream))), (key.seed, key.stream))


class Defaults(Case):
    def test_of_functions_that_share_options(self):
        model = nd.sequential([nd.linear_module(1, 3, 2, False)])
        for make, decay in ((nd.adam, 0.0), (nd.adamw, 0.01)):
            for given in ({}, {"rate": 1e-3}):
                self.assertEqual(nd.optimizer_get_option(make(model, **given), 0, "weight_decay"), decay)

    def test_the_end_of_a_name_that_ends_another(self):
        x = nd.ones([2], "float32")
        self.assertEqual(nd.get_item(nd.huber_loss(x, x, 1.0, "mean")), 0.0)


if __name__ == "__main__":
    unittest.main(verbosity=1)
