"""Handles: managers, copies, a program in C and threads beside them."""

import copy
import ctypes
import functools
import gc
import os
import pickle
import threading
import unittest
import ndarc as nd
from ndarc import handles, values
from case import Case, of_threads


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

    def test_autocast(self):
        x = nd.ones([2, 2], "float32")
        with nd.autocast("bfloat16"):
            self.assertEqual((x @ x).dtype, "bfloat16")
            with nd.autocast(nd.F16):
                self.assertEqual((x @ x).dtype, "float16")
                with nd.autocast("float32"):
                    self.assertEqual((x @ x).dtype, "float32")
            self.assertEqual((x @ x).dtype, "bfloat16")
        self.assertEqual((x @ x).dtype, "float32")
        for wrong, error in (("float64", ValueError), (nd.I32, ValueError), ("float", TypeError), (None, TypeError)):
            with self.assertRaises(error):
                nd.autocast(wrong)

    def test_a_block_of_two_threads(self):
        """Each thread has its own way of recording, whichever of the two leaves the block last."""
        x = nd.ones([2], "float32")
        x.requires_grad = True
        block, inside, left, seen = nd.no_grad(), threading.Event(), threading.Event(), []

        def other():
            with nd.no_grad():
                with block:
                    inside.set()
                    left.wait(60)
                seen.append((x * x).requires_grad)
            seen.append((x * x).requires_grad)

        thread = threading.Thread(target=other)
        with block:
            thread.start()
            inside.wait(60)
        seen.append((x * x).requires_grad)
        left.set()
        thread.join()
        self.assertEqual(seen, [True, False, True])

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
        self.assertEqual([x.address for x in layers[::-1]], [layers[-1].address, layers[-2].address])
        self.assertEqual(layers[-1].address, self.program.program_weights())
        self.assertTrue(layers[0] in layers and nd.zeros([2], "int64") not in layers and 0 not in layers)
        with self.assertRaises(IndexError):
            layers[-3]

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
            before = values._structs.pop("nd_conv2d_options", None), handles.handle_classes.pop("nd_graph", None)
            made, together = [], threading.Barrier(8)

            def work():
                together.wait()
                made.append((values.struct_type("nd_conv2d_options"), handles.handle_class("nd_graph")))

            self.assertEqual(of_threads(work), [])
            self.assertEqual(len(set(made)), 1)
            for known, name, kind in zip((values._structs, handles.handle_classes), ("nd_conv2d_options", "nd_graph"), before):
                known.update({name: kind} if kind else {})


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


if __name__ == "__main__":
    unittest.main(verbosity=1)
