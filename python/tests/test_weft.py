"""python3 -m unittest discover -s python -t python: runs everything, and once more in processes that preload a library.

The functions of libweft.so are counted by a small library that the tests compile; where bin/lib/libweft.so is built, the
package runs beside it too. PyTorch is stood in for by an object: its hooks and its allocator are not tested here.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SHIM = HERE.parent.parent / "bin" / "lib" / "libweft.so"
COUNTING = "WEFT_TEST_COUNTING"  # set in the processes that preload the counting library

sys.path.insert(0, str(HERE.parent))
import weft  # noqa: E402
import weft.torch  # noqa: E402


def boundaries():
    """A boundary that counts, and its list."""
    calls = []
    return (lambda: calls.append(1)), calls


class Iterations(unittest.TestCase):
    def test_boundary_after_each_body(self):
        order = []
        for batch in weft.iterations([1, 2], boundary=lambda: order.append("boundary")):
            order.append(batch)
        self.assertEqual(order, [1, "boundary", 2, "boundary"])

    def test_boundary_comes_before_the_next_batch_is_loaded(self):
        order = []

        def loader():
            for i in range(2):
                order.append("load %d" % i)
                yield i

        for _ in weft.iterations(loader(), boundary=lambda: order.append("boundary")):
            pass
        self.assertEqual(order, ["load 0", "boundary", "load 1", "boundary"])

    def test_empty_loader_has_no_boundary(self):
        boundary, calls = boundaries()
        self.assertEqual(list(weft.iterations([], boundary)), [])
        self.assertEqual(calls, [])

    def test_break_counts_no_iteration(self):
        boundary, calls = boundaries()
        for batch in weft.iterations(range(5), boundary):
            if batch == 2:
                break
        self.assertEqual(len(calls), 2)

    def test_exception_in_the_body_passes_and_counts_none(self):
        boundary, calls = boundaries()
        with self.assertRaises(KeyError):
            for _ in weft.iterations(range(5), boundary):
                raise KeyError
        self.assertEqual(calls, [])

    def test_exception_of_the_loader_passes(self):
        boundary, calls = boundaries()

        def loader():
            yield 1
            raise OSError("disk")

        with self.assertRaises(OSError):
            list(weft.iterations(loader(), boundary))
        self.assertEqual(len(calls), 1)

    def test_length_is_the_loaders(self):
        self.assertEqual(len(weft.iterations([1, 2, 3])), 3)
        with self.assertRaises(TypeError):
            len(weft.iterations(iter([1])))
        self.assertTrue(weft.iterations(iter([1])))

    def test_iterates_again_for_the_next_epoch(self):
        batches = weft.iterations([1, 2])
        self.assertEqual(list(batches) + list(batches), [1, 2, 1, 2])

    def test_lets_go_of_a_batch_before_loading_the_next(self):
        class Batch:
            alive = 0

            def __init__(self):
                Batch.alive += 1

            def __del__(self):
                Batch.alive -= 1

        seen = []

        def loader():
            for _ in range(3):
                seen.append(Batch.alive)
                yield Batch()

        for batch in weft.iterations(loader()):
            del batch
        self.assertEqual(seen, [0, 0, 0])


@unittest.skipIf(os.environ.get(COUNTING) or weft.managed(), "weft is present in this process")
class Absent(unittest.TestCase):
    def test_everything_is_harmless(self):
        self.assertEqual((weft.iteration(), weft.yield_(), weft.managed(), weft.waiting()), (False,) * 4)
        self.assertEqual(list(weft.iterations("ab")), ["a", "b"])
        self.assertFalse(weft.torch.release())
        self.assertFalse(weft.torch.boundary("always"))


class FakeTorch:
    """torch.cuda as far as weft.torch uses it; it counts calls of empty_cache."""

    def __init__(self, initialized=True):
        self.emptied = 0
        self.cuda = types.SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: initialized, empty_cache=self.empty
        )

    def empty(self):
        self.emptied += 1


class Optimizer:
    """register_step_post_hook as PyTorch documents it."""

    def __init__(self):
        self.hooks = []

    def register_step_post_hook(self, hook):
        self.hooks.append(hook)
        return types.SimpleNamespace(remove=lambda: self.hooks.remove(hook))

    def step(self):
        for hook in list(self.hooks):
            hook(self, (), {})


class Torch(unittest.TestCase):
    def setUp(self):
        self.before = sys.modules.get("torch")
        self.torch = sys.modules["torch"] = FakeTorch()
        self.addCleanup(self.restore)
        self.waits, weft.waiting = weft.waiting, lambda: self.somebody
        self.somebody = False

    def restore(self):
        weft.waiting = self.waits
        if self.before is None:
            del sys.modules["torch"]
        else:
            sys.modules["torch"] = self.before

    def test_cache_is_returned_only_when_somebody_waits(self):
        self.assertFalse(weft.torch.release())
        self.somebody = True
        self.assertTrue(weft.torch.release())
        self.assertFalse(weft.torch.release("never"))
        self.assertEqual(self.torch.emptied, 1)

    def test_always(self):
        self.assertTrue(weft.torch.release("always"))
        self.assertEqual(self.torch.emptied, 1)

    def test_nothing_before_the_first_use_of_the_gpu(self):
        torch = sys.modules["torch"] = FakeTorch(initialized=False)
        self.assertFalse(weft.torch.release("always"))
        self.assertEqual(torch.emptied, 0)

    def test_attach_marks_each_step_until_removed(self):
        optimizer = Optimizer()
        handle = weft.torch.attach(optimizer, "always")
        optimizer.step()
        optimizer.step()
        handle.remove()
        optimizer.step()
        self.assertEqual(self.torch.emptied, 2)

    def test_refuses_what_it_does_not_know(self):
        with self.assertRaisesRegex(ValueError, "waiting, always, never"):
            weft.torch.attach(Optimizer(), "sometimes")
        with self.assertRaisesRegex(ValueError, "waiting, always, never"):
            weft.torch.release("sometimes")
        with self.assertRaisesRegex(TypeError, "weft.torch.boundary"):
            weft.torch.attach(object())


@unittest.skipUnless(os.environ.get(COUNTING), "runs in the process that preloads the counting library")
class Counted(unittest.TestCase):
    def setUp(self):
        import ctypes

        self.library = ctypes.CDLL(None)
        self.library.count_anew(1, 0)

    def test_iterations_reach_the_library(self):
        for _ in weft.iterations(range(4)):
            pass
        self.assertEqual(self.library.counted_iterations(), 4)
        self.assertEqual(self.library.counted_yields(), 0)

    def test_answers_are_the_librarys(self):
        self.assertTrue(weft.managed() and weft.iteration())
        self.assertFalse(weft.yield_() or weft.waiting())
        self.library.count_anew(0, 1)
        self.assertTrue(weft.yield_() and weft.waiting())
        self.assertFalse(weft.managed() or weft.iteration())

    def test_boundary_of_torch_counts_one(self):
        weft.torch.boundary()
        self.assertEqual(self.library.counted_iterations(), 1)


class Preloaded(unittest.TestCase):
    def again(self, library, **environment):
        """Runs the tests of this file in a process that preloads library."""
        if os.environ.get("WEFT_TEST_PRELOADED"):
            self.skipTest("already there")
        environment = dict(os.environ, LD_PRELOAD=str(library), WEFT_TEST_PRELOADED="1", **environment)
        command = [sys.executable, "-m", "unittest", "tests.test_weft"]
        done = subprocess.run(command, cwd=HERE.parent, env=environment, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_with_a_counting_library(self):
        compiler = shutil.which("cc")
        if not compiler:
            self.skipTest("no C compiler")
        with tempfile.TemporaryDirectory() as folder:
            library = os.path.join(folder, "libcounting.so")
            subprocess.run([compiler, "-shared", "-fPIC", "-o", library, str(HERE / "counting.c")], check=True)
            self.again(library, **{COUNTING: "1"})

    def test_with_the_shim(self):
        if not SHIM.exists():
            self.skipTest("%s is not built" % SHIM)
        self.again(SHIM)


if __name__ == "__main__":
    unittest.main()
