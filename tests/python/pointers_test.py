"""Pointers: what is passed for one, for how long it lives, and that an int is none."""

import ctypes
import gc
import os
import pathlib
import struct
import tempfile
import unittest
import ndarc as nd
from case import Case, np


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


if __name__ == "__main__":
    unittest.main(verbosity=1)
