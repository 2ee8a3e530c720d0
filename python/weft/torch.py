"""weft for PyTorch: a boundary that also returns the memory that PyTorch caches.

PyTorch keeps freed blocks for itself, so its memory never falls to the trough that an iteration has. At the boundary the
cached blocks are given back to the GPU, by default only when somebody waits for them: to get them again costs time.

This module imports torch nowhere: where a program has not imported it, there are no blocks to return.
"""

import sys

import weft

__all__ = ["attach", "boundary", "release"]

_WHEN = ("waiting", "always", "never")


def release(when="waiting"):
    """Returns the blocks that PyTorch caches and does not use, on every GPU of this process. True if it did.

    when: "waiting" (somebody waits for what this process holds), "always", or "never". Nothing happens before the
    first use of the GPU: that would begin it.
    """
    if when not in _WHEN:
        raise ValueError("when is %r; it must be one of %s" % (when, ", ".join(_WHEN)))
    torch = sys.modules.get("torch")
    if torch is None or when == "never" or (when == "waiting" and not weft.waiting()):
        return False
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return False
    torch.cuda.empty_cache()
    return True


def boundary(when="waiting"):
    """Returns cached blocks as release() does, then marks the iteration as weft.iteration() does."""
    release(when)
    return weft.iteration()


def attach(optimizer, when="waiting"):
    """Marks an iteration after each step of optimizer (PyTorch 2.0 or later). Returns a handle with remove().

    Of several optimizers in one iteration, attach one: the last. Where gradients are accumulated over several batches,
    the step is the iteration.
    """
    if when not in _WHEN:
        raise ValueError("when is %r; it must be one of %s" % (when, ", ".join(_WHEN)))
    register = getattr(optimizer, "register_step_post_hook", None)
    if register is None:
        raise TypeError(
            "%s has no register_step_post_hook (PyTorch 2.0 or later has); "
            "call weft.torch.boundary() after step() instead" % type(optimizer).__name__
        )

    def after_step(_optimizer, _args, _kwargs):
        boundary(when)

    return register(after_step)
