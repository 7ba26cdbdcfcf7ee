"""Numbers: Python's, NumPy's and others', and what C holds of them."""

import decimal
import fractions
import unittest
import ndarc as nd
from ndarc import values
from case import Case, np


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
        self.assertEqual([values.Number.of(number).kind for number in (1.0, 1, 2**63, True)], [0, 1, 2, 2])
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


if __name__ == "__main__":
    unittest.main(verbosity=1)
