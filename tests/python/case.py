"""What the tests of the Python module share."""

import gc
import sys
import threading
import unittest
import ndarc as nd

try:
    import numpy as np
except ImportError:
    np = None
try:
    import torch
except ImportError:
    torch = None

with_numpy = unittest.skipUnless(np, "no NumPy")
with_torch = unittest.skipUnless(np and torch, "no PyTorch")


def of_threads(work, count=8):
    """What went wrong in threads that do this at once and take turns as often as Python can have them."""
    errors = []

    def guarded():
        try:
            work()
        except Exception as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    return errors


class Case(unittest.TestCase):
    def tearDown(self):
        gc.collect()
        self.assertEqual(nd.manager_get_total_objects(None), 0)
        self.assertEqual(nd.manager_get_total_bytes(None), 0)
