"""DLPack of the Python module: tensors to and from NumPy and PyTorch, without a copy.

What needs NumPy or PyTorch is skipped where they are missing; every test ends with no object left.
"""

import gc
import sys
import threading
import unittest
import ndarc as nd
from case import Case, np, of_threads, torch, with_numpy, with_torch


@with_numpy
class NumPy(Case):
    NAMES = [name for name in nd.DTYPES if name != "bfloat16"]

    def test_every_dtype_both_ways_without_a_copy(self):
        for name in self.NAMES:
            array = np.arange(6).reshape(2, 3).astype(name)
            x = nd.from_dlpack(array)
            self.assertEqual((x.dtype, x.shape, nd.get_data(x)), (name, (2, 3), array.ctypes.data))
            back = np.from_dlpack(x)
            self.assertEqual((back.dtype, back.ctypes.data), (array.dtype, array.ctypes.data))
            np.testing.assert_array_equal(back, array)

    def test_every_layout_both_ways(self):
        base = np.arange(120.0).reshape(2, 3, 4, 5)
        layouts = [base, base.T, base[:, ::2], base[::-1, :, ::-2], base[1:, :1], base[:, :0], base[0, 0, 0, :1],
                   np.broadcast_to(base[:1], (7, 3, 4, 5)).copy()[::3], np.array(3.5)]  # fmt: skip
        for array in layouts:
            x = nd.from_dlpack(array)
            self.assertEqual(x.shape, array.shape)
            np.testing.assert_array_equal(nd.mul_scalar(x, 2).numpy(), array * 2)
            np.testing.assert_array_equal(np.from_dlpack(x), array)
        for x in (nd.from_dlpack(base)[1:, :, 2], nd.permute(nd.from_dlpack(base), [3, 1, 0, 2]), nd.expand(nd.ones([1, 3], "float32"), [4, 3])):
            np.testing.assert_array_equal(np.from_dlpack(x), np.from_dlpack(nd.clone(x)))

    def test_both_sides_write_the_same_memory(self):
        array = np.zeros(4)
        x = nd.from_dlpack(array)
        nd.fill_(x, 3)
        np.testing.assert_array_equal(array, 3)
        array[1] = 7
        self.assertEqual(x[1].item(), 7.0)
        y = nd.zeros([4], "float32")
        np.from_dlpack(y)[2] = 5
        self.assertEqual(y[2].item(), 5.0)

    def test_memory_lives_as_long_as_either_side(self):
        array = np.arange(1000.0)
        references = sys.getrefcount(array)
        x = nd.from_dlpack(array)
        self.assertEqual(sys.getrefcount(array), references + 1)
        part = x[10:20]
        del x
        self.assertEqual(sys.getrefcount(array), references + 1)
        del part
        self.assertEqual(sys.getrefcount(array), references)
        y = nd.full([1000], 3.0, "float32")
        shown = np.from_dlpack(y)
        nd.close(y)
        del y
        gc.collect()
        self.assertEqual(float(shown.sum()), 3000.0)

    def test_a_manager_reports_what_numpy_holds(self):
        with nd.manager("lender") as lender:
            shown = np.from_dlpack(nd.ones([250], "float32"))
        self.assertEqual((lender.report.escaped_objects, lender.report.escaped_bytes), (1, 1000))
        self.assertEqual(float(shown.sum()), 250.0)

    def test_read_only_arrays_stay_so(self):
        array = np.arange(4.0)
        array.flags.writeable = False
        x = nd.from_dlpack(array)
        with self.assertRaises(nd.Error) as caught:
            nd.fill_(x, 0)
        self.assertIn("read-only", str(caught.exception))
        del caught
        self.assertFalse(np.from_dlpack(x).flags.writeable)

    def test_what_is_refused(self):
        for array in (np.zeros(3, np.complex64), np.zeros(3, "S4"), np.zeros(3, [("a", "i4")]), np.zeros(3, ">f4")):
            with self.assertRaises((nd.Error, BufferError)):
                nd.from_dlpack(array)
        x = nd.ones([2], "float32")
        x.requires_grad = True
        with self.assertRaises(BufferError) as caught:
            np.from_dlpack(x)
        self.assertIn("nd_detach", str(caught.exception))
        del caught

    def test_a_consumer_that_fails_leaves_nothing(self):
        for _ in range(5):
            with self.assertRaises((BufferError, RuntimeError)):
                nd.zeros([1000], "bfloat16").numpy()
            self.assertEqual(nd.manager_get_total_bytes(None), 0)
        self.assertEqual((nd.tensor([1, 2]) + np.int64(3))[1].item(), 5)
        self.assertEqual((np.int64(3) + nd.tensor([1, 2]))[1].item(), 5)
        self.assertEqual(nd.cast(nd.tensor([1 + 2**-8 + 2**-30], "bfloat16"), "float64").item(), 1.0078125)
        with self.assertRaises(ValueError):
            np.asarray(nd.ones([2], "float32"), dtype=np.float64, copy=False)
        with self.assertRaises(BufferError):
            nd.ones([2], "float32").__dlpack__(dl_device=(9, 0))

    def test_a_capsule_is_consumed_once_or_gives_back(self):
        x = nd.ones([100], "float32")
        capsule = x.__dlpack__(max_version=(1, 0))
        del x
        self.assertEqual(nd.manager_get_total_bytes(None), 400)
        del capsule
        self.assertEqual(nd.manager_get_total_bytes(None), 0)

        class Once:
            def __init__(self, capsule):
                self.capsule = capsule

            def __dlpack__(self, **_):
                return self.capsule

        for version in ((1, 0), None):
            once = Once(nd.ones([2], "float32").__dlpack__(max_version=version))
            taken = nd.from_dlpack(once)
            with self.assertRaises(ValueError):
                nd.from_dlpack(once)
            self.assertEqual(nd.sum(taken).item(), 2.0)

    def test_asarray_and_tensor(self):
        x = nd.tensor([[1, 2], [3, 4]])
        self.assertEqual(x.dtype, "int64")
        self.assertEqual(nd.tensor([1.5]).dtype, "float32")
        self.assertEqual(nd.tensor(np.arange(3, dtype=">i4")).dtype, "int32")
        self.assertEqual(nd.tensor([1.5], "bfloat16").dtype, "bfloat16")
        np.testing.assert_array_equal(np.asarray(x), [[1, 2], [3, 4]])
        np.testing.assert_array_equal(np.asarray(x, np.float64), [[1, 2], [3, 4]])

    def test_deleters_on_other_threads(self):
        nd.gc_set_mode(nd.GC_ON)
        errors = []

        def work():
            try:
                for i in range(200):
                    with nd.manager("step"):
                        x = nd.from_dlpack(np.full(64, float(i)))
                        y = np.from_dlpack(x * 2)
                        held = nd.call("nd_list_new")
                        nd.list_append(held, x)
                        nd.list_append(held, held)  # a cycle, which the close collects
                        del held, x
                    if y[0] != 2.0 * i:
                        raise AssertionError(f"{y[0]} is not {2 * i}")
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        nd.gc_set_mode(nd.GC_OFF)
        self.assertEqual(errors, [])
        nd.gc_collect(None)

    def test_what_was_consumed_is_not_kept(self):
        x = nd.ones([3], "float32")
        held = [np.from_dlpack(x) for _ in range(1000)]
        self.assertLess(len(nd.dlpack._lent), 3)
        del held, x

    def test_capsules_that_are_consumed_while_another_thread_sweeps(self):
        x, interval = nd.ones([3], "float32"), sys.getswitchinterval()

        def work():
            for _ in range(3000):
                np.from_dlpack(x)
                nd.get_numel(x)

        sys.setswitchinterval(1e-6)
        try:
            self.assertEqual(of_threads(work), [])
        finally:
            sys.setswitchinterval(interval)

    def test_capsules_that_threads_lend_and_drop(self):
        x = nd.ones([100], "float32")

        def work():
            for i in range(1000):
                capsule = x.__dlpack__(max_version=(1, 0) if i % 2 else None)
                if i % 3 == 0:
                    np.from_dlpack(x)
                del capsule
                nd.get_ndim(x)

        self.assertEqual(of_threads(work), [])
        del x
        self.assertEqual(nd.manager_get_total_bytes(None), 0)


@with_torch
class PyTorch(Case):
    def test_every_dtype_both_ways_without_a_copy(self):
        for name in nd.DTYPES:
            given = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
            x = nd.from_dlpack(given)
            self.assertEqual((x.dtype, nd.get_data(x)), (name, given.data_ptr()))
            back = torch.from_dlpack(x)
            self.assertEqual((back.dtype, back.data_ptr()), (given.dtype, given.data_ptr()))
            self.assertTrue(torch.equal(back, given))

    def test_layouts_and_life(self):
        given = torch.arange(24.0).reshape(2, 3, 4)
        for layout in (given.permute(2, 0, 1), given[:, 1:2], given[:1].expand(5, 3, 4), given[:, :0], given[0, 0, 0]):
            x = nd.from_dlpack(layout)
            self.assertTrue(torch.equal(torch.from_dlpack(nd.clone(x)), layout))
            self.assertTrue(torch.equal(torch.from_dlpack(x), layout))
        y = nd.full([1000], 3.0, "float32")
        shown = torch.from_dlpack(y)
        del y
        self.assertEqual(float(shown.sum()), 3000.0)
        del shown


if __name__ == "__main__":
    unittest.main(verbosity=1)
