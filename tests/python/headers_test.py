"""What the module reads in the headers."""

import ctypes
import os
import pathlib
import re
import unittest
import ndarc as nd
from ndarc.library import headers, library
from case import Case


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
