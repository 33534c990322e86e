"""Compile the kernel of edits for GPUs, as Triton does where there is one; run as `python -m`, without one.

Triton's interpreter, which the other tests have, takes what its compiler refuses.
"""

import sys
from types import SimpleNamespace
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

# vLLM's build for CPUs hides Triton's compiler.
sys.modules["vllm.triton_utils"] = SimpleNamespace(tl=tl, triton=triton)  # type: ignore[assignment]

from guided_engine.compat import edits_kernel  # noqa: E402 - after the stand-in
from guided_engine.processors.edits import MOST_IDS  # noqa: E402 - as above

POINTERS = {"logits_ptr": "*fp32", "values_ptr": "*fp32"}


def main() -> None:
    kernel: Any = edits_kernel._edits_kernel
    constants = {"MOST_IDS": MOST_IDS, "BLOCK": edits_kernel._BLOCK}
    signature = {
        name: "constexpr" if name in constants else POINTERS.get(name, "*i32" if "ptr" in name else "i32")
        for name in kernel.arg_names
    }
    for capability in (80, 90, 100):
        source = ASTSource(kernel, signature, constexprs=constants)
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
        sys.stdout.write(f"sm_{capability}: {len(made.asm['cubin'])} bytes\n")


if __name__ == "__main__":
    main()
