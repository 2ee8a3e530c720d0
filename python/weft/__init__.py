"""Tells weft where the iterations of this program are, so that jobs can share a GPU's memory and time.

    import weft

    for batch in weft.iterations(loader):
        step(batch)

Everything here does nothing, and costs next to nothing, where weft is not present. docs/handover.md says more, also
about PyTorch (weft.torch).
"""

import ctypes

__all__ = ["iteration", "iterations", "managed", "waiting", "yield_"]


def _find(name):
    """The function of libweft.so in this process, or one that returns 0. ctypes lets other threads run meanwhile."""
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return lambda: 0
    function.argtypes = ()
    function.restype = ctypes.c_int
    return function


_iteration = _find("weft_iteration")
_yield = _find("weft_yield")
_managed = _find("weft_managed")
_waiting = _find("weft_waiting")


def iteration():
    """Marks the end of one iteration and the beginning of the next, where the least memory is in use.

    Returns unused memory to the GPU's pool, counts the iteration, and gives the GPU away if somebody waits for it. True
    if the iteration was counted, False where weft is not present.
    """
    return _iteration() == 1


def yield_():
    """Gives the GPU away now if somebody waits for it, without counting an iteration: before a long pause on the host.

    True if it was given away.
    """
    return _yield() == 1


def managed():
    """True if this process runs under weft."""
    return _managed() == 1


def waiting():
    """True if somebody waits for the GPU, or for memory, that this process holds."""
    return _waiting() == 1


class _Iterations:
    def __init__(self, loader, boundary):
        self._loader = loader
        self._boundary = boundary

    def __iter__(self):
        for batch in self._loader:
            yield batch
            del batch  # or it would stay alive while the next one is loaded
            self._boundary()


class _SizedIterations(_Iterations):
    def __len__(self):
        return len(self._loader)


def iterations(loader, boundary=iteration):
    """Iterates over loader and calls boundary() after each pass through the loop's body, before the next batch is loaded.

    A body that ends by break or an exception is not counted, and nothing is called before the first body or after the
    last one's own boundary. loader is any iterable; the result has a length if it has one, and can be iterated as
    often.
    """
    kind = _SizedIterations if hasattr(loader, "__len__") else _Iterations
    return kind(loader, boundary)
