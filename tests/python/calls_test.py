"""What a call makes of arguments and of results."""

import ctypes
import operator
import tempfile
import unittest
import ndarc as nd
from ndarc.library import library
from case import Case, np, with_numpy


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

    def test_results_that_are_called_name_are_declined(self):
        module = nd.linear_module(nd.key_new(1), 2, 3, True)
        parameter, name = nd.module_get_parameter_at(module, 0)
        self.assertEqual((parameter.shape, name), ((3, 2), "weight"))
        self.assertEqual(nd.module_get_parameter_at(module, 0, name=False).shape, (3, 2))
        self.assertEqual(nd.new_struct("nd_module_type", version=1).version, 1)

    def test_indices_are_views(self):
        x = nd.reshape(nd.arange(0, 24, 1, "float64"), [2, 3, 4])
        self.assertEqual(x[1, 2, 3].item(), 23.0)
        self.assertEqual(x[..., 1:3].shape, (2, 3, 2))
        self.assertEqual(x[:, None, 0].shape, (2, 1, 4))
        self.assertTrue(nd.is_view_of(x[0], x))
        self.assertEqual([row[0].item() for row in x[0]], [0.0, 4.0, 8.0])
        self.assertEqual(x[0, 0, ::-1][0].item(), 3.0)
        self.assertEqual(x[0, 0, 2:0:-1].shape, (2,))
        for key in (5, (0, 0, 0, 0), (0, 0, Ellipsis, 0, 0), (slice(2), slice(2), Ellipsis, slice(1), 0), True, (Ellipsis, Ellipsis)):
            with self.assertRaises(IndexError):
                x[key]
        with self.assertRaises(IndexError):
            nd.ones([], "float32")[..., None, 0]
        self.assertEqual(nd.ones([2, 3], "float32")[(None,) * 8 + (0, 1)].shape, (1,) * 8)

    @with_numpy
    def test_indices_as_numpy_has_them(self):
        random = np.random.default_rng(7)
        for _ in range(500):
            shape = random.integers(1, 5, random.integers(1, 5)).tolist()
            array = random.standard_normal(shape)
            keys = []
            for size in shape[: random.integers(0, len(shape) + 1)]:
                kind = random.integers(4)
                if kind == 0:
                    keys.append(int(random.integers(-size, size)))
                elif kind == 1:
                    keys.append(slice(int(random.integers(-size, size + 1)), None, int(random.choice([-2, -1, 1, 2]))))
                else:
                    keys.append(slice(None))
                if kind == 3:
                    keys.append(None)
            if random.integers(2):
                keys.append(Ellipsis)
            expected = array[tuple(keys)]
            if expected.ndim <= 8:
                np.testing.assert_array_equal(nd.tensor(array)[tuple(keys)].numpy(), expected)

    def test_arguments_too_many_are_named(self):
        with self.assertRaisesRegex(TypeError, "no such arguments, or given twice: foo"):
            nd.zeros([1], "float32", foo=1)
        with self.assertRaisesRegex(TypeError, "1 arguments too many"):
            nd.zeros([1], "float32", 3)

    def test_what_a_function_takes_over_stays_whole(self):
        x = nd.ones([3], "float32")
        x.requires_grad = True
        loss = nd.sum(x * x)
        nd.backward_release(loss)
        self.assertEqual(x.grad[2].item(), 2.0)
        self.assertEqual((loss.item(), nd.get_count(loss)), (3.0, 1))
        with self.assertRaises(nd.Error):
            nd.backward_release(nd.ones([3], "float32"))

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

    def test_an_error_that_c_has_left(self):
        library.nd_add.restype = ctypes.c_void_p
        self.assertIsNone(library.nd_add(None, None))  # as a program in C on this thread would
        self.assertEqual(nd.zeros([3], "float32").shape, (3,))
        x = nd.ones([2, 3], "float32")
        with self.assertRaises((nd.Error, TypeError)):
            nd.unstack(x, 9, 1)
        self.assertEqual(nd.zeros([3], "float32").shape, (3,))

    def test_options_are_a_struct_or_keywords(self):
        x = nd.ones([1, 1, 5], "float32")
        weight = nd.ones([1, 1, 3], "float32")
        options = nd.new_struct("nd_conv1d_options", padding=1)
        self.assertEqual(nd.conv1d(x, weight, None, options).shape, nd.conv1d(x, weight, None, padding=1).shape)
        with self.assertRaises(TypeError):
            nd.conv1d(x, weight, None, options, padding=2)

    def test_files_are_open_as_before(self):
        x = nd.ones([2], "float32")
        with tempfile.TemporaryFile("w+") as file:
            nd.print(x, file)
            file.seek(0)
            file.write("XY")
            file.seek(0)
            text = file.read()
        self.assertTrue(text.startswith("XY") and "XY" not in text[2:], text)
        with open("/dev/full", "w") as full, self.assertRaises((OSError, nd.Error)):
            nd.debug_dump(None, full)

    def test_integers_become_bfloat16_in_one_rounding(self):
        number = 2**60 + 2**52 + 1
        self.assertEqual(nd.tensor([number], "bfloat16").item(), nd.cast(nd.full([1], number, "int64"), "bfloat16").item())
        self.assertEqual(nd.tensor([1.5, 2], "bfloat16")[0].item(), 1.5)

    def test_what_this_library_does_not_have(self):
        missing = [name for name in nd._headers.functions if not hasattr(library, name)]
        for name in missing[:3]:
            self.assertNotIn(name[3:], dir(nd))
            with self.assertRaisesRegex(AttributeError, "this library has no"):
                getattr(nd, name[3:])

    def test_operators_of_bits(self):
        for dtype, numbers in (("int32", [-6, 3, 12]), ("uint8", [250, 3, 12]), ("bool", [True, False, True])):
            x = nd.stack([nd.full([], number, dtype) for number in numbers], 0)
            other = True if dtype == "bool" else 5
            for apply in (operator.and_, operator.or_, operator.xor):
                for made in (apply(x, other), apply(other, x), apply(x, nd.full([], other, dtype))):
                    self.assertEqual((made.dtype, [made[i].item() for i in range(3)]), (dtype, [apply(n, other) for n in numbers]))
        x = nd.arange(1, 4, 1, "int64")
        self.assertEqual([(x << 3)[i].item() for i in range(3)], [8, 16, 24])
        self.assertEqual([(1 << x)[i].item() for i in range(3)], [2, 4, 8])
        self.assertEqual([(x >> 1)[i].item() for i in range(3)], [0, 1, 1])
        for wrong in (lambda: x & 1.5, lambda: nd.ones([2], "float32") | 1):
            with self.assertRaises(nd.Error):
                wrong()
        with self.assertRaises(TypeError):
            x & "a"

    def test_what_is_in_a_tensor_and_how_it_is_formatted(self):
        x = nd.reshape(nd.arange(0, 6, 1, "float32"), [2, 3])
        self.assertEqual([n in x for n in (0, 5, 5.5, 2**70, "a", None, nd.full([], 3, "float32"))], [True, True] + 4 * [False] + [True])
        self.assertEqual((f"{x[1, 2]:.2f}", f"{x[1, 2]}", f"{x}"), ("5.00", str(x[1, 2]), str(x)))
        with self.assertRaises(ValueError):
            f"{x:.2f}"

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
        for dtype in ("int8", "uint8", "int32", "uint64", "int64", "bool", "float16", "float32", "float64"):
            x = nd.full([1], 1 if dtype == "bool" else 3, dtype)
            for number in (2**64, 1e30, 2.0**64, 2**2000, float("inf")):
                self.assertEqual([(x < number).item(), (x >= number).item(), (x == number).item(), (x != number).item()], [True, False, False, True])
                self.assertEqual([(x > -number).item(), (-number > x).item(), (-number == x).item()], [True, False, False])
            self.assertEqual([(x < float("nan")).item(), (x != float("nan")).item()], [False, True])
        small = nd.full([1], -128, "int8")
        self.assertEqual([(small == -128).item(), (small > -129).item(), (small < 127).item(), (small < 128).item()], [True, True, True, True])
        true = nd.full([1], True, "bool")
        for number, equal in ((True, True), (1, True), (1.0, True), (2, False), (0.5, False), (-1, False)):
            self.assertEqual(((true == number).item(), (number == true).item()), (equal, equal), number)

        for dtype in ("float32", "float64"):
            large = nd.full([1], 2.0**70, dtype)
            self.assertEqual([(large == 2**70).item(), (large < 2**71).item(), (large > 2**69).item(), (large > -(2**70)).item()], [True] * 4)

    def test_files_of_python_are_streams(self):
        x = nd.ones([3], "float32")
        with tempfile.TemporaryFile("w+") as file:
            nd.print(x, file)
            file.seek(0)
            self.assertIn("tensor([1., 1., 1.]", file.read())
        nd.set_name(x, "what is held")
        self.assertIn("what is held", nd.dump())


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


if __name__ == "__main__":
    unittest.main(verbosity=1)
