"""What becomes of values and of exceptions of Python's functions that the library calls."""

import ctypes
import io
import sys
import threading
import unittest
import ndarc as nd
from ndarc.library import library
from case import Case

HOOK = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
FORWARD = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
APPLY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p))
CHECKPOINT = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p))


def leaf():
    x = nd.ones([2], "float32")
    x.requires_grad = True
    return x


class Callbacks(Case):
    def test_hook_that_raises(self):
        @nd.callback(HOOK)
        def hook(grad, context):
            raise KeyError("of the hook")

        x = leaf()
        nd.register_hook(x, hook, None)
        for _ in range(3):
            with self.assertRaisesRegex(KeyError, "of the hook"):
                nd.backward(nd.sum(x))
            self.assertIsNone(nd.get_grad(x))
        self.assertEqual(nd.sum(x).item(), 2.0)  # no error is left

    def test_hook_that_returns_a_handle(self):
        made = []

        @nd.callback(HOOK)
        def hook(grad, context):
            made.append(nd.Tensor.borrow(grad) * 3.0)
            return made[-1]

        @nd.callback(HOOK)
        def keep(grad, context):
            return None

        x = leaf()
        nd.register_hook(x, hook, None)
        nd.register_hook(x, keep, None)
        nd.backward(nd.sum(x))
        self.assertEqual(nd.get_grad(x)[1].item(), 3.0)
        self.assertEqual(made[0][0].item(), 3.0)  # Python's own reference is there

    def test_value_that_is_none_for_c(self):
        @nd.callback(HOOK)
        def hook(grad, context):
            return "text"

        x = leaf()
        nd.register_hook(x, hook, None)
        with self.assertRaises(TypeError):
            nd.backward(nd.sum(x))

    def test_forward_of_a_module_that_raises(self):
        @nd.callback(FORWARD)
        def forward(self_, x):
            raise ValueError("of the module")

        kind = nd.new_struct("nd_module_type")
        kind.name, kind.forward = b"raising", forward
        module = nd.module_new(kind, None, 0)
        with self.assertRaisesRegex(ValueError, "of the module"):
            nd.module_forward(module, nd.ones([2], "float32"))

    def test_function_that_raises(self):
        @nd.callback(APPLY)
        def forward(context, ninputs, inputs, noutputs, outputs):
            raise ZeroDivisionError("of the function")

        @nd.callback(APPLY)
        def backward(context, noutputs, grads, ninputs, results):
            return None

        function = nd.new_struct("nd_function")
        function.name, function.forward, function.backward = b"raising", forward, backward
        with self.assertRaises(ZeroDivisionError):
            nd.function_apply(function, None, [nd.ones([2], "float32")], 2)

    def test_backward_of_a_function_that_raises(self):
        @nd.callback(APPLY)
        def forward(context, ninputs, inputs, noutputs, outputs):
            made = nd.full([2], 1.0, "float32")
            outputs[0] = library.nd_object_retain(ctypes.c_void_p(made.address))

        @nd.callback(APPLY)
        def backward(context, noutputs, grads, ninputs, results):
            raise ZeroDivisionError("of its gradient")

        library.nd_object_retain.restype = ctypes.c_void_p
        function = nd.new_struct("nd_function")
        function.name, function.forward, function.backward = b"raising", forward, backward
        y = nd.function_apply(function, None, [leaf()], 1)[0]
        with self.assertRaisesRegex(ZeroDivisionError, "of its gradient"):
            nd.backward(nd.sum(y))

    def test_checkpoint_that_raises_the_second_time(self):
        runs = []

        @nd.callback(CHECKPOINT)
        def run(context, count, inputs):
            runs.append(count)
            if len(runs) == 2:
                raise RuntimeError("the second time")
            return nd.exp(nd.Tensor.borrow(inputs[0]))

        y = nd.checkpoint(run, None, [leaf()])
        with self.assertRaisesRegex(RuntimeError, "the second time"):
            nd.backward(nd.sum(y))
        self.assertEqual(runs, [1, 1])

    def test_first_of_several(self):
        """The one raised later, in a call inside, is caught there."""
        x, seen = leaf(), []

        @nd.callback(HOOK)
        def inner(grad, context):
            raise KeyError("inner")

        @nd.callback(HOOK)
        def outer(grad, context):
            y = leaf()
            nd.register_hook(y, inner, None)
            try:
                with nd.enable_grad():
                    nd.backward(nd.sum(y))
            except KeyError as error:
                seen.append(error)
            raise ValueError("outer")

        nd.register_hook(x, outer, None)
        with self.assertRaisesRegex(ValueError, "outer"):
            nd.backward(nd.sum(x))
        self.assertEqual(len(seen), 1)

    def test_no_call_to_raise_it(self):
        """Of a function that no call of ndarc led to on its thread."""
        reported, before = [], sys.unraisablehook
        sys.unraisablehook = lambda raised: reported.append((raised.exc_type, str(raised.exc_value)))

        @nd.callback(HOOK)
        def hook(grad, context):
            raise OSError("alone")

        try:
            thread = threading.Thread(target=lambda: reported.append(hook(None, None)))
            thread.start()
            thread.join()
        finally:
            sys.unraisablehook = before
        self.assertEqual(reported, [(OSError, "alone"), None])

    def test_the_second_that_raises_in_a_call(self):
        """The default hook of the interpreter is told, and C gets what means a failure."""

        @nd.callback(HOOK)
        def hook(grad, context):
            raise OSError("alone")

        told, before = io.StringIO(), sys.stderr
        sys.stderr = told
        try:
            self.assertIs(sys.unraisablehook, sys.__unraisablehook__)
            for _ in range(20):
                self.assertIsNone(hook(None, None))
        finally:
            sys.stderr = before
            library.nd_error_clear()
        self.assertEqual(told.getvalue().count("OSError: alone"), 20)

    def test_what_is_no_tensor_is_not_returned(self):
        manager = nd.manager("none")
        for wrong in (5, True, -1, 2**63, 1.5, "text", manager, nd.list_new(), object()):
            hook = nd.callback(HOOK)(lambda grad, context, value=wrong: value)
            x = leaf()
            nd.register_hook(x, hook, None)
            with self.assertRaises(TypeError):
                nd.backward(nd.sum(x))
            self.assertIsNone(nd.get_grad(x))
        address = nd.callback(HOOK)(lambda grad, context: ctypes.c_void_p(library.nd_object_retain(ctypes.c_void_p(grad))))
        x = leaf()
        nd.register_hook(x, address, None)
        nd.backward(nd.sum(x))
        self.assertEqual(nd.get_grad(x)[0].item(), 1.0)

    def test_a_status_that_c_cannot_return(self):
        status = nd.callback(ctypes.CFUNCTYPE(ctypes.c_int))(lambda: 2**40)
        before, sys.stderr = sys.stderr, io.StringIO()
        try:
            self.assertEqual(status(), nd.ERROR_STATE)
        finally:
            sys.stderr = before
            library.nd_error_clear()


if __name__ == "__main__":
    unittest.main()
